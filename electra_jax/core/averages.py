# SPDX-License-Identifier: Apache-2.0
"""Averages that the training state carries between steps: of the weights, and of gradient norms.

Weights: an exponential average that is evaluated instead of the last weights. Its decay grows with
the number n of applied updates, min(decay, (1 + n) / (10 + n)), so that the random first weights
have no more influence after a few dozen updates (the rule of tf.train.ExponentialMovingAverage with
num_updates).

Norms: a decayed mean of the gradient norm. A step whose norm is far above it is a spike. A spike
enters the mean only up to the limit, so a single spike changes the mean little, while a lasting
rise is accepted after some steps.
"""

import jax
from jax import numpy as jnp

NORM_DECAY = 0.99  # the mean covers about the last hundred steps
JUDGED_AFTER = 100  # finite norms before the first is judged: they fall steeply at first


def weights(ema: dict, params: dict, decay: jax.Array | float, updates: jax.Array) -> dict:
    """Returns the averages after one more update; `updates` counts the updates before it."""
    updates = updates.astype(jnp.float32)
    decay = jnp.minimum(decay, (1 + updates) / (10 + updates))
    return jax.tree.map(lambda e, p: e + (1 - decay) * (p - e), ema, params)


def no_norms() -> jax.Array:
    """Returns the start of the mean: (decayed sum, decayed weight, steps), float32 [3]."""
    return jnp.zeros((3,), jnp.float32)


def limit(norms: jax.Array, factor: float) -> jax.Array:
    """Returns the largest norm that is no spike: `factor` times the mean, at first infinite."""
    total, weight, steps = norms
    return jnp.where(steps >= JUDGED_AFTER, factor * total / jnp.maximum(weight, 1e-30), jnp.inf)


def with_norm(norms: jax.Array, norm: jax.Array, limit: jax.Array) -> jax.Array:
    """Returns `norms` after one more finite norm, which counts only up to the limit."""
    total, weight, steps = norms
    total += (1 - NORM_DECAY) * (jnp.minimum(norm, limit) - total)
    weight += (1 - NORM_DECAY) * (1 - weight)
    return jnp.stack([total, weight, steps + 1])
