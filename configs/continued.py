# SPDX-License-Identifier: Apache-2.0
"""Goes on from weights of any kind, on text of your own: shapes and vocabulary are theirs.

    python -m electra_jax.main --config=configs/continued.py:WEIGHTS --workdir=runs/domain \
        --config.data.source='text:domain/*.txt@3;text:general/*.txt@1'

WEIGHTS is a folder of Hugging Face with an ELECTRA or a BERT, hf:OWNER/NAME of the Hub, a workdir,
an export, or a checkpoint of Google's. A network that predicts tokens, as BERT does, becomes the
discriminator, with a fresh head.

--config.data.added_pieces=2000 adds the words to a vocab.txt that shorten this text most.

Three rows of four are from the domain. The fourth is general text, against forgetting, as in
Ibrahim et al. 2024 (arXiv:2403.08763: replay). Each source is evaluated by itself, first before the
first step: the losses on the domain should fall, and those on the general text show how much is
forgotten.
"""

from electra_jax.configs import base
from electra_jax.weights import outline


def get_config(weights=""):
    """Returns a short run at a low rate, with the networks and the vocabulary of the weights."""
    found = outline.read(weights)
    config = base.get_config()
    config.name = "continued"
    config.init["from"] = weights
    config.init.new_tokens = "mean"  # a piece that is added begins as the mean of its old pieces

    config.data.source = "text:domain/*.txt@3;text:general/*.txt@1"
    config.data.update(found.data)  # the vocabulary, and its case

    config.model.update(found.model)
    if found.trained_by:
        config.objective.name = found.trained_by
    elif found.model["discriminator_head"] == "own_layer":
        config.objective.name = "multi_word_selection"  # something must train the last layer
    if found.roles.get("generator") != "predicts":
        # The lowest third of the layers begins as the generator, so that this has a third of the
        # size, as in the paper. A narrower one would begin fresh.
        lowest = max(1, found.model["discriminator"]["layers"] // 3)
        config.model.generator.update(found.model["discriminator"] | {"layers": lowest})
        config.init.missing_generator = "discriminator"
        config.model.update(sharing="embeddings", shared_layers=0)

    # Rows as long as those of the first training; a quarter of the tokens of a step of `base`.
    config.data.sequence_length = min(512, found.longest or config.model.max_positions)
    config.data.batch_size = 32_768 // config.data.sequence_length // 8 * 8  # for up to 8 devices

    # A fifth of the published peaks, `small` and `base`: low enough not to destroy in the first
    # steps what the weights have learned. It was not tuned; try a half to three times as much and
    # compare held-out metrics.
    config.optimizer.learning_rate = 1e-4 if config.model.discriminator.width <= 256 else 4e-5
    config.schedule.steps = 20_000  # 655 million tokens
    # A new warmup: without moments the first updates of Adam all have the same size.
    config.schedule.warmup_steps = 1_000
    config.evaluation.every = 1_000  # steps; often enough to see forgetting early
    return config
