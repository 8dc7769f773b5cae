# SPDX-License-Identifier: Apache-2.0
"""The feed-forward half of one layer, for stacked weights [layers, ...]."""

import jax

from electra_jax.model import layers


def init(key: jax.Array, *, stack: int, width: int, feed_forward: int, scale: float) -> dict:
    """Returns in, out and norm, each with a leading `stack` dimension."""
    in_, out = jax.random.split(key)
    return {
        "in": layers.init_dense(in_, (stack, width, feed_forward), (stack, feed_forward), scale),
        "out": layers.init_dense(out, (stack, feed_forward, width), (stack, width), scale),
        "norm": layers.init_norm((stack, width)),
    }


def apply(
    params: dict, hidden_BLD: jax.Array, *, dropout: float, drawn_BLD: jax.Array | None
) -> jax.Array:
    """Widens, GELU, narrows, drops, adds the residual and norms (post-norm): [B, L, D]."""
    wide_BLF = layers.gelu(layers.dense(params["in"], hidden_BLD))
    output_BLD = layers.dropout(layers.dense(params["out"], wide_BLF), dropout, drawn_BLD)
    return layers.layer_norm(params["norm"], hidden_BLD + output_BLD)
