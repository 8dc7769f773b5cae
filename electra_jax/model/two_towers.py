# SPDX-License-Identifier: Apache-2.0
"""Electric's generator: every token guessed from all that stands before and all that stands after.

    left tower    reads left to right; its state at t - 1 knows the tokens before t
    right tower   reads right to left; its state at t + 1 knows those after t
    head          both states -> a vector for the token table

So one pass gives q(x_t | all other tokens) for every t, where masking would need a pass a token.
Clark et al. 2020 (EMNLP), section 2.3: each tower a quarter as wide as the main network.
"""

import dataclasses

import jax
from flax import linen as nn
from jax import numpy as jnp

from electra_jax.core import streams
from electra_jax.model import encoder, layers

SIDES = {"left": "left_to_right", "right": "right_to_left"}


class Tower(nn.Module):
    """One causal encoder: embedded rows [B, L, E] -> [B, L, D]."""

    config: encoder.EncoderConfig
    embedding_size: int

    @nn.compact
    def __call__(
        self, embedded_BLE: jax.Array, documents_BL: jax.Array, keys_B: jax.Array | None
    ) -> jax.Array:
        c, size, hidden_BLD = self.config, self.embedding_size, embedded_BLE
        if c.width != size:
            projection = self.param("projection", layers.init_glorot, size, c.width)
            hidden_BLD = layers.dense(projection, hidden_BLD)
        return encoder.Encoder(c, name="encoder")(hidden_BLD, documents_BL, keys_B)


class TwoTowers(nn.Module):
    """Embedded rows [B, L, E] -> a vector for every token [B, L, E] that has not seen it."""

    config: encoder.EncoderConfig  # of each tower
    embedding_size: int
    vocab_size: int

    @nn.compact
    def __call__(
        self, embedded_BLE: jax.Array, documents_BL: jax.Array, keys_B: jax.Array | None
    ) -> jax.Array:
        states = []
        for side, direction in SIDES.items():
            config = dataclasses.replace(self.config, direction=direction)
            tower_keys_B = None if keys_B is None else streams.part(keys_B, "towers", side)
            tower = Tower(config, self.embedding_size, name=side)
            states.append(tower(embedded_BLE, documents_BL, tower_keys_B))
        left_BLD, right_BLD = states
        # What a first and a last token get here belongs to no one: they are [CLS] and [SEP].
        before_BLD = jnp.pad(left_BLD, ((0, 0), (1, 0), (0, 0)))[:, :-1]
        after_BLD = jnp.pad(right_BLD, ((0, 0), (0, 1), (0, 0)))[:, 1:]
        head = self.param("head", self._init_head)
        joined_BLD = jnp.concatenate([before_BLD, after_BLD], axis=-1)
        return layers.layer_norm(head["norm"], layers.gelu(layers.dense(head["dense"], joined_BLD)))

    def _init_head(self, key):
        c, size = self.config, self.embedding_size
        return {
            "dense": layers.init_dense(key, (2 * c.width, size), (size,), c.initial_scale),
            "norm": layers.init_norm((size,)),
            "bias": jnp.zeros((self.vocab_size,)),
        }
