# SPDX-License-Identifier: Apache-2.0
"""ELECTRA-Small as published: 13.6M discriminator parameters, 128 tokens per row, 1M steps.

    python -m electra_jax.main --config=configs/small.py --workdir=runs/small

The paper trained it in 4 days on one V100 GPU, to a GLUE average of 79.9 on the dev sets; that run
has not been repeated with this program.
"""

from electra_jax.configs import base


def get_config():
    """Returns base with the small column of the paper's table 6."""
    config = base.get_config()
    config.name = "small"
    config.data.sequence_length = 128  # tokens per row
    config.data.batch_size = 128  # rows per step
    config.model.embedding_size = 128
    config.model.discriminator.update(layers=12, width=256, heads=4, feed_forward=1024)
    config.model.generator.update(layers=12, width=64, heads=1, feed_forward=256)
    config.optimizer.learning_rate = 5e-4  # peak
    config.schedule.steps = 1_000_000
    return config
