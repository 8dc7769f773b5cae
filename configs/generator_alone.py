# SPDX-License-Identifier: Apache-2.0
"""A generator by itself, to be frozen later: a masked language model of the generator's shape.

    python -m electra_jax.main --config=configs/generator_alone.py:small --workdir=runs/generator

`fast_electra.py` takes it from there.
"""

from configs import base


def get_config(size="small"):
    """Returns configs/SIZE.py with this objective."""
    config = base.of(size, "generator_alone")
    config.objective.name = "masked_lm"
    config.model.discriminator = config.model.generator.copy_and_resolve_references()
    return config
