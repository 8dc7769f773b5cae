# SPDX-License-Identifier: Apache-2.0
"""Replaced-token detection in two phases, each with an optimizer of its own (DeBERTaV3).

First the generator steps on its masked-language-model loss; then the discriminator, reading what
the generator wrote before that step and the tables as they are after it, steps on its own loss.
Adam takes the scale out of a gradient, so the weights of the two losses no longer matter: the
rates do. Source: arXiv:2111.09543, section 3.2 and the authors' code.
"""

import dataclasses

import jax

from electra_jax.core import batch as batch_lib
from electra_jax.core import metrics, streams
from electra_jax.objectives import corruption, measuring, phase
from electra_jax.objectives import replaced_token_detection as rtd


@dataclasses.dataclass(frozen=True)
class DecoupledDetection(rtd.ReplacedTokenDetection):
    """The networks of the paper, trained one after the other within each step."""

    @property
    def phases(self) -> tuple[phase.Phase, ...]:
        """The generator, then the discriminator on what the generator made.

        Tables that both networks read belong to both; under `gdes` and `none` only to one.
        """
        gdes, none = (self.networks.sharing == name for name in ("gdes", "none"))
        generator = ("generator",) if none else ("embeddings", "generator")
        discriminator = ("discriminator",) if gdes else ("embeddings", "discriminator")
        return (
            phase.Phase("generator", self.generator_loss, generator),
            phase.Phase("discriminator", self.discriminator_loss, discriminator),
        )

    def generator_loss(
        self,
        params: dict,
        batch: batch_lib.Batch,
        keys: streams.Keys,
        knobs: dict,
        carry: None = None,
    ) -> tuple[dict[str, jax.Array], metrics.Sums, corruption.Corrupted]:
        """L_MLM as a sum; the corrupted batch is handed on."""
        del carry
        made = self.generate(params, batch, keys, knobs)
        measured = measuring.generated(made, batch) | measuring.corrupted(made, batch)
        losses_BN = made.gen_losses_BN * made.chosen.used_BN
        handed_on = dataclasses.replace(
            made, gen_losses_BN=None, gen_hits_BN=None, gen_entropies_BN=None, vectors_BNE=None
        )
        return {"gen": losses_BN.sum()}, measured, handed_on

    def discriminator_loss(
        self,
        params: dict,
        batch: batch_lib.Batch,
        keys: streams.Keys,
        knobs: dict,
        carry: corruption.Corrupted,
    ) -> tuple[dict[str, jax.Array], metrics.Sums, None]:
        """L_Disc as a sum, on the batch that the first phase corrupted."""
        del knobs
        played = self.judge(params, batch, carry, keys)
        losses_BL, judged_BL = rtd.detection_loss(played), self.judged(batch, played)
        measured = measuring.detected(
            losses_BL, played.disc_logits_BL, played.replaced_BL, judged_BL
        )
        return {"disc": (losses_BL * judged_BL).sum()}, measured, None
