# SPDX-License-Identifier: Apache-2.0
"""Scores a few tokens at each slot, to find the original among them (TEAMS, arXiv:2106.00139).

    hidden states of the slots -> dense, GELU, norm -> products with the embeddings of the tokens

The form is that of the generator's head; a few rows of the token table take the place of the whole.
"""

import jax
from jax import numpy as jnp

from electra_jax.model import encoder, layers


def init(key: jax.Array, config: encoder.EncoderConfig, embedding_size: int) -> dict:
    """Returns the parameters of the head."""
    shape = config.width, embedding_size
    return {
        "dense": layers.init_dense(key, shape, (embedding_size,), config.initial_scale),
        "norm": layers.init_norm((embedding_size,)),
    }


def scores(
    params: dict,
    token_VE: jax.Array,
    hidden_BND: jax.Array,
    offered_BNO: jax.Array,
    *,
    config: encoder.EncoderConfig,
) -> jax.Array:
    """Returns a score for each of the O tokens that a slot is offered, float32 [B, N, O]."""
    vectors_BNE = layers.layer_norm(
        params["norm"], layers.gelu(config.dense(params["dense"], hidden_BND))
    )
    offered_BNOE = token_VE[offered_BNO].astype(vectors_BNE.dtype)
    return jnp.einsum(
        "BNE,BNOE->BNO", vectors_BNE, offered_BNOE, preferred_element_type=jnp.float32
    )
