# SPDX-License-Identifier: Apache-2.0
"""What every objective begins with: which slots of a row are chosen, and what is written there.

    choose   k slots a row, by token, by word or by span
    mask     [MASK] for most of them; BERT's 80/10/10 if asked
    fill     the generator's loss, hits, samples and entropies at the slots
    write    the samples, and which tokens they really replaced

The method is in the rooms beside this one; here are the settings and moves that they share.
"""

import dataclasses
from collections.abc import Callable

import jax
from jax import lax
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.core import sharding, streams
from electra_jax.model import networks
from electra_jax.objectives import corrupt, fill, phase


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Corrupted:
    """A batch with the generator's tokens in it. What an objective does not have is None."""

    chosen: corrupt.Chosen
    masked_BL: jax.Array  # ids that the generator saw
    sampled_BN: jax.Array  # ids that it wrote
    corrupted_BL: jax.Array  # ids that the main network sees
    replaced_BL: jax.Array  # bool: differs from the original
    gen_losses_BN: jax.Array | None = None  # float32, -log p_G of the originals
    gen_hits_BN: jax.Array | None = None  # bool: nothing seemed more plausible than the original
    gen_entropies_BN: jax.Array | None = None  # float32, nats of p_G
    vectors_BNE: jax.Array | None = None  # what the generator made of each slot


@dataclasses.dataclass(frozen=True)
class Corruption:
    """Settings of an objective; `rowwise` runs a function of rows on the device that has them.

    `mask_rate` and `temperature` move over a run where their first values are given: the rate
    linearly from `first_mask_rate` (arXiv:2305.15273), the temperature exponentially from
    `first_temperature` with `temperature_decay` of the run as its time constant (Fast-ELECTRA,
    arXiv:2310.07347).
    """

    networks: networks.NetworksConfig
    special_ids: tuple[int, ...]  # never chosen, never sampled
    mask_id: int
    slots: int  # N
    mask_rate: float = 0.15
    first_mask_rate: float = 0.0  # 0: mask_rate from the start
    mask_token_rate: float = 0.85
    random_token_rate: float = 0.0
    mask_unit: str = "token"  # 'word', 'span'
    span_words: float = 3.8
    temperature: float = 1.0
    first_temperature: float = 0.0  # 0: temperature from the start
    temperature_decay: float = 0.1
    disallow_correct: bool = False
    gen_weight: float = 1.0
    disc_weight: float = 50.0
    mlm_weight: float = 1.0
    rowwise: Callable = lambda function: function  # noqa: E731 - the identity, without a mesh

    terms = ()  # of the loss, each a weight of its own above
    masks = True  # whether a network is shown [MASK] at chosen slots

    def placed(
        self,
        rowwise: Callable = lambda function: function,
        keep_rows: Callable = sharding.as_they_are,
        headwise: Callable = sharding.as_they_are,
    ):
        """The same over a mesh (`sharding.{rowwise, keep_rows, headwise}`), or freed of one."""
        networks = self.networks.placed(keep_rows, headwise)
        return dataclasses.replace(self, networks=networks, rowwise=rowwise)

    def knobs(self, progress: jax.Array | float) -> dict:
        """What moves during a run, `progress` being the share of it that is done."""
        progress = jnp.asarray(progress, jnp.float32)
        rate, heat = jnp.float32(self.mask_rate), jnp.float32(self.temperature)
        if self.first_mask_rate:
            rate += (self.first_mask_rate - rate) * (1 - progress)
        if self.first_temperature:
            heat += (self.first_temperature - heat) * jnp.exp(-progress / self.temperature_decay)
        return {"mask_rate": rate, "temperature": heat}

    @property
    def phases(self) -> tuple[phase.Phase, ...]:
        """One, where an objective does not say otherwise: all losses in one backward pass."""
        return (phase.Phase("joint", self.loss),)

    def total(self, means: dict[str, jax.Array]) -> jax.Array:
        """The terms that are there, each by its weight."""
        return sum(getattr(self, f"{term}_weight") * means[term] for term in means)

    def scored_places(self, length: int) -> int:
        """At how many places of a row of `length` tokens the vocabulary is scored in one walk."""
        del length
        return self.slots

    def count(self, batch: batch_lib.Batch, knobs: dict) -> jax.Array:
        """k of each row: int32 [B]."""
        candidates_BL = corrupt.candidates(batch.ids_BL, self.special_ids)
        return corrupt.count(candidates_BL, batch.real_BL, knobs["mask_rate"], self.slots)

    def choose(self, batch: batch_lib.Batch, keys: streams.Keys, knobs: dict) -> corrupt.Chosen:
        """m: the slots of each row, and which of them are masked."""

        def choose(_, keys_B, candidates_BL, count_B, *units):
            starts_BL = None
            if self.mask_unit == "word":
                words_BL, borders_BL = units
                starts_BL = words_BL | borders_BL
            elif self.mask_unit == "span":
                starts_BL = corrupt.span_starts(keys_B, *units, self.span_words)

            return corrupt.choose(
                keys_B,
                candidates_BL,
                count_B,
                self.slots,
                self.mask_token_rate if self.masks else 0.0,
                self.random_token_rate if self.masks else 0.0,
                starts_BL,
            )

        candidates_BL = corrupt.candidates(batch.ids_BL, self.special_ids)
        count_B = self.count(batch, knobs)
        units = ()
        if self.mask_unit != "token":
            units = batch.word_starts_BL, corrupt.borders(candidates_BL, batch)

        return self.rowwise(choose)((), keys.mask_B, candidates_BL, count_B, *units)

    def mask(
        self, batch: batch_lib.Batch, chosen: corrupt.Chosen, keys: streams.Keys
    ) -> batch_lib.Batch:
        """REPLACE(x, m, [MASK]): what a network that predicts is shown."""
        random_ids_BN = None
        if self.random_token_rate:
            flat_V = jnp.arange(self.networks.padded_vocab_size) < self.networks.vocab_size
            random_ids_BN = self.draw(flat_V, streams.part(keys.mask_B, "mask", "random_tokens"))
        masked_BL = corrupt.mask(batch.ids_BL, chosen, self.mask_id, random_ids_BN)
        return dataclasses.replace(batch, ids_BL=masked_BL)

    def fill(
        self,
        params: dict,
        vectors_BNE: jax.Array,
        originals_BN: jax.Array,
        keys: streams.Keys,
        temperature: jax.Array | float,
        *,
        disallow_correct: bool,
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
                disallow_correct=disallow_correct,
            )

        shared = networks.generator_table(self.networks, params), temperature
        return self.rowwise(fill_rows)(shared, vectors_BNE, originals_BN, keys.sample_B)

    def score(
        self, table: tuple[jax.Array, jax.Array], vectors_BNE: jax.Array, targets_BN: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """-log p of the targets under `table`, and whether nothing scores higher."""

        def score_rows(table, vectors_BNE, targets_BN):
            size = self.networks.vocab_size
            return fill.score(vectors_BNE, *table, targets_BN, size=size)

        return self.rowwise(score_rows)(table, vectors_BNE, targets_BN)

    def draw(self, weights_V: jax.Array, keys_B: jax.Array) -> jax.Array:
        """Ids [B, N] from one distribution for all slots, special ids left out."""

        def draw(weights_V, keys_B):
            return corrupt.sample_from(keys_B, self.slots, weights_V, self.special_ids)

        return self.rowwise(draw)(weights_V, keys_B)

    def generate(
        self, params: dict, batch: batch_lib.Batch, keys: streams.Keys, knobs: dict
    ) -> Corrupted:
        """Masks a batch and lets the generator fill it: equations 1 and 2 of the paper."""
        # Masking: m ~ distinct slots of the row; x_masked = REPLACE(x, m, [MASK])
        chosen = self.choose(batch, keys, knobs)
        masked = self.mask(batch, chosen, keys)
        vectors_BNE = networks.generate(
            self.networks, params, masked, chosen.slots_BN, keys.generator_B
        )
        # L_MLM = -log p_G(x_t | x_masked), and x_hat ~ p_G(x_t | x_masked), in one walk over V
        originals_BN = corrupt.at(batch.ids_BL, chosen)
        filled = self.fill(
            params,
            vectors_BNE,
            originals_BN,
            keys,
            knobs["temperature"],
            disallow_correct=self.disallow_correct,
        )
        # "We don't back-propagate the discriminator loss through the generator."
        sampled_BN = lax.stop_gradient(filled.sampled_BN)
        # Replacement: x_corrupt = REPLACE(x, m, x_hat)
        corrupted_BL = corrupt.write(batch.ids_BL, chosen, sampled_BN)
        return Corrupted(
            chosen=chosen,
            masked_BL=masked.ids_BL,
            sampled_BN=sampled_BN,
            corrupted_BL=corrupted_BL,
            replaced_BL=corrupt.label(batch.ids_BL, corrupted_BL),
            gen_losses_BN=filled.losses_BN,
            gen_hits_BN=filled.hits_BN,
            gen_entropies_BN=filled.entropies_BN,
            vectors_BNE=vectors_BNE,
        )
