# SPDX-License-Identifier: Apache-2.0
"""Fast-ELECTRA (arXiv:2310.07347): the generator is trained first, then frozen.

    python -m electra_jax.main --config=configs/generator_alone.py:small --workdir=runs/generator
    python -m electra_jax.main --config=configs/fast_electra.py:small --workdir=runs/fast \
        --config.init.generator_from=runs/generator

The frozen generator samples at a temperature that falls from 2 towards 1 in the first tenths of the
run. This replaces a generator that is weak at first and learns along with the discriminator. Both
runs must have the same vocabulary: give both the same folder as data.dir.
"""

from electra_jax.configs import base


def get_config(size="small"):
    """Returns the size with this objective: tiny (tiny_paper.py), small, base or large."""
    config = base.of(size, "fast_electra")
    config.objective.name = "frozen_generator"
    config.objective.update(first_temperature=2.0, temperature_decay=0.1)  # decay: share of the run
    # The frozen generator keeps its own tables. With "gdes" the discriminator adds to them instead
    # of learning all of its own, which made a small one better (docs/experiments/discriminator.md).
    config.model.sharing = "none"
    config.init.generator_from = "runs/generator"  # workdir of the first command
    return config
