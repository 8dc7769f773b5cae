# SPDX-License-Identifier: Apache-2.0
"""Electric (Clark et al. 2020): one energy per token, so that one pass scores a sentence.

    python -m electra_jax.main --config=configs/electric.py:small --workdir=runs/electric
    python -m electra_jax.score --workdir=runs/electric --input=sentences.txt

The second command scores the sentences of a file, one per line.
"""

from electra_jax.configs import base


def get_config(size="small"):
    """Returns the size with this objective: tiny (tiny_paper.py), small, base or large."""
    config = base.of(size, "electric")
    config.objective.name = "electric"

    # Each of the generator's two towers is a quarter as wide as the main network, as in the paper.
    main = config.model.discriminator
    width = max(32, main.width // 4)
    config.model.generator.update(
        layers=main.layers, width=width, heads=max(1, width // 64), feed_forward=4 * width
    )
    return config
