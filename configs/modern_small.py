# SPDX-License-Identifier: Apache-2.0
"""ELECTRA-Small with methods published since: the paper's size, and a source for every choice.

    python -m electra_jax.main --config=configs/modern_small.py --workdir=runs/modern_small

This has not been run yet, so nothing is known about its result: each choice is taken from the work
that is named beside it.
"""

from electra_jax.configs import base


def get_config():
    """Returns configs/small.py with another trunk, objective and schedule, and longer rows at the
    end."""
    config = base.of("small", "modern")
    config.name = "modern_small"
    trunk(config.model)
    replaced_token_detection(config)
    optimization(config)
    longer_rows(config.schedule)
    config.checkpoint.keep_every = 300_000  # steps; the third one is where the rate begins to fall
    return config


def trunk(model):
    """As in ModernBERT (arXiv:2412.13663) and Cramming (arXiv:2212.14034): stable and fast."""
    # A table of 512 positions would have three quarters untrained after rows of 128 tokens.
    model.positions = "rotary"
    model.norm_place = "pre"  # allows higher rates and a short warmup
    model.feed_forward_kind = "geglu"
    model.discriminator.feed_forward = 704  # two thirds, since geglu has 1.5 times the weights
    model.biases = False  # costs no quality and saves kernels
    model.update(dropout=0.0, attention_dropout=0.0)  # a single epoch does not overfit
    # At 128 and 512 tokens local attention saves little; from 1,024 on set local_window=64.


def replaced_token_detection(config):
    """As in DeBERTaV3 (arXiv:2111.09543), with a mask rate that falls (arXiv:2305.15273)."""
    config.objective.name = "decoupled_detection"
    config.model.sharing = "gdes"  # the two losses do not pull the shared tables different ways
    config.model.discriminator_head = "cls_context"  # so that every token's loss trains [CLS]
    config.model.generator.update(layers=6, width=128, heads=2, feed_forward=352)  # wide, shallow
    config.objective.mask_token_rate = 1.0  # a slot that keeps its token teaches little
    # From 30 % down to 15 %: more slots early in the run, when replaced tokens are easy to detect.
    config.objective.first_mask_rate = 0.3


def optimization(config):
    """AdamW as in Cramming and ModernBERT, with a rate that is constant before it falls."""
    config.optimizer.name = "adamw"  # with bias correction, so that the warmup can be short
    config.optimizer.beta2 = 0.98
    config.optimizer.learning_rate = 1e-3  # peak
    config.optimizer.ema_decay = 0.999  # the averages are evaluated and passed on
    config.schedule.shape = "warmup_stable_decay"  # a run can be lengthened from before the decay
    config.schedule.decay_share = 0.1  # last share of the budget, in which the rate falls
    config.schedule.warmup_steps = 2_000


def longer_rows(schedule):
    """As in BERT (arXiv:1810.04805, appendix A.2): nine tenths of the run on short rows, then long.

    Rows of 128 tokens never show how tokens further apart depend on each other, and SQuAD needs
    that (its rows have 512 tokens). The number of tokens per step stays at 128 x 128, so the
    learning rate still fits. Attention makes these steps a fifth more expensive in FLOPs, which is
    2 % of the whole run.

    The stage begins together with the decay of the rate, as in ModernBERT. So a checkpoint from
    before depends on neither, and the run can be lengthened from it.
    """
    schedule.stages = ((0.9, 512, 32),)  # share of the budget, tokens per row, rows per step
