# SPDX-License-Identifier: Apache-2.0
"""Replaced-token detection in two phases, each with an optimizer of its own (DeBERTaV3).

First the generator is updated from its masked-language-model loss. Then the discriminator is
updated from its own loss: it reads the batch that the generator corrupted before its update, and
the embedding tables as they are after it. Adam removes the scale of a gradient, so the weights of
the two losses no longer matter; the learning rates do. Source: arXiv:2111.09543, section 3.2, and
the authors' code.
"""

import dataclasses

import jax

from electra_jax.core import batch as batch_lib
from electra_jax.core import metrics, streams
from electra_jax.objectives import measuring
from electra_jax.objectives import replaced_token_detection as rtd
from electra_jax.objectives.objective import Corrupted, Phase


@dataclasses.dataclass(frozen=True)
class DecoupledDetection(rtd.ReplacedTokenDetection):
    """The networks of the paper, updated one after the other within each step."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The generator's phase, then the discriminator's.

        Embedding tables that both networks read are updated in both phases. With sharing `gdes`
        only the generator updates them, with `none` each network has its own.
        """
        gdes, none = (self.networks.sharing == name for name in ("gdes", "none"))
        generator = ("generator",) if none else ("embeddings", "generator")
        discriminator = ("discriminator",) if gdes else ("embeddings", "discriminator")
        return (
            Phase("generator", self.generator_loss, generator),
            Phase("discriminator", self.discriminator_loss, discriminator),
        )

    def generator_loss(
        self,
        params: dict,
        batch: batch_lib.Batch,
        keys: streams.Keys,
        knobs: dict,
        handover: None,
    ) -> tuple[dict[str, jax.Array], metrics.Sums, Corrupted]:
        """L_MLM as a sum; the corrupted batch is handed on."""
        del handover  # the first phase is handed nothing
        corrupted = self.generate(params, batch, keys, knobs)

        measured = measuring.generator_sums(corrupted, batch)
        measured |= measuring.corruption_sums(corrupted, batch)
        losses_BN = corrupted.gen_losses_BN * corrupted.chosen.used_BN

        # The second phase needs the tokens alone.
        tokens = dataclasses.replace(
            corrupted, gen_losses_BN=None, gen_hits_BN=None, gen_entropies_BN=None, vectors_BNE=None
        )
        return {"gen": losses_BN.sum()}, measured, tokens

    def discriminator_loss(
        self,
        params: dict,
        batch: batch_lib.Batch,
        keys: streams.Keys,
        knobs: dict,
        handover: Corrupted,
    ) -> tuple[dict[str, jax.Array], metrics.Sums, None]:
        """L_Disc as a sum, on the batch that the first phase corrupted."""
        del knobs
        detected = self.discriminate(params, batch, handover, keys)

        losses_BL, loss_mask_BL = rtd.detection_loss(detected), self.disc_loss_mask(batch, detected)
        measured = measuring.discriminator_sums(
            losses_BL, detected.disc_logits_BL, detected.replaced_BL, loss_mask_BL
        )
        return {"disc": (losses_BL * loss_mask_BL).sum()}, measured, None
