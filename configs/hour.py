# SPDX-License-Identifier: Apache-2.0
"""An encoder for sixty minutes of training on two CPU cores, on English Wikipedia.

    python -m electra_jax.main --config=configs/hour.py --workdir=runs/hour

This configuration is meant to be improved. `benchmarks/hour.py` measures what a change is worth: it
trains this file for an hour, fine-tunes the encoder on five tasks and keeps a record in
docs/experiments/hour.md. docs/LOG.md has the short trials behind these settings.
"""

from electra_jax.configs import tiny


def get_config():
    """Returns the demo with one trunk for both networks, in a size and on text for an hour."""
    config = tiny.get_config()
    config.name = "hour"
    config.data.update(
        # The first of 41 files: all of them would be downloaded and cut before the hour begins.
        source="hf:wikimedia/wikipedia/20231101.en:train-00000",
        vocab="train:sentencepiece:8192",
        min_document_characters=300,  # shorter ones are mostly stubs
        heldout_fraction=0.005,
    )
    one_trunk(config)
    config.optimizer.disc_muon_learning_rate = 0.0  # one trunk has one rate

    # The time of compiling, evaluating and saving does not count.
    config.schedule.update(budget="minutes", minutes=60.0, steps=1_000_000, warmup_steps=500)
    # Two sentences of MRPC need more than 64 tokens. The number of tokens per step stays the same.
    config.schedule.stages = ((0.8, 128, 32),)  # share of the budget, tokens per row, rows per step
    config.checkpoint.every = 1000  # steps
    config.evaluation.update(every=2000, rows=1024)  # steps; rows per source
    config.logging.update(every=100, report_every=2000)  # steps
    return config


def one_trunk(config):
    """One trunk of 2.4 M weights beside its tables predicts the tokens and detects replacements.

    A step costs 1.8 times the FLOPs of a masked language model with this trunk. The trunk predicts
    tokens as well, and its frozen hidden states predict chunks better (docs/LOG.md). It is
    fine-tuned without dropout, as it was trained: configs/finetune_hour.py.
    """
    config.model.sharing = "all"
    for network in ("discriminator", "generator"):
        config.model[network].update(layers=3, width=256, heads=8, feed_forward=1024)
    config.model.update(embedding_size=256, max_positions=128)
    # Faster than float32 on CPUs with AMX or AVX512-BF16; `electra_jax.benchmark` measures yours.
    config.model.dtype = "bfloat16"
