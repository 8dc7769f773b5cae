# SPDX-License-Identifier: Apache-2.0
"""Averages that a state carries from step to step: of the weights, and of the gradient's norm.

Weights: the exponential average that is evaluated instead of the last weights. Its decay grows
with the number n of applied updates, min(decay, (1 + n) / (10 + n)), so that the first weights,
which are noise, are gone after some dozen updates (the rule of tf.train.ExponentialMovingAverage
with num_updates).

Norms: what a step's gradient norm is held against to tell a spike. A spike enters the mean as the
most that was allowed, so one alone moves little, and a lasting rise is accepted after a while.
"""

import jax
from jax import numpy as jnp

NORM_DECAY = 0.99  # the mean looks back some hundred steps
JUDGED_AFTER = 100  # steps before the first is judged: norms fall steeply in the beginning


def weights(ema: dict, params: dict, decay: jax.Array | float, updates: jax.Array) -> dict:
    """The averages after one more applied update; `updates` counts those before it."""
    updates = updates.astype(jnp.float32)
    decay = jnp.minimum(decay, (1 + updates) / (10 + updates))
    return jax.tree.map(lambda e, p: e + (1 - decay) * (p - e), ema, params)


def no_norms() -> jax.Array:
    """Before the first step: (decayed sum, decayed weight, steps), float32 [3]."""
    return jnp.zeros((3,), jnp.float32)


def limit(norms: jax.Array, factor: float) -> jax.Array:
    """The largest norm that is no spike: `factor` times the mean; infinite while that is young."""
    total, weight, steps = norms
    return jnp.where(steps >= JUDGED_AFTER, factor * total / jnp.maximum(weight, 1e-30), jnp.inf)


def with_norm(norms: jax.Array, norm: jax.Array, limit: jax.Array) -> jax.Array:
    """The same after one more finite norm, of which no more than the limit counts."""
    total, weight, steps = norms
    total += (1 - NORM_DECAY) * (jnp.minimum(norm, limit) - total)
    weight += (1 - NORM_DECAY) * (1 - weight)
    return jnp.stack([total, weight, steps + 1])
