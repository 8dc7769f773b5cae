# SPDX-License-Identifier: Apache-2.0
"""Replacements drawn from all words alike: the reference's uniform_generator.

python -m electra_jax.main --config=configs/uniform_generator.py:small --workdir=runs/uniform
"""

from configs import base


def get_config(size="small"):
    """Returns configs/SIZE.py with this objective."""
    config = base.of(size, "uniform_generator")
    config.objective.name = "uniform_generator"
    return config
