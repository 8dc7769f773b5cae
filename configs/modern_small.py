# SPDX-License-Identifier: Apache-2.0
"""ELECTRA-Small as we would begin it today: the paper's size, and a reason for every line.

    python -m electra_jax.main --config=configs/modern_small.py --workdir=runs/modern_small

No run of this size stands behind it yet: each choice is from the work that it names.
"""

from configs import base


def get_config():
    """Returns configs/small.py with another trunk, another way of sharing and other schedules."""
    config = base.of("small", "modern")
    config.name = "modern_small"
    trunk(config.model)
    replaced_token_detection(config)
    optimization(config)
    return config


def trunk(model):
    """ModernBERT (arXiv:2412.13663) and Cramming (arXiv:2212.14034): stable, fast, few tricks."""
    model.positions = "rotary"  # no table to outgrow: 512 tokens later cost no new parameters
    model.norm_place = "pre"  # bears higher rates and a short warmup
    model.feed_forward_kind = "geglu"  # two thirds of the width, so that parameters stay
    model.discriminator.feed_forward = 704
    model.biases = False  # nothing lost, kernels saved
    model.update(dropout=0.0, attention_dropout=0.0)  # one epoch does not overfit
    # At 128 tokens local attention saves nothing; from 1,024 on set local_window=64.


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
