# SPDX-License-Identifier: Apache-2.0
"""Replacements are drawn from all tokens with equal probability: the reference's uniform_generator.

    python -m electra_jax.main --config=configs/uniform_generator.py:small --workdir=runs/uniform

No network generates, so replaced tokens are easier to detect than in ELECTRA.
"""

from electra_jax.configs import base


def get_config(size="small"):
    """Returns the size with this objective: tiny (tiny_paper.py), small, base or large."""
    config = base.of(size, "uniform_generator")
    config.objective.name = "uniform_generator"
    return config
