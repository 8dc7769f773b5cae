# SPDX-License-Identifier: Apache-2.0
"""Multi-head self-attention of one layer, for stacked weights [layers, ...].

visible_BLL says who sees whom: a token sees the tokens of its own document. A padded query sees
every real token, which changes no real token and is what BERT's additive mask does.
"""

import math
from collections.abc import Sequence

import jax
from jax import numpy as jnp

from electra_jax.model import layers

_HIDDEN = -1e9  # a score that softmax turns into exactly 0 in float32


def init(
    key: jax.Array, *, stack: int, width: int, heads: int, scale: float
) -> dict[str, dict[str, jax.Array]]:
    """Returns query, key, value, output and norm, each with a leading `stack` dimension."""
    size = width // heads
    query, key_, value, output = jax.random.split(key, 4)
    into, out_of = (stack, width, heads, size), (stack, heads, size, width)
    return {
        "query": layers.init_dense(query, into, (stack, heads, size), scale),
        "key": layers.init_dense(key_, into, (stack, heads, size), scale),
        "value": layers.init_dense(value, into, (stack, heads, size), scale),
        "output": layers.init_dense(output, out_of, (stack, width), scale),
        "norm": layers.init_norm((stack, width)),
    }


def visible(documents_BL: jax.Array) -> jax.Array:
    """Block-diagonal by document: [B, query, key] bool.

    documents  1 1 2 0      query 1  1 1 . .
                            query 1  1 1 . .
                            query 2  . . 1 .
                            padding  1 1 1 .
    """
    query_BL1, key_B1L = documents_BL[:, :, None], documents_BL[:, None, :]
    return ((query_BL1 == key_B1L) | (query_BL1 == 0)) & (key_B1L > 0)


def apply(
    params: dict,
    hidden_BLD: jax.Array,
    visible_BLL: jax.Array,
    *,
    dropout: float,
    attention_dropout: float,
    drawn: Sequence[jax.Array | None],
) -> jax.Array:
    """Attends, projects, drops, adds the residual and norms (post-norm): [B, L, D].

    `drawn` is what `layers.draw` gave for the probabilities and for the output.
    """
    drawn_BHLM, drawn_BLD = drawn
    query_BLHK, key_BLHK, value_BLHK = (
        layers.dense(params[name], hidden_BLD) for name in ("query", "key", "value")
    )
    scores_BHLM = jnp.einsum("BLHK,BMHK->BHLM", query_BLHK, key_BLHK).astype(jnp.float32)
    scores_BHLM *= 1 / math.sqrt(query_BLHK.shape[-1])
    scores_BHLM = jnp.where(visible_BLL[:, None], scores_BHLM, _HIDDEN)
    probabilities_BHLM = jax.nn.softmax(scores_BHLM).astype(hidden_BLD.dtype)
    probabilities_BHLM = layers.dropout(probabilities_BHLM, attention_dropout, drawn_BHLM)
    mixed_BLHK = jnp.einsum("BHLM,BMHK->BLHK", probabilities_BHLM, value_BLHK)
    output_BLD = layers.dense(_merge_heads(params["output"]), _flat_heads(mixed_BLHK))
    output_BLD = layers.dropout(output_BLD, dropout, drawn_BLD)
    return layers.layer_norm(params["norm"], hidden_BLD + output_BLD)


def _flat_heads(mixed_BLHK):
    return mixed_BLHK.reshape(*mixed_BLHK.shape[:2], -1)


def _merge_heads(output):
    kernel_HKD = output["kernel"]
    return {"kernel": kernel_HKD.reshape(-1, kernel_HKD.shape[-1]), "bias": output["bias"]}
