# SPDX-License-Identifier: Apache-2.0
"""Replace MLM, table 5 of the paper: BERT with tokens from a generator in place of [MASK].

    python -m electra_jax.main --config=configs/replace_mlm.py:small --workdir=runs/replace_mlm

The main network predicts the original tokens at the slots. The paper's base-size model reaches a
GLUE average of 82.4, where ELECTRA has 85.0 and BERT 82.2. docs/experiments/table_5.md has the same
comparison at the size of `tiny`.
"""

from electra_jax.configs import base


def get_config(size="small"):
    """Returns the size with this objective: tiny (tiny_paper.py), small, base or large."""
    config = base.of(size, "replace_mlm")
    config.objective.name = "replace_mlm"
    return config
