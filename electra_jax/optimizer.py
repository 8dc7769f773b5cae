# SPDX-License-Identifier: Apache-2.0
"""AdamW as the reference runs it, optax's own beside it, and the learning rate.

Reference: google-research/electra optimization.py. Rules go by a parameter's path: biases and
norms do not decay, everything else does, embedding tables included.
"""

import dataclasses
from typing import NamedTuple

import jax
import optax
from jax import numpy as jnp


@dataclasses.dataclass(frozen=True)
class AdamConfig:
    """What both optimizers need; `clip_norm` 0 switches clipping off."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    weight_decay: float = 0.01
    clip_norm: float = 1.0


def reference_adamw(config: AdamConfig) -> optax.GradientTransformation:
    """Clip, Adam WITHOUT bias correction, decoupled decay; the caller multiplies by -rate.

    Without correction the first updates are larger (6.5 times at step 10), which the published
    warmup was tuned for.
    """
    return _chain(config, scale_by_uncorrected_adam(config.beta1, config.beta2, config.epsilon))


def adamw(config: AdamConfig) -> optax.GradientTransformation:
    """The same with optax's bias-corrected Adam; the caller multiplies by -rate."""
    return _chain(config, optax.scale_by_adam(config.beta1, config.beta2, config.epsilon))


def linear_schedule(peak: float, steps: int, warmup_steps: int):
    """rate(step) = peak (1 - step / steps) min(1, step / warmup_steps): decay runs from step 0."""

    def rate(step: jax.Array) -> jax.Array:
        step = jnp.asarray(step, jnp.float32)
        warmup = jnp.minimum(1.0, step / warmup_steps) if warmup_steps else 1.0
        return peak * jnp.maximum(0.0, 1 - step / steps) * warmup

    return rate


def decays(path: str) -> bool:
    """Whether weight decay applies to the parameter at this path."""
    return not (path.endswith("/bias") or "/norm/" in path)


def decay_mask(params: dict) -> dict:
    """The same for a whole tree."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: decays(jax.tree_util.keystr(path, simple=True, separator="/")), params
    )


class UncorrectedAdamState(NamedTuple):
    """First and second moment, each shaped as the parameters."""

    mu: optax.Params
    nu: optax.Params


def scale_by_uncorrected_adam(
    beta1: float, beta2: float, epsilon: float
) -> optax.GradientTransformation:
    """m / (sqrt(v) + epsilon) with plain moving averages from zero; epsilon outside the root."""

    def init(params):
        return UncorrectedAdamState(
            jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params)
        )

    def update(gradients, state, params=None):
        del params
        mu = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state.mu, gradients)
        nu = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, state.nu, gradients)
        updates = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + epsilon), mu, nu)
        return updates, UncorrectedAdamState(mu, nu)

    return optax.GradientTransformation(init, update)


def _chain(config, adam):
    clip = optax.clip_by_global_norm(config.clip_norm) if config.clip_norm else optax.identity()
    return optax.chain(clip, adam, optax.add_decayed_weights(config.weight_decay, decay_mask))
