# SPDX-License-Identifier: Apache-2.0
"""Replaced-token detection as published: section 2 of the paper, from top to bottom.

A small generator fills masked slots; the discriminator says of every token whether it was
replaced. Both learn at once, from two losses that no gradient crosses: the sampled ids are cut
off by `stop_gradient`, and what they share is the embedding tables.
"""

import dataclasses
from collections.abc import Callable

import jax
import optax
from jax import lax
from jax import numpy as jnp

from electra_jax import batch as batch_lib
from electra_jax import corrupt, fill, metrics, sharding, streams
from electra_jax.model import networks
from electra_jax.objectives import phase


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Played:
    """All that happened to a batch on its way through both networks."""

    chosen: corrupt.Chosen
    masked_BL: jax.Array  # ids that the generator saw
    gen_losses_BN: jax.Array  # float32, -log p_G of the originals
    gen_hits_BN: jax.Array  # bool: nothing seemed more plausible than the original
    sampled_BN: jax.Array  # ids
    corrupted_BL: jax.Array  # ids that the discriminator saw
    replaced_BL: jax.Array  # bool, the truth
    disc_logits_BL: jax.Array  # float32, above 0: believed to be replaced


@dataclasses.dataclass(frozen=True)
class ReplacedTokenDetection:
    """The objective of the paper; `rowwise` runs a function of rows on the device that has them."""

    networks: networks.NetworksConfig
    special_ids: tuple[int, ...]  # never chosen, never sampled
    mask_id: int
    slots: int  # N
    mask_rate: float = 0.15
    mask_token_rate: float = 0.85
    temperature: float = 1.0
    gen_weight: float = 1.0
    disc_weight: float = 50.0
    rowwise: Callable = lambda function: function  # noqa: E731 - the identity, without a mesh

    def placed(
        self,
        rowwise: Callable = lambda function: function,
        keep_rows: Callable = sharding.as_they_are,
        headwise: Callable = sharding.as_they_are,
    ) -> "ReplacedTokenDetection":
        """The same over a mesh (`sharding.{rowwise, keep_rows, headwise}`), or freed of one."""
        networks = self.networks.placed(keep_rows, headwise)
        return dataclasses.replace(self, networks=networks, rowwise=rowwise)

    def init(self, key: jax.Array) -> dict:
        """Returns embeddings, generator and discriminator."""
        return networks.init(self.networks, key)

    def knobs(self, step: jax.Array | int) -> dict:
        """Constant here; traced, so that a schedule can move them without a new program."""
        del step
        return {
            "mask_rate": jnp.float32(self.mask_rate),
            "temperature": jnp.float32(self.temperature),
        }

    @property
    def phases(self) -> tuple[phase.Phase, ...]:
        """One: both losses in one backward pass."""
        return (phase.Phase(self.loss, ("embeddings", "generator", "discriminator")),)

    def weights(self, batch: batch_lib.Batch, knobs: dict) -> dict[str, jax.Array]:
        """How many slots and tokens the two losses are means over."""
        return {
            "gen": self._count(batch, knobs).sum().astype(jnp.float32),
            "disc": batch.real_BL.sum().astype(jnp.float32),
        }

    def total(self, means: dict[str, jax.Array]) -> jax.Array:
        """L = gen_weight L_MLM + disc_weight L_Disc: the paper's minimisation, lambda = 50."""
        return self.gen_weight * means["gen"] + self.disc_weight * means["disc"]

    def loss(
        self,
        params: dict,
        batch: batch_lib.Batch,
        keys: streams.Keys,
        knobs: dict,
        carry: None = None,
    ) -> tuple[dict[str, jax.Array], metrics.Sums, None]:
        """Both losses as sums, and what was measured on the way."""
        played = self.play(params, batch, keys, knobs)
        disc_losses_BL = detection_loss(played)
        sums = {
            "gen": (played.gen_losses_BN * played.chosen.used_BN).sum(),
            "disc": (disc_losses_BL * batch.real_BL).sum(),
        }
        return sums, _measure(played, batch, disc_losses_BL), carry

    def play(self, params: dict, batch: batch_lib.Batch, keys: streams.Keys, knobs: dict) -> Played:
        """Masks a batch, lets the generator fill it and the discriminator judge it."""
        # Masking: m ~ distinct slots of the row; x_masked = REPLACE(x, m, [MASK])
        chosen = self.choose(batch, keys, knobs)
        masked_BL = corrupt.mask(batch.ids_BL, chosen, self.mask_id)
        vectors_BNE = networks.generate(
            self.networks,
            params,
            dataclasses.replace(batch, ids_BL=masked_BL),
            chosen.slots_BN,
            keys.generator_B,
        )
        # L_MLM = -log p_G(x_t | x_masked), and x_hat ~ p_G(x_t | x_masked), in one walk over V
        originals_BN = corrupt.at(batch.ids_BL, chosen)
        filled = self.fill(params, vectors_BNE, originals_BN, keys, knobs["temperature"])
        # "We don't back-propagate the discriminator loss through the generator."
        sampled_BN = lax.stop_gradient(filled.sampled_BN)
        # Replacement: x_corrupt = REPLACE(x, m, x_hat)
        corrupted_BL = corrupt.write(batch.ids_BL, chosen, sampled_BN)
        disc_logits_BL = networks.discriminate(
            self.networks,
            params,
            dataclasses.replace(batch, ids_BL=corrupted_BL),
            keys.discriminator_B,
        )
        return Played(
            chosen=chosen,
            masked_BL=masked_BL,
            gen_losses_BN=filled.losses_BN,
            gen_hits_BN=filled.hits_BN,
            sampled_BN=sampled_BN,
            corrupted_BL=corrupted_BL,
            replaced_BL=corrupt.label(batch.ids_BL, corrupted_BL),
            disc_logits_BL=disc_logits_BL,
        )

    def evaluate(
        self,
        params: dict,
        batch: batch_lib.Batch,
        keys: streams.Keys,
        knobs: dict,
        unigram_V: jax.Array,
    ) -> metrics.Sums:
        """The metrics of a step without dropout, with `disc_auc` and `disc_auc_unigram`.

        A discriminator is judged against its own generator's samples, so its figures are not
        comparable across runs; `disc_auc_unigram` is: the slots then hold draws from the
        unigram distribution `unigram_V` (counts of the training text).
        """
        played = self.play(params, batch, keys, knobs)
        sums = _measure(played, batch, detection_loss(played))
        sums["disc_auc"] = metrics.histogram(
            played.disc_logits_BL, played.replaced_BL, batch.real_BL
        )
        drawn_BN = self._draw(unigram_V, keys.sample_B)
        corrupted_BL = corrupt.write(batch.ids_BL, played.chosen, drawn_BN)
        logits_BL = networks.discriminate(
            self.networks, params, dataclasses.replace(batch, ids_BL=corrupted_BL)
        )
        sums["disc_auc_unigram"] = metrics.histogram(
            logits_BL, corrupt.label(batch.ids_BL, corrupted_BL), batch.real_BL
        )
        return sums

    def _count(self, batch, knobs):
        candidates_BL = corrupt.candidates(batch.ids_BL, self.special_ids)
        return corrupt.count(candidates_BL, batch.real_BL, knobs["mask_rate"], self.slots)

    def choose(self, batch: batch_lib.Batch, keys: streams.Keys, knobs: dict) -> corrupt.Chosen:
        """m: the slots of each row, and which of them are masked."""

        def choose(_, keys_B, candidates_BL, count_B):
            return corrupt.choose(keys_B, candidates_BL, count_B, self.slots, self.mask_token_rate)

        candidates_BL = corrupt.candidates(batch.ids_BL, self.special_ids)
        return self.rowwise(choose)((), keys.mask_B, candidates_BL, self._count(batch, knobs))

    def fill(
        self,
        params: dict,
        vectors_BNE: jax.Array,
        originals_BN: jax.Array,
        keys: streams.Keys,
        temperature: jax.Array,
    ) -> fill.Filled:
        """p_G at every slot: -log p_G(x_t | x_masked), and x_hat drawn from it."""

        def fill_rows(shared, vectors_BNE, originals_BN, keys_B):
            table, temperature = shared
            return fill.fill(
                vectors_BNE,
                *table,
                originals_BN,
                keys_B,
                temperature,
                size=self.networks.vocab_size,
                forbidden_ids=self.special_ids,
            )

        shared = networks.generator_table(params), temperature
        return self.rowwise(fill_rows)(shared, vectors_BNE, originals_BN, keys.sample_B)

    def _draw(self, weights_V, keys_B):
        """Ids [B, N] from one distribution for all slots, special ids left out."""

        def draw(weights_V, keys_B):
            return corrupt.sample_from(keys_B, self.slots, weights_V, self.special_ids)

        return self.rowwise(draw)(weights_V, keys_B)


def detection_loss(played: Played) -> jax.Array:
    """L_Disc of each token: binary cross-entropy of 'was replaced', [B, L]."""
    return optax.sigmoid_binary_cross_entropy(
        played.disc_logits_BL, played.replaced_BL.astype(jnp.float32)
    )


def _measure(played, batch, disc_losses_BL) -> metrics.Sums:
    used_BN, masked_BN = played.chosen.used_BN, played.chosen.masked_BN
    gen_losses_BN, hits_BN = played.gen_losses_BN, played.gen_hits_BN
    lucky_BN = played.sampled_BN == corrupt.at(batch.ids_BL, played.chosen)
    real_BL, replaced_BL = batch.real_BL, played.replaced_BL
    believed_BL = played.disc_logits_BL > 0
    used_BL = corrupt.write(jnp.zeros_like(batch.ids_BL), played.chosen, jnp.ones_like(used_BN))
    return lax.stop_gradient(
        {
            "gen_loss": metrics.pair(gen_losses_BN, used_BN),
            "gen_masked_loss": metrics.pair(gen_losses_BN, masked_BN),
            "gen_accuracy": metrics.pair(hits_BN, used_BN),
            "gen_masked_accuracy": metrics.pair(hits_BN, masked_BN),
            "gen_sampled_accuracy": metrics.pair(lucky_BN, used_BN),
            "disc_loss": metrics.pair(disc_losses_BL, real_BL),
            "disc_accuracy": metrics.pair(believed_BL == replaced_BL, real_BL),
            "disc_precision": metrics.pair(replaced_BL, believed_BL & real_BL),
            "disc_recall": metrics.pair(believed_BL, replaced_BL & real_BL),
            "masked_rate": metrics.pair(used_BL, real_BL),
            "replaced_rate": metrics.pair(replaced_BL, real_BL),
        }
    )
