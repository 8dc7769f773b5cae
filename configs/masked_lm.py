# SPDX-License-Identifier: Apache-2.0
"""BERT's masked language model, the baseline for all other objectives.

    python -m electra_jax.main --config=configs/masked_lm.py:small --workdir=runs/bert_small

Devlin et al. 2019: 80 % of the slots become [MASK], 10 % a random token, 10 % keep their token.
With `small` the run has 1.45 M steps, which the paper gives BERT-Small so that its compute is that
of ELECTRA-Small. Their GLUE averages in the paper are 75.1 and 79.9.
"""

from electra_jax.configs import base


def get_config(size="small"):
    """Returns the size with this objective: tiny (tiny_paper.py), small, base or large."""
    config = base.of(size, "masked_lm")
    config.objective.name = "masked_lm"
    config.objective.update(mask_token_rate=0.8, random_token_rate=0.1)
    if size == "small":  # a step without a generator costs less, so there are more of them
        config.schedule.steps = 1_450_000
    return config
