# SPDX-License-Identifier: Apache-2.0
"""Both networks as functions of plain dicts: what every floor above calls.

The parameter tree, which is also a checkpoint's table of contents (docs/parameters.md):

    embeddings/{token, position?, type, norm}
    generator/{projection?, encoder/{attention, feed_forward, norm?}, head/{dense, norm, bias}}
    discriminator/{projection?, encoder/{attention, feed_forward, norm?}, head/{dense, output}}
"""

import dataclasses
from collections.abc import Callable

import jax
from jax import numpy as jnp

from electra_jax import batch as batch_lib
from electra_jax import streams
from electra_jax.model import discriminator, embeddings, encoder, generator

LANES = 128  # the vocabulary is padded to a multiple of it


@dataclasses.dataclass(frozen=True)
class NetworksConfig:
    """Shapes of the shared tables and of both networks."""

    vocab_size: int
    embedding_size: int
    max_positions: int  # 0: no table of positions
    generator: encoder.EncoderConfig
    discriminator: encoder.EncoderConfig
    dtype: str = "float32"  # of the computation; parameters are float32

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


def init_embeddings(config: NetworksConfig, key: jax.Array) -> dict:
    """Returns the `embeddings` subtree."""
    return _embeddings(config).init(key, _one_row(), None)["params"]


def init_generator(config: NetworksConfig, key: jax.Array) -> dict:
    """Returns the `generator` subtree."""
    slots_BN = jnp.zeros((1, 1), jnp.int32)
    return generator_module(config).init(key, *_one_embedded(config), slots_BN, None)["params"]


def init_discriminator(config: NetworksConfig, key: jax.Array) -> dict:
    """Returns the `discriminator` subtree."""
    return discriminator_module(config).init(key, *_one_embedded(config), None)["params"]


def init(config: NetworksConfig, key: jax.Array) -> dict:
    """Returns all three subtrees, from one stream each."""
    return {
        "embeddings": init_embeddings(config, streams.stream(key, "embeddings")),
        "generator": init_generator(config, streams.stream(key, "generator")),
        "discriminator": init_discriminator(config, streams.stream(key, "discriminator")),
    }


def embed(
    config: NetworksConfig, params: dict, batch: batch_lib.Batch, keys_B: jax.Array | None = None
) -> jax.Array:
    """Looks both networks' input up: [B, L, E] in the compute dtype. Dropout only with keys."""
    return _embeddings(config).apply({"params": params["embeddings"]}, batch, keys_B)


def generator_module(config: NetworksConfig) -> generator.Generator:
    """What stands between embedded rows and the generator's vectors."""
    return generator.Generator(config.generator, config.embedding_size, config.padded_vocab_size)


def discriminator_module(config: NetworksConfig) -> discriminator.Discriminator:
    """What stands between embedded rows and the discriminator's logits."""
    return discriminator.Discriminator(config.discriminator, config.embedding_size)


def generate(
    config: NetworksConfig,
    params: dict,
    batch: batch_lib.Batch,
    slots_BN: jax.Array,
    keys_B: jax.Array | None = None,
) -> jax.Array:
    """What the generator makes of the chosen slots, [B, N, E], to be scored against the token table
    (`fill.fill`, or `generator_logits` for all scores). Dropout only with keys."""
    embed_keys_B, encoder_keys_B = _pair(keys_B)
    embedded_BLE = embed(config, params, batch, embed_keys_B)
    return generator_module(config).apply(
        {"params": params["generator"]}, embedded_BLE, batch.documents_BL, slots_BN, encoder_keys_B
    )


def generator_logits(
    config: NetworksConfig,
    params: dict,
    batch: batch_lib.Batch,
    slots_BN: jax.Array,
    keys_B: jax.Array | None = None,
) -> jax.Array:
    """All scores of the generator at the chosen slots, float32 [B, N, V], for those who look."""
    vectors_BNE = generate(config, params, batch, slots_BN, keys_B)
    return generator.logits(vectors_BNE, *generator_table(params), config.vocab_size)


def generator_table(params: dict) -> tuple[jax.Array, jax.Array]:
    """What the generator scores its vectors against: the tied token table [V, E] and a bias [V]."""
    return params["embeddings"]["token"], params["generator"]["head"]["bias"]


def discriminate(
    config: NetworksConfig, params: dict, batch: batch_lib.Batch, keys_B: jax.Array | None = None
) -> jax.Array:
    """Discriminator logits, float32 [B, L]; above 0 means replaced. Dropout only with keys."""
    return encode(config, params, batch, keys_B)[1]


def encode(
    config: NetworksConfig, params: dict, batch: batch_lib.Batch, keys_B: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """The discriminator's hidden states [B, L, D] and its logits [B, L]."""
    embed_keys_B, encoder_keys_B = _pair(keys_B)
    embedded_BLE = embed(config, params, batch, embed_keys_B)
    return discriminator_module(config).apply(
        {"params": params["discriminator"]}, embedded_BLE, batch.documents_BL, encoder_keys_B
    )


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
    return streams.fold(keys_B, 0), streams.fold(keys_B, 1)


def _one_row():
    lanes = jnp.ones((1, 1), jnp.int32), jnp.ones((1, 1), jnp.int32)
    return batch_lib.from_lanes(*lanes, row_B=jnp.zeros((1,)), pad_id=0)


def _one_embedded(config):
    embedded_BLE = jnp.zeros((1, 1, config.embedding_size), jnp.dtype(config.dtype))
    return embedded_BLE, jnp.ones((1, 1), jnp.int32)
