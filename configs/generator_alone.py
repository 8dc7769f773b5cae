# SPDX-License-Identifier: Apache-2.0
"""Trains a generator by itself: a masked language model with the generator's shape.

    python -m electra_jax.main --config=configs/generator_alone.py:small --workdir=runs/generator

`fast_electra.py` then freezes it and trains a discriminator with it.
"""

from electra_jax.configs import base


def get_config(size="small"):
    """Returns the size with this objective: tiny (tiny_paper.py), small, base or large."""
    config = base.of(size, "generator_alone")
    config.objective.name = "masked_lm"
    # A masked language model trains the main network, which lies in discriminator/.
    config.model.discriminator = config.model.generator.copy_and_resolve_references()
    return config
