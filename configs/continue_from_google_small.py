# SPDX-License-Identifier: Apache-2.0
"""Continues from Google's released ELECTRA-Small on text of your own domain, with new words.

    python -m electra_jax.main --config=configs/continue_from_google_small.py \
        --workdir=runs/domain_small

It needs the following files:

    electra_small/         the released archive: the checkpoint's files and vocab.txt
    domain/*.txt, general/*.txt      the texts; a blank line ends a document

Each source is evaluated by itself, first before the first step: the losses on `domain` should fall,
and those on `general` show how much is forgotten.
"""

from electra_jax.configs import small


def get_config():
    """Returns small with the shapes that were released, and a short run at a low rate."""
    config = small.get_config()
    config.name = "continue_from_google_small"
    config.init.update({"from": "electra_small"})
    config.init.new_tokens = "mean"  # an added piece begins as the mean of its old ones
    config.init.optimizer = "fresh"  # 'restored' if the checkpoint still has Adam's moments

    # Three rows of four are from the domain. The fourth is general text, against forgetting, as in
    # Ibrahim et al. 2024 (arXiv:2403.08763: replay), who also raise the rate again and lower it.
    config.data.source = "text:domain/*.txt@3;text:general/*.txt@1"
    config.data.vocab = "electra_small/vocab.txt"
    config.data.added_pieces = 2_000  # those that shorten this text most
    config.data.lower_case = True  # the released vocabulary is uncased,
    config.data.strip_accents = True  # and BERT's uncased tokenizer strips accents

    # The released generator is as wide as the discriminator; the paper's has width 64.
    config.model.generator.update(layers=12, width=256, heads=4, feed_forward=1024)
    config.model.max_positions = 512  # as released, although rows are shorter
    config.data.sequence_length = 128  # a quarter of the released model's, for cheaper steps
    config.data.batch_size = 128  # as in the released model's training

    # A fifth of the published peak: high enough to train the new words, low enough not to destroy
    # in the first steps what four million steps have learned. It was not tuned; try 5e-5 to 3e-4
    # and compare held-out metrics.
    config.optimizer.learning_rate = 1e-4
    config.schedule.steps = 50_000  # an eightieth of the original training's
    # A new warmup: without moments the first updates of Adam all have the same size.
    config.schedule.warmup_steps = 2_500
    config.schedule.shape = "linear"  # ends at 0, so that the last weights have settled
    config.evaluation.every = 1_000  # steps; often enough to see forgetting early
    return config
