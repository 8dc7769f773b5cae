# SPDX-License-Identifier: Apache-2.0
"""Multi-head self-attention of one layer, for stacked weights [layers, ...].

    hidden -> query, key, value -> [turned by position] -> mixed -> output

Values are mixed in one of three ways that agree. `einsum` is plain, runs everywhere and is the only
one that can drop probabilities. `splash` (Pallas, on TPUs) and `cudnn` (on GPUs, and it has not met
one yet) never hold the scores [B, H, L, L]. In all of them a token sees the tokens of its own
document, within a window where one is set. What a padded query gets differs between them; it is
finite and reaches no real token, for no real query sees a padded key and no loss looks at padding.
"""

import functools
import math
from collections.abc import Callable, Sequence

import jax
from jax import numpy as jnp
from jax.experimental.pallas.ops.tpu import splash_attention

from electra_jax.model import layers

_HIDDEN = -1e9  # a score that softmax turns into exactly 0 in float32
_BLOCKS = (512, 256, 128)  # tokens in a block of splash; 128 is its least, the rest untimed
_CUDNN_HEAD = 128  # what every GPU takes; Hopper takes 256


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
    """The same parameters, kernels as [layers, D, H K] and [layers, H K, D]: what `apply` takes.

    To be done before the loop over the layers: what is reshaped or cast inside it is kept once
    more for the backward pass, for each layer.
    """
    made = {"output": params["output"] | {"kernel": _merged(params["output"]["kernel"], 1)}}
    for name in ("query", "key", "value"):
        made[name] = {part: _merged(x, x.ndim - 2) for part, x in params[name].items()}
    return params | made


def apply(
    params: dict,
    hidden_BLD: jax.Array,
    heads: int,
    mix: Callable[[jax.Array, jax.Array, jax.Array], jax.Array],
    rotation: tuple[jax.Array, jax.Array] | None = None,
) -> jax.Array:
    """Projects, mixes and projects back: [B, L, D]; residual, norm and dropout are the caller's.

    Args:
      params: of one layer, from `as_matrices`.
      mix: query, key and value [B, L, H, K] -> mixed values [B, L, H, K], one of those below.
      rotation: what `rotation` returned, or None where positions are in the embeddings.
    """
    *rows, width = hidden_BLD.shape
    size = params["query"]["kernel"].shape[1] // heads
    hidden_SD = hidden_BLD.reshape(math.prod(rows), width)  # once: kept once for the way back
    query_BLHK, key_BLHK, value_BLHK = (
        layers.dense(params[name], hidden_SD).reshape(*rows, heads, size)
        for name in ("query", "key", "value")
    )
    if rotation is not None:
        query_BLHK, key_BLHK = rotate(query_BLHK, rotation), rotate(key_BLHK, rotation)
    mixed_BLHK = mix(query_BLHK, key_BLHK, value_BLHK)
    mixed_BLD = mixed_BLHK.reshape(*rows, params["output"]["kernel"].shape[0])
    return layers.dense(params["output"], mixed_BLD)


# Who sees whom


def visible(documents_BL: jax.Array) -> jax.Array:
    """Block-diagonal by document: [B, query, key] bool.

    documents  1 1 2 0      query 1  1 1 . .
                            query 1  1 1 . .
                            query 2  . . 1 .
                            padding  1 1 1 .

    A padded query sees every real token, which is what BERT's additive mask does.
    """
    query_BL1, key_B1L = documents_BL[:, :, None], documents_BL[:, None, :]
    return ((query_BL1 == key_B1L) | (query_BL1 == 0)) & (key_B1L > 0)


def near(length: int, window: int) -> jax.Array:
    """Keys that are `window` places away at most, to either side: [query, key] bool."""
    place_L = jnp.arange(length)
    return abs(place_L[:, None] - place_L[None, :]) <= window


# Rotary positions (RoFormer, section 3.2.2)


def rotation(positions_BL: jax.Array, size: int, base: float) -> tuple[jax.Array, jax.Array]:
    """Cosine and sine of position x base^(-2i / size), float32 [B, L, size / 2] each."""
    rates = base ** (-jnp.arange(0, size, 2, dtype=jnp.float32) / size)
    angles = positions_BL[..., None].astype(jnp.float32) * rates
    return jnp.cos(angles), jnp.sin(angles)


def rotate(x_BLHK: jax.Array, rotation: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Turns each pair of channels by its angle, in float32.

    Channel i is paired with i + K / 2, which is a fixed order of the paper's neighbouring pairs and
    needs no strided reads.
    """
    cosine, sine = (x[:, :, None] for x in rotation)
    first, second = jnp.split(x_BLHK.astype(jnp.float32), 2, axis=-1)
    turned = (first * cosine - second * sine, second * cosine + first * sine)
    return jnp.concatenate(turned, axis=-1).astype(x_BLHK.dtype)


# Mixing values by softmax(query key / sqrt(K))


def einsum(
    query_BLHK: jax.Array,
    key_BLHK: jax.Array,
    value_BLHK: jax.Array,
    visible_BLL: jax.Array,
    *,
    dropout: float = 0.0,
    drawn_BHLM: jax.Array | None = None,
) -> jax.Array:
    """In plain products; scores and softmax are float32 whatever the dtype.

    The probabilities are rounded to the dtype of the values after the softmax, because the product
    with the values runs in that dtype. A score that is rounded before the softmax is off by up to
    score / 256 in bfloat16, and the exponential makes that the probability's relative error.

    The backward pass keeps one array of the size of the scores, in the dtype of the query: the
    probabilities, with a minus sign where one was dropped.

    Args:
      drawn_BHLM: `layers.draw`'s for `dropout`, or None where nothing is dropped.
    """
    kept_BHLM, share = None, 1.0
    if drawn_BHLM is not None:
        kept_BHLM, share = layers.keeps(dropout, drawn_BHLM)
    return _einsum(share, query_BLHK, key_BLHK, value_BLHK, visible_BLL, kept_BHLM)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _einsum(share, query_BLHK, key_BLHK, value_BLHK, visible_BLL, kept_BHLM):
    return _einsum_forward(share, query_BLHK, key_BLHK, value_BLHK, visible_BLL, kept_BHLM)[0]


def _einsum_forward(share, query_BLHK, key_BLHK, value_BLHK, visible_BLL, kept_BHLM):
    scores_BHLM = jnp.einsum(
        "BLHK,BMHK->BHLM", query_BLHK, key_BLHK, preferred_element_type=jnp.float32
    )
    scores_BHLM *= 1 / math.sqrt(query_BLHK.shape[-1])
    scores_BHLM = jnp.where(visible_BLL[:, None], scores_BHLM, _HIDDEN)
    signed_BHLM = jax.nn.softmax(scores_BHLM).astype(query_BLHK.dtype)
    if kept_BHLM is not None:
        signed_BHLM = jnp.where(kept_BHLM, signed_BHLM, -signed_BHLM)
    mixed_BLHK = jnp.einsum("BHLM,BMHK->BLHK", _dropped(signed_BHLM, share), value_BLHK)
    return mixed_BLHK, (query_BLHK, key_BLHK, value_BLHK, signed_BHLM)


def _einsum_backward(share, saved, gradient_BLHK):
    query_BLHK, key_BLHK, value_BLHK, signed_BHLM = saved
    dropped_BHLM = _dropped(signed_BHLM, share)
    of_value_BLHK = jnp.einsum("BHLM,BLHK->BMHK", dropped_BHLM, gradient_BLHK)
    # Rounded to the dtype of the values: kept in float32, gradients came no nearer to exact ones,
    # for the rounding of the probabilities outweighs it.
    of_dropped_BHLM = jnp.einsum("BLHK,BMHK->BHLM", gradient_BLHK, value_BLHK)
    # Softmax's p (dp - sum p dp). With dropped = p mask / share and dp = d_dropped mask / share,
    # p dp is dropped d_dropped.
    flow_BHLM = dropped_BHLM.astype(jnp.float32) * of_dropped_BHLM
    probabilities_BHLM = jnp.abs(signed_BHLM).astype(jnp.float32)
    of_scores_BHLM = flow_BHLM - probabilities_BHLM * flow_BHLM.sum(-1, keepdims=True)
    of_scores_BHLM *= 1 / math.sqrt(query_BLHK.shape[-1])
    of_scores_BHLM = of_scores_BHLM.astype(query_BLHK.dtype)
    of_query_BLHK = jnp.einsum("BHLM,BMHK->BLHK", of_scores_BHLM, key_BLHK)
    of_key_BLHK = jnp.einsum("BHLM,BLHK->BMHK", of_scores_BHLM, query_BLHK)
    return of_query_BLHK, of_key_BLHK, of_value_BLHK, None, None


_einsum.defvjp(_einsum_forward, _einsum_backward)


def _dropped(signed_BHLM, share):
    if share == 1:
        return signed_BHLM
    # In float32: bfloat16 holds 1 / share to two or three digits, and every value would be off.
    kept_BHLM = jnp.maximum(signed_BHLM, 0).astype(jnp.float32)
    return (kept_BHLM * (1 / share)).astype(signed_BHLM.dtype)


def splash(
    query_BLHK: jax.Array,
    key_BLHK: jax.Array,
    value_BLHK: jax.Array,
    documents_BL: jax.Array,
    *,
    window: int = 0,
) -> jax.Array:
    """Pallas splash attention, documents as its segments; blocks outside `window` are left out.

    Padding is segment 0 and sees padding. The kernel has no scale of its own, so queries carry it:
    exactly where K is a power of 4, as in all published sizes; otherwise each is rounded once more
    to its dtype. On a TPU it has been compiled but not run yet.
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


def cudnn(
    query_BLHK: jax.Array,
    key_BLHK: jax.Array,
    value_BLHK: jax.Array,
    visible_BLL: jax.Array,
    *,
    implementation: str = "cudnn",
) -> jax.Array:
    """cuDNN's fused attention, bfloat16 or float16. It has not met a GPU yet."""
    return jax.nn.dot_product_attention(
        query_BLHK,
        key_BLHK,
        value_BLHK,
        mask=visible_BLL[:, None],
        implementation=implementation,
    )


def refused(way: str, platform: str, dtype: str, length: int, sizes: Sequence[int]) -> str:
    """What keeps attention from being computed this way, with the remedy, or ''.

    Args:
      way: 'einsum', 'splash' or 'cudnn'.
      platform: 'cpu', 'gpu' or 'tpu'.
      dtype: of the computation.
      sizes: of one head, in each network.
    """
    checks = {
        "einsum": (),
        "splash": (
            (platform != "tpu", f"needs a TPU, not a {platform.upper()}", ""),
            (length % 128, f"needs rows of a multiple of 128 tokens, not of {length}", ""),
        ),
        "cudnn": (
            (platform != "gpu", f"needs a GPU, not a {platform.upper()}", ""),
            (dtype == "float32", "cannot compute in float32", "model.dtype=bfloat16 or "),
            (length % 2, f"needs rows of an even number of tokens, not of {length}", ""),
            (
                any(size % 8 or size > _CUDNN_HEAD for size in sizes),
                f"needs heads of a multiple of 8, at most {_CUDNN_HEAD}, not of"
                f" {' and '.join(map(str, sizes))}",
                "",
            ),
        ),
    }
    for found, reason, remedy in checks[way]:
        if found:
            return f"{reason}; try {remedy}model.attention=einsum"
    return ""


def _merged(x, axis):
    """Two dimensions as one, from `axis` on."""
    return x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :])
