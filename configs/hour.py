# SPDX-License-Identifier: Apache-2.0
"""An encoder for sixty minutes of training on two CPU cores, on English Wikipedia.

    python -m electra_jax.main --config=configs/hour.py --workdir=runs/hour

Any setting may change here. `benchmarks/hour.py` says what a change is worth: it trains this file
for an hour, fine-tunes the encoder on five tasks and keeps a record. No hour has been run yet, so
nothing is known about the result of these settings.
"""

from electra_jax.configs import tiny


def get_config():
    """Returns the demo's trunk and optimizer, at a size and with a text for an hour."""
    config = tiny.get_config()
    config.name = "hour"
    config.data.update(
        source="hf:wikimedia/wikipedia/20231101.en",
        vocab="train:sentencepiece:8192",
        min_document_characters=300,  # shorter ones are mostly stubs
        heldout_fraction=0.005,
    )
    networks(config)

    # The time of compiling, evaluating and saving does not count.
    config.schedule.update(budget="minutes", minutes=60.0, steps=1_000_000, warmup_steps=500)
    config.checkpoint.every = 1000  # steps
    config.evaluation.update(every=2000, rows=1024)  # steps; rows per source
    config.logging.update(every=100, report_every=2000)  # steps
    return config


def networks(config):
    """Both networks are one: what the generator learns of words, the discriminator has too.

    At this size a masked language model learns sooner than a discriminator does
    (docs/experiments/table_5.md), so the encoder gets the losses of both.
    """
    config.objective.name = "replaced_token_detection"
    config.model.sharing = "all"  # section 3.2 of the paper
    for network in ("discriminator", "generator"):
        config.model[network].update(layers=3, width=192, heads=6, feed_forward=768)
    config.model.embedding_size = 192
