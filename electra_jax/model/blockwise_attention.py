# SPDX-License-Identifier: Apache-2.0
"""Attention block by block in one kernel, with dropout of probabilities; Pallas, for GPUs.

A program of the forward pass has a block of queries of one head of one row, and goes through the
keys block by block with a running softmax (FlashAttention, Dao et al. 2022): scores and
probabilities never leave the multiprocessor. The backward pass computes them again from the
logarithm of the sums that the forward pass kept; a program has a block of keys, whose gradients it
adds up over the queries, and then the block of queries of the same number.

    joined [L, 3, H, K]   query, key and value as the joined product made them, and their
                          gradients as its backward pass takes them: nothing is cut or put together
    drawn [L, L]          the random number of each query and key, one byte each

Nothing of the size of the scores is written, and of that size only the random numbers are read. It
is the sibling of `fused_attention`, whose programs keep whole rows in a TPU's own memory.

    Q  queries of a block     M  keys of a block
"""

import dataclasses
import functools
import math
from collections.abc import Iterable

import jax
from jax import lax
from jax import numpy as jnp
from jax.experimental import pallas as pl

from electra_jax.model import pallas_triton
from electra_jax.model.fused_attention import HIDDEN

_BLOCK = 64  # tokens, the fewest of a block
_SIZES = 16, 32, 64, 128  # of a head: powers of 2 that Triton multiplies
_LOG2_E = math.log2(math.e)  # a GPU computes powers of 2


@dataclasses.dataclass(frozen=True)
class Blocks:
    """How a kernel cuts a row, and how a GPU runs it."""

    held: int = 64  # tokens of a program's own block: queries forward; keys, then queries backward
    step: int = 64  # tokens of the other side that one iteration of its loop reads
    warps: int = 4
    stages: int = 3  # iterations whose loads are in flight at the same time


@dataclasses.dataclass(frozen=True)
class KernelSettings:
    """What is known of a layer's attention before it is compiled."""

    drop_below: int = 0  # a random number below this drops a probability; 0: none is dropped
    bits: int = 8  # of a random number
    window: int = 0  # tokens seen on each side; 0: the whole document
    direction: str = "both"  # 'left_to_right': a query sees no key after it; 'right_to_left'
    forward: Blocks | None = None  # None: `fastest_blocks`
    backward: Blocks | None = None
    interpret: bool = False  # run by XLA on any device, for tests

    @property
    def keep_probability(self) -> float:
        """The probability with which dropout keeps an attention weight."""
        return 1 - self.drop_below / 2**self.bits


def fastest_blocks(head_bytes: int, bits: int) -> tuple[Blocks, Blocks]:
    """Returns the blocks of the forward and of the backward pass.

    They were the fastest of those tried on an H200 for heads of 128 bytes (64 in bfloat16). Larger
    heads, and random words, get the largest blocks of which the compiler needs at most 99 KiB of a
    multiprocessor's shared memory: what a block may have on GPUs of compute capability 8.6 and 8.9.
    """
    if head_bytes <= 128 and bits <= 8:
        return Blocks(64, 64, stages=2), Blocks(64, 64, stages=3)
    if head_bytes <= 256:
        return Blocks(64, 64 if bits <= 8 else 32, stages=2), Blocks(64, 32, stages=2)
    return Blocks(64, 32, stages=2), Blocks(32, 32, stages=2)


def refused(length: int, sizes: Iterable[int]) -> str:
    """Returns why rows of this length, or heads of these sizes K, have no kernel; or ''."""
    if reason := pallas_triton.missing():
        return reason
    if length % _BLOCK:
        return f"needs rows of a multiple of {_BLOCK} tokens, not of {length}"
    if not set(sizes) <= set(_SIZES):
        return (
            f"needs heads of {', '.join(map(str, _SIZES[:-1]))} or {_SIZES[-1]}, not of"
            f" {' and '.join(map(str, sizes))}"
        )
    return ""


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attend(
    settings: KernelSettings,
    joined_BL3HK: jax.Array,
    documents_BL: jax.Array,
    drawn_BHLM: jax.Array | None,
) -> jax.Array:
    """Returns the mixed values [B, L, H, K] of all heads.

    Args:
      joined_BL3HK: query, key and value.
      documents_BL: a query sees the keys of its document; padding (0) sees padding.
      drawn_BHLM: random numbers from `layers.draw`, uint8 or uint32; None drops nothing.
    """
    return _forward(settings, joined_BL3HK, documents_BL, drawn_BHLM)[0]


def _forward(settings, joined_BL3HK, documents_BL, drawn_BHLM):
    call = _Call.of(settings, "forward", joined_BL3HK)
    mixed_BLHK, sums_BHL = call.run(
        _attention,
        {
            "of_head": jax.ShapeDtypeStruct(call.shape, joined_BL3HK.dtype),
            "of_queries": jax.ShapeDtypeStruct((call.rows, call.heads, call.length), jnp.float32),
        },
        *(joined_BL3HK, documents_BL, drawn_BHLM),
    )
    return mixed_BLHK, (joined_BL3HK, documents_BL, drawn_BHLM, mixed_BLHK, sums_BHL)


def _backward(settings, saved, gradient_BLHK):
    joined_BL3HK, documents_BL, drawn_BHLM, mixed_BLHK, sums_BHL = saved
    call = _Call.of(settings, "backward", joined_BL3HK)
    (of_joined_BL3HK,) = call.run(
        _attention_gradients,
        {"of_joined": jax.ShapeDtypeStruct(joined_BL3HK.shape, joined_BL3HK.dtype)},
        *(joined_BL3HK, documents_BL, drawn_BHLM),
        of_head=[mixed_BLHK, gradient_BLHK.astype(joined_BL3HK.dtype)],
        of_queries=[sums_BHL],
    )
    return of_joined_BL3HK, None, None


attend.defvjp(_forward, _backward)


@dataclasses.dataclass(frozen=True)
class _Call:
    """How the work is cut: a program for each block, head and row."""

    settings: KernelSettings
    blocks: Blocks
    rows: int
    length: int
    heads: int
    size: int  # K

    @classmethod
    def of(cls, settings, pass_name, joined_BL3HK):
        rows, length, _, heads, size = joined_BL3HK.shape
        forward, backward = fastest_blocks(size * joined_BL3HK.dtype.itemsize, settings.bits)
        fastest = {"forward": forward, "backward": backward}[pass_name]
        return cls(settings, getattr(settings, pass_name) or fastest, rows, length, heads, size)

    @property
    def shape(self):
        """Of what is mixed, [B, L, H, K]."""
        return self.rows, self.length, self.heads, self.size

    @property
    def count(self):
        """How many blocks a row has."""
        return self.length // self.blocks.held

    def run(
        self, kernel, results, joined_BL3HK, documents_BL, drawn_BHLM, of_head=(), of_queries=()
    ):
        """Runs a kernel; `results` is {its name in `spec`: shape and dtype of the whole result}."""
        inputs = [joined_BL3HK] * 3 + [documents_BL]
        specs = [self.spec("of_part", part) for part in range(3)] + [self.spec("of_row")]
        if drawn_BHLM is not None:
            inputs.append(drawn_BHLM)
            specs.append(self.spec("of_pairs"))
        inputs += [*of_head, *of_queries]
        specs += [self.spec("of_head")] * len(of_head) + [self.spec("of_queries")] * len(of_queries)
        return pl.pallas_call(
            functools.partial(kernel, self),
            out_shape=list(results.values()),
            # Two dimensions, so that jax.vmap has the third.
            grid=(self.count * self.heads, self.rows),
            in_specs=specs,
            out_specs=[self.spec(name) for name in results],
            compiler_params=pallas_triton.triton.CompilerParams(
                num_warps=self.blocks.warps, num_stages=self.blocks.stages
            ),
            interpret=self.settings.interpret,
        )(*inputs)

    def spec(self, name, part=0):
        """What a program gets of an array: that of its row and its head, of all tokens."""
        length, size = self.length, self.size
        shape, place = {
            "of_part": (
                (None, length, None, None, size),
                lambda row, head: (row, 0, part, head, 0),
            ),
            "of_joined": ((None, length, 3, None, size), lambda row, head: (row, 0, 0, head, 0)),
            "of_head": ((None, length, None, size), lambda row, head: (row, 0, head, 0)),
            "of_row": ((None, length), lambda row, head: (row, 0)),
            "of_queries": ((None, None, length), lambda row, head: (row, head, 0)),
            "of_pairs": ((None, None, length, length), lambda row, head: (row, head, 0, 0)),
        }[name]
        return pl.BlockSpec(shape, lambda program, row: place(row, program // self.count))

    def first(self):
        """The number of the first token of a program's block."""
        return pl.program_id(0) % self.count * self.blocks.held

    # Parts of both kernels. `first_query` and `first_key` are the numbers of a block's first.

    def seen_blocks(self, first, count, size):
        """The first block of `size` tokens, and the one after the last, that see or are seen."""
        if not self.settings.window:
            return 0, self.length // size
        below = jnp.maximum(first - self.settings.window, 0) // size
        above = jnp.minimum(first + count + self.settings.window, self.length)
        return below, (above + size - 1) // size

    def visible(self, first_query, query_Q, first_key, key_M):
        """Which keys these queries see, bool [Q, M], from the documents of both."""
        seen_QM = query_Q[:, None] == key_M[None, :]
        ahead_QM = (first_key + lax.broadcasted_iota(jnp.int32, seen_QM.shape, 1)) - (
            first_query + lax.broadcasted_iota(jnp.int32, seen_QM.shape, 0)
        )
        if self.settings.window:
            seen_QM &= abs(ahead_QM) <= self.settings.window
        if self.settings.direction == "left_to_right":
            seen_QM &= ahead_QM <= 0
        if self.settings.direction == "right_to_left":
            seen_QM &= ahead_QM >= 0
        return seen_QM

    def scores(self, query_QK, key_MK, seen_QM):
        """Their scores, whose powers of 2 softmax adds up, float32 [Q, M]."""
        scores_QM = _dot(query_QK, key_MK, 1, 1) * (_LOG2_E * self.scale)
        return jnp.where(seen_QM, scores_QM, HIDDEN)

    @property
    def scale(self):
        """Of the scores, and so of their gradients."""
        return 1 / math.sqrt(self.size)

    def dropped(self, drawn, queries, keys, *arrays_QM):
        """The arrays, 0 where a probability is dropped. Who adds them up divides by the share."""
        if not drawn:
            return arrays_QM
        drawn_QM = drawn[0][queries, keys].astype(jnp.uint32)
        kept_QM = drawn_QM >= jnp.uint32(self.settings.drop_below)
        return [jnp.where(kept_QM, x_QM, 0.0) for x_QM in arrays_QM]


def _attention(call, query, key, value, documents, *drawn_and_results):
    *drawn, mixed, sums = drawn_and_results
    count, step = call.blocks.held, call.blocks.step
    first_query = call.first()
    here = pl.ds(first_query, count)
    query_QK, query_documents_Q = query[here], documents[here]

    def block(number, carry):
        mixed_QK, largest_Q, sum_Q = carry
        there = pl.ds(number * step, step)
        key_documents_M = documents[there]
        seen_QM = call.visible(first_query, query_documents_Q, number * step, key_documents_M)
        scores_QM = call.scores(query_QK, key[there], seen_QM)

        larger_Q = jnp.maximum(largest_Q, scores_QM.max(1))
        shrunk_Q = jnp.exp2(largest_Q - larger_Q)
        grown_QM = jnp.exp2(scores_QM - larger_Q[:, None])
        (dropped_QM,) = call.dropped(drawn, here, there, grown_QM)
        value_MK = value[there]
        mixed_QK = mixed_QK * shrunk_Q[:, None]
        mixed_QK += _dot(dropped_QM.astype(value_MK.dtype), value_MK, 1, 0)
        return mixed_QK, larger_Q, sum_Q * shrunk_Q + grown_QM.sum(1)

    begun = (
        jnp.zeros((count, call.size), jnp.float32),
        jnp.full((count,), 2 * HIDDEN, jnp.float32),
        jnp.zeros((count,), jnp.float32),
    )
    bounds = call.seen_blocks(first_query, count, step)
    mixed_QK, largest_Q, sum_Q = lax.fori_loop(*bounds, block, begun)
    mixed[here] = (mixed_QK / (sum_Q * call.settings.keep_probability)[:, None]).astype(mixed.dtype)
    sums[here] = largest_Q + jnp.log2(sum_Q)


def _attention_gradients(call, query, key, value, documents, *drawn_and_others):
    *drawn, mixed, gradient, sums, of_joined = drawn_and_others
    count, step = call.blocks.held, call.blocks.step
    first_here = call.first()
    here = pl.ds(first_here, count)

    def parts(first_query, queries, query_QK, first_key, keys, key_MK, value_MK):
        """Of some queries and keys: dropped probabilities, gradient of scores, and of results."""
        gradient_QK = gradient[queries]
        # sum p dp over all keys: with dropout or without, what was mixed times its gradient.
        flow_Q = (mixed[queries].astype(jnp.float32) * gradient_QK.astype(jnp.float32)).sum(1)
        seen_QM = call.visible(first_query, documents[queries], first_key, documents[keys])
        p_QM = jnp.exp2(call.scores(query_QK, key_MK, seen_QM) - sums[queries][:, None])
        of_dropped_QM = _dot(gradient_QK, value_MK, 1, 1)
        dropped_QM, of_p_QM = call.dropped(drawn, queries, keys, p_QM, of_dropped_QM)
        of_scores_QM = p_QM * (of_p_QM * (1 / call.settings.keep_probability) - flow_Q[:, None])
        return dropped_QM.astype(gradient_QK.dtype), of_scores_QM.astype(key_MK.dtype), gradient_QK

    def zeros():
        return jnp.zeros((count, call.size), jnp.float32)

    def write(part, tokens, x_TK, factor=call.scale):
        of_joined[tokens, part] = (x_TK * factor).astype(of_joined.dtype)

    key_MK, value_MK = key[here], value[here]
    bounds = call.seen_blocks(first_here, count, step)
    whole = count == call.length

    def add_key_gradients(number, carry):
        of_key_MK, of_value_MK = carry
        there = pl.ds(number * step, step)
        query_QK = query[there]
        dropped_QM, of_scores_QM, gradient_QK = parts(
            number * step, there, query_QK, first_here, here, key_MK, value_MK
        )
        if whole:  # no other program has keys for these queries
            write(0, there, _dot(of_scores_QM, key_MK, 1, 0))
        of_value_MK += _dot(dropped_QM, gradient_QK, 0, 0)
        of_key_MK += _dot(of_scores_QM, query_QK, 0, 0)
        return of_key_MK, of_value_MK

    of_key_MK, of_value_MK = lax.fori_loop(*bounds, add_key_gradients, (zeros(), zeros()))
    write(1, here, of_key_MK)
    write(2, here, of_value_MK, 1 / call.settings.keep_probability)
    if whole:
        return

    query_QK = query[here]

    def add_query_gradient(number, of_query_QK):
        there = pl.ds(number * step, step)
        key_there_MK = key[there]
        _, of_scores_QM, _ = parts(
            first_here, here, query_QK, number * step, there, key_there_MK, value[there]
        )
        return of_query_QK + _dot(of_scores_QM, key_there_MK, 1, 0)

    write(0, here, lax.fori_loop(*bounds, add_query_gradient, zeros()))


def _dot(a, b, of_a, of_b):
    """Sums over dimension `of_a` of one and `of_b` of the other, in float32."""
    return lax.dot_general(a, b, (((of_a,), (of_b,)), ((), ())), preferred_element_type=jnp.float32)
