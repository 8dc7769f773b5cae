# SPDX-License-Identifier: Apache-2.0
"""Two-stage training, section 3.2 of the paper: a generator first, then a discriminator from it.

    python -m electra_jax.main --config=configs/two_stage.py:small,generator --workdir=runs/stage_1
    python -m electra_jax.main --config=configs/two_stage.py:small,discriminator \
        --workdir=runs/stage_2

Networks of one shape; the second run begins with the first one's weights in both of them, and the
generator stays as it is. Without that start the paper's discriminator sometimes learnt nothing.
Both runs must use one vocabulary: give data.dir the same folder.
"""

from configs import base


def get_config(size_and_stage="small,generator"):
    """Returns configs/SIZE.py for the stage 'generator' or 'discriminator'."""
    size, stage = size_and_stage.split(",")
    config = base.of(size, f"two_stage_{stage}")
    config.objective.mask_token_rate = 1.0
    config.model.generator = config.model.discriminator.copy_and_resolve_references()
    if stage == "generator":
        config.objective.name = "masked_lm"
        return config
    config.objective.name = "frozen_generator"
    config.model.sharing = "none"  # each network has its own tables, equal at the start
    config.init["from"] = config.init.generator_from = "runs/stage_1"
    return config
