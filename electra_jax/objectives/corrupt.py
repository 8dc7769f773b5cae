# SPDX-License-Identifier: Apache-2.0
"""Corruption: choose slots, mask them, sample what goes there, write it back, label the result.

Everything is written for one row and lifted by `vmap`, so no row ever looks at another:

    ids       [CLS]  the   cat   sat   on   the  mat  [SEP]
    slots                   2                5              choose   k of them, no two alike
    masked    [CLS]  the [MASK]  sat   on   the  mat  [SEP] mask     85 %; the rest keep theirs
    sampled               dog               the             sample   from the generator
    corrupted [CLS]  the   dog   sat   on   the  mat  [SEP] replace
    replaced     0    0     1     0    0     0    0     0   a sample equal to the original is real

Source: section 2 of the paper and the reference's pretrain_helpers.py. Departure: the reference
draws slots with replacement and averages the ids of colliding samples; here slots are distinct.
"""

import dataclasses
from collections.abc import Callable

import jax
from jax import lax
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.core import streams

BLOCK = 128  # ids in one block of the two-level draw


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Chosen:
    """The slots of each row that the generator fills; unused slots have weight 0."""

    slots_BN: jax.Array  # int32 places in the row, distinct
    used_BN: jax.Array  # bool
    masked_BN: jax.Array  # bool: shown to the network that predicts as [MASK]
    random_BN: jax.Array  # bool: shown as a token drawn by chance; all others as they were


def slots(mask_rate: float, length: int) -> int:
    """N, the most slots a row can have: 19 of 128, 79 of 512; reference: int((p + 0.005) L)."""
    return max(1, int((mask_rate + 0.005) * length))


def candidates(ids_BL: jax.Array, special_ids: tuple[int, ...]) -> jax.Array:
    """True where a token may be chosen: not padding, [CLS], [SEP] or [MASK]."""
    return ~jnp.isin(ids_BL, jnp.array(special_ids, ids_BL.dtype))


def count(candidates_BL: jax.Array, real_BL: jax.Array, mask_rate: jax.Array, n: int) -> jax.Array:
    """k of each row: min(candidates, N, max(1, round(rate x real tokens))), int32 [B]."""
    wanted_B = jnp.maximum(1, jnp.round(mask_rate * real_BL.sum(1)).astype(jnp.int32))
    return jnp.minimum(jnp.minimum(wanted_B, n), candidates_BL.sum(1, dtype=jnp.int32))


def choose(
    keys_B: jax.Array,
    candidates_BL: jax.Array,
    count_B: jax.Array,
    n: int,
    mask_token_rate: float,
    random_token_rate: float = 0.0,
    starts_BL: jax.Array | None = None,
) -> Chosen:
    """Draws exactly `count` slots a row without replacement; a row without candidates gets none.

    The k highest of uniform scores among the candidates; each chosen slot then becomes [MASK]
    with probability `mask_token_rate`, else a random token with `random_token_rate`.

    Args:
      keys_B: of the stream `mask`.
      starts_BL: where a unit begins that is chosen as a whole, such as `span_starts`; None makes
        every token one. The last unit may be cut, so that k stays exact.
    """

    def one(score_key, keep_key, candidates_L, count, starts_L):
        scores_L = (jax.random.bits(score_key, candidates_L.shape) >> 1).astype(jnp.int32)
        if starts_L is not None:  # every token of a unit has the score of its first
            first_L = lax.cummax(jnp.where(starts_L, jnp.arange(len(starts_L)), 0))
            scores_L = scores_L[first_L]
        # Of equal scores top_k takes the earlier one, so a unit is filled from its start.
        _, slots_N = lax.top_k(jnp.where(candidates_L, scores_L, -1), n)
        used_N = jnp.arange(n) < count
        uniform_N = jax.random.uniform(keep_key, (n,))
        masked_N = used_N & (uniform_N < mask_token_rate)
        random_N = used_N & ~masked_N & (uniform_N < mask_token_rate + random_token_rate)
        return Chosen(slots_N, used_N, masked_N, random_N)

    score_keys_B, keep_keys_B = (streams.part(keys_B, "mask", name) for name in ("scores", "kept"))
    return jax.vmap(one)(score_keys_B, keep_keys_B, candidates_BL, count_B, starts_BL)


def borders(candidates_BL: jax.Array, batch: batch_lib.Batch) -> jax.Array:
    """True where a unit must begin, so that none holds parts of two texts: [B, L] bool.

    Every token that is no candidate stands alone, and the one after it begins anew; so does the
    first of a document and of a segment, whatever stands between them:

        ids       [CLS]  the  cat [SEP] sat down [SEP] [CLS]  no more [SEP]
        documents   1     1    1    1    1    1    1     2     2    2    2
        types       0     0    0    0    1    1    1     0     0    0    0
        borders     x     x    .    x    x    .    x     x     x    .    x
    """

    def changes(x_BL):
        return jnp.pad(x_BL[:, 1:] != x_BL[:, :-1], ((0, 0), (1, 0)), constant_values=True)

    after_none_BL = jnp.pad(~candidates_BL[:, :-1], ((0, 0), (1, 0)), constant_values=True)
    anew_BL = changes(batch.documents_BL) | changes(batch.types_BL)
    return anew_BL | after_none_BL | ~candidates_BL


def span_starts(
    keys_B: jax.Array, starts_BL: jax.Array, borders_BL: jax.Array, mean_words: float
) -> jax.Array:
    """Cuts each row into spans of whole words, geometric in length: [B, L] bool.

    A word begins a new span with probability 1 / mean_words, which makes lengths geometric, as
    SpanBERT draws them (Joshi et al. 2020, section 3.1; theirs end at 10 words, mean 3.8). A span
    ends at the borders of its text, however long it is.

    Args:
      keys_B: of the stream `mask`.
    """
    span_keys_B = streams.part(keys_B, "mask", "spans")
    uniform_BL = jax.vmap(lambda key: jax.random.uniform(key, starts_BL.shape[1:]))(span_keys_B)
    return borders_BL | (starts_BL & (uniform_BL < 1 / mean_words))


def at(array_BL: jax.Array, chosen: Chosen) -> jax.Array:
    """What stands at the slots: [B, N]."""
    return jnp.take_along_axis(array_BL, chosen.slots_BN, axis=1)


def mask(
    ids_BL: jax.Array, chosen: Chosen, mask_id: int, random_ids_BN: jax.Array | None = None
) -> jax.Array:
    """Writes [MASK] at the slots that are masked, and chance tokens where those are given."""
    shown_BN = jnp.where(chosen.masked_BN, mask_id, at(ids_BL, chosen))
    if random_ids_BN is not None:
        shown_BN = jnp.where(chosen.random_BN, random_ids_BN, shown_BN)
    return write(ids_BL, chosen, shown_BN)


def sample(
    keys_B: jax.Array,
    logits_BNV: jax.Array,
    temperature: jax.Array | float,
    forbidden_ids: tuple[int, ...],
) -> jax.Array:
    """Draws one id a slot from softmax(logits / temperature), exactly, never a forbidden id.

    A two-level inverse CDF: one uniform picks a block of 128 ids by its mass, a second picks the
    id inside, so a slot costs two random numbers where a Gumbel draw costs V. All in float32.
    Returns int32 [B, N].
    """
    v = logits_BNV.shape[2]
    if v % BLOCK:
        raise ValueError(f"vocabulary of {v} is not padded to a multiple of {BLOCK}")
    logits_BNV = logits_BNV.astype(jnp.float32) / temperature
    if forbidden_ids:
        forbidden_V = jnp.isin(jnp.arange(v), jnp.array(forbidden_ids))
        logits_BNV = jnp.where(forbidden_V, -jnp.inf, logits_BNV)
    mass_BNV = jnp.exp(logits_BNV - logits_BNV.max(-1, keepdims=True))
    mass_BNGI = mass_BNV.reshape(*mass_BNV.shape[:2], v // BLOCK, BLOCK)

    def mass_of(block_BN):
        return jnp.take_along_axis(mass_BNGI, block_BN[..., None, None], axis=2)[:, :, 0]

    return draw(keys_B, mass_BNGI.sum(-1), mass_of)


def sample_from(
    keys_B: jax.Array, n: int, weights_V: jax.Array, forbidden_ids: tuple[int, ...]
) -> jax.Array:
    """Draws n ids a row from one distribution, in proportion to weights_V; never a forbidden id."""
    forbidden_V = jnp.isin(jnp.arange(len(weights_V)), jnp.array(forbidden_ids, jnp.int32))
    mass_GI = jnp.where(forbidden_V, 0, weights_V).reshape(-1, BLOCK)
    mass_BNG = jnp.broadcast_to(mass_GI.sum(-1), (len(keys_B), n, len(mass_GI)))
    return draw(keys_B, mass_BNG, lambda block_BN: mass_GI[block_BN])


def draw(
    keys_B: jax.Array, mass_BNG: jax.Array, mass_of: Callable[[jax.Array], jax.Array]
) -> jax.Array:
    """The two-level draw itself: ids int32 [B, N] from the masses of the blocks.

    Args:
      mass_BNG: the mass of each block of 128 ids; blocks of one slot are on one scale.
      mass_of: block_BN -> the masses [B, N, 128] inside one block a slot, on any scale.
    """
    n = mass_BNG.shape[1]
    uniforms_BN2 = jax.vmap(lambda key: jax.random.uniform(key, (2 * n,)))(keys_B).reshape(-1, n, 2)
    block_BN = _invert(mass_BNG, uniforms_BN2[..., 0])
    return block_BN * BLOCK + _invert(mass_of(block_BN), uniforms_BN2[..., 1])


def write(ids_BL: jax.Array, chosen: Chosen, values_BN: jax.Array) -> jax.Array:
    """Puts values at the used slots; the row is otherwise untouched."""
    values_BN = jnp.where(chosen.used_BN, values_BN, at(ids_BL, chosen)).astype(ids_BL.dtype)
    return jax.vmap(lambda ids_L, slots_N, values_N: ids_L.at[slots_N].set(values_N))(
        ids_BL, chosen.slots_BN, values_BN
    )


def label(ids_BL: jax.Array, corrupted_BL: jax.Array) -> jax.Array:
    """True where the token differs from the original: a lucky guess counts as real."""
    return ids_BL != corrupted_BL


def _invert(mass: jax.Array, uniform: jax.Array) -> jax.Array:
    """The first bin whose cumulative mass exceeds uniform x total; empty bins are never taken.

    Sums are rounded, so a draw near 1 may pass them all: the last bin with mass then catches it.
    """
    bins = mass.shape[-1]
    cumulative = jnp.cumsum(mass, axis=-1)
    threshold = uniform[..., None] * cumulative[..., -1:]
    places = jnp.arange(bins, dtype=jnp.int32)
    passed = (cumulative > threshold) & (mass > 0)
    first = jnp.where(passed, places, bins).min(-1)
    last = jnp.where(mass > 0, places, -1).max(-1)
    return jnp.minimum(first, last)
