# SPDX-License-Identifier: Apache-2.0
"""The head that predicts tokens: a vector for each slot, which is held against those of tokens.

    hidden states of the slots -> dense, GELU, norm -> products with rows of the token table

Source: `_get_masked_lm_output` of the reference's run_pretraining.py.
"""

import jax

from electra_jax.model import layers
from electra_jax.model.encoder_config import EncoderConfig


def init(key: jax.Array, config: EncoderConfig, embedding_size: int) -> dict:
    """Returns the parameters of the head."""
    shape = config.width, embedding_size
    return {
        "dense": layers.init_dense(key, shape, (embedding_size,), config.initial_scale),
        "norm": layers.init_norm((embedding_size,)),
    }


def vectors(params: dict, hidden_BND: jax.Array, config: EncoderConfig) -> jax.Array:
    """Returns the vectors of the slots, [B, N, E] in the compute dtype."""
    return layers.layer_norm(params["norm"], layers.gelu(config.dense(params["dense"], hidden_BND)))
