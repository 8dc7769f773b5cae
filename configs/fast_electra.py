# SPDX-License-Identifier: Apache-2.0
"""Fast-ELECTRA (arXiv:2310.07347): a generator trained before, frozen, and hot at first.

    python -m electra_jax.main --config=configs/generator_alone.py:small --workdir=runs/generator
    python -m electra_jax.main --config=configs/fast_electra.py:small --workdir=runs/fast \
        --config.init.generator_from=runs/generator

The temperature falls from 2 towards 1 within the first tenths of the run, which stands in for a
generator that begins weak. Both runs must use one vocabulary: give data.dir the same folder.
"""

from configs import base


def get_config(size="small"):
    """Returns configs/SIZE.py with this objective."""
    config = base.of(size, "fast_electra")
    config.objective.name = "frozen_generator"
    config.objective.update(first_temperature=2.0, temperature_decay=0.1)
    config.model.sharing = "none"  # the frozen generator keeps its own tables
    config.init.generator_from = "runs/generator"
    return config
