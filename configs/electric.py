# SPDX-License-Identifier: Apache-2.0
"""Electric (Clark et al. 2020): an energy for every token, to score sentences in one pass.

python -m electra_jax.main --config=configs/electric.py:small --workdir=runs/electric
python -m electra_jax.score --workdir=runs/electric --input=sentences.txt
"""

from configs import base


def get_config(size="small"):
    """Returns configs/SIZE.py with this objective; each tower a quarter as wide (the paper)."""
    config = base.of(size, "electric")
    config.objective.name = "electric"
    main = config.model.discriminator
    width = max(32, main.width // 4)
    config.model.generator.update(
        layers=main.layers, width=width, heads=max(1, width // 64), feed_forward=4 * width
    )
    return config
