# SPDX-License-Identifier: Apache-2.0
"""Replaced-token detection as published: section 2 of the paper, from top to bottom.

    x         [CLS]  the   cat   sat   on   the  mat  [SEP]
    x_masked  [CLS]  the [MASK]  sat   on   the  mat  [SEP]   masking
    x_hat                 dog               the               the generator's loss, and a sample
    x_corrupt [CLS]  the   dog   sat   on   the  mat  [SEP]   replacement
    D              original or replaced, for every token      the discriminator's loss

Of the chosen slots, here "cat" and the second "the", 85 % become [MASK] and the others keep their
token. A small generator fills all of them; for every token the discriminator says whether it was
replaced. Both learn at once. No gradient of the discriminator's loss passes through the samples
into the generator: sampled ids are integers, and `stop_gradient` only writes the paper's sentence
down. Embedding tables that both networks share, as they do by default, are trained by both losses
(`model/networks.py` has the other ways).
"""

import dataclasses
from typing import ClassVar

import jax
from jax import lax
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.core import metrics, streams
from electra_jax.model import accounting, networks
from electra_jax.objectives import masking, measuring, unigram_probe
from electra_jax.objectives.objective import ArrayOrNone, Corrupted, Objective


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Detected(Corrupted):
    """Everything that happened to a batch on its way through both networks."""

    disc_logits_BL: ArrayOrNone = None  # float32; above 0 means "replaced"


@dataclasses.dataclass(frozen=True)
class WithGenerator(Objective):
    """The first half of the method: a batch is masked, and the generator fills its slots."""

    def generate(
        self, params: dict, batch: batch_lib.Batch, keys: streams.Keys, knobs: dict
    ) -> Corrupted:
        """Returns the corrupted batch with the generator's losses: equations 1 and 2."""
        # Masking: m ~ distinct slots of the row; x_masked = REPLACE(x, m, [MASK]).
        chosen = self.choose(batch, keys, knobs)
        masked = self.mask(batch, chosen, keys)

        # The generator: L_MLM = -log p_G(x_t | x_masked), and x_hat ~ p_G(x_t | x_masked).
        vectors_BNE = networks.generator_vectors(
            self.networks, params, masked, chosen.slots_BN, keys.generator_B, self.placement
        )
        predicted = self.predict_and_sample(
            params,
            vectors_BNE,
            masking.at(batch.ids_BL, chosen),
            keys,
            knobs["temperature"],
            disallow_correct=self.disallow_correct,
        )

        # "We don't back-propagate the discriminator loss through the generator."
        sampled_BN = lax.stop_gradient(predicted.sampled_BN)

        # Replacement: x_corrupt = REPLACE(x, m, x_hat); a correct sample counts as original.
        corrupted_BL = masking.write(batch.ids_BL, chosen, sampled_BN)
        replaced_BL = masking.label(batch.ids_BL, corrupted_BL)

        return Corrupted(
            chosen=chosen,
            masked_BL=masked.ids_BL,
            sampled_BN=sampled_BN,
            corrupted_BL=corrupted_BL,
            replaced_BL=replaced_BL,
            gen_losses_BN=predicted.losses_BN,
            gen_hits_BN=predicted.hits_BN,
            gen_entropies_BN=predicted.entropies_BN,
            vectors_BNE=vectors_BNE,
            offered_BNO=predicted.offered_BNO,
        )

    def generator_scores(
        self, params: dict, batch: batch_lib.Batch, places_B: jax.Array
    ) -> jax.Array:
        """log p_G of one token per row, the only one that is masked: [B].

        At the temperature at which the generator samples at the end of a run.
        """
        masked, slots_B1, originals_B1 = masking.one_each(batch, places_B, self.mask_id)
        vectors_B1E = networks.generator_vectors(self.networks, params, masked, slots_B1)
        table_VE, bias_V = networks.generator_table(self.networks, params)

        temperature = self.knobs(1.0)["temperature"]
        vectors_B1E = (vectors_B1E / temperature).astype(vectors_B1E.dtype)
        losses_B1, _ = self.score((table_VE, bias_V / temperature), vectors_B1E, originals_B1)
        return -losses_B1[:, 0]


def detection_loss(detected: Detected) -> jax.Array:
    """L_Disc of each token: binary cross-entropy of "was replaced", [B, L]."""
    logits_BL = detected.disc_logits_BL
    return jax.nn.softplus(jnp.where(detected.replaced_BL, -logits_BL, logits_BL))


@dataclasses.dataclass(frozen=True)
class ReplacedTokenDetection(WithGenerator):
    """The objective of the paper."""

    # L = gen_weight L_MLM + disc_weight L_Disc; the paper's lambda is disc_weight = 50
    terms: ClassVar[tuple[str, ...]] = ("gen", "disc")
    detects = True

    def discriminate(
        self, params: dict, batch: batch_lib.Batch, corrupted: Corrupted, keys: streams.Keys
    ) -> Detected:
        """D(x_corrupt, t) for every token: adds the discriminator's logits to the batch."""
        _, logits_BL = self.outputs(params, batch, corrupted, keys)
        return corrupted.further(Detected, disc_logits_BL=logits_BL)

    def outputs(
        self, params: dict, batch: batch_lib.Batch, corrupted: Corrupted, keys: streams.Keys
    ) -> tuple[jax.Array, jax.Array]:
        """The discriminator's hidden states [B, L, D] and logits [B, L] of the corrupted text."""
        seen = dataclasses.replace(batch, ids_BL=corrupted.corrupted_BL)
        return networks.discriminator_outputs(
            self.networks, params, seen, keys.discriminator_B, self.placement
        )

    def loss(
        self, params: dict, batch: batch_lib.Batch, keys: streams.Keys, knobs: dict
    ) -> tuple[dict[str, jax.Array], metrics.Sums]:
        """The losses as sums, and the metrics.

        The step divides each sum by its denominator and adds them up:
        L = gen_weight gen / denominators["gen"] + disc_weight disc / denominators["disc"].
        """
        corrupted = self.generate(params, batch, keys, knobs)
        detected = self.discriminate(params, batch, corrupted, keys)
        return self.sums(detected, batch), self.measure(detected, batch)

    def sums(self, detected: Detected, batch: batch_lib.Batch) -> dict[str, jax.Array]:
        """The sum of each term. An objective whose discriminator has another head adds its own."""
        return {
            "gen": (detected.gen_losses_BN * detected.chosen.used_BN).sum(),
            "disc": (detection_loss(detected) * self.disc_loss_mask(batch, detected)).sum(),
        }

    def disc_loss_mask(self, batch: batch_lib.Batch, detected: Detected) -> jax.Array:
        """The tokens that L_Disc is a mean over: all of them, [CLS] and [SEP] included.

        An objective that overrides this overrides the denominator `disc` too.
        """
        del detected
        return batch.real_BL

    def denominators(self, batch: batch_lib.Batch, knobs: dict) -> dict[str, jax.Array]:
        """L_MLM is a mean over the used slots, L_Disc over all tokens."""
        return {
            "gen": self.count(batch, knobs).sum().astype(jnp.float32),
            "disc": batch.real_BL.sum().astype(jnp.float32),
        }

    def init(self, key: jax.Array) -> dict:
        """Returns embeddings, generator and discriminator."""
        return networks.init(self.networks, key)

    def intermediates(
        self, params: dict, batch: batch_lib.Batch, keys: streams.Keys, knobs: dict
    ) -> Detected:
        """The batch on its way through both networks."""
        return self.discriminate(params, batch, self.generate(params, batch, keys, knobs), keys)

    def measure(self, detected: Detected, batch: batch_lib.Batch) -> metrics.Sums:
        """All metrics of a training step."""
        measured = {}
        if detected.gen_losses_BN is not None:
            measured = measuring.generator_sums(detected, batch)
        measured |= measuring.discriminator_sums(
            detection_loss(detected),
            detected.disc_logits_BL,
            detected.replaced_BL,
            self.disc_loss_mask(batch, detected),
        )
        return measured | measuring.corruption_sums(detected, batch)

    def evaluate(
        self,
        params: dict,
        batch: batch_lib.Batch,
        keys: streams.Keys,
        knobs: dict,
        probe: unigram_probe.Probe,
    ) -> metrics.Sums:
        """The metrics of a step without dropout, with `disc_auc` and `disc_auc_unigram`.

        `disc_auc` judges the samples of the run's own generator, so it cannot be compared between
        runs. `disc_auc_unigram` can: it judges the probe's samples, which depend on no setting of
        the run (`unigram_probe.py`).
        """
        detected = self.intermediates(params, batch, keys, knobs)
        sums = self.measure(detected, batch)
        sums["disc_auc"] = metrics.histogram(
            detected.disc_logits_BL, detected.replaced_BL, batch.real_BL
        )

        probed_BL = unigram_probe.corrupted(probe, batch, self.special_ids, self.placement)
        probed = dataclasses.replace(batch, ids_BL=probed_BL)
        logits_BL = networks.discriminate(self.networks, params, probed, placement=self.placement)
        sums["disc_auc_unigram"] = metrics.histogram(
            logits_BL, masking.label(batch.ids_BL, probed_BL), batch.real_BL
        )
        return sums

    def token_scores(self, params: dict, batch: batch_lib.Batch) -> jax.Array:
        """log P(original) of every token of a text that was not corrupted, [B, L]."""
        return -jax.nn.softplus(
            networks.discriminate(self.networks, params, batch, placement=self.placement)
        )

    def flops(self, length: int) -> accounting.Flops:
        """Forward operations of a row of `length` tokens."""
        judged = accounting.detection(self.networks, length)
        return accounting.with_generator(judged, self.networks, length, self.slots)
