# SPDX-License-Identifier: Apache-2.0
"""Goes on from Google's released ELECTRA-Small, in a domain of your own, with words of its own.

    python -m electra_jax.main --config=configs/continue_from_google_small.py \
        --workdir=runs/domain_small

Needs three things beside the program (docs/weights.md has the steps):

    electra_small/         the released archive: the checkpoint's files and vocab.txt
    domain/vocab.txt       a copy of that vocab.txt, with the words of the domain appended
    domain/*.txt, general/*.txt      the texts; a blank line ends a document
"""

from configs import small


def get_config():
    """Returns small with the shapes that were released, and a short, gentle schedule."""
    config = small.get_config()
    config.name = "continue_from_google_small"
    config.init.update({"from": "electra_small"})
    config.init.new_tokens = "mean"  # the appended words begin where their old pieces are
    config.init.optimizer = "fresh"  # 'restored' where the checkpoint still has Adam's moments
    # Three rows of four from the domain; the fourth keeps what the network knew (replay: Ibrahim et
    # al. 2024, arXiv:2403.08763, who also let the rate rise and fall again)
    config.data.source = "text:domain/*.txt@3;text:general/*.txt@1"
    config.data.vocab = "domain/vocab.txt"
    config.data.lower_case = True  # the released vocabulary is uncased,
    config.data.strip_accents = True  # and BERT's uncased tokenizer strips accents
    # The released generator is as wide as the discriminator (its size is 1.0), the paper's is 64
    config.model.generator.update(layers=12, width=256, heads=4, feed_forward=1024)
    config.model.max_positions = 512  # what was released; rows are shorter
    config.data.sequence_length = 128  # as it was trained
    config.data.batch_size = 128  # as it was trained
    # A fifth of the published peak: high enough to move what is new, low enough not to undo in the
    # first steps what a million steps made. Not tuned; try 5e-5 to 3e-4 on held-out metrics.
    config.optimizer.learning_rate = 1e-4
    config.schedule.steps = 50_000  # a twentieth of the first training
    # Up again from 0: without moments the first updates of Adam are all of one size
    config.schedule.warmup_steps = 2_500
    config.schedule.shape = "linear"  # to 0, so that the last weights are settled
    config.evaluation.every = 1_000  # each source by itself: general text tells what is forgotten
    return config
