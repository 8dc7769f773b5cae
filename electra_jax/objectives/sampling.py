# SPDX-License-Identifier: Apache-2.0
"""Exact samples from a distribution over the vocabulary, with two random numbers per sample.

Sampling by Gumbel noise, as in the reference, takes one random number per id of the vocabulary.
Here the vocabulary is cut into blocks of 128 ids. One uniform number picks a block by its mass and
a second one picks an id inside the block, both by inverting a cumulative sum. All in float32.

    WithGenerator.generate -> Objective.predict_and_sample -> vocabulary_softmax.predict_and_sample,
    which has the mass of each block -> from_blocks -> ids

Several ids for one slot, none twice, come from `distinct_from_blocks`.

    G  blocks      I  ids of a block      O  ids that are offered at a slot
"""

from collections.abc import Callable

import jax
from jax import numpy as jnp

BLOCK = 128  # ids in a block; the vocabulary is padded to a multiple of it
LEAST = 1e-30  # share of the largest mass that what may be drawn keeps, however unlikely it is


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


def distinct_from_blocks(
    keys_B: jax.Array,
    mass_BNG: jax.Array,
    mass_of: Callable[[jax.Array, jax.Array], jax.Array],
    first_BN: jax.Array,
    *,
    more: int,
) -> jax.Array:
    """Draws ids without replacement: `more` for each slot besides one that is given.

    Each is drawn in proportion to the masses of those that are left. The ids with the largest
    scores after Gumbel noise are distributed in the same way.

    Args:
      mass_BNG: as in `from_blocks`, from `not_vanishing`.
      mass_of: maps the drawn block_BN and the ids that are taken, int32 [B, N, O] with -1 for none,
        to the masses [B, N, 128] inside these blocks, on any scale: at least `LEAST` for ids that
        may be drawn, 0 for all others and for those that are taken.
      first_BN: the id that is given.

    Returns:
      int32 [B, N, 1 + more]: the given id, and the others in the order in which they were drawn.
    """
    n = mass_BNG.shape[1]
    uniforms_BON2 = jax.vmap(lambda key: jax.random.uniform(key, (more, n, 2)))(keys_B)

    def take(id_BN, inside_BNI, mass_BNG):
        """The masses of the blocks when this id is gone; `inside_BNI` are those with it."""
        is_it_BNI = jnp.arange(BLOCK) == (id_BN % BLOCK)[..., None]
        left_BN = jnp.where(is_it_BNI, 0, inside_BNI).sum(-1)
        share_BN = left_BN / jnp.maximum(inside_BNI.sum(-1), LEAST)
        is_its_BNG = jnp.arange(mass_BNG.shape[-1]) == (id_BN // BLOCK)[..., None]
        emptied_BNG = is_its_BNG & (left_BN == 0)[..., None]
        drawable_BNG = (mass_BNG > 0) & ~emptied_BNG
        return not_vanishing(mass_BNG * jnp.where(is_its_BNG, share_BN[..., None], 1), drawable_BNG)

    def draw(carry, step):
        mass_BNG, taken_BNO = carry
        place, uniforms_BN2 = step
        block_BN = _invert(mass_BNG, uniforms_BN2[..., 0])
        inside_BNI = mass_of(block_BN, taken_BNO)
        id_BN = block_BN * BLOCK + _invert(inside_BNI, uniforms_BN2[..., 1])
        return (take(id_BN, inside_BNI, mass_BNG), taken_BNO.at[..., place].set(id_BN)), None

    none_BNO = jnp.full((*first_BN.shape, 1 + more), -1, jnp.int32)
    mass_BNG = take(first_BN, mass_of(first_BN // BLOCK, none_BNO), mass_BNG)
    begun = mass_BNG, none_BNO.at[..., 0].set(first_BN)
    steps = 1 + jnp.arange(more), jnp.moveaxis(uniforms_BON2, 1, 0)
    (_, taken_BNO), _ = jax.lax.scan(draw, begun, steps)
    return taken_BNO


def not_vanishing(mass_BNG: jax.Array, drawable_BNG: jax.Array) -> jax.Array:
    """The masses of blocks as shares of the largest one, at least `LEAST` where there is an id."""
    return jnp.maximum(mass_BNG / mass_BNG.max(-1, keepdims=True), LEAST) * drawable_BNG


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
