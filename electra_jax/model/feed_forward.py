# SPDX-License-Identifier: Apache-2.0
"""The feed-forward block of one layer in two kinds; `init` makes stacked weights [layers, ...].

    gelu    out(GELU(in(x)))                BERT
    geglu   out(GELU(gate(x)) * in(x))      Shazeer 2020, "GLU Variants Improve Transformer"

The caller adds the residual, norm and dropout.
"""

from collections.abc import Callable

import jax

from electra_jax.model import layers


def init(
    key: jax.Array, *, stack: int, width: int, feed_forward: int, scale: float, biases: bool = True
) -> dict:
    """Returns in and out, each with a leading `stack` dimension."""
    in_, out = jax.random.split(key)
    inner, outer = ((stack, feed_forward), (stack, width)) if biases else (None, None)
    return {
        "in": layers.init_dense(in_, (stack, width, feed_forward), inner, scale),
        "out": layers.init_dense(out, (stack, feed_forward, width), outer, scale),
    }


def init_gated(
    key: jax.Array, *, stack: int, width: int, feed_forward: int, scale: float, biases: bool = True
) -> dict:
    """Returns in, gate and out.

    The inner width is not reduced to make up for the weights of the gate.
    """
    rest, gate = jax.random.split(key)
    inner = (stack, feed_forward) if biases else None
    made = init(
        rest, stack=stack, width=width, feed_forward=feed_forward, scale=scale, biases=biases
    )
    return made | {"gate": layers.init_dense(gate, (stack, width, feed_forward), inner, scale)}


def gelu(params: dict, hidden_BLD: jax.Array, dense: Callable = layers.dense) -> jax.Array:
    """Returns out(GELU(in(x))), [B, L, D]."""
    wide_BLF = layers.gelu(dense(params["in"], hidden_BLD))
    return dense(params["out"], wide_BLF)


def geglu(params: dict, hidden_BLD: jax.Array, dense: Callable = layers.dense) -> jax.Array:
    """Returns out(GELU(gate(x)) * in(x)), [B, L, D]."""
    gate_BLF = layers.gelu(dense(params["gate"], hidden_BLD))
    return dense(params["out"], gate_BLF * dense(params["in"], hidden_BLD))
