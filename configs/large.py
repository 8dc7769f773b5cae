# SPDX-License-Identifier: Apache-2.0
"""ELECTRA-Large (the 400k-step run): 334M discriminator parameters, a quarter masked.

python -m electra_jax.main --config=configs/large.py --workdir=runs/large --config.mesh.fsdp=8
"""

from configs import base


def get_config():
    """Returns base with the large column of the paper's table 6."""
    config = base.get_config()
    config.name = "large"
    config.data.batch_size = 2048
    config.model.embedding_size = 1024
    config.model.discriminator.update(layers=24, width=1024, heads=16, feed_forward=4096)
    config.model.generator.update(layers=24, width=256, heads=4, feed_forward=1024)
    config.model.remat = "full"  # 8 rows of 512 fit a 16 GB chip with it, and not without
    config.objective.mask_rate = 0.25
    config.schedule.steps = 400_000
    return config
