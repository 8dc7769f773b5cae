# SPDX-License-Identifier: Apache-2.0
"""BERT's masked language model, the control that every other objective is held against.

    python -m electra_jax.main --config=configs/masked_lm.py:small --workdir=runs/bert_small

Devlin et al. 2019: of the chosen 80 % become [MASK], 10 % a random token, 10 % stay. `small` runs
the 1.45 M steps that the paper gives BERT-Small for ELECTRA-Small's compute.
"""

from configs import base


def get_config(size="small"):
    """Returns configs/SIZE.py with this objective."""
    config = base.of(size, "masked_lm")
    config.objective.name = "masked_lm"
    config.objective.update(mask_token_rate=0.8, random_token_rate=0.1)
    if size == "small":
        config.schedule.steps = 1_450_000
    return config
