# SPDX-License-Identifier: Apache-2.0
"""Replaced-token detection with a generator that was trained before and is not updated.

Two methods differ only in their settings. In two-stage training (section 3.2 of the paper) the
discriminator begins with the generator's weights. In Fast-ELECTRA (arXiv:2310.07347) a small
generator samples at a temperature that falls towards 1, which makes the task harder over time, as
training both networks together does. The generator reads its own embeddings, or with sharing `gdes`
the tables to which the discriminator adds its delta.
"""

import dataclasses

import jax
from jax import lax

from electra_jax.core import batch as batch_lib
from electra_jax.core import metrics, streams
from electra_jax.model import accounting
from electra_jax.objectives import replaced_token_detection as rtd
from electra_jax.objectives.objective import Phase


@dataclasses.dataclass(frozen=True)
class FrozenGenerator(rtd.ReplacedTokenDetection):
    """Only the discriminator learns; the generator's loss is measured but is not a term."""

    terms = ("disc",)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """One, over the parameters that the generator does not read."""
        gdes = self.networks.sharing == "gdes"
        trains = ("discriminator",) if gdes else ("embeddings", "discriminator")
        return (Phase("discriminator", self._only_loss, trains),)

    def flops(self, length: int) -> accounting.Flops:
        """Forward operations of a row of `length` tokens."""
        return dataclasses.replace(super().flops(length), generator_passes=1)

    def denominators(self, batch: batch_lib.Batch, knobs: dict) -> dict[str, jax.Array]:
        """How many tokens the loss is a mean over."""
        return {"disc": super().denominators(batch, knobs)["disc"]}

    def loss(
        self, params: dict, batch: batch_lib.Batch, keys: streams.Keys, knobs: dict
    ) -> tuple[dict[str, jax.Array], metrics.Sums]:
        """The discriminator's loss as a sum, and the metrics; the generator has no dropout."""
        without_dropout = dataclasses.replace(keys, generator_B=None)
        corrupted = lax.stop_gradient(self.generate(params, batch, without_dropout, knobs))

        detected = self.discriminate(params, batch, corrupted, keys)
        losses_BL = rtd.detection_loss(detected) * self.disc_loss_mask(batch, detected)
        return {"disc": losses_BL.sum()}, self.measure(detected, batch)
