# SPDX-License-Identifier: Apache-2.0
"""Replace MLM: the main network predicts the originals from a text without [MASK] (table 5).

A generator fills the slots as in replaced-token detection. The main network sees its samples and
predicts the original ids at the same slots. Its gain over BERT (82.4 against 82.2 in the paper)
shows what BERT loses because [MASK] never occurs in fine-tuning.
"""

import dataclasses

import jax
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.core import metrics, streams
from electra_jax.model import accounting, networks
from electra_jax.objectives import masking, measuring
from electra_jax.objectives import replaced_token_detection as rtd
from electra_jax.objectives.objective import Corrupted


@dataclasses.dataclass(frozen=True)
class ReplaceMLM(rtd.WithGenerator):
    """A generator and a main network, which both predict tokens."""

    terms = ("gen", "mlm")

    def init(self, key: jax.Array) -> dict:
        """Returns embeddings, generator and the main network."""
        params = networks.init(self.networks, key)
        main = networks.init_predictor(self.networks, streams.stream(key, "discriminator"))
        return params | {"discriminator": main}

    def flops(self, length: int) -> accounting.Flops:
        """Forward operations of a row of `length` tokens."""
        predicted = accounting.prediction(self.networks, length, self.slots)
        return accounting.with_generator(predicted, self.networks, length, self.slots)

    def denominators(self, batch: batch_lib.Batch, knobs: dict) -> dict[str, jax.Array]:
        """Both losses are means over the chosen slots."""
        count = self.count(batch, knobs).sum().astype(jnp.float32)
        return {"gen": count, "mlm": count}

    def loss(
        self, params: dict, batch: batch_lib.Batch, keys: streams.Keys, knobs: dict
    ) -> tuple[dict[str, jax.Array], metrics.Sums]:
        """Both losses as sums, and the metrics."""
        corrupted = self.generate(params, batch, keys, knobs)
        chosen = corrupted.chosen

        seen = dataclasses.replace(batch, ids_BL=corrupted.corrupted_BL)
        originals_BN = masking.at(batch.ids_BL, chosen)
        losses_BN, hits_BN, _ = self.predict(
            params, seen, chosen.slots_BN, originals_BN, keys.discriminator_B
        )

        sums = {
            "gen": (corrupted.gen_losses_BN * chosen.used_BN).sum(),
            "mlm": (losses_BN * chosen.used_BN).sum(),
        }
        replaced_BN = chosen.used_BN & masking.at(corrupted.replaced_BL, chosen)
        measured = measuring.predictor_sums(losses_BN, hits_BN, chosen.used_BN, replaced_BN)
        measured |= measuring.generator_sums(corrupted, batch)
        measured |= measuring.corruption_sums(corrupted, batch)
        return sums, measured

    def intermediates(
        self, params: dict, batch: batch_lib.Batch, keys: streams.Keys, knobs: dict
    ) -> Corrupted:
        """The batch as the generator corrupted it."""
        return self.generate(params, batch, keys, knobs)

    def token_scores(self, params: dict, batch: batch_lib.Batch) -> jax.Array:
        """log p of every token being the original, from the text as it is: [B, L]."""
        losses_BL, _, _ = self.predict(params, batch, every_slot(batch), batch.ids_BL)
        return -losses_BL


def every_slot(batch: batch_lib.Batch) -> jax.Array:
    """All positions of every row as slots, int32 [B, L]."""
    return jnp.broadcast_to(jnp.arange(batch.ids_BL.shape[1]), batch.ids_BL.shape)
