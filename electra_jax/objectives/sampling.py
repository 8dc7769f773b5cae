# SPDX-License-Identifier: Apache-2.0
"""Exact samples from a distribution over the vocabulary, with two random numbers per sample.

Sampling by Gumbel noise, as in the reference, takes one random number per id of the vocabulary.
Here the vocabulary is cut into blocks of 128 ids. One uniform number picks a block by its mass and
a second one picks an id inside the block, both by inverting a cumulative sum. All in float32.

    WithGenerator.generate -> Objective.predict_and_sample -> vocabulary_softmax.predict_and_sample,
    which has the mass of each block -> from_blocks -> ids

    G  blocks      I  ids of a block
"""

from collections.abc import Callable

import jax
from jax import numpy as jnp

BLOCK = 128  # ids in a block; the vocabulary is padded to a multiple of it


def from_weights(
    weights_V: jax.Array, keys_B: jax.Array, *, n: int, forbidden_ids: tuple[int, ...]
) -> jax.Array:
    """Draws n ids per row in proportion to `weights_V`, never a forbidden one: int32 [B, N]."""
    forbidden_V = jnp.isin(jnp.arange(len(weights_V)), jnp.array(forbidden_ids, jnp.int32))
    mass_GI = jnp.where(forbidden_V, 0, weights_V).reshape(-1, BLOCK)
    mass_BNG = jnp.broadcast_to(mass_GI.sum(-1), (len(keys_B), n, len(mass_GI)))
    return from_blocks(keys_B, mass_BNG, lambda block_BN: mass_GI[block_BN])


def from_blocks(
    keys_B: jax.Array, mass_BNG: jax.Array, mass_of: Callable[[jax.Array], jax.Array]
) -> jax.Array:
    """Draws one id per slot, a block first and then an id of this block: int32 [B, N].

    Args:
      mass_BNG: the mass of each block, on one scale for all blocks of a slot.
      mass_of: maps the drawn block_BN to the masses [B, N, 128] inside these blocks, on any scale.
    """
    n = mass_BNG.shape[1]
    uniforms_BN2 = jax.vmap(lambda key: jax.random.uniform(key, (2 * n,)))(keys_B).reshape(-1, n, 2)

    block_BN = _invert(mass_BNG, uniforms_BN2[..., 0])
    return block_BN * BLOCK + _invert(mass_of(block_BN), uniforms_BN2[..., 1])


def _invert(mass: jax.Array, uniform: jax.Array) -> jax.Array:
    """The first bin whose cumulative mass is above uniform x total; never a bin without mass."""
    bins = mass.shape[-1]
    cumulative = jnp.cumsum(mass, axis=-1)
    threshold = uniform[..., None] * cumulative[..., -1:]
    places = jnp.arange(bins, dtype=jnp.int32)
    passed = (cumulative > threshold) & (mass > 0)

    # Sums are rounded, so a number close to 1 may pass all bins; then the last one with mass is it.
    first = jnp.where(passed, places, bins).min(-1)
    last = jnp.where(mass > 0, places, -1).max(-1)
    return jnp.minimum(first, last)
