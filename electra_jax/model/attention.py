# SPDX-License-Identifier: Apache-2.0
"""Multi-head self-attention of one layer, for stacked weights [layers, ...].

    hidden -> query, key, value -> [rotated by position] -> mixed values -> output

Values are mixed by one of four functions with the same result. `einsum` is plain and runs
everywhere. The others are kernels that never store the scores [B, H, L, L]: `fused` on TPUs and
`blockwise` on GPUs drop probabilities as `einsum` does, `splash` on TPUs drops none. Those of TPUs
have not run on one yet. In all of them a token sees the tokens of its own document, within a window
if one is set. The results for padded queries differ. They are finite and do not affect other
tokens, because no real token sees a padded key and no loss includes padding.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax import numpy as jnp
from jax.experimental.pallas.ops.tpu import splash_attention

from electra_jax.model import blockwise_attention, fused_attention, layers

PROJECTIONS = "query", "key", "value"
# Triton counts the elements of an array in 32 bits with a sign.
_MOST_PAIRS = 2**31  # of rows, heads, queries and keys in a call of `blockwise_attention`
_BLOCKS = (512, 256, 128)  # tokens per block of splash; at least 128; not timed


def init(
    key: jax.Array, *, stack: int, width: int, heads: int, scale: float, biases: bool = True
) -> dict[str, dict[str, jax.Array]]:
    """Returns query, key, value and output, each with a leading `stack` dimension."""
    size = width // heads
    query, key_, value, output = jax.random.split(key, 4)
    into, out_of = (stack, width, heads, size), (stack, heads, size, width)
    inner, outer = ((stack, heads, size), (stack, width)) if biases else (None, None)
    return {
        "query": layers.init_dense(query, into, inner, scale),
        "key": layers.init_dense(key_, into, inner, scale),
        "value": layers.init_dense(value, into, inner, scale),
        "output": layers.init_dense(output, out_of, outer, scale),
    }


def as_matrices(params: dict) -> dict:
    """Returns the parameters as `apply` takes them: kernels [layers, D, H K] and [layers, H K, D].

    Call it before the loop over the layers: what is reshaped or cast inside the loop is kept again
    for the backward pass of each layer.
    """
    made = {"output": params["output"] | {"kernel": _merged(params["output"]["kernel"], 1)}}
    for name in PROJECTIONS:
        made[name] = {part: _merged(x, x.ndim - 2) for part, x in params[name].items()}
    return params | made


def joined(params: dict) -> dict:
    """Returns what `as_matrices` does, with query, key and value in one kernel [layers, D, 3 H K].

    One product is fewer kernels of an accelerator than three: with it and its cut a step of `small`
    on an H200 took 11.83 ms, and 13.97 before (docs/LOG.md, 2026-11-27). Two cores are faster with
    three.
    """
    apart = [params[name] for name in PROJECTIONS]
    together = {part: jnp.concatenate([x[part] for x in apart], -1) for part in apart[0]}
    others = {name: x for name, x in params.items() if name not in PROJECTIONS}
    return others | {"projections": together}


def apply(
    params: dict,
    hidden_BLD: jax.Array,
    heads: int,
    mix: Callable[[jax.Array, jax.Array, jax.Array], jax.Array],
    rotation: tuple[jax.Array, jax.Array] | None = None,
    dense: Callable = layers.dense,
    as_columns: bool = False,
) -> jax.Array:
    """Self-attention of one layer, [B, L, D]; the caller adds the residual, norm and dropout.

    Args:
      params: those of one layer, from `as_matrices` or `joined`.
      mix: query, key and value [B, L, H, K] -> mixed values [B, L, H, K], as `einsum` does.
      rotation: the result of `rotation`, or None if positions are in the embeddings.
      dense: multiplies by kernels.
      as_columns: how a joined product is cut. By heads it is fewer kernels of a GPU; a TPU then
        keeps it with the tokens in its lanes, and copies it for a kernel that wants columns there.
    """
    *rows, width = hidden_BLD.shape
    size = params["output"]["kernel"].shape[0] // heads
    # Reshaped once for all three, so that the backward pass keeps it once.
    hidden_SD = hidden_BLD.reshape(math.prod(rows), width)

    if "projections" in params:
        joined_SC = dense(params["projections"], hidden_SD)
        if as_columns:
            projected = jnp.split(joined_SC, 3, axis=-1)
        else:
            projected = _cut(joined_SC.reshape(*rows, 3, heads, size))
    else:
        projected = [dense(params[name], hidden_SD) for name in PROJECTIONS]
    query_BLHK, key_BLHK, value_BLHK = (x.reshape(*rows, heads, size) for x in projected)

    if rotation is not None:
        query_BLHK, key_BLHK = rotate(query_BLHK, rotation), rotate(key_BLHK, rotation)

    mixed_BLHK = mix(query_BLHK, key_BLHK, value_BLHK)
    mixed_BLD = mixed_BLHK.reshape(*rows, params["output"]["kernel"].shape[0])
    return dense(params["output"], mixed_BLD)


# Which tokens see each other


def visible(documents_BL: jax.Array) -> jax.Array:
    """Returns which keys a query sees, bool [B, query, key]: those of its document.

    documents  1 1 2 0      query 1  1 1 . .
                            query 1  1 1 . .
                            query 2  . . 1 .
                            padding  1 1 1 .

    A padded query sees all tokens but padding, as with BERT's additive mask.
    """
    query_BL1, key_B1L = documents_BL[:, :, None], documents_BL[:, None, :]
    return ((query_BL1 == key_B1L) | (query_BL1 == 0)) & (key_B1L > 0)


def near(length: int, window: int) -> jax.Array:
    """Returns which keys are at most `window` tokens away on either side, bool [query, key]."""
    place_L = jnp.arange(length)
    return abs(place_L[:, None] - place_L[None, :]) <= window


# Rotary positions (RoFormer, section 3.2.2)


def rotation(positions_BL: jax.Array, size: int, base: float) -> tuple[jax.Array, jax.Array]:
    """Returns cosine and sine of position x base^(-2i / size), float32 [B, L, size / 2] each."""
    return _of_angles(jnp, positions_BL, size, base)


def rotation_looked_up(
    positions_BL: jax.Array, size: int, base: float
) -> tuple[jax.Array, jax.Array]:
    """Returns what `rotation` does, from tables of the positions 0 to L - 1.

    XLA's compiler for CPUs computes each cosine again for every head, layer, query, key and
    gradient, in the loop that multiplies by it (docs/LOG.md); a look-up costs less.
    """
    tables_LK = _of_angles(np, np.arange(positions_BL.shape[1]), size, base)
    cosine_BLK, sine_BLK = (jnp.asarray(table_LK)[positions_BL] for table_LK in tables_LK)
    return cosine_BLK, sine_BLK


ROTATIONS = {"default": rotation, "cpu": rotation_looked_up}  # by EncoderConfig.products


def _of_angles(numpy, positions, size, base):
    rates = base ** (-numpy.arange(0, size, 2, dtype=numpy.float32) / size)
    angles = positions[..., None].astype(numpy.float32) * rates
    return numpy.cos(angles), numpy.sin(angles)


def rotate(x_BLHK: jax.Array, rotation: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Rotates each pair of channels by its angle, in float32.

    Channel i is paired with i + K / 2. The paper pairs neighbours; this is the same up to a fixed
    order of the channels, and needs no strided reads.
    """
    cosine, sine = (x[:, :, None] for x in rotation)
    first, second = jnp.split(x_BLHK.astype(jnp.float32), 2, axis=-1)
    turned = (first * cosine - second * sine, second * cosine + first * sine)
    return jnp.concatenate(turned, axis=-1).astype(x_BLHK.dtype)


# Four ways to mix values by softmax(query key / sqrt(K))


def einsum(
    query_BLHK: jax.Array,
    key_BLHK: jax.Array,
    value_BLHK: jax.Array,
    visible_BLM: jax.Array,
    *,
    dropout: float = 0.0,
    drawn_BHLM: jax.Array | None = None,
    accumulate_in: jnp.dtype | None = None,
) -> jax.Array:
    """Attention as plain products; scores and softmax are float32 for any dtype.

    The probabilities are rounded to the dtype of the values after the softmax, because the product
    with the values runs in that dtype. Scores are not rounded: in bfloat16 the error would be up to
    score / 256, which the exponential turns into the relative error of the probability.

    For the backward pass one array of the size of the scores is kept, in the dtype of the query:
    the probabilities, with a minus sign where they were dropped.

    Args:
      visible_BLM: which keys a query sees, [B, query, key].
      dropout: the share of probabilities that are dropped.
      drawn_BHLM: random numbers from `layers.draw` for the dropout, or None to drop nothing.
      accumulate_in: dtype of the sums, which are rounded afterwards; None: that of the values.
    """
    kept_BHLM, share = None, 1.0
    if drawn_BHLM is not None:
        kept_BHLM, share = layers.keeps(dropout, drawn_BHLM)
    return _einsum(share, accumulate_in, query_BLHK, key_BLHK, value_BLHK, visible_BLM, kept_BHLM)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _einsum(share, accumulate_in, query_BLHK, key_BLHK, value_BLHK, visible_BLM, kept_BHLM):
    return _einsum_forward(
        share, accumulate_in, query_BLHK, key_BLHK, value_BLHK, visible_BLM, kept_BHLM
    )[0]


def _einsum_forward(share, accumulate_in, query_BLHK, key_BLHK, value_BLHK, visible_BLM, kept_BHLM):
    product = functools.partial(_rounded_einsum, accumulate_in)
    scores_BHLM = jnp.einsum(
        "BLHK,BMHK->BHLM", query_BLHK, key_BLHK, preferred_element_type=jnp.float32
    )
    scores_BHLM *= 1 / math.sqrt(query_BLHK.shape[-1])
    scores_BHLM = jnp.where(visible_BLM[:, None], scores_BHLM, fused_attention.HIDDEN)

    signed_BHLM = jax.nn.softmax(scores_BHLM).astype(query_BLHK.dtype)
    if kept_BHLM is not None:
        signed_BHLM = jnp.where(kept_BHLM, signed_BHLM, -signed_BHLM)

    mixed_BLHK = product("BHLM,BMHK->BLHK", _dropped(signed_BHLM, share), value_BLHK)
    return mixed_BLHK, (query_BLHK, key_BLHK, value_BLHK, signed_BHLM)


def _einsum_backward(share, accumulate_in, saved, gradient_BLHK):
    product = functools.partial(_rounded_einsum, accumulate_in)
    query_BLHK, key_BLHK, value_BLHK, signed_BHLM = saved
    dropped_BHLM = _dropped(signed_BHLM, share)
    of_value_BLHK = product("BHLM,BLHK->BMHK", dropped_BHLM, gradient_BLHK)

    # Rounded to the dtype of the values: float32 did not bring gradients closer to the exact ones,
    # because the rounding of the probabilities matters more.
    of_dropped_BHLM = product("BLHK,BMHK->BHLM", gradient_BLHK, value_BLHK)

    # The gradient of softmax is p (dp - sum p dp). With dropped = p mask / share and
    # dp = d_dropped mask / share, p dp is dropped d_dropped.
    flow_BHLM = dropped_BHLM.astype(jnp.float32) * of_dropped_BHLM
    probabilities_BHLM = jnp.abs(signed_BHLM).astype(jnp.float32)
    of_scores_BHLM = flow_BHLM - probabilities_BHLM * flow_BHLM.sum(-1, keepdims=True)
    of_scores_BHLM *= 1 / math.sqrt(query_BLHK.shape[-1])
    of_scores_BHLM = of_scores_BHLM.astype(query_BLHK.dtype)

    of_query_BLHK = product("BHLM,BMHK->BLHK", of_scores_BHLM, key_BLHK)
    of_key_BLHK = product("BHLM,BLHK->BMHK", of_scores_BHLM, query_BLHK)
    return of_query_BLHK, of_key_BLHK, of_value_BLHK, None, None


_einsum.defvjp(_einsum_forward, _einsum_backward)


def _rounded_einsum(accumulate_in, subscripts, a, b):
    """A product whose sums are in this dtype, in the dtype of its factors."""
    return jnp.einsum(subscripts, a, b, preferred_element_type=accumulate_in).astype(a.dtype)


def _dropped(signed_BHLM, share):
    if share == 1:
        return signed_BHLM

    # In float32: bfloat16 has two or three digits, so 1 / share would change every value.
    kept_BHLM = jnp.maximum(signed_BHLM, 0).astype(jnp.float32)
    return (kept_BHLM * (1 / share)).astype(signed_BHLM.dtype)


def fused(
    query_BLHK: jax.Array,
    key_BLHK: jax.Array,
    value_BLHK: jax.Array,
    documents_BL: jax.Array,
    words: jax.Array | None = None,
    *,
    dropout: float = 0.0,
    bits: int = 8,
    window: int = 0,
    direction: str = "both",
) -> jax.Array:
    """Whole rows in one kernel, `fused_attention`: the scores never leave the chip.

    The same decisions as with `einsum` drop the same probabilities, which are rounded once less. It
    has been compiled for TPUs but not run on one yet.

    Args:
      words: those of `layers.draw` for the dropout, or None to drop nothing.
      bits: random bits of a decision.
    """
    settings = fused_attention.KernelSettings(
        heads=query_BLHK.shape[2],
        drop_below=0 if words is None else layers.drop_threshold(dropout, bits),
        bits=bits,
        window=window,
        direction=direction,
    )
    merged = (x.reshape(*x.shape[:2], -1) for x in (query_BLHK, key_BLHK, value_BLHK))
    return fused_attention.attend(settings, *merged, documents_BL, words).reshape(query_BLHK.shape)


def blockwise(
    query_BLHK: jax.Array,
    key_BLHK: jax.Array,
    value_BLHK: jax.Array,
    documents_BL: jax.Array,
    drawn_BHLM: jax.Array | None = None,
    *,
    dropout: float = 0.0,
    window: int = 0,
    direction: str = "both",
) -> jax.Array:
    """Block after block in one kernel, `blockwise_attention`: the scores never leave the chip.

    The same decisions as with `einsum` drop the same probabilities.

    Args:
      drawn_BHLM: random numbers from `layers.draw` for the dropout, or None to drop nothing.
    """
    settings = blockwise_attention.KernelSettings(window=window, direction=direction)
    if drawn_BHLM is not None:
        bits = 8 * drawn_BHLM.dtype.itemsize
        threshold = layers.drop_threshold(dropout, bits)
        settings = dataclasses.replace(settings, drop_below=threshold, bits=bits)
    # Where the three were cut from one array, the compiler takes that.
    joined_BL3HK = jnp.stack([query_BLHK, key_BLHK, value_BLHK], axis=2)

    rows, length, heads, _ = query_BLHK.shape
    most = max(_MOST_PAIRS // (heads * length * length), 1)
    given = joined_BL3HK, documents_BL, drawn_BHLM
    parts = [
        blockwise_attention.attend(
            settings, *(x if x is None else x[first : first + most] for x in given)
        )
        for first in range(0, rows, most)
    ]
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)


def splash(
    query_BLHK: jax.Array,
    key_BLHK: jax.Array,
    value_BLHK: jax.Array,
    documents_BL: jax.Array,
    *,
    window: int = 0,
) -> jax.Array:
    """Pallas splash attention with documents as its segments; it skips blocks outside `window`.

    Padding is segment 0 and sees only padding. The kernel does not scale scores, so the queries are
    scaled. This is exact if K is a power of 4, as in all published sizes; otherwise each query is
    rounded once more to its dtype. It has been compiled for a TPU but not run on one yet.
    """
    length, heads, size = query_BLHK.shape[1:]
    shape = (length, length)
    full = splash_attention.FullMask(shape)
    seen = splash_attention.LocalMask(shape, (window, window), 0) if window else full

    block = next(n for n in _BLOCKS if length % n == 0)
    kernel = splash_attention.make_splash_mha(
        splash_attention.MultiHeadMask([seen] * heads),
        head_shards=1,
        q_seq_shards=1,
        block_sizes=splash_attention.BlockSizes(
            block_q=block,
            block_kv=block,
            block_kv_compute=block,
            block_q_dkv=block,
            block_kv_dkv=block,
            block_kv_dkv_compute=block,
            block_q_dq=block,
            block_kv_dq=block,
        ),
    )

    def row(query_HLK, key_HLK, value_HLK, documents_L):
        segments = splash_attention.SegmentIds(documents_L, documents_L)
        return kernel(query_HLK, key_HLK, value_HLK, segment_ids=segments)

    scaled_BLHK = (query_BLHK.astype(jnp.float32) / math.sqrt(size)).astype(query_BLHK.dtype)
    by_head = (x.swapaxes(1, 2) for x in (scaled_BLHK, key_BLHK, value_BLHK))
    return jax.vmap(row)(*by_head, documents_BL).swapaxes(1, 2)


def refused(
    way: str,
    platform: str,
    length: int,
    shapes: Sequence[tuple[int, int]],
    bits: int = 8,
    triton: bool = True,
    mosaic: bool = True,
) -> str:
    """Returns why attention cannot be computed in this way, or '' if it can.

    Args:
      way: 'einsum', 'fused', 'blockwise' or 'splash'.
      platform: 'cpu', 'gpu' or 'tpu'.
      shapes: (heads, head size) of each network.
      bits: random bits of a decision of dropout.
      triton: whether the devices run kernels that Triton compiles (`meshes.runs_triton`).
      mosaic: whether they run those that Mosaic compiles for TPUs (`meshes.runs_mosaic`).
    """
    of_blocks = f"needs rows of a multiple of 128 tokens, not of {length}"
    kernels = {  # way -> (its platform, why it has no kernel, or '')
        "fused": ("tpu", fused_attention.refused(length, shapes, bits)),
        "splash": ("tpu", of_blocks if length % 128 else ""),
        "blockwise": ("gpu", blockwise_attention.refused(length, [size for _, size in shapes])),
    }
    if way == "einsum":
        return ""

    its_platform, reason = kernels[way]
    if platform != its_platform:
        reason = f"needs a {its_platform.upper()}, not a {platform.upper()}"
    elif way == "blockwise" and not triton:
        reason = "needs an NVIDIA GPU of compute capability 8.0 or newer"
    elif its_platform == "tpu" and not mosaic:
        reason = "needs a TPU v4 or newer"
    return reason


@jax.custom_vjp
def _cut(joined_BL3HK):
    """Query, key and value, each [B, L, H, K]; their gradients are put one beside the other.

    By itself jax pads the gradient of each to the size of all, and adds them.
    """
    return [joined_BL3HK[..., part, :, :] for part in range(len(PROJECTIONS))]


_cut.defvjp(
    lambda joined_BL3HK: (_cut(joined_BL3HK), None),
    lambda _, gradients: (jnp.stack(gradients, axis=-3),),
)


def _merged(x, axis):
    """Merges dimensions `axis` and `axis + 1`."""
    return x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :])
