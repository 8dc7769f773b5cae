# SPDX-License-Identifier: Apache-2.0
"""Dense products, norms, GELU and dropout as pure functions, with the initial weights of each.

Weights are plain dicts of float32 arrays and are cast to the compute dtype where they are used.
To create stacked weights, pass shapes with a leading `layers` dimension.

    R, C  rows and columns of a draw     W  32-bit words     P  parts of a sum
"""

import functools
import math
from collections.abc import Collection, Sequence

import jax
from jax import lax
from jax import numpy as jnp

NORM_EPSILON = 1e-12  # as BERT; flax's default is 1e-6


def init_dense(
    key: jax.Array, shape: Sequence[int], bias: Sequence[int] | None, scale: float
) -> dict:
    """Returns a kernel from a normal truncated at 2 deviations (as TensorFlow), and a zero bias.

    There is no bias if its shape is None.
    """
    kernel = scale * jax.random.truncated_normal(key, -2.0, 2.0, tuple(shape), jnp.float32)
    if bias is None:
        return {"kernel": kernel}
    return {"kernel": kernel, "bias": jnp.zeros(tuple(bias), jnp.float32)}


def init_glorot(key: jax.Array, fan_in: int, fan_out: int) -> dict:
    """Returns a Glorot-uniform kernel [fan_in, fan_out] and a zero bias: the default of tf.layers,
    which the reference uses."""
    kernel = jax.nn.initializers.glorot_uniform()(key, (fan_in, fan_out), jnp.float32)
    return {"kernel": kernel, "bias": jnp.zeros((fan_out,), jnp.float32)}


def init_norm(shape: Sequence[int]) -> dict:
    """Returns scale 1 and bias 0."""
    return {"scale": jnp.ones(tuple(shape)), "bias": jnp.zeros(tuple(shape))}


def init_rms_norm(shape: Sequence[int]) -> dict:
    """Returns scale 1 and no bias."""
    return {"scale": jnp.ones(tuple(shape))}


def cast_for_products(params: dict, dtype: jnp.dtype) -> dict:
    """Returns the parameters with kernels and their biases in `dtype`; norms stay as they are."""
    if "kernel" in params:
        return {name: x.astype(dtype) for name, x in params.items()}
    return {
        name: cast_for_products(x, dtype) if isinstance(x, dict) else x
        for name, x in params.items()
    }


def dense(params: dict, x: jax.Array, result: jnp.dtype | None = None) -> jax.Array:
    """Returns x [..., D] times kernel [D, F] plus bias [F], if there is one, in the dtype of x.

    Args:
      result: dtype of the sums, the bias and the result; None means the dtype of x.

    All leading dimensions are merged for the product: with two of them, the backward pass on a CPU
    transposes inside its loops and is five times slower (docs/LOG.md).
    """
    kernel = params["kernel"].astype(x.dtype)
    y = jnp.matmul(x.reshape(-1, kernel.shape[0]), kernel, preferred_element_type=result)
    if "bias" in params:
        y = y + params["bias"].astype(y.dtype)
    return y.reshape(*x.shape[:-1], kernel.shape[1])


def cpu_dense(params: dict, x: jax.Array) -> jax.Array:
    """Returns what `dense` does; every sum, forward and backward, is float32 and rounded once.

    XLA's compiler for CPUs uses their units for bfloat16 (measured on AMX) in products with float32
    results only (docs/LOG.md). The gradient of a kernel has a form of its own there.
    """
    kernel = params["kernel"].astype(x.dtype)
    y = _cpu_dense(kernel, params.get("bias"), x.reshape(-1, kernel.shape[0]))
    return y.reshape(*x.shape[:-1], kernel.shape[1])


@jax.custom_vjp
def _cpu_dense(kernel_DF, bias_F, x_SD):
    y_SF = _dot_in_float32(x_SD, kernel_DF, ((1,), (0,)))
    if bias_F is not None:
        y_SF += bias_F
    return y_SF.astype(x_SD.dtype)


def _cpu_dense_forward(kernel_DF, bias_F, x_SD):
    return _cpu_dense(kernel_DF, bias_F, x_SD), (kernel_DF, bias_F, x_SD)


def _cpu_dense_backward(saved, gradient_SF):
    kernel_DF, bias_F, x_SD = saved
    of_x_SD = _dot_in_float32(gradient_SF, kernel_DF, ((1,), (1,)))
    of_kernel_DF = cpu_kernel_gradient(x_SD, gradient_SF)
    of_bias_F = None
    if bias_F is not None:
        of_bias_F = _in_parts(gradient_SF).astype(jnp.float32).sum(1).sum(0).astype(bias_F.dtype)
    return of_kernel_DF.astype(kernel_DF.dtype), of_bias_F, of_x_SD.astype(x_SD.dtype)


_cpu_dense.defvjp(_cpu_dense_forward, _cpu_dense_backward)


def kernel_gradient(x_SD: jax.Array, gradient_SF: jax.Array) -> jax.Array:
    """Returns x^T gradient, [D, F] in float32, summed over the rows."""
    return _dot_in_float32(x_SD, gradient_SF, ((0,), (0,)))


def cpu_kernel_gradient(x_SD: jax.Array, gradient_SF: jax.Array) -> jax.Array:
    """Returns what `kernel_gradient` does, in the form that is fastest on CPUs (docs/LOG.md).

    XLA copies the first factor into the order of its transpose, so that is the narrower one.
    """
    if x_SD.shape[1] > gradient_SF.shape[1]:
        # Without the barrier the compiler would turn the product round again.
        return lax.optimization_barrier(cpu_kernel_gradient(gradient_SF, x_SD)).T

    if x_SD.dtype == jnp.float32:
        return kernel_gradient(x_SD, gradient_SF)
    # A sum over two dimensions is one for which the units for bfloat16 are used.
    return _dot_in_float32(_in_parts(x_SD), _in_parts(gradient_SF), ((0, 1), (0, 1)))


def _dot_in_float32(a, b, contracted):
    return lax.dot_general(a, b, (contracted, ((), ())), preferred_element_type=jnp.float32)


def _in_parts(x_SD):
    """Rows [S, D] as [P, S / P, D], in 16 parts if 16 divides them."""
    return x_SD.reshape(math.gcd(16, len(x_SD)), -1, x_SD.shape[1])


# How a network multiplies by its kernels, by its `products`.
DENSE = {"default": dense, "cpu": cpu_dense}
KERNEL_GRADIENTS = {"default": kernel_gradient, "cpu": cpu_kernel_gradient}


@jax.custom_vjp
def layer_norm(params: dict, x: jax.Array) -> jax.Array:
    """Normalises the last dimension; the statistics are float32 for any dtype of x.

    For the backward pass only x and two numbers per vector are kept; the rest is computed again.
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
    """The exact (erf) GELU, as the reference; the tanh form changes logits by up to 7e-4."""
    return _gelu(x)[0]


def _gelu(x):
    """Returns the value and the derivative; the backward pass keeps only the derivative."""
    y = x.astype(jnp.float32)
    below = 0.5 * (1 + lax.erf(y * math.sqrt(0.5)))  # the normal distribution up to y
    density = jnp.exp(-0.5 * y * y) * (1 / math.sqrt(2 * math.pi))
    return (y * below).astype(x.dtype), (below + y * density).astype(x.dtype)


gelu.defvjp(_gelu, lambda derivative, gradient: (gradient * derivative,))


def draw(
    keys_B: jax.Array | None,
    sites: Sequence[tuple[float, Sequence[int]]],
    bits: int,
    as_words: Collection[int] = (),
) -> list[jax.Array | None]:
    """Draws the random numbers for several dropouts: one draw per row from its key, then cut up.

    Args:
      sites: (rate, shape within a row) of each dropout.
      bits: with 8, one drawn word serves four elements, so a rate is a multiple of 1/256 (0.1
        becomes 26/256); with 32, each element takes a word.
      as_words: numbers of the sites that get their words uncut, uint32 [B, ..., rows / 4, columns]
        of 8 bits: byte n of a word is for its place in quarter n of the rows.

    Returns uint8 or uint32 [B, *shape] for each site; None for a site that drops nothing, and for
    all sites if there are no keys.
    """
    shapes = [tuple(shape) if drop_threshold(rate, bits) else None for rate, shape in sites]
    if keys_B is None or not any(shapes):
        return [None] * len(shapes)

    # The draw has the columns of the largest dropout site, which then need not be laid out anew.
    columns = max((shape for shape in shapes if shape), key=math.prod)[-1]
    words = [-(-math.prod(shape) * bits // 32) if shape else 0 for shape in shapes]
    size = (-(-sum(words) // columns), columns)
    drawn_BRC = jax.vmap(lambda key: jax.random.bits(key, size, jnp.uint32))(keys_B)

    pieces, first = [], 0
    for site, (shape, count) in enumerate(zip(shapes, words)):
        cut = _words if bits == 32 else _uncut if site in as_words else _bytes
        pieces.append(cut(drawn_BRC, first, shape) if shape else None)
        first += count

    return pieces


def _words(drawn_BRC, first, shape):
    """The words from number `first` on: uint32 [B, *shape]."""
    columns, count = drawn_BRC.shape[-1], math.prod(shape)
    row, at = divmod(first, columns)
    rows = drawn_BRC[:, row : -(-(first + count) // columns)]
    return rows.reshape(len(rows), -1)[:, at : at + count].reshape(-1, *shape)


def _uncut(drawn_BRC, first, shape):
    """The words whose bytes stand in the quarters of the rows: [B, ..., rows / 4, columns]."""
    *before, rows, columns = shape
    return _words(drawn_BRC, first, (*before, rows // 4, columns))


def _bytes(drawn_BRC, first, shape):
    """The bytes of the words from number `first` on: uint8 [B, *shape], in the platform's order."""
    orders = {"tpu": _in_quarters, "default": _beside_each_other}
    ways = {
        name: functools.partial(order, first=first, shape=shape) for name, order in orders.items()
    }
    return lax.platform_dependent(drawn_BRC, **ways)


def _beside_each_other(drawn_BRC, first, shape):
    """The four bytes of a word one after the other, which costs a CPU and a GPU nothing."""
    count = math.prod(shape)
    words_BW = _words(drawn_BRC, first, (-(-count // 4),))
    flat = lax.bitcast_convert_type(words_BW, jnp.uint8).reshape(len(words_BW), -1)
    return flat[:, :count].reshape(-1, *shape)


def _in_quarters(drawn_BRC, first, shape):
    """The four bytes of a word in the four quarters of the rows, or of all numbers.

    So each word stays in its lane of a TPU, where an array whose last axis is 4 takes the room and
    the time of 128 (docs/LOG.md).
    """
    if len(shape) < 2 or shape[-2] % 4:
        count = math.prod(shape)
        flat = _quarters(_words(drawn_BRC, first, (-(-count // 4),)), 1)
        return flat[:, :count].reshape(-1, *shape)
    return _quarters(_uncut(drawn_BRC, first, shape), -2)


def _quarters(words, axis):
    return jnp.concatenate([(words >> 8 * n).astype(jnp.uint8) for n in range(4)], axis)


def dropout(x: jax.Array, rate: float, drawn: jax.Array | None) -> jax.Array:
    """Drops elements of x, as `drawn` (from `draw`) decides; returns x if `drawn` is None.

    The kept elements are divided by the rounded probability that is used, so the mean stays exact.
    """
    if drawn is None:
        return x

    kept, share = keeps(rate, drawn)
    # In float32: bfloat16 has two or three digits, so 1 / share would change the mean.
    scaled = x.astype(jnp.float32) * (1 / share)
    return jnp.where(kept, scaled, 0).astype(x.dtype)


def keeps(rate: float, drawn: jax.Array) -> tuple[jax.Array, float]:
    """Returns which elements are kept, bool in the shape of `drawn`, and their probability."""
    bits = 8 * drawn.dtype.itemsize
    drop_below = drop_threshold(rate, bits)
    return drawn >= drop_below, 1 - drop_below / 2**bits


def drop_threshold(rate: float, bits: int) -> int:
    """Returns the number of `bits` bits below which an element is dropped; 0 drops none."""
    return round(rate * 2**bits)
