# SPDX-License-Identifier: Apache-2.0
"""The embedded default: the English documentation that every Python carries, two CPU cores.

python -m electra_jax.main --config=configs/tiny.py
"""

from configs import base


def get_config():
    """Returns base shrunk until two cores leave the unigram plateau in minutes."""
    config = base.get_config()
    config.name = "tiny"
    config.data.update(
        source="builtin",
        vocab="train:sentencepiece:2048",
        heldout_fraction=0.03,
        sequence_length=64,
        batch_size=64,
    )
    config.model.update(embedding_size=128, max_positions=64, initial_scale=0.06)
    config.model.discriminator.update(layers=2, width=128, heads=4, feed_forward=512)
    config.model.generator.update(layers=2, width=128, heads=4, feed_forward=512)
    config.model.update(dropout=0.0, attention_dropout=0.0)
    config.objective.disc_weight = 5.0
    config.optimizer.learning_rate = 1e-3
    config.schedule.update(steps=2000, warmup_steps=200)
    config.checkpoint.every = 250
    config.evaluation.update(every=250, rows=512)
    config.logging.update(every=50, report_every=500)
    return config
