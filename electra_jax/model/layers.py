# SPDX-License-Identifier: Apache-2.0
"""The small parts: dense products, norms, dropout, and how their weights begin.

Weights are plain dicts, float32, and cast to the compute dtype where they are used. A leading
`layers` dimension is just another dimension of the shape that is asked for.
"""

import math
from collections.abc import Sequence

import jax
from jax import lax
from jax import numpy as jnp

NORM_EPSILON = 1e-12  # as BERT; flax's default is 1e-6


def init_dense(
    key: jax.Array, shape: Sequence[int], bias: Sequence[int] | None, scale: float
) -> dict:
    """A kernel from the truncated normal (2 deviations, as TensorFlow) and a zero bias, if any."""
    kernel = scale * jax.random.truncated_normal(key, -2.0, 2.0, tuple(shape), jnp.float32)
    if bias is None:
        return {"kernel": kernel}
    return {"kernel": kernel, "bias": jnp.zeros(tuple(bias), jnp.float32)}


def init_glorot(key: jax.Array, fan_in: int, fan_out: int) -> dict:
    """A Glorot-uniform kernel [fan_in, fan_out]: tf.layers' default, which the reference keeps."""
    kernel = jax.nn.initializers.glorot_uniform()(key, (fan_in, fan_out), jnp.float32)
    return {"kernel": kernel, "bias": jnp.zeros((fan_out,), jnp.float32)}


def init_norm(shape: Sequence[int]) -> dict:
    """Scale one, bias zero."""
    return {"scale": jnp.ones(tuple(shape)), "bias": jnp.zeros(tuple(shape))}


def init_rms_norm(shape: Sequence[int]) -> dict:
    """Scale one, and no bias."""
    return {"scale": jnp.ones(tuple(shape))}


def cast_for_products(params: dict, dtype: jnp.dtype) -> dict:
    """Kernels and their biases in the dtype that they are used in; norms stay as they are."""
    if "kernel" in params:
        return {name: x.astype(dtype) for name, x in params.items()}
    return {
        name: cast_for_products(x, dtype) if isinstance(x, dict) else x
        for name, x in params.items()
    }


def dense(params: dict, x: jax.Array, result: jnp.dtype | None = None) -> jax.Array:
    """x [..., D] times kernel [D, F] plus bias [F] where there is one, in the dtype of x.

    Args:
      result: dtype of the sums, the bias and what is returned; None is that of x.

    All leading dimensions are one for the product: on a CPU the backward pass of a product with
    two of them transposes inside its loops and is five times slower (docs/LOG.md).
    """
    kernel = params["kernel"].astype(x.dtype)
    y = jnp.matmul(x.reshape(-1, kernel.shape[0]), kernel, preferred_element_type=result)
    if "bias" in params:
        y = y + params["bias"].astype(y.dtype)
    return y.reshape(*x.shape[:-1], kernel.shape[1])


@jax.custom_vjp
def layer_norm(params: dict, x: jax.Array) -> jax.Array:
    """Normalises the last dimension; statistics in float32 whatever the dtype of x.

    The backward pass keeps x and two numbers a vector, and computes what else it needs again.
    """
    return _layer_norm(params, x)[0]


def _layer_norm(params, x):
    y = x.astype(jnp.float32)
    mean = y.mean(-1, keepdims=True)
    centred = y - mean
    variance = (centred * centred).mean(-1, keepdims=True)
    inverse = lax.rsqrt(variance + NORM_EPSILON)
    y = centred * inverse * params["scale"] + params["bias"]
    return y.astype(x.dtype), (params["scale"], x, mean, inverse)


def _layer_norm_backward(saved, gradient):
    scale, x, mean, inverse = saved
    normed, gradient = (x.astype(jnp.float32) - mean) * inverse, gradient.astype(jnp.float32)
    before = tuple(range(x.ndim - 1))
    of_params = {
        "scale": (gradient * normed).sum(before).astype(scale.dtype),
        "bias": gradient.sum(before).astype(scale.dtype),
    }
    gradient *= scale
    along = (gradient * normed).mean(-1, keepdims=True)
    of_x = inverse * (gradient - gradient.mean(-1, keepdims=True) - normed * along)
    return of_params, of_x.astype(x.dtype)


layer_norm.defvjp(_layer_norm, _layer_norm_backward)


@jax.custom_vjp
def rms_norm(params: dict, x: jax.Array) -> jax.Array:
    """Divides the last dimension by its root mean square (Zhang & Sennrich 2019), in float32."""
    return _rms_norm(params, x)[0]


def _rms_norm(params, x):
    y = x.astype(jnp.float32)
    inverse = lax.rsqrt((y * y).mean(-1, keepdims=True) + NORM_EPSILON)
    return (y * inverse * params["scale"]).astype(x.dtype), (params["scale"], x, inverse)


def _rms_norm_backward(saved, gradient):
    scale, x, inverse = saved
    normed, gradient = x.astype(jnp.float32) * inverse, gradient.astype(jnp.float32)
    of_scale = (gradient * normed).sum(tuple(range(x.ndim - 1))).astype(scale.dtype)
    gradient *= scale
    along = (gradient * normed).mean(-1, keepdims=True)
    return {"scale": of_scale}, (inverse * (gradient - normed * along)).astype(x.dtype)


rms_norm.defvjp(_rms_norm, _rms_norm_backward)


@jax.custom_vjp
def gelu(x: jax.Array) -> jax.Array:
    """The exact (erf) form, as the reference; the tanh form differs by up to 7e-4 in logits."""
    return _gelu(x)[0]


def _gelu(x):
    """The value and, computed along with it, the derivative that the backward pass needs."""
    y = x.astype(jnp.float32)
    below = 0.5 * (1 + lax.erf(y * math.sqrt(0.5)))  # the normal distribution up to y
    density = jnp.exp(-0.5 * y * y) * (1 / math.sqrt(2 * math.pi))
    return (y * below).astype(x.dtype), (below + y * density).astype(x.dtype)


gelu.defvjp(_gelu, lambda derivative, gradient: (gradient * derivative,))


def draw(
    keys_B: jax.Array | None, sites: Sequence[tuple[float, Sequence[int]]], bits: int
) -> list[jax.Array | None]:
    """Random numbers for several places of dropout: one draw a row from its own key, then cut.

    Args:
      sites: (rate, shape within a row) of each place; one that drops nothing gets None.
      bits: 8 packs four decisions into a drawn word, so a rate is a multiple of 1/256 (0.1 becomes
        26/256); 32 spends a word on each.

    Returns uint8 or uint32 [B, *shape] for each site; None for all without keys.
    """
    shapes = [tuple(shape) if _drop_below(rate, bits) else None for rate, shape in sites]
    if keys_B is None or not any(shapes):
        return [None] * len(shapes)
    sizes = [math.prod(shape) if shape else 0 for shape in shapes]
    words = [-(-size * bits // 32) for size in sizes]
    drawn = jax.vmap(lambda key: jax.random.bits(key, (sum(words),), jnp.uint32))(keys_B)
    pieces, first = [], 0
    for shape, size, count in zip(shapes, sizes, words):
        # Words are cut and not bytes: a TPU takes twice as long to compile the other.
        piece = drawn[:, first : first + count]
        if bits == 8:
            piece = lax.bitcast_convert_type(piece, jnp.uint8).reshape(len(keys_B), 4 * count)
        pieces.append(piece[:, :size].reshape(len(keys_B), *shape) if shape else None)
        first += count
    return pieces


def dropout(x: jax.Array, rate: float, drawn: jax.Array | None) -> jax.Array:
    """Drops elements of x by what `draw` gave for them; without that x comes back as it is.

    What is kept is divided by the probability that is really used, so the mean stays exact.
    """
    if drawn is None:
        return x
    kept, share = keeps(rate, drawn)
    # In float32: bfloat16 holds 1 / share to two or three digits, and the mean would be off.
    scaled = x.astype(jnp.float32) * (1 / share)
    return jnp.where(kept, scaled, 0).astype(x.dtype)


def keeps(rate: float, drawn: jax.Array) -> tuple[jax.Array, float]:
    """Which elements stay, bool in the shape of `drawn`, and the probability of that."""
    bits = 8 * drawn.dtype.itemsize
    drop_below = _drop_below(rate, bits)
    return drawn >= drop_below, 1 - drop_below / 2**bits


def _drop_below(rate, bits):
    return round(rate * 2**bits)
