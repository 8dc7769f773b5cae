# SPDX-License-Identifier: Apache-2.0
"""All-Tokens MLM, table 5 of the paper: every original token is predicted, with a copy gate.

    python -m electra_jax.main --config=configs/all_tokens_mlm.py:small --workdir=runs/all_tokens

The paper's base-size model reaches a GLUE average of 84.3, where ELECTRA has 85.0 and BERT 82.2.
docs/experiments/table_5.md has the same comparison at the size of `tiny`.
"""

from electra_jax.configs import base


def get_config(size="small"):
    """Returns the size with this objective: tiny (tiny_paper.py), small, base or large."""
    config = base.of(size, "all_tokens_mlm")
    config.objective.name = "all_tokens_mlm"
    config.objective.mlm_weight = 1.0  # its loss is a mean over all tokens, most of them copied
    return config
