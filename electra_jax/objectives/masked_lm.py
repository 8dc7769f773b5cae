# SPDX-License-Identifier: Apache-2.0
"""BERT's masked language model with dynamic masking: the control of table 5 of the paper.

The main network sees [MASK] at 80 % of the chosen slots, a random token at 10 % and the original
at 10 % (Devlin et al. 2019, section 3.1), and predicts the originals. There is no generator. The
main network's parameters are at `discriminator/`, with a head that predicts tokens, so everything
that reads an encoder finds it in the usual place.
"""

import dataclasses

import jax
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.core import metrics, streams
from electra_jax.model import accounting, networks
from electra_jax.objectives import masking, measuring
from electra_jax.objectives.objective import Corrupted, Objective


@dataclasses.dataclass(frozen=True)
class MaskedLM(Objective):
    """One network with one loss."""

    terms = ("mlm",)

    def init(self, key: jax.Array) -> dict:
        """Returns embeddings and the main network."""
        return {
            "embeddings": networks.init_embeddings(
                self.networks, streams.stream(key, "embeddings")
            ),
            "discriminator": networks.init_predictor(
                self.networks, streams.stream(key, "discriminator")
            ),
        }

    def flops(self, length: int) -> accounting.Flops:
        """Forward operations of a row of `length` tokens."""
        return accounting.prediction(self.networks, length, self.slots)

    def denominators(self, batch: batch_lib.Batch, knobs: dict) -> dict[str, jax.Array]:
        """How many slots the loss is a mean over."""
        return {"mlm": self.count(batch, knobs).sum().astype(jnp.float32)}

    def loss(
        self, params: dict, batch: batch_lib.Batch, keys: streams.Keys, knobs: dict
    ) -> tuple[dict[str, jax.Array], metrics.Sums]:
        """The loss as a sum, and the metrics."""
        corrupted, losses_BN, hits_BN = self._mask_and_predict(params, batch, keys, knobs)

        used_BN, masked_BN = corrupted.chosen.used_BN, corrupted.chosen.masked_BN
        measured = measuring.predictor_sums(losses_BN, hits_BN, used_BN, masked_BN)
        sums = {"mlm": (losses_BN * used_BN).sum()}
        return sums, measured | measuring.corruption_sums(corrupted, batch)

    def intermediates(
        self, params: dict, batch: batch_lib.Batch, keys: streams.Keys, knobs: dict
    ) -> Corrupted:
        """The batch as the main network saw it."""
        return self._mask_and_predict(params, batch, keys, knobs)[0]

    def masked_scores(self, params: dict, batch: batch_lib.Batch, places_B: jax.Array) -> jax.Array:
        """log p of one token per row, the only one that is masked: [B]."""
        masked, slots_B1, originals_B1 = masking.one_each(batch, places_B, self.mask_id)
        losses_B1, _, _ = self.predict(params, masked, slots_B1, originals_B1)
        return -losses_B1[:, 0]

    def _mask_and_predict(self, params, batch, keys, knobs):
        chosen = self.choose(batch, keys, knobs)
        seen = self.mask(batch, chosen, keys)
        originals_BN = masking.at(batch.ids_BL, chosen)
        losses_BN, hits_BN, _ = self.predict(
            params, seen, chosen.slots_BN, originals_BN, keys.discriminator_B
        )

        corrupted = Corrupted(
            chosen=chosen,
            masked_BL=seen.ids_BL,
            sampled_BN=None,  # there is no generator
            corrupted_BL=seen.ids_BL,
            replaced_BL=masking.label(batch.ids_BL, seen.ids_BL),
        )
        return corrupted, losses_BN, hits_BN
