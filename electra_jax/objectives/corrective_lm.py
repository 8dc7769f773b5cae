# SPDX-License-Identifier: Apache-2.0
"""COCO-LM: the discriminator also corrects what it takes for replaced.

    x_corrupt   [CLS]  the   dog   sat   on   the  mat  [SEP]
    D             original or replaced, for every token         as in replaced-token detection
    correction               cat               the              for every slot, the original token

    p(x_t) = c_t [x_t = what it sees] + (1 - c_t) softmax(e . h_t),   c_t = D(original at t)

The correction is a second head, which scores the whole vocabulary at the slots. Copying what it
sees is left to D: no gradient of this loss passes through c, so the head learns most where D says
"replaced". Source: corrective language modelling of Meng et al., "COCO-LM: Correcting and
Contrasting Text Sequences for Language Model Pretraining" (NeurIPS 2021, arXiv:2102.08473), without
its contrastive loss.
"""

import dataclasses

import jax
from jax import lax
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.core import metrics, streams
from electra_jax.model import accounting, networks
from electra_jax.objectives import all_tokens_mlm, masking, measuring
from electra_jax.objectives import replaced_token_detection as rtd
from electra_jax.objectives.objective import ArrayOrNone, Corrupted

LIKELIEST = 4  # other tokens than the original that are shown of a slot


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Corrected(rtd.Detected):
    """A batch on its way through both networks, with what the correction says at its slots.

    As `intermediates` returns it, `offered_BNO` are the original and the likeliest other tokens.
    """

    copy_BN: ArrayOrNone = None  # logit of c: above 0 the token that stands there is kept
    correction_losses_BN: ArrayOrNone = None  # float32, -log of the softmax at the originals
    correction_hits_BN: ArrayOrNone = None  # bool: the original scored highest
    correction_vectors_BNE: ArrayOrNone = None  # what the head scores the vocabulary with
    chances_BNO: ArrayOrNone = None  # p of `offered_BNO`, by the mixture


@dataclasses.dataclass(frozen=True)
class CorrectiveLM(rtd.ReplacedTokenDetection):
    """Replaced-token detection, and prediction of the originals by the discriminator."""

    # L = gen_weight L_MLM + disc_weight L_Disc + mlm_weight L_Correction
    terms = ("gen", "disc", "mlm")

    def init(self, key: jax.Array) -> dict:
        """Returns embeddings, generator, and the discriminator with its head for correction."""
        params = super().init(key)
        correction = networks.init_correction(self.networks, streams.stream(key, "correction"))
        return params | {"discriminator": params["discriminator"] | {"correction": correction}}

    def flops(self, length: int) -> accounting.Flops:
        """Forward operations of a row of `length` tokens."""
        corrected = accounting.correction(self.networks, self.slots)
        found = super().flops(length)
        return dataclasses.replace(found, discriminator=found.discriminator + corrected)

    def denominators(self, batch: batch_lib.Batch, knobs: dict) -> dict[str, jax.Array]:
        """L_MLM and L_Correction are means over the used slots, L_Disc over all tokens."""
        found = super().denominators(batch, knobs)
        return found | {"mlm": found["gen"]}

    def discriminate(
        self, params: dict, batch: batch_lib.Batch, corrupted: Corrupted, keys: streams.Keys
    ) -> Corrected:
        """D(x_corrupt, t) for every token, and the softmax over all tokens at the slots."""
        hidden_BLD, logits_BL = self.outputs(params, batch, corrupted, keys)
        slots_BN = corrupted.chosen.slots_BN
        vectors_BNE = networks.correction_vectors(
            self.networks, params, jnp.take_along_axis(hidden_BLD, slots_BN[:, :, None], axis=1)
        )
        losses_BN, hits_BN = self.score(
            networks.correction_table(self.networks, params),
            vectors_BNE,
            masking.at(batch.ids_BL, corrupted.chosen),
        )

        return corrupted.further(
            Corrected,
            disc_logits_BL=logits_BL,
            copy_BN=lax.stop_gradient(-masking.at(logits_BL, corrupted.chosen)),
            correction_losses_BN=losses_BN,
            correction_hits_BN=hits_BN,
            correction_vectors_BNE=vectors_BNE,
        )

    def intermediates(
        self, params: dict, batch: batch_lib.Batch, keys: streams.Keys, knobs: dict
    ) -> Corrected:
        """The batch on its way through both networks, with the likeliest tokens of each slot."""
        corrected = super().intermediates(params, batch, keys, knobs)
        assert isinstance(corrected, Corrected)
        chosen = corrected.chosen

        logits_BNV = networks.correction_logits(
            self.networks, params, corrected.correction_vectors_BNE
        )
        ids_V = jnp.arange(logits_BNV.shape[-1])
        copied_BN1 = jax.nn.sigmoid(corrected.copy_BN)[..., None]
        seen_BNV = masking.at(corrected.corrupted_BL, chosen)[..., None] == ids_V
        chances_BNV = copied_BN1 * seen_BNV + (1 - copied_BN1) * jax.nn.softmax(logits_BNV)

        originals_BN1 = masking.at(batch.ids_BL, chosen)[..., None]
        others_BNV = jnp.where(ids_V == originals_BN1, -1, chances_BNV)
        others_BNO = lax.top_k(others_BNV, LIKELIEST)[1]
        offered_BNO = jnp.concatenate([originals_BN1, others_BNO], axis=-1)
        chances_BNO = jnp.take_along_axis(chances_BNV, offered_BNO, axis=-1)
        return dataclasses.replace(corrected, offered_BNO=offered_BNO, chances_BNO=chances_BNO)

    def correction_scores(self, params: dict, batch: batch_lib.Batch) -> jax.Array:
        """log p of every token, by the softmax alone, of a text that was not corrupted: [B, L]."""
        hidden_BLD, _ = networks.discriminator_outputs(
            self.networks, params, batch, placement=self.placement
        )
        losses_BL, _ = self.score(
            networks.correction_table(self.networks, params),
            networks.correction_vectors(self.networks, params, hidden_BLD),
            batch.ids_BL,
        )
        return -losses_BL

    def sums(self, detected: rtd.Detected, batch: batch_lib.Batch) -> dict[str, jax.Array]:
        """The sum of each of the three terms."""
        assert isinstance(detected, Corrected)
        correction = (correction_loss(detected) * detected.chosen.used_BN).sum()
        return super().sums(detected, batch) | {"mlm": correction}

    def measure(self, detected: rtd.Detected, batch: batch_lib.Batch) -> metrics.Sums:
        """All metrics of a training step; `mlm_masked_*` are of the replaced tokens."""
        assert isinstance(detected, Corrected)
        used_BN = detected.chosen.used_BN
        replaced_BN = _replaced(detected)
        # What it keeps is right where nothing was replaced.
        hits_BN = jnp.where(detected.copy_BN > 0, ~replaced_BN, detected.correction_hits_BN)
        found = super().measure(detected, batch)
        return found | measuring.predictor_sums(
            correction_loss(detected), hits_BN, used_BN, used_BN & replaced_BN
        )


def correction_loss(corrected: Corrected) -> jax.Array:
    """L_Correction of each slot: -log p of the original by the mixture, [B, N]."""
    return all_tokens_mlm.copied_loss(
        corrected.correction_losses_BN, corrected.copy_BN, ~_replaced(corrected)
    )


def _replaced(corrected):
    """Whether the token at each slot is not the original, [B, N]."""
    return masking.at(corrected.replaced_BL, corrected.chosen)
