# SPDX-License-Identifier: Apache-2.0
"""Attention of whole rows in one kernel, with dropout of probabilities; Pallas, for TPUs.

A program has some heads of one row: query, key and value [L, heads K] and, for the dropout, random
words. Scores and probabilities live in the chip's own memory, a quarter of the queries at a time,
and are computed again in the backward pass. Nothing of the size of the scores is written, and of
that size only the random numbers are read, one byte each.

    words [L / 4, M]      the four bytes of a word decide for one key and
      byte 0  queries    0 .. L/4      one query of each quarter, as in
      byte 1  queries  L/4 .. L/2      `layers.draw`
      ...

Splash attention cuts rows into blocks and skips what no query sees, but drops no probabilities.
Rows of at most 512 tokens need no blocks: a quarter of their scores takes a quarter of a MiB.

    Q  queries of a quarter     D  columns of a program's heads     R  rows of random words
"""

import dataclasses
import functools
import math
from collections.abc import Iterable

import jax
from jax import numpy as jnp
from jax.experimental import pallas as pl

LANES = 128  # of a TPU's registers
HIDDEN = -1e9  # a score that softmax turns into exactly 0 in float32
_QUARTERS = 4

# What fits into the memory of a core, in float32 too, by the compilers of v4, v5e, v5p and v6e.
_LONGEST = 512  # tokens in a row
_WIDEST = {1: 256, 2: 192, 3: 192, 4: 128}  # heads of a program -> its lanes
_MOST_HEADS = {8: 4, 32: 2}  # random bits of a decision -> heads of a program


@dataclasses.dataclass(frozen=True)
class KernelSettings:
    """What is known of a layer's attention before it is compiled."""

    heads: int
    drop_below: int = 0  # a byte or word below this drops a probability; 0: none is dropped
    bits: int = 8  # random bits per decision: 8 or 32
    window: int = 0  # tokens seen on each side; 0: the whole document
    direction: str = "both"  # 'left_to_right': a query sees no key after it; 'right_to_left'
    interpret: bool = False  # run by XLA on any device, for tests

    @property
    def keep_probability(self) -> float:
        """The probability with which dropout keeps an attention weight."""
        return 1 - self.drop_below / 2**self.bits


def refused(length: int, shapes: Iterable[tuple[int, int]], bits: int) -> str:
    """Returns why rows of this length, or networks of these (heads, K), have no kernel; or ''."""
    if length % LANES or length > _LONGEST:
        return f"needs rows of a multiple of {LANES} tokens, at most {_LONGEST}, not of {length}"
    for heads, size in shapes:
        together = heads_together(heads, size)
        if size * together > _WIDEST.get(together, 0):
            return (
                f"needs heads of which one to four fill {LANES} lanes, such as 2 of 64, not"
                f" {heads} heads of {size}"
            )
        if together > _MOST_HEADS[bits]:
            return (
                f"needs model.dropout_bits=8 for {heads} heads of {size}, {together} of which it"
                f" computes together, not {bits}"
            )
    return ""


def heads_together(heads: int, size: int) -> int:
    """Returns how many heads of size K one program has: the fewest that fill the lanes, or all."""
    for count in range(1, heads):
        if heads % count == 0 and size * count % LANES == 0:
            return count
    return heads


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attend(
    settings: KernelSettings,
    query_BLD: jax.Array,
    key_BLD: jax.Array,
    value_BLD: jax.Array,
    documents_BL: jax.Array,
    words: jax.Array | None,
) -> jax.Array:
    """Returns the mixed values [B, L, H K] of all heads.

    Args:
      query_BLD: [B, L, H K], head after head; so are key_BLD and value_BLD.
      documents_BL: a query sees the keys of its document; padding (0) sees all tokens, as in
        `attention.visible`.
      words: from `layers.draw`, uint32 [B, H, L / 4, L] with 8 bits per decision, [B, H, L, L]
        with 32; None drops nothing.
    """
    return _forward(settings, query_BLD, key_BLD, value_BLD, documents_BL, words)[0]


def _forward(settings, query_BLD, key_BLD, value_BLD, documents_BL, words):
    given = query_BLD, key_BLD, value_BLD, documents_BL, words
    call = _Call.of(settings, query_BLD, words)
    (mixed_BLD,) = call.run(_mix, 1, *given)
    return mixed_BLD, given


def _backward(settings, given, gradient_BLD):
    query_BLD, key_BLD, value_BLD, documents_BL, words = given
    call = _Call.of(settings, query_BLD, words)
    gradients = call.run(_gradients, 3, *given, gradient_BLD.astype(query_BLD.dtype))
    return *gradients, None, None


attend.defvjp(_forward, _backward)


@dataclasses.dataclass(frozen=True)
class _Call:
    """How the work is cut: a program for each row and each group of heads that fills the lanes."""

    settings: KernelSettings
    rows: int
    length: int
    size: int  # K
    together: int  # heads of a program

    @classmethod
    def of(cls, settings, query_BLD, words):
        assert (words is None) == (settings.drop_below == 0), "words are for dropout"
        rows, length, width = query_BLD.shape
        size = width // settings.heads
        return cls(settings, rows, length, size, heads_together(settings.heads, size))

    def run(self, kernel, results, query_BLD, key_BLD, value_BLD, documents_BL, words, *more):
        """Runs a kernel on all rows and heads; `results` arrays of the query's shape."""
        columns = self.size * self.together
        of_heads = pl.BlockSpec((None, self.length, columns), lambda row, group: (row, 0, group))
        # The documents of a row as its queries and as its keys have them.
        as_queries = pl.BlockSpec((None, self.length, 1), lambda row, group: (row, 0, 0))
        as_keys = pl.BlockSpec((None, 1, self.length), lambda row, group: (row, 0, 0))
        specs = [as_queries, as_keys, *[of_heads] * (3 + len(more))]
        inputs = [documents_BL[:, :, None], documents_BL[:, None], query_BLD, key_BLD, value_BLD]
        inputs += more
        if words is not None:
            shape = (None, self.together, *words.shape[2:])
            specs.append(pl.BlockSpec(shape, lambda row, group: (row, group, 0, 0)))
            inputs.append(words)

        made = jax.ShapeDtypeStruct(query_BLD.shape, query_BLD.dtype)
        return pl.pallas_call(
            functools.partial(kernel, self),
            out_shape=[made] * results,
            grid=(self.rows, self.settings.heads // self.together),
            in_specs=specs,
            out_specs=[of_heads] * results,
            interpret=self.settings.interpret,
        )(*inputs)

    # Parts of both kernels. `quarter` is the number of a quarter of the queries, 0 to 3, and `head`
    # that of a head within the program; each head occupies K of the lanes.

    def queries(self, quarter):
        """Which of the row's tokens they are."""
        count = self.length // _QUARTERS
        return pl.ds(quarter * count, count)

    def of_head(self, head, x):
        """x where it belongs to the head, 0 in the lanes of others."""
        if self.together == 1:
            return x
        lane = jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)
        first = head * self.size
        return jnp.where((lane >= first) & (lane < first + self.size), x, jnp.zeros_like(x))

    def visible(self, quarter, of_queries, of_keys):
        """Which keys these queries see, bool [L / 4, M], from documents [L, 1] and [1, M]."""
        query_Q1, key_1M = of_queries[self.queries(quarter)], of_keys[...]
        seen = ((query_Q1 == key_1M) | (query_Q1 == 0)) & (key_1M > 0)
        shape = (self.length // _QUARTERS, self.length)
        first = quarter * shape[0]
        ahead = jax.lax.broadcasted_iota(jnp.int32, shape, 1) - first
        ahead -= jax.lax.broadcasted_iota(jnp.int32, shape, 0)
        if self.settings.window:
            seen &= abs(ahead) <= self.settings.window
        if self.settings.direction == "left_to_right":
            seen &= ahead <= 0
        if self.settings.direction == "right_to_left":
            seen &= ahead >= 0
        return seen

    def probabilities(self, query_QD, key_MD, seen_QM):
        """The softmax of the scores, float32 [L / 4, M]."""
        scores_QM = _dot(query_QD, key_MD, 1, 1) * (1 / math.sqrt(self.size))
        scores_QM = jnp.where(seen_QM, scores_QM, HIDDEN)
        grown_QM = jnp.exp(scores_QM - scores_QM.max(1, keepdims=True))
        return grown_QM / grown_QM.sum(1, keepdims=True)

    def dropped(self, quarter, head, words, x_QM):
        """x divided by the share that is kept, and 0 where it is dropped."""
        if not words:
            return x_QM
        (words_HRM,) = words
        if self.settings.bits == 8:
            drawn_QM = (words_HRM[head] >> jnp.uint32(8 * quarter)) & jnp.uint32(255)
        else:
            drawn_QM = words_HRM[head, self.queries(quarter)]
        kept_QM = drawn_QM >= jnp.uint32(self.settings.drop_below)
        return jnp.where(kept_QM, x_QM * (1 / self.settings.keep_probability), 0.0)


def _mix(call, of_queries, of_keys, query, key, value, *words_and_result):
    *words, mixed = words_and_result
    key_MD, value_MD = key[...], value[...]
    for quarter in range(_QUARTERS):
        seen_QM = call.visible(quarter, of_queries, of_keys)
        query_QD = query[call.queries(quarter)]
        mixed_QD = jnp.zeros(query_QD.shape, jnp.float32)
        for head in range(call.together):
            p_QM = call.probabilities(call.of_head(head, query_QD), key_MD, seen_QM)
            dropped_QM = call.dropped(quarter, head, words, p_QM).astype(value_MD.dtype)
            mixed_QD += call.of_head(head, _dot(dropped_QM, value_MD, 1, 0))
        mixed[call.queries(quarter)] = mixed_QD.astype(mixed.dtype)


def _gradients(call, of_queries, of_keys, query, key, value, gradient, *words_and_results):
    *words, of_query, of_key, of_value = words_and_results
    key_MD, value_MD = key[...], value[...]
    of_key_MD = of_value_MD = jnp.zeros(key_MD.shape, jnp.float32)
    for quarter in range(_QUARTERS):
        seen_QM = call.visible(quarter, of_queries, of_keys)
        query_QD, gradient_QD = query[call.queries(quarter)], gradient[call.queries(quarter)]
        of_query_QD = jnp.zeros(query_QD.shape, jnp.float32)
        for head in range(call.together):
            # 0 in the lanes of other heads, so sums over lanes and products with it are the head's.
            query_here, gradient_here = (call.of_head(head, x) for x in (query_QD, gradient_QD))
            p_QM = call.probabilities(query_here, key_MD, seen_QM)
            dropped_QM = call.dropped(quarter, head, words, p_QM)
            of_value_MD += _dot(dropped_QM.astype(value_MD.dtype), gradient_here, 0, 0)

            # The gradient of softmax is p (dp - sum p dp), and p dp is dropped d_dropped.
            flow_QM = dropped_QM * _dot(gradient_here, value_MD, 1, 1)
            of_scores_QM = flow_QM - p_QM * flow_QM.sum(1, keepdims=True)
            of_scores_QM = (of_scores_QM * (1 / math.sqrt(call.size))).astype(key_MD.dtype)
            of_query_QD += call.of_head(head, _dot(of_scores_QM, key_MD, 1, 0))
            of_key_MD += _dot(of_scores_QM, query_here, 0, 0)
        of_query[call.queries(quarter)] = of_query_QD.astype(of_query.dtype)

    of_key[...] = of_key_MD.astype(of_key.dtype)
    of_value[...] = of_value_MD.astype(of_value.dtype)


def _dot(a, b, of_a, of_b):
    """Sums over dimension `of_a` of one and `of_b` of the other, in float32."""
    return jax.lax.dot_general(
        a, b, (((of_a,), (of_b,)), ((), ())), preferred_element_type=jnp.float32
    )
