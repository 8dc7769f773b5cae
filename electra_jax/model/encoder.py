# SPDX-License-Identifier: Apache-2.0
"""A stack of Transformer layers without a pooler: BERT's, or a modern one by its settings.

Embedded rows are projected to the encoder's width, if it differs, and go through the layers. Each
setting chooses one of several functions with the same arguments: place and kind of the norms, kind
of feed-forward, learned or rotary positions, biases, global or local attention
(docs/modern_trunk.md), and how attention is computed. Weights are stored stacked, [layers, ...],
whether the layers run as one loop (`scan`) or unrolled, so settings of speed do not change the form
of a checkpoint.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
from flax import linen as nn
from jax import lax

from electra_jax.core import batch as batch_lib
from electra_jax.core import placing, streams
from electra_jax.model import (
    attention,
    attention_ways,
    feed_forward,
    layer_stack,
    layers,
    residual_norm,
)
from electra_jax.model.encoder_config import EncoderConfig

NORMS = {  # kind -> (function that creates its parameters, the norm)
    "layer": (layers.init_norm, layers.layer_norm),
    "rms": (layers.init_rms_norm, layers.rms_norm),
}

FEED_FORWARDS = {
    "gelu": (feed_forward.init, feed_forward.gelu),
    "geglu": (feed_forward.init_gated, feed_forward.geglu),
}


@dataclasses.dataclass(frozen=True)
class Branch:
    """Attention or feed-forward of one layer, and the dropout of its output."""

    params: dict  # of its products and `norm`; or with `end`, from `residual_norm.with_end`
    run: Callable  # (params, x [B, L, D]) -> [B, L, D]
    drawn_BLD: jax.Array | None  # random numbers of the dropout

    def dropped(self, c: EncoderConfig, x_BLD: jax.Array) -> jax.Array:
        """dropout(f(x))."""
        return layers.dropout(self.run(self.params, x_BLD), c.dropout, self.drawn_BLD)


# Each function puts the residual and the norm of a layer around a branch f, [B, L, D] -> [B, L, D].


def post_norm(
    c: EncoderConfig, placement: placing.Placement, branch: Branch, hidden_BLD: jax.Array
) -> jax.Array:
    """norm(x + dropout(f(x))), as in the original Transformer and BERT."""
    del placement  # XLA splits it by itself
    _, norm = NORMS[c.norm_kind]
    return norm(branch.params["norm"], hidden_BLD + branch.dropped(c, hidden_BLD))


def pre_norm(
    c: EncoderConfig, placement: placing.Placement, branch: Branch, hidden_BLD: jax.Array
) -> jax.Array:
    """x + dropout(f(norm(x))) (Xiong et al. 2020); the last layer's output gets one more norm."""
    del placement
    _, norm = NORMS[c.norm_kind]
    return hidden_BLD + branch.dropped(c, norm(branch.params["norm"], hidden_BLD))


def post_norm_in_kernel(
    c: EncoderConfig, placement: placing.Placement, branch: Branch, hidden_BLD: jax.Array
) -> jax.Array:
    """What `post_norm` does, all that comes after the last product of f in one kernel."""
    rows = [hidden_BLD, branch.run(branch.params, hidden_BLD)]
    if branch.drawn_BLD is not None:
        rows.append(branch.drawn_BLD)
    end = functools.partial(residual_norm.end_of_branch, dropout=c.dropout)
    return placement.rowwise(end, tuple(rows), (branch.params["end"],))


LAST = {"attention": "output", "feed_forward": "out"}  # branch -> its last product
PLACES = {"post": post_norm, "pre": pre_norm}


class Encoder(nn.Module):
    """Hidden states [B, L, D] -> (hidden states, what the last layer has read or None).

    Dropout is applied only if keys are given. Rotary positions restart with each document.
    """

    config: EncoderConfig
    placement: placing.Placement = placing.ONE_DEVICE
    forks: bool = False  # whether another layer reads what the last one does

    @nn.compact
    def __call__(
        self, hidden_BLD: jax.Array, documents_BL: jax.Array, keys_B: jax.Array | None
    ) -> tuple[jax.Array, jax.Array | None]:
        c = self.config
        stacked = {
            "attention": self.param("attention", self._init_attention),
            "feed_forward": self.param("feed_forward", self._init_feed_forward),
        }
        init_norm, norm = NORMS[c.norm_kind]
        if c.norm_place == "pre":
            last_norm = self.param("norm", lambda _: init_norm((c.width,)))

        if self.is_initializing():
            # Parameters are created with one made-up row, whose length fused attention refuses.
            return hidden_BLD, hidden_BLD if self.forks else None

        layer = _layer(c, self.placement, documents_BL)

        weights = _prepared_weights(c, stacked, hidden_BLD.shape[1], hidden_BLD.dtype)

        hidden_BLD = self.placement.keep_rows(hidden_BLD)
        # For each layer, the keys of the rows and whether its attention is global.
        keys = None if keys_B is None else streams.layers(keys_B, c.layers)
        is_global = c.global_layers if c.local_window else None
        run = functools.partial(
            layer_stack.run,
            layer,
            scan=c.scan,
            joined_gradients=c.joined_gradients,
            remat=c.remat,
        )

        inputs, count = (keys, weights, is_global), c.layers
        if c.frozen_layers:
            # Run separately, so that none of their activations are kept for the backward pass.
            frozen, inputs = layer_stack.cut(inputs, c.frozen_layers)
            hidden_BLD = run(*lax.stop_gradient((hidden_BLD, frozen)), count=c.frozen_layers)
            count -= c.frozen_layers

        below_last_BLD = None
        if self.forks:
            lower, inputs = layer_stack.cut(inputs, count - 1)
            below_last_BLD = hidden_BLD = run(hidden_BLD, lower, count=count - 1)
            count = 1
        hidden_BLD = run(hidden_BLD, inputs, count=count)

        if c.norm_place == "pre":
            hidden_BLD = norm(last_norm, hidden_BLD)
        if c.frozen_layers == c.layers:  # the last norm belongs to the top layer
            hidden_BLD = lax.stop_gradient(hidden_BLD)
        return hidden_BLD, below_last_BLD

    def _init_attention(self, key):
        begun = attention.init(key, heads=self.config.heads, **self._shape())
        return begun | self._init_norms()

    def _init_feed_forward(self, key):
        init, _ = FEED_FORWARDS[self.config.feed_forward_kind]
        begun = init(key, feed_forward=self.config.feed_forward, **self._shape())
        return begun | self._init_norms()

    def _init_norms(self):
        init, _ = NORMS[self.config.norm_kind]
        return {"norm": init((self.config.layers, self.config.width))}

    def _shape(self):
        c = self.config
        return dict(stack=c.layers, width=c.width, scale=c.initial_scale, biases=c.biases)


def encode(
    module: nn.Module, embedded_BLE: jax.Array, documents_BL: jax.Array, keys_B: jax.Array | None
) -> jax.Array:
    """Embedded rows [B, L, E] -> hidden states [B, L, D]: projection and encoder of any network.

    `module` is the network's module, which calls this function; it has a `config` and a
    `placement`. Its parameters `projection` (only if E differs from the width) and `encoder` are
    created and used here.
    """
    hidden_BLD = _projected(module, embedded_BLE)
    run = Encoder(module.config, module.placement, name="encoder", parent=module)
    return run(hidden_BLD, documents_BL, keys_B)[0]


def encode_and_fork(
    module: nn.Module, embedded_BLE: jax.Array, documents_BL: jax.Array, keys_B: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """As `encode`, with the hidden states that the last layer reads, for another one beside it."""
    hidden_BLD = _projected(module, embedded_BLE)
    run = Encoder(module.config, module.placement, forks=True, name="encoder", parent=module)
    return run(hidden_BLD, documents_BL, keys_B)


def _projected(module, embedded_BLE):
    """Embedded rows in the encoder's width."""
    config, size = module.config, embedded_BLE.shape[-1]
    if config.width == size:
        return embedded_BLE
    projection = module.param("projection", layers.init_glorot, size, config.width)
    return config.dense(projection, embedded_BLE)


class Trunk(nn.Module):
    """A network without its head: embedded rows [B, L, E] -> hidden states [B, L, D]."""

    config: EncoderConfig
    placement: placing.Placement = placing.ONE_DEVICE

    @nn.compact
    def __call__(
        self, embedded_BLE: jax.Array, documents_BL: jax.Array, keys_B: jax.Array | None
    ) -> jax.Array:
        return encode(self, embedded_BLE, documents_BL, keys_B)


def _prepared_weights(c, stacked, length, dtype):
    """The stacked weights in the form that the layers read.

    They are prepared before the loop over the layers: what is reshaped or cast inside the loop is
    kept again for the backward pass of each layer.
    """
    weights = stacked | {"attention": attention.as_matrices(stacked["attention"])}
    if c.ends_in_kernel(length):
        weights = {name: residual_norm.with_end(weights[name], last) for name, last in LAST.items()}

    weights = layers.cast_for_products(weights, dtype)
    if c.joined_projections:
        weights |= {"attention": attention.joined(weights["attention"])}
    return weights


def _layer(c, placement, documents_BL):
    """Returns one layer as `lax.scan` calls it: (hidden states, inputs) -> (hidden states, None).

    The inputs are what differs between layers: the keys of the rows or None, the layer's weights,
    and whether its attention is global (None if there is no local attention).
    """
    length = documents_BL.shape[1]
    sites = (
        (c.attention_dropout, (c.heads, length, length)),  # attention probabilities
        (c.dropout, (length, c.width)),  # attention output
        (c.dropout, (length, c.width)),  # feed-forward output
    )

    # The fused kernel reads heads as columns, and takes the random words of its dropout uncut.
    as_columns = c.attention == "fused"
    in_kernel = (0,) if as_columns else ()

    _, feed = FEED_FORWARDS[c.feed_forward_kind]
    mix = attention_ways.WAYS[c.attention](c, placement, documents_BL)
    residual = PLACES[c.norm_place]
    if c.ends_in_kernel(length):
        residual = post_norm_in_kernel

    rotation = None
    if c.positions == "rotary":
        positions_BL = batch_lib.positions_in_documents(documents_BL)
        rotation = attention.ROTATIONS[c.products](positions_BL, c.head_size, c.rotary_base)

    def layer(hidden_BLD, inputs):
        keys_B, params, is_global = inputs
        drawn_BHLM, *drawn_BLD = layers.draw(keys_B, sites, c.dropout_bits, in_kernel)

        def attend(params, x_BLD):
            mix_here = functools.partial(mix, is_global, drawn_BHLM)
            return attention.apply(params, x_BLD, c.heads, mix_here, rotation, c.dense, as_columns)

        def feed_forward_of(params, x_BLD):
            return feed(params, x_BLD, c.dense)

        attending = Branch(params["attention"], attend, drawn_BLD[0])
        feeding = Branch(params["feed_forward"], feed_forward_of, drawn_BLD[1])
        for branch in (attending, feeding):
            hidden_BLD = residual(c, placement, branch, hidden_BLD)
        return placement.keep_rows(hidden_BLD), None

    return layer
