# SPDX-License-Identifier: Apache-2.0
"""Which tokens of a row are masked, and writing other tokens in their place.

Rows never depend on one another: every function works on each row by itself.

    ids       [CLS]  the   cat   sat   on   the  mat  [SEP]
    slots                   2                5              choose   k slots, all different
    masked    [CLS]  the [MASK]  sat   on   the  mat  [SEP] mask     85 % of the slots
    sampled               dog               the             (sampled from the generator)
    corrupted [CLS]  the   dog   sat   on   the  mat  [SEP] write
    replaced     0    0     1     0    0     0    0     0   label    a correct sample is original

Source: section 2 of the paper and the reference's pretrain_helpers.py. Departure: the reference
draws slots with replacement and averages the ids of samples that collide; here slots are distinct.
"""

import dataclasses

import jax
from jax import lax
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.core import streams


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Chosen:
    """N slots of each row, of which those with `used` are chosen; the others only pad the array."""

    slots_BN: jax.Array  # int32, positions in the row, all different
    used_BN: jax.Array  # bool
    masked_BN: jax.Array  # bool: shown as [MASK] to the network that predicts
    random_BN: jax.Array  # bool: shown as a random token; any other used slot keeps its token


def max_slots(mask_rate: float, length: int) -> int:
    """N, the most slots that a row can have: 19 of 128 tokens, 79 of 512.

    Reference: int((p + 0.005) L), configure_pretraining.py.
    """
    return max(1, int((mask_rate + 0.005) * length))


def candidates(ids_BL: jax.Array, special_ids: tuple[int, ...]) -> jax.Array:
    """True where a token may be chosen: neither padding nor [CLS], [SEP] or [MASK]."""
    return ~jnp.isin(ids_BL, jnp.array(special_ids, ids_BL.dtype))


def count(
    candidates_BL: jax.Array, real_BL: jax.Array, mask_rate: jax.Array | float, n: int
) -> jax.Array:
    """k of each row: min(candidates, N, max(1, round(rate x real tokens))), int32 [B]."""
    wanted_B = jnp.maximum(1, jnp.round(mask_rate * real_BL.sum(1)).astype(jnp.int32))
    return jnp.minimum(jnp.minimum(wanted_B, n), candidates_BL.sum(1, dtype=jnp.int32))


def choose(
    keys_B: jax.Array,
    candidates_BL: jax.Array,
    count_B: jax.Array,
    starts_BL: jax.Array | None = None,
    *,
    n: int,
    mask_token_rate: float,
    random_token_rate: float = 0.0,
) -> Chosen:
    """Draws exactly `count_B` slots per row without replacement.

    Each candidate gets a random score and the k highest are chosen. A chosen slot becomes [MASK]
    with probability `mask_token_rate`, else a random token with probability `random_token_rate`.

    Args:
      keys_B: of the stream `mask`.
      starts_BL: True where a unit begins that is chosen as a whole, such as a word; None where
        every token is a unit. The last unit may be cut, so that k stays exact.
      n: N, the number of slots in the result.
    """
    score_keys_B = streams.part(keys_B, "mask", "scores")
    scores_BL = jax.vmap(lambda key: jax.random.bits(key, candidates_BL.shape[1:]))(score_keys_B)
    scores_BL = (scores_BL >> 1).astype(jnp.int32)

    if starts_BL is not None:  # every token of a unit takes the score of its first token
        place_BL = lax.broadcasted_iota(jnp.int32, starts_BL.shape, 1)
        first_BL = lax.cummax(jnp.where(starts_BL, place_BL, 0), axis=1)
        scores_BL = jnp.take_along_axis(scores_BL, first_BL, axis=1)

    # Of equal scores top_k takes the earlier one, so a unit is filled from its start.
    _, slots_BN = lax.top_k(jnp.where(candidates_BL, scores_BL, -1), n)
    used_BN = jnp.arange(n) < count_B[:, None]

    kept_keys_B = streams.part(keys_B, "mask", "kept")
    uniform_BN = jax.vmap(lambda key: jax.random.uniform(key, (n,)))(kept_keys_B)
    masked_BN = used_BN & (uniform_BN < mask_token_rate)
    random_BN = used_BN & ~masked_BN & (uniform_BN < mask_token_rate + random_token_rate)

    return Chosen(slots_BN, used_BN, masked_BN, random_BN)


def borders(candidates_BL: jax.Array, batch: batch_lib.Batch) -> jax.Array:
    """True where a unit must begin, so that no unit holds parts of two texts: [B, L] bool.

    A token that is not a candidate is a unit by itself, and so a new unit begins after it. A new
    unit also begins with each document and each segment, whatever stands between them:

        ids       [CLS]  the  cat [SEP] sat down [SEP] [CLS]  no more [SEP]
        documents   1     1    1    1    1    1    1     2     2    2    2
        types       0     0    0    0    1    1    1     0     0    0    0
        borders     x     x    .    x    x    .    x     x     x    .    x
    """

    def changes(x_BL):
        return jnp.pad(x_BL[:, 1:] != x_BL[:, :-1], ((0, 0), (1, 0)), constant_values=True)

    after_special_BL = jnp.pad(~candidates_BL[:, :-1], ((0, 0), (1, 0)), constant_values=True)
    new_text_BL = changes(batch.documents_BL) | changes(batch.types_BL)
    return new_text_BL | after_special_BL | ~candidates_BL


def span_starts(
    keys_B: jax.Array, starts_BL: jax.Array, borders_BL: jax.Array, mean_words: float
) -> jax.Array:
    """Cuts each row into spans of whole words with geometric lengths: [B, L] bool.

    A word begins a new span with probability 1 / mean_words, so that lengths are geometric, as in
    SpanBERT (Joshi et al. 2020, section 3.1; there at most 10 words, mean 3.8). However long a
    span is, it ends at the border of its text.

    Args:
      keys_B: of the stream `mask`.
    """
    span_keys_B = streams.part(keys_B, "mask", "spans")
    uniform_BL = jax.vmap(lambda key: jax.random.uniform(key, starts_BL.shape[1:]))(span_keys_B)
    return borders_BL | (starts_BL & (uniform_BL < 1 / mean_words))


def one_each(
    batch: batch_lib.Batch, places_B: jax.Array, mask_id: int
) -> tuple[batch_lib.Batch, jax.Array, jax.Array]:
    """Masks the token at `places_B` in each row.

    Returns (the masked batch, the places as slots [B, 1], the originals there [B, 1]).
    """
    slots_B1 = places_B[:, None]
    originals_B1 = jnp.take_along_axis(batch.ids_BL, slots_B1, axis=1)
    here_BL = jnp.arange(batch.ids_BL.shape[1]) == slots_B1
    masked_BL = jnp.where(here_BL, mask_id, batch.ids_BL)
    return dataclasses.replace(batch, ids_BL=masked_BL), slots_B1, originals_B1


def at(array_BL: jax.Array, chosen: Chosen) -> jax.Array:
    """The values at the slots: [B, N]."""
    return jnp.take_along_axis(array_BL, chosen.slots_BN, axis=1)


def mask(
    ids_BL: jax.Array, chosen: Chosen, mask_id: int, random_ids_BN: jax.Array | None = None
) -> jax.Array:
    """Writes [MASK] at the masked slots, and the random tokens, if any, at theirs."""
    shown_BN = jnp.where(chosen.masked_BN, mask_id, at(ids_BL, chosen))
    if random_ids_BN is not None:
        shown_BN = jnp.where(chosen.random_BN, random_ids_BN, shown_BN)
    return write(ids_BL, chosen, shown_BN)


def write(ids_BL: jax.Array, chosen: Chosen, values_BN: jax.Array) -> jax.Array:
    """Writes values at the used slots; the rest of the row stays as it is."""
    values_BN = jnp.where(chosen.used_BN, values_BN, at(ids_BL, chosen)).astype(ids_BL.dtype)
    return jax.vmap(lambda ids_L, slots_N, values_N: ids_L.at[slots_N].set(values_N))(
        ids_BL, chosen.slots_BN, values_BN
    )


def label(ids_BL: jax.Array, corrupted_BL: jax.Array) -> jax.Array:
    """True where a token was replaced. A sample that equals the original counts as original."""
    return ids_BL != corrupted_BL
