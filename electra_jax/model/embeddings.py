# SPDX-License-Identifier: Apache-2.0
"""Tables of tokens, positions and types with their norm: one subtree that both networks read.

With rotary positions (`attention.rotate`) there is no table of positions.

The reference shares the three tables and the norm (the paper's text names only tokens and
positions); each network then projects to its own width. The token table is also the generator's
output matrix.
"""

import jax
from flax import linen as nn
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.model import layers

TYPES = 2


class Embeddings(nn.Module):
    """Ids [B, L] -> normed embeddings [B, L, E] in `dtype`. Dropout only if keys are given."""

    vocab_size: int
    size: int
    max_positions: int  # 0: no table of positions
    dropout: float
    dropout_bits: int
    initial_scale: float
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, batch: batch_lib.Batch, keys_B: jax.Array | None) -> jax.Array:
        def table(name, rows):
            def init(key):
                shape = (rows, self.size)
                return self.initial_scale * jax.random.truncated_normal(key, -2.0, 2.0, shape)

            return self.param(name, init)

        # flax derives the key of each table from the order in which they are created.
        token_VE = table("token", self.vocab_size)
        summed_BLE = token_VE[batch.ids_BL]
        if self.max_positions:
            summed_BLE += table("position", self.max_positions)[batch.positions_BL]
        # Chosen and not looked up: a gradient of two rows added up token by token takes a GPU long.
        type_TE = table("type", TYPES)
        summed_BLE += jnp.where(batch.types_BL[..., None] == 0, type_TE[0], type_TE[1])

        norm = self.param("norm", lambda _: layers.init_norm((self.size,)))
        normed_BLE = layers.layer_norm(norm, summed_BLE).astype(self.dtype)

        (drawn_BLE,) = layers.draw(
            keys_B, [(self.dropout, normed_BLE.shape[1:])], self.dropout_bits
        )
        return layers.dropout(normed_BLE, self.dropout, drawn_BLE)
