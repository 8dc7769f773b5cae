# SPDX-License-Identifier: Apache-2.0
"""A training step cut into parts that can be timed alone, each with its gradient.

    embeddings     look-ups for both networks, norm, and the gradient of the tables
    corruption     choosing, masking, writing back, labels
    generator      embedded rows -> vectors at the slots
    filling        the loop over the vocabulary: loss, hits, samples
    discriminator  embedded rows -> logits and the detection loss
    optimizer      clipping, moments, weights
    dropout bits   only the random numbers, which are also part of the networks above

The rest of a step (reading a batch, metrics) is its time minus the sum of these parts, where
dropout bits must not be counted twice.
"""

import dataclasses
from collections.abc import Callable

import jax
import optax
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.core import streams
from electra_jax.model import layers, networks
from electra_jax.objectives import masking
from electra_jax.speed import synthetic


def programs(rehearsed: synthetic.Rehearsal) -> dict[str, tuple[Callable, tuple]]:
    """Returns {part: (function, arguments)} for a step on one device, not compiled yet.

    The function is long because it lists one small function per part, all over the same batch. A
    part that ends in arrays is reduced to a sum, so that it has a gradient.
    """
    objective = rehearsed.plan.objective
    config, knobs = objective.networks, objective.knobs(1.0)
    state, lanes = rehearsed.state(), rehearsed.lanes()
    rows_n = len(lanes["ids"])
    row_B, pad_id = jnp.arange(rows_n, dtype=jnp.uint32), rehearsed.vocabulary.pad_id
    batch = batch_lib.from_lanes(lanes["ids"], lanes["marks"], row_B, pad_id)
    keys = streams.keys(jax.random.key(0), 0, batch.row_B, dropout=True)

    # One whole forward pass gives every part its inputs.
    params, key = state.params, keys.discriminator_B
    generator_weights = networks.module_weights(config, params, "generator")
    discriminator_weights = networks.module_weights(config, params, "discriminator")
    played = jax.jit(objective.intermediates)(params, batch, keys, knobs)
    embedded_BLE = jax.jit(lambda p: networks.embed(config, p, batch))(params["embeddings"])
    slots_BN = played.chosen.slots_BN

    def embeddings(tables):
        masked = dataclasses.replace(batch, ids_BL=played.masked_BL)
        corrupted = dataclasses.replace(batch, ids_BL=played.corrupted_BL)
        looked_up = (networks.embed(config, tables, rows, key) for rows in (masked, corrupted))
        return sum((x * x).sum(dtype=jnp.float32) for x in looked_up)

    def corruption(params):
        del params
        chosen = objective.choose(batch, keys, knobs)
        corrupted_BL = masking.write(batch.ids_BL, chosen, played.sampled_BN)
        masked_BL = masking.mask(batch.ids_BL, chosen, objective.mask_id)
        return masked_BL, corrupted_BL, masking.label(batch.ids_BL, corrupted_BL)

    def generator(weights, embedded_BLE):
        vectors_BNE = networks.generator_module(config).apply(
            {"params": weights}, embedded_BLE, batch.documents_BL, slots_BN, keys.generator_B
        )
        return (vectors_BNE * vectors_BNE).sum(dtype=jnp.float32)

    def filling(params, vectors_BNE):
        originals_BN = masking.at(batch.ids_BL, played.chosen)
        predicted = objective.predict_and_sample(
            params,
            vectors_BNE,
            originals_BN,
            keys,
            knobs["temperature"],
            disallow_correct=objective.disallow_correct,
        )
        return predicted.losses_BN.sum(), predicted.sampled_BN

    def discriminator(weights, embedded_BLE):
        _, logits_BL = networks.discriminator_module(config).apply(
            {"params": weights}, embedded_BLE, batch.documents_BL, keys.discriminator_B
        )
        return optax.sigmoid_binary_cross_entropy(logits_BL, played.replaced_BL * 1.0).sum()

    # Weights serve as gradients too: the time does not depend on the values.
    def optimizer(params, gradients, moments):
        updates, moments = rehearsed.plan.optimizer.update(gradients, moments, params)
        return jax.tree.map(lambda p, u: p - 1e-4 * u, params, updates), moments

    vectors_BNE = jnp.ones((*slots_BN.shape, config.embedding_size), embedded_BLE.dtype)
    return {
        "embeddings": (jax.grad(embeddings), (params["embeddings"],)),
        "corruption": (corruption, (params,)),
        "generator": (jax.grad(generator, (0, 1)), (generator_weights, embedded_BLE)),
        "filling": (jax.grad(filling, (0, 1), has_aux=True), (params, vectors_BNE)),
        "discriminator": (jax.grad(discriminator, (0, 1)), (discriminator_weights, embedded_BLE)),
        "optimizer": (optimizer, (params, params, state.optimizer)),
        "dropout bits": (_dropout_bits(config, batch.ids_BL.shape[1]), (key,)),
    }


def _dropout_bits(config: networks.NetworksConfig, length: int):
    """Returns a function that draws the dropout bits of one step.

    It returns their sum, because the compiler would remove draws whose result is not used.
    """

    def draw(keys_B):
        total = jnp.uint32(0)
        for network in (config.generator, config.discriminator):
            embedded = [(config.discriminator.dropout, (length, config.embedding_size))]
            sites = [
                (network.attention_dropout, (network.heads, length, length)),
                (network.dropout, (length, network.width)),
                (network.dropout, (length, network.width)),
            ]

            keys_NB = streams.layers(streams.part(keys_B, "network", "encoder"), network.layers)
            embed_keys_B = streams.part(keys_B, "network", "embeddings")

            draws = layers.draw(embed_keys_B, embedded, network.dropout_bits)
            for number in range(network.layers):
                draws += layers.draw(keys_NB[number], sites, network.dropout_bits)

            total += sum(x.sum(dtype=jnp.uint32) for x in draws if x is not None)
        return total

    return draw
