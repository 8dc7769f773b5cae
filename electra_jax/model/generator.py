# SPDX-License-Identifier: Apache-2.0
"""The generator: a narrow encoder that predicts the tokens at the chosen slots (paper, section 2).

Embedded rows -> encoder -> hidden states of the slots -> head -> vectors, which `logits` scores
against the token table.
"""

import jax
from flax import linen as nn
from jax import numpy as jnp

from electra_jax.core import placing
from electra_jax.model import encoder, token_head
from electra_jax.model.encoder_config import EncoderConfig


class Generator(nn.Module):
    """Embedded rows [B, L, E] -> vectors of the chosen slots [B, N, E].

    Only the N slots go through the head, so logits are [B, N, V] and never [B, L, V].
    """

    config: EncoderConfig
    embedding_size: int
    vocab_size: int
    placement: placing.Placement = placing.ONE_DEVICE

    @nn.compact
    def __call__(
        self,
        embedded_BLE: jax.Array,
        documents_BL: jax.Array,
        slots_BN: jax.Array,
        keys_B: jax.Array | None,
    ) -> jax.Array:
        hidden_BLD = encoder.encode(self, embedded_BLE, documents_BL, keys_B)

        hidden_BND = jnp.take_along_axis(hidden_BLD, slots_BN[:, :, None], axis=1)
        head = self.param("head", self._init_head)

        return token_head.vectors(head, hidden_BND, self.config)

    def _init_head(self, key):
        own = token_head.init(key, self.config, self.embedding_size)
        return own | {"bias": jnp.zeros((self.vocab_size,))}


def logits(vectors_BNE: jax.Array, token_VE: jax.Array, bias_V: jax.Array, size: int) -> jax.Array:
    """Returns float32 scores [B, N, V] of all tokens of the tied table.

    Tokens from `size` on only pad the vocabulary; their score is -1e9.
    """
    logits_BNV = jnp.einsum(
        "BNE,VE->BNV",
        vectors_BNE,
        token_VE.astype(vectors_BNE.dtype),
        preferred_element_type=jnp.float32,
    )
    inside_V = jnp.arange(bias_V.shape[0]) < size
    return jnp.where(inside_V, logits_BNV + bias_V, -1e9)
