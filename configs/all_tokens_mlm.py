# SPDX-License-Identifier: Apache-2.0
"""All-Tokens MLM, table 5 of the paper: every original is predicted, with a gate that copies.

python -m electra_jax.main --config=configs/all_tokens_mlm.py:small --workdir=runs/all_tokens
"""

from configs import base


def get_config(size="small"):
    """Returns configs/SIZE.py with this objective."""
    config = base.of(size, "all_tokens_mlm")
    config.objective.name = "all_tokens_mlm"
    config.objective.mlm_weight = 1.0  # of a mean over all tokens, most of which are copied
    return config
