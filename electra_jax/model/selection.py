# SPDX-License-Identifier: Apache-2.0
"""Scores a few tokens at each slot, to find the original among them (TEAMS, arXiv:2106.00139).

    hidden states of the slots -> vectors (`token_head`) -> products with the tokens' embeddings

The form is that of the generator's head; a few rows of the token table take the place of the whole.
"""

import jax
from jax import numpy as jnp

from electra_jax.model import token_head
from electra_jax.model.encoder_config import EncoderConfig


def scores(
    params: dict,
    token_VE: jax.Array,
    hidden_BND: jax.Array,
    offered_BNO: jax.Array,
    *,
    config: EncoderConfig,
) -> jax.Array:
    """Returns a score for each of the O tokens that a slot is offered, float32 [B, N, O]."""
    vectors_BNE = token_head.vectors(params, hidden_BND, config)
    offered_BNOE = token_VE[offered_BNO].astype(vectors_BNE.dtype)
    return jnp.einsum(
        "BNE,BNOE->BNO", vectors_BNE, offered_BNOE, preferred_element_type=jnp.float32
    )
