# SPDX-License-Identifier: Apache-2.0
"""Both networks as functions of plain dicts: what every floor above calls.

The parameter tree, which is also a checkpoint's table of contents (docs/parameters.md):

    embeddings/{token, position?, type, norm}
    generator/{projection?, encoder/{attention, feed_forward, norm?}, head/{dense, norm, bias}}
    discriminator/{projection?, encoder/{attention, feed_forward, norm?}, head/{dense, output}}

What the two share is `sharing` (section 3.2 of the paper, and DeBERTaV3, arXiv:2111.09543):

    embeddings  the tables and their norm, as published
    none        generator/embeddings/ is the generator's own
    gdes        the discriminator reads stop_gradient(embeddings) + discriminator/embeddings_delta/
    all         encoder/{projection?, attention, feed_forward, norm?} is both networks' as well

The main network keeps the name `discriminator/` where it learns to predict tokens instead of
judging them; its head is then the generator's kind.
"""

import dataclasses
from collections.abc import Callable

import jax
from jax import lax
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.core import streams
from electra_jax.model import (
    discriminator,
    embeddings,
    encoder,
    generator,
    layers,
    two_towers,
)

LANES = 128  # the vocabulary is padded to a multiple of it
_OF_A_TRUNK = ("projection", "encoder")
_OF_A_NETWORK = (*_OF_A_TRUNK, "left", "right", "head")  # two towers have no trunk


@dataclasses.dataclass(frozen=True)
class NetworksConfig:
    """Shapes of the shared tables and of both networks."""

    vocab_size: int
    embedding_size: int
    max_positions: int  # 0: no table of positions
    generator: encoder.EncoderConfig
    discriminator: encoder.EncoderConfig
    dtype: str = "float32"  # of the computation; parameters are float32
    sharing: str = "embeddings"
    discriminator_head: str = "token"  # 'cls_context'

    @property
    def padded_vocab_size(self) -> int:
        """V: the vocabulary with its masked tail."""
        return -(-self.vocab_size // LANES) * LANES

    def placed(self, keep_rows: Callable, headwise: Callable) -> "NetworksConfig":
        """The same shapes; hidden states and fused attention lie where `sharding`'s two say."""
        where = dict(keep_rows=keep_rows, headwise=headwise)
        return dataclasses.replace(
            self,
            generator=dataclasses.replace(self.generator, **where),
            discriminator=dataclasses.replace(self.discriminator, **where),
        )


def init(config: NetworksConfig, key: jax.Array) -> dict:
    """Returns all subtrees of generator and discriminator, from one stream each."""
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
    return params


def generate(
    config: NetworksConfig,
    params: dict,
    batch: batch_lib.Batch,
    slots_BN: jax.Array,
    keys_B: jax.Array | None = None,
) -> jax.Array:
    """What the generator makes of the chosen slots, [B, N, E], to be scored against the token table
    (`vocabulary_softmax.fill`, or `generator_logits` for all scores). Dropout only with keys."""
    return _apply(config, params, "generator", generator_module(config), batch, keys_B, slots_BN)


def generator_logits(
    config: NetworksConfig,
    params: dict,
    batch: batch_lib.Batch,
    slots_BN: jax.Array,
    keys_B: jax.Array | None = None,
) -> jax.Array:
    """All scores of the generator at the chosen slots, float32 [B, N, V], for those who look."""
    vectors_BNE = generate(config, params, batch, slots_BN, keys_B)
    table = generator_table(config, params)
    return generator.logits(vectors_BNE, *table, config.vocab_size)


def generator_table(config: NetworksConfig, params: dict) -> tuple[jax.Array, jax.Array]:
    """What the generator scores its vectors against: its token table [V, E] and a bias [V]."""
    return generator_embeddings(config, params)["token"], params["generator"]["head"]["bias"]


def discriminate(
    config: NetworksConfig, params: dict, batch: batch_lib.Batch, keys_B: jax.Array | None = None
) -> jax.Array:
    """Discriminator logits, float32 [B, L]; above 0 means replaced. Dropout only with keys."""
    return encode(config, params, batch, keys_B)[1]


def encode(
    config: NetworksConfig, params: dict, batch: batch_lib.Batch, keys_B: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """The discriminator's hidden states [B, L, D] and its logits [B, L]."""
    return _apply(config, params, "discriminator", discriminator_module(config), batch, keys_B)


def hidden(
    config: NetworksConfig, params: dict, batch: batch_lib.Batch, keys_B: jax.Array | None = None
) -> jax.Array:
    """The main network's hidden states [B, L, D], whatever its head is and whether it has one."""
    trunk = encoder.Trunk(config.discriminator)
    return _apply(config, params, "discriminator", trunk, batch, keys_B)


def predict(
    config: NetworksConfig,
    params: dict,
    batch: batch_lib.Batch,
    slots_BN: jax.Array,
    keys_B: jax.Array | None = None,
) -> jax.Array:
    """The same of a main network that predicts tokens: vectors [B, N, E]."""
    module = predictor_module(config)
    return _apply(config, params, "discriminator", module, batch, keys_B, slots_BN)


def predictor_table(config: NetworksConfig, params: dict) -> tuple[jax.Array, jax.Array]:
    """The same for a main network that predicts tokens."""
    return main_embeddings(config, params)["token"], params["discriminator"]["head"]["bias"]


def towers(
    config: NetworksConfig, params: dict, batch: batch_lib.Batch, keys_B: jax.Array | None = None
) -> jax.Array:
    """What the two towers make of every token without seeing it, [B, L, E]."""
    return _apply(config, params, "generator", towers_module(config), batch, keys_B)


def gate(params: dict, vectors_BNE: jax.Array) -> jax.Array:
    """That number, float32 [B, N]."""
    return layers.dense(params, vectors_BNE, result=jnp.float32)[..., 0]


def embed(
    config: NetworksConfig, tables: dict, batch: batch_lib.Batch, keys_B: jax.Array | None = None
) -> jax.Array:
    """Looks a network's input up: [B, L, E] in the compute dtype. Dropout only with keys."""
    return _embeddings(config).apply({"params": tables}, batch, keys_B)


def generator_embeddings(config: NetworksConfig, params: dict) -> dict:
    """The tables that the generator reads."""
    return params["generator"]["embeddings"] if config.sharing == "none" else params["embeddings"]


def main_embeddings(config: NetworksConfig, params: dict) -> dict:
    """The tables that the main network reads; folded into one under `gdes`.

    The delta begins at zero and is trained by the discriminator alone; the tables beneath by the
    generator alone. DeBERTaV3 does so for tokens and positions; here types and norm go along.
    """
    if config.sharing != "gdes":
        return params["embeddings"]
    below, delta = lax.stop_gradient(params["embeddings"]), params["discriminator"]
    return jax.tree.map(jnp.add, below, delta["embeddings_delta"])


def alone(config: NetworksConfig, params: dict, name: str) -> dict:
    """One network as if it shared nothing: {embeddings, projection?, encoder, head?}.

    Tables of `gdes` are folded into one. What only its training needs is left out.
    """
    tables = main_embeddings if name == "discriminator" else generator_embeddings
    return {"embeddings": tables(config, params)} | _network(config, params, name)


def main_trunk(config: NetworksConfig, params: dict) -> dict:
    """What is fine-tuned: the main network without its head, and the tables that it reads.

    {'embeddings': tables, 'discriminator': {'projection'?, 'encoder'}}, whatever was shared.
    """
    own = alone(config, params, "discriminator")
    return {
        "embeddings": own["embeddings"],
        "discriminator": {part: own[part] for part in _OF_A_TRUNK if part in own},
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


def init_gate(config: NetworksConfig, key: jax.Array) -> dict:
    """One number for each vector that a head makes: kernel [E, 1] and bias [1]."""
    return layers.init_glorot(key, config.embedding_size, 1)


def init_trunk(config: NetworksConfig, key: jax.Array) -> dict:
    """Fresh weights in the form of `main_trunk`: those that `init` gives both parts."""
    own = init_discriminator(config, streams.stream(key, "discriminator"))
    return {
        "embeddings": init_embeddings(config, streams.stream(key, "embeddings")),
        "discriminator": {part: own[part] for part in _OF_A_TRUNK if part in own},
    }


def generator_module(config: NetworksConfig) -> generator.Generator:
    """What stands between embedded rows and the generator's vectors."""
    return generator.Generator(config.generator, config.embedding_size, config.padded_vocab_size)


def discriminator_module(config: NetworksConfig) -> discriminator.Discriminator:
    """What stands between embedded rows and the discriminator's logits."""
    cls_context = config.discriminator_head == "cls_context"
    return discriminator.Discriminator(config.discriminator, cls_context)


def predictor_module(config: NetworksConfig) -> generator.Generator:
    """The main network where it predicts tokens: its trunk under a generator's head."""
    size, vocabulary = config.embedding_size, config.padded_vocab_size
    return generator.Generator(config.discriminator, size, vocabulary)


def towers_module(config: NetworksConfig) -> two_towers.TwoTowers:
    """What guesses every token from all others; each tower has the generator's shape."""
    shape = dataclasses.replace(config.generator, attention="einsum")
    return two_towers.TwoTowers(shape, config.embedding_size, config.padded_vocab_size)


def _apply(config, params, name, module, batch, keys_B, *inputs):
    """Embeds a batch with the tables of a network and runs the network's module on it."""
    tables = generator_embeddings if name == "generator" else main_embeddings
    embed_keys_B, encoder_keys_B = _pair(keys_B)
    embedded_BLE = embed(config, tables(config, params), batch, embed_keys_B)
    weights = {"params": _network(config, params, name)}
    return module.apply(weights, embedded_BLE, batch.documents_BL, *inputs, encoder_keys_B)


def _network(config, params, name):
    """One network's weights as its module takes them; what is not its own is not in the way."""
    own = {part: params[name][part] for part in params[name] if part in _OF_A_NETWORK}
    if config.sharing != "all" or "encoder" in own:
        return own
    trunk = dict(params["encoder"])
    projection = {"projection": trunk.pop("projection")} if "projection" in trunk else {}
    return own | projection | {"encoder": trunk}


def _split_trunk(network):
    """(what `all` shares, the head)."""
    projection = {"projection": network["projection"]} if "projection" in network else {}
    return network["encoder"] | projection, {"head": network["head"]}


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
    """One key a row -> its keys for the embeddings and for the encoder."""
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
