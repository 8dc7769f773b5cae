# SPDX-License-Identifier: Apache-2.0
"""Replacements are drawn by token frequency, as in an experiment of the paper's section 3.2.

    python -m electra_jax.main --config=configs/unigram_generator.py:small --workdir=runs/unigram

No network generates, so replaced tokens are easier to detect than in ELECTRA.
"""

from electra_jax.configs import base


def get_config(size="small"):
    """Returns the size with this objective: tiny (tiny_paper.py), small, base or large."""
    config = base.of(size, "unigram_generator")
    config.objective.name = "unigram_generator"
    return config
