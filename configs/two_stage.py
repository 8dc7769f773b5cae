# SPDX-License-Identifier: Apache-2.0
"""Two-stage training, section 3.2 of the paper: first a generator, then a discriminator from it.

    python -m electra_jax.main --config=configs/two_stage.py:small,generator --workdir=runs/stage_1
    python -m electra_jax.main --config=configs/two_stage.py:small,discriminator \
        --workdir=runs/stage_2

Both networks have the same shape. In the second run both start from the weights of the first, and
the generator is frozen. In the paper a discriminator with fresh weights sometimes learned nothing.
Both runs must have the same vocabulary: give both the same folder as data.dir.
"""

from electra_jax.configs import base


def get_config(size_and_stage="small,generator"):
    """Returns configs/SIZE.py for one of the two runs, 'generator' or 'discriminator'."""
    size, stage = size_and_stage.split(",")
    config = base.of(size, f"two_stage_{stage}")
    config.objective.mask_token_rate = 1.0  # every slot becomes [MASK]
    config.model.generator = config.model.discriminator.copy_and_resolve_references()

    if stage == "generator":
        config.objective.name = "masked_lm"
        return config

    config.objective.name = "frozen_generator"
    config.model.sharing = "none"  # each network has its own tables, equal at the start
    config.init["from"] = config.init.generator_from = "runs/stage_1"
    return config
