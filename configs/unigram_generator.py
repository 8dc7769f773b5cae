# SPDX-License-Identifier: Apache-2.0
"""Replacements drawn by word frequency, which section 3.2 of the paper tries.

python -m electra_jax.main --config=configs/unigram_generator.py:small --workdir=runs/unigram
"""

from configs import base


def get_config(size="small"):
    """Returns configs/SIZE.py with this objective."""
    config = base.of(size, "unigram_generator")
    config.objective.name = "unigram_generator"
    return config
