# SPDX-License-Identifier: Apache-2.0
"""Electric's generator: predicts every token from all tokens before it and all tokens after it.

    left tower    reads left to right; its state at t - 1 depends on the tokens before t
    right tower   reads right to left; its state at t + 1 depends on the tokens after t
    head          both states -> a vector that is scored against the token table

One pass gives q(x_t | all other tokens) for every t, where masking would need one pass per token.
Source: Clark et al. 2020 (EMNLP), section 2.3; each tower has a quarter of the main width.
"""

import dataclasses

import jax
from flax import linen as nn
from jax import numpy as jnp

from electra_jax.core import placing, streams
from electra_jax.model import encoder, layers
from electra_jax.model.encoder_config import EncoderConfig

SIDES = {"left": "left_to_right", "right": "right_to_left"}


class TwoTowers(nn.Module):
    """Embedded rows [B, L, E] -> for every token a vector [B, L, E] that does not depend on it."""

    config: EncoderConfig  # of each tower
    embedding_size: int
    vocab_size: int
    placement: placing.Placement = placing.ONE_DEVICE

    @nn.compact
    def __call__(
        self, embedded_BLE: jax.Array, documents_BL: jax.Array, keys_B: jax.Array | None
    ) -> jax.Array:
        states = []
        for side, direction in SIDES.items():
            config = dataclasses.replace(self.config, direction=direction)
            tower_keys_B = None if keys_B is None else streams.part(keys_B, "towers", side)
            tower = encoder.Trunk(config, self.placement, name=side)
            states.append(tower(embedded_BLE, documents_BL, tower_keys_B))
        left_BLD, right_BLD = states

        # Shifted by one, so that no token sees itself. The zeros that the first and the last token
        # get do not matter: these are [CLS] and [SEP], which are never scored.
        before_BLD = jnp.pad(left_BLD, ((0, 0), (1, 0), (0, 0)))[:, :-1]
        after_BLD = jnp.pad(right_BLD, ((0, 0), (0, 1), (0, 0)))[:, 1:]

        head = self.param("head", self._init_head)
        joined_BLD = jnp.concatenate([before_BLD, after_BLD], axis=-1)
        scored_BLE = layers.gelu(self.config.dense(head["dense"], joined_BLD))
        return layers.layer_norm(head["norm"], scored_BLE)

    def _init_head(self, key):
        c, size = self.config, self.embedding_size
        return {
            "dense": layers.init_dense(key, (2 * c.width, size), (size,), c.initial_scale),
            "norm": layers.init_norm((size,)),
            "bias": jnp.zeros((self.vocab_size,)),
        }
