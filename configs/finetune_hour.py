# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning for an encoder that was trained for about an hour, as by configs/hour.py.

    python -m electra_jax.finetune --workdir=runs/hour --config=configs/finetune_hour.py \
        --config.tasks=sst2

The published recipe suits encoders trained for days on an accelerator; an encoder trained for an
hour gains little from it (docs/LOG.md, 2026-11-25). docs/experiments/hour.md has what this one
gives.
"""

from electra_jax.configs import finetune


def get_config():
    """Returns configs/finetune.py with another head, no dropout in the encoder, a higher rate."""
    config = finetune.get_config()
    config.name, config.tasks = "hour", "sst2"
    config.recipe.head = "mean"  # [CLS] was not trained to summarise its row
    config.recipe.update(dropout=0.0, attention_dropout=0.0)  # as it was trained
    config.recipe.learning_rate = 5e-4  # peak; for tags, as chunking, 1e-3
    config.recipe.epochs = 3
    config.recipe.both_orders = "off"  # half the time
    return config
