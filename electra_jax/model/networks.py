# SPDX-License-Identifier: Apache-2.0
"""Generator and discriminator as pure functions of plain dicts, for all other subpackages.

A batch is embedded, goes through the encoder of a network, and ends in the vectors of its slots
(`generator_vectors`) or in one logit per token (`discriminate`). Paper: sections 2 and 3.2.

The tree of parameters, which is also that of a checkpoint (docs/parameters.md):

    embeddings/{token, position?, type, norm}
    generator/{projection?, encoder/{attention, feed_forward, norm?}, head/{dense, norm, bias}}
    discriminator/{projection?, encoder/{attention, feed_forward, norm?}, head/{norm?, dense,
                   output}, detection/{attention, feed_forward, norm?}?, selection/{dense, norm}?}

`sharing` says what the networks share (section 3.2 of the paper, and DeBERTaV3, arXiv:2111.09543):

    embeddings  the tables and their norm, as published
    none        nothing; the generator has its own tables in generator/embeddings/
    gdes        the discriminator reads stop_gradient(embeddings) + discriminator/embeddings_delta/
    all         the tables and encoder/{projection?, attention, feed_forward, norm?}

With `shared_layers` under `embeddings` they also share their lowest layers and the projection below
them (TEAMS, arXiv:2106.00139). These are in discriminator/, and generator/upper_layers/ instead of
generator/encoder/ has the rest: part of an encoder must not be taken for a whole one.

The main network is called `discriminator/` even if its objective trains it to predict tokens; it
then has a head like the generator's.
"""

import dataclasses
import functools

import jax
from jax import lax
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.core import placing, streams
from electra_jax.model import (
    discriminator,
    embeddings,
    encoder,
    generator,
    layer_stack,
    layers,
    selection,
    token_head,
    two_towers,
)
from electra_jax.model.encoder_config import EncoderConfig

VOCABULARY_MULTIPLE = 128  # the vocabulary is padded to a multiple of it
_TRUNK_PARTS = ("projection", "encoder")
_STACKED = ("attention", "feed_forward")  # the parts of an encoder that have a layer axis
_UPPER = "upper_layers"
# Two towers have no trunk; `detection` is the layer of a head of its own.
_NETWORK_PARTS = (*_TRUNK_PARTS, "left", "right", "detection", "head")


@dataclasses.dataclass(frozen=True)
class NetworksConfig:
    """Shapes of the shared tables and of both networks."""

    vocab_size: int
    embedding_size: int
    max_positions: int  # 0: no table of positions
    generator: EncoderConfig
    discriminator: EncoderConfig
    dtype: str  # of the computation; parameters are float32
    sharing: str  # what generator and discriminator share: 'embeddings', 'none', 'all', 'gdes'
    discriminator_head: str  # 'token', 'cls_context', 'own_layer'
    shared_layers: int = 0  # the lowest ones of both, with 'embeddings'

    @property
    def padded_vocab_size(self) -> int:
        """V: the vocabulary size, rounded up to a multiple of `VOCABULARY_MULTIPLE`."""
        return -(-self.vocab_size // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE


def init(config: NetworksConfig, key: jax.Array) -> dict:
    """Returns the parameters of generator and discriminator; each part has its own stream."""
    embedded = init_embeddings(config, streams.stream(key, "embeddings"))
    generator_ = init_generator(config, streams.stream(key, "generator"))
    discriminator_ = init_discriminator(config, streams.stream(key, "discriminator"))

    params = {"embeddings": embedded, "generator": generator_, "discriminator": discriminator_}
    if config.sharing == "none":
        own = init_embeddings(config, streams.stream(key, "generator_embeddings"))
        params["generator"] = generator_ | {"embeddings": own}
    elif config.sharing == "gdes":
        delta = jax.tree.map(jnp.zeros_like, embedded)
        params["discriminator"] = discriminator_ | {"embeddings_delta": delta}
    elif config.sharing == "all":
        params["encoder"], params["discriminator"] = _split_trunk(discriminator_)
        params["generator"] = _split_trunk(generator_)[1]
    elif config.shared_layers:
        params["generator"] = _upper_part(config, generator_)

    return params


def generator_vectors(
    config: NetworksConfig,
    params: dict,
    batch: batch_lib.Batch,
    slots_BN: jax.Array,
    keys_B: jax.Array | None = None,
    placement: placing.Placement = placing.ONE_DEVICE,
) -> jax.Array:
    """Returns the generator's vectors for the chosen slots, [B, N, E].

    They are scored against the token table, in pieces by `vocabulary_softmax.predict_and_sample` or
    all at once by `generator_logits`. Dropout is applied only if keys are given.
    """
    module = generator_module(config)
    return _apply(config, params, "generator", module, placement, batch, keys_B, slots_BN)


def generator_logits(
    config: NetworksConfig,
    params: dict,
    batch: batch_lib.Batch,
    slots_BN: jax.Array,
    keys_B: jax.Array | None = None,
) -> jax.Array:
    """Returns all scores of the generator at the chosen slots, float32 [B, N, V].

    Training does not use it, because this array may be large.
    """
    vectors_BNE = generator_vectors(config, params, batch, slots_BN, keys_B)
    table = generator_table(config, params)
    return generator.logits(vectors_BNE, *table, config.vocab_size)


def generator_table(config: NetworksConfig, params: dict) -> tuple[jax.Array, jax.Array]:
    """Returns what the generator's vectors are scored against: token table [V, E] and bias [V]."""
    return generator_embeddings(config, params)["token"], params["generator"]["head"]["bias"]


def discriminate(
    config: NetworksConfig,
    params: dict,
    batch: batch_lib.Batch,
    keys_B: jax.Array | None = None,
    placement: placing.Placement = placing.ONE_DEVICE,
) -> jax.Array:
    """Returns the discriminator's logits, float32 [B, L]; above 0 means replaced.

    Dropout is applied only if keys are given.
    """
    return discriminator_outputs(config, params, batch, keys_B, placement)[1]


def discriminator_outputs(
    config: NetworksConfig,
    params: dict,
    batch: batch_lib.Batch,
    keys_B: jax.Array | None = None,
    placement: placing.Placement = placing.ONE_DEVICE,
) -> tuple[jax.Array, jax.Array]:
    """Returns the discriminator's hidden states [B, L, D] and its logits [B, L]."""
    module = discriminator_module(config)
    return _apply(config, params, "discriminator", module, placement, batch, keys_B)


def selection_scores(
    config: NetworksConfig,
    params: dict,
    hidden_BND: jax.Array,
    offered_BNO: jax.Array,
    placement: placing.Placement = placing.ONE_DEVICE,
) -> jax.Array:
    """Returns the discriminator's score of each token that a slot is offered, float32 [B, N, O].

    `hidden_BND` are its hidden states at the slots; the tokens' vectors are those that it reads.
    """
    table_VE = main_embeddings(config, params)["token"]
    return placement.rowwise(
        functools.partial(selection.scores, config=config.discriminator),
        (hidden_BND, offered_BNO),
        shared=(params["discriminator"]["selection"], table_VE),
    )


def correction_vectors(config: NetworksConfig, params: dict, hidden_BND: jax.Array) -> jax.Array:
    """Returns the vectors [B, N, E] by which the discriminator predicts the originals of slots.

    `hidden_BND` are its hidden states there; `correction_table` is what they are scored against.
    """
    head = params["discriminator"]["correction"]
    return token_head.vectors(head, hidden_BND, config.discriminator)


def correction_table(config: NetworksConfig, params: dict) -> tuple[jax.Array, jax.Array]:
    """Returns token table [V, E] and bias [V] of a discriminator that corrects."""
    return main_embeddings(config, params)["token"], params["discriminator"]["correction"]["bias"]


def correction_logits(config: NetworksConfig, params: dict, vectors_BNE: jax.Array) -> jax.Array:
    """Returns the scores of all tokens for `correction_vectors`, float32 [B, N, V].

    Training does not use it, because this array may be large.
    """
    table = correction_table(config, params)
    return generator.logits(vectors_BNE, *table, config.vocab_size)


def hidden(
    config: NetworksConfig,
    params: dict,
    batch: batch_lib.Batch,
    keys_B: jax.Array | None = None,
    placement: placing.Placement = placing.ONE_DEVICE,
) -> jax.Array:
    """Returns the main network's hidden states [B, L, D]; it may have any head or none."""
    trunk = encoder.Trunk(config.discriminator)
    return _apply(config, params, "discriminator", trunk, placement, batch, keys_B)


def predictor_vectors(
    config: NetworksConfig,
    params: dict,
    batch: batch_lib.Batch,
    slots_BN: jax.Array,
    keys_B: jax.Array | None = None,
    placement: placing.Placement = placing.ONE_DEVICE,
) -> jax.Array:
    """Returns the vectors [B, N, E] of a main network that predicts tokens."""
    module = predictor_module(config)
    return _apply(config, params, "discriminator", module, placement, batch, keys_B, slots_BN)


def predictor_table(config: NetworksConfig, params: dict) -> tuple[jax.Array, jax.Array]:
    """Returns token table [V, E] and bias [V] of a main network that predicts tokens."""
    return main_embeddings(config, params)["token"], params["discriminator"]["head"]["bias"]


def towers(
    config: NetworksConfig,
    params: dict,
    batch: batch_lib.Batch,
    keys_B: jax.Array | None = None,
    placement: placing.Placement = placing.ONE_DEVICE,
) -> jax.Array:
    """Returns the two towers' vectors [B, L, E]; a token's vector does not depend on that token."""
    module = towers_module(config)
    return _apply(config, params, "generator", module, placement, batch, keys_B)


def gate(params: dict, vectors_BNE: jax.Array) -> jax.Array:
    """Returns one number per vector, float32 [B, N]; the parameters are those of `init_gate`."""
    return layers.dense(params, vectors_BNE, result=jnp.float32)[..., 0]


def embed(
    config: NetworksConfig, tables: dict, batch: batch_lib.Batch, keys_B: jax.Array | None = None
) -> jax.Array:
    """Returns a network's input, [B, L, E] in the compute dtype. Dropout only if keys are given."""
    return _embeddings(config).apply({"params": tables}, batch, keys_B)


def generator_embeddings(config: NetworksConfig, params: dict) -> dict:
    """Returns the embedding tables that the generator reads."""
    return params["generator"]["embeddings"] if config.sharing == "none" else params["embeddings"]


def main_embeddings(config: NetworksConfig, params: dict) -> dict:
    """Returns the embedding tables that the main network reads; with `gdes` the sum of two.

    The delta starts at zero and only the discriminator trains it; only the generator trains the
    shared tables. DeBERTaV3 does this for tokens and positions, here also for types and the norm.
    """
    if config.sharing != "gdes":
        return params["embeddings"]

    shared = lax.stop_gradient(params["embeddings"])
    return jax.tree.map(jnp.add, shared, params["discriminator"]["embeddings_delta"])


def alone(config: NetworksConfig, params: dict, name: str) -> dict:
    """Returns one network as if it shared nothing: {embeddings, projection?, encoder, head?}.

    The two tables of `gdes` are added up. Parameters that only training needs are left out.
    """
    tables = main_embeddings if name == "discriminator" else generator_embeddings
    return {"embeddings": tables(config, params)} | module_weights(config, params, name)


def main_trunk(config: NetworksConfig, params: dict) -> dict:
    """Returns what is fine-tuned: the main network without its head, and the tables that it reads.

    The form is {'embeddings': tables, 'discriminator': {'projection'?, 'encoder'}} for any sharing.
    """
    own = alone(config, params, "discriminator")
    return {
        "embeddings": own["embeddings"],
        "discriminator": {part: own[part] for part in _TRUNK_PARTS if part in own},
    }


def init_embeddings(config: NetworksConfig, key: jax.Array) -> dict:
    """Returns the `embeddings` subtree."""
    return _embeddings(config).init(key, _one_row(), None)["params"]


def init_generator(config: NetworksConfig, key: jax.Array) -> dict:
    """Returns the `generator` subtree, its encoder included."""
    slots_BN = jnp.zeros((1, 1), jnp.int32)
    return generator_module(config).init(key, *_one_embedded(config), slots_BN, None)["params"]


def init_discriminator(config: NetworksConfig, key: jax.Array) -> dict:
    """Returns the `discriminator` subtree, its encoder included."""
    return discriminator_module(config).init(key, *_one_embedded(config), None)["params"]


def init_predictor(config: NetworksConfig, key: jax.Array) -> dict:
    """Returns the `discriminator` subtree of a main network that predicts tokens."""
    slots_BN = jnp.zeros((1, 1), jnp.int32)
    return predictor_module(config).init(key, *_one_embedded(config), slots_BN, None)["params"]


def init_towers(config: NetworksConfig, key: jax.Array) -> dict:
    """Returns the `generator` subtree of Electric: left, right and head."""
    return towers_module(config).init(key, *_one_embedded(config), None)["params"]


def init_selection(config: NetworksConfig, key: jax.Array) -> dict:
    """Returns the head that finds the original among a few tokens: `discriminator/selection`."""
    return token_head.init(key, config.discriminator, config.embedding_size)


def init_correction(config: NetworksConfig, key: jax.Array) -> dict:
    """Returns the head that predicts the originals of slots: `discriminator/correction`."""
    own = token_head.init(key, config.discriminator, config.embedding_size)
    return own | {"bias": jnp.zeros((config.padded_vocab_size,))}


def init_gate(config: NetworksConfig, key: jax.Array) -> dict:
    """Returns a layer that makes one number of each vector: kernel [E, 1] and bias [1]."""
    return layers.init_glorot(key, config.embedding_size, 1)


def init_trunk(config: NetworksConfig, key: jax.Array) -> dict:
    """Returns initial weights in the form of `main_trunk`, equal to those of `init`."""
    own = init_discriminator(config, streams.stream(key, "discriminator"))
    return {
        "embeddings": init_embeddings(config, streams.stream(key, "embeddings")),
        "discriminator": {part: own[part] for part in _TRUNK_PARTS if part in own},
    }


def generator_module(config: NetworksConfig) -> generator.Generator:
    """Returns the module from embedded rows to the generator's vectors."""
    return generator.Generator(config.generator, config.embedding_size, config.padded_vocab_size)


def discriminator_module(config: NetworksConfig) -> discriminator.Discriminator:
    """Returns the module from embedded rows to the discriminator's hidden states and logits."""
    return discriminator.Discriminator(config.discriminator, config.discriminator_head)


def predictor_module(config: NetworksConfig) -> generator.Generator:
    """Returns the module of a main network that predicts tokens: trunk and generator's head."""
    size, vocabulary = config.embedding_size, config.padded_vocab_size
    return generator.Generator(config.discriminator, size, vocabulary)


def towers_module(config: NetworksConfig) -> two_towers.TwoTowers:
    """Returns the module that predicts each token from all others.

    Each tower has the generator's shape, and its attention is always `einsum`.
    """
    shape = dataclasses.replace(config.generator, attention="einsum")
    return two_towers.TwoTowers(shape, config.embedding_size, config.padded_vocab_size)


def module_weights(config: NetworksConfig, params: dict, name: str) -> dict:
    """Returns one network's weights in the form that its module takes, with those it shares."""
    own = {part: params[name][part] for part in params[name] if part in _NETWORK_PARTS}
    if name == "generator" and config.shared_layers:
        return own | _whole_trunk(config, params)
    if config.sharing != "all" or "encoder" in own:
        return own
    trunk = dict(params["encoder"])
    projection = {"projection": trunk.pop("projection")} if "projection" in trunk else {}
    return own | projection | {"encoder": trunk}


def _apply(config, params, name, module, placement, batch, keys_B, *inputs):
    """Embeds a batch with a network's tables and runs the network's module, both on `placement`."""
    tables = generator_embeddings if name == "generator" else main_embeddings
    embed_keys_B, encoder_keys_B = _pair(keys_B)
    embedded_BLE = placement.rowwise(
        functools.partial(embed, config), (batch, embed_keys_B), shared=(tables(config, params),)
    )

    weights = {"params": module_weights(config, params, name)}
    placed = module.clone(placement=placement)
    return placed.apply(weights, embedded_BLE, batch.documents_BL, *inputs, encoder_keys_B)


def _split_trunk(network):
    """Returns (the part of a network that `all` shares, its head)."""
    projection = {"projection": network["projection"]} if "projection" in network else {}
    own = {part: network[part] for part in ("detection", "head") if part in network}
    return network["encoder"] | projection, own


def _upper_part(config, generator_):
    """Returns the generator without what it shares with the discriminator: its lowest layers."""
    encoder_ = generator_["encoder"]
    upper = {part: layer_stack.cut(encoder_[part], config.shared_layers)[1] for part in _STACKED}
    own = {part: x for part, x in generator_.items() if part not in _TRUNK_PARTS}
    return own | {_UPPER: encoder_ | upper}


def _whole_trunk(config, params):
    """Returns projection and encoder of a generator that has the discriminator's lowest layers."""
    main, upper = params["discriminator"], params["generator"][_UPPER]
    whole = {}
    for part in _STACKED:
        lower, _ = layer_stack.cut(main["encoder"][part], config.shared_layers)
        whole[part] = jax.tree.map(lambda *both: jnp.concatenate(both), lower, upper[part])
    projection = {"projection": main["projection"]} if "projection" in main else {}
    return projection | {"encoder": upper | whole}


def _embeddings(config):
    return embeddings.Embeddings(
        vocab_size=config.padded_vocab_size,
        size=config.embedding_size,
        max_positions=config.max_positions,
        dropout=config.discriminator.dropout,
        dropout_bits=config.discriminator.dropout_bits,
        initial_scale=config.discriminator.initial_scale,
        dtype=jnp.dtype(config.dtype),
    )


def _pair(keys_B):
    """Returns the rows' keys for the embeddings and for the encoder, or None twice."""
    if keys_B is None:
        return None, None
    embed_keys_B = streams.part(keys_B, "network", "embeddings")
    return embed_keys_B, streams.part(keys_B, "network", "encoder")


def _one_row():
    lanes = jnp.ones((1, 1), jnp.int32), jnp.ones((1, 1), jnp.int32)
    return batch_lib.from_lanes(*lanes, row_B=jnp.zeros((1,)), pad_id=0)


def _one_embedded(config):
    embedded_BLE = jnp.zeros((1, 1, config.embedding_size), jnp.dtype(config.dtype))
    return embedded_BLE, jnp.ones((1, 1), jnp.int32)
