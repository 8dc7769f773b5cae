# SPDX-License-Identifier: Apache-2.0
"""ELECTRA-Small as we would begin it today: the paper's size, and a reason for every line.

    python -m electra_jax.main --config=configs/modern_small.py --workdir=runs/modern_small

No run of this size stands behind it yet: each choice is from the work that it names.
"""

from configs import base


def get_config():
    """Returns configs/small.py with another trunk, another way of sharing, other schedules, and
    longer rows at the end."""
    config = base.of("small", "modern")
    config.name = "modern_small"
    trunk(config.model)
    replaced_token_detection(config)
    optimization(config)
    longer_rows(config.schedule)
    config.checkpoint.keep_every = 300_000  # the third is where the rate begins to fall
    return config


def trunk(model):
    """ModernBERT (arXiv:2412.13663) and Cramming (arXiv:2212.14034): stable, fast, few tricks."""
    model.positions = "rotary"  # no table, of which 128 tokens would leave three quarters untrained
    model.norm_place = "pre"  # bears higher rates and a short warmup
    model.feed_forward_kind = "geglu"  # two thirds of the width, so that parameters stay
    model.discriminator.feed_forward = 704
    model.biases = False  # nothing lost, kernels saved
    model.update(dropout=0.0, attention_dropout=0.0)  # one epoch does not overfit
    # At 128 and 512 tokens local attention saves little; from 1,024 on set local_window=64.


def replaced_token_detection(config):
    """DeBERTaV3 (arXiv:2111.09543): no tug of war in the tables, and [CLS] hears of every token."""
    config.objective.name = "decoupled_detection"
    config.model.sharing = "gdes"
    config.model.discriminator_head = "cls_context"
    config.model.generator.update(layers=6, width=128, heads=2, feed_forward=352)  # wide, shallow
    config.objective.mask_token_rate = 1.0  # a slot that keeps its token teaches little
    # More slots early, when samples are easily told apart: 30 % falling to 15 (arXiv:2305.15273).
    config.objective.first_mask_rate = 0.3


def optimization(config):
    """Cramming's and ModernBERT's AdamW; a rate that can be held and then brought down."""
    config.optimizer.name = "adamw"  # bias-corrected, so that warmup can be short
    config.optimizer.beta2 = 0.98
    config.optimizer.learning_rate = 1e-3
    config.optimizer.ema_decay = 0.999  # averages are evaluated and handed on
    config.schedule.shape = "warmup_stable_decay"  # goes on from before the decay at no loss
    config.schedule.decay_share = 0.1
    config.schedule.warmup_steps = 2_000


def longer_rows(schedule):
    """BERT (arXiv:1810.04805, appendix A.2): nine tenths of the run on short rows, then long."""
    # Rows of 128 tokens never show what lies further apart, which SQuAD asks for (512 when it is
    # tuned). As many tokens a step as before, 128 x 128, so that the rate still fits; a fifth more
    # FLOPs there, 2 % in all. It begins with the decay, as ModernBERT decays on its long rows: a
    # checkpoint from before has no trace of either, and the run can be lengthened from it.
    schedule.stages = ((0.9, 512, 32),)
