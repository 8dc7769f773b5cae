# SPDX-License-Identifier: Apache-2.0
"""A stack of post-norm Transformer layers (BERT's, without a pooler).

Weights are stored stacked, [layers, ...], whether the layers run as one loop (`scan`) or
unrolled: how fast it runs never changes what a checkpoint looks like.
"""

import dataclasses
from collections.abc import Callable

import jax
from flax import linen as nn
from jax import lax

from electra_jax import sharding, streams
from electra_jax.model import attention, feed_forward, layers

REMAT = {  # what the backward pass keeps instead of computing it again
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "full": jax.checkpoint_policies.nothing_saveable,
}


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """The shape of one network, and how its layers run."""

    layers: int
    width: int
    heads: int
    feed_forward: int
    dropout: float = 0.1
    attention_dropout: float = 0.1
    dropout_bits: int = 8
    initial_scale: float = 0.02
    scan: bool = False
    remat: str = "none"
    keep_rows: Callable[[jax.Array], jax.Array] = sharding.as_they_are  # where hidden states lie


class Encoder(nn.Module):
    """[B, L, D] -> [B, L, D]; dropout only with keys."""

    config: EncoderConfig

    @nn.compact
    def __call__(
        self, hidden_BLD: jax.Array, documents_BL: jax.Array, keys_B: jax.Array | None
    ) -> jax.Array:
        c = self.config
        shape = dict(stack=c.layers, width=c.width, scale=c.initial_scale)
        stacked = {
            "attention": self.param(
                "attention", lambda k: attention.init(k, heads=c.heads, **shape)
            ),
            "feed_forward": self.param(
                "feed_forward", lambda k: feed_forward.init(k, feed_forward=c.feed_forward, **shape)
            ),
        }
        visible_BLL = attention.visible(documents_BL)
        length = documents_BL.shape[1]
        sites = (
            (c.attention_dropout, (c.heads, length, length)),  # attention probabilities
            (c.dropout, (length, c.width)),  # attention output
            (c.dropout, (length, c.width)),  # feed-forward output
        )

        def layer(hidden_BLD, keys_params):
            keys_B, params = keys_params
            *attention_drawn, feed_forward_drawn = layers.draw(keys_B, sites, c.dropout_bits)
            hidden_BLD = attention.apply(
                params["attention"],
                hidden_BLD,
                visible_BLL,
                dropout=c.dropout,
                attention_dropout=c.attention_dropout,
                drawn=attention_drawn,
            )
            hidden_BLD = feed_forward.apply(
                params["feed_forward"], hidden_BLD, dropout=c.dropout, drawn_BLD=feed_forward_drawn
            )
            return c.keep_rows(hidden_BLD), None

        hidden_BLD = c.keep_rows(hidden_BLD)
        keys_NB = None if keys_B is None else streams.fold_each(keys_B, c.layers)
        if c.remat != "none":
            layer = jax.checkpoint(layer, policy=REMAT[c.remat], prevent_cse=not c.scan)
        if c.scan:
            return lax.scan(layer, hidden_BLD, (keys_NB, stacked))[0]
        for number in range(c.layers):
            one = jax.tree.map(lambda x, number=number: x[number], (keys_NB, stacked))
            hidden_BLD, _ = layer(hidden_BLD, one)
        return hidden_BLD
