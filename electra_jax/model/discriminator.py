# SPDX-License-Identifier: Apache-2.0
"""The discriminator: the encoder that is fine-tuned later, with a head of one logit per token.

Embedded rows -> encoder -> head: dense, GELU, output (paper, section 2). The kinds of the head:

    token        reads the encoder's hidden states, as published
    cls_context  reads norm(h_t + h_[CLS]), so that [CLS] gets a gradient from each token of its
                 document (DeBERTaV3's code)
    own_layer    has a Transformer layer of its own, which reads what the encoder's last layer
                 reads; that last layer is left to another head (TEAMS, arXiv:2106.00139)
"""

import dataclasses

import jax
from flax import linen as nn
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.core import placing, streams
from electra_jax.model import encoder, layers
from electra_jax.model.encoder_config import EncoderConfig


class Discriminator(nn.Module):
    """Embedded rows [B, L, E] -> hidden states [B, L, D] and logits [B, L], float32.

    A logit above 0 means that the token was replaced.
    """

    config: EncoderConfig
    head: str = "token"  # | 'cls_context' | 'own_layer'
    placement: placing.Placement = placing.ONE_DEVICE

    @nn.compact
    def __call__(
        self, embedded_BLE: jax.Array, documents_BL: jax.Array, keys_B: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        if self.head == "own_layer":
            hidden_BLD, below_last_BLD = encoder.encode_and_fork(
                self, embedded_BLE, documents_BL, keys_B
            )
            heard_BLD = self._own_layer(below_last_BLD, documents_BL, keys_B)
        else:
            hidden_BLD = heard_BLD = encoder.encode(self, embedded_BLE, documents_BL, keys_B)

        head = self.param("head", self._init_head)
        if self.head == "cls_context":
            heard_BLD = layers.layer_norm(
                head["norm"], hidden_BLD + _first(hidden_BLD, documents_BL)
            )
        scored_BLD = layers.gelu(self.config.dense(head["dense"], heard_BLD))
        output = head["output"]
        logits_BL = jnp.einsum(
            "BLD,D->BL",
            scored_BLD,
            output["kernel"][:, 0].astype(scored_BLD.dtype),
            preferred_element_type=jnp.float32,
        )
        return hidden_BLD, logits_BL + output["bias"][0]

    def _own_layer(self, below_last_BLD, documents_BL, keys_B):
        one = dataclasses.replace(self.config, layers=1, frozen_layers=0)
        run = encoder.Encoder(one, self.placement, name="detection")
        if keys_B is not None:  # those of one more layer than the encoder has
            keys_B = streams.layers(keys_B, self.config.layers + 1)[-1]
        return run(below_last_BLD, documents_BL, keys_B)[0]

    def _init_head(self, key):
        width = self.config.width
        dense, output = jax.random.split(key)
        norm = {"norm": layers.init_norm((width,))} if self.head == "cls_context" else {}
        return norm | {
            "dense": layers.init_dense(dense, (width, width), (width,), self.config.initial_scale),
            "output": layers.init_glorot(output, width, 1),
        }


def _first(hidden_BLD, documents_BL):
    """Returns for each token the hidden state of the first token of its document, [CLS]."""
    first_BL = jnp.arange(documents_BL.shape[1]) - batch_lib.positions_in_documents(documents_BL)
    return jnp.take_along_axis(hidden_BLD, first_BL[:, :, None], axis=1)
