# SPDX-License-Identifier: Apache-2.0
"""Replaced-token detection without a generator: slots hold draws from one fixed distribution.

`uniform` is the reference's `uniform_generator` (all logits zero); `unigram` follows the counts
of the training text (section 3.2 of the paper tries it). Nothing but the discriminator learns.
"""

import dataclasses

import jax
import numpy as np
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.core import metrics, streams
from electra_jax.model import accounting, networks
from electra_jax.objectives import corrupt, corruption
from electra_jax.objectives import replaced_token_detection as rtd


@dataclasses.dataclass(frozen=True)
class FixedGenerator(rtd.ReplacedTokenDetection):
    """`weights_V` [padded vocabulary]: how often each id is drawn, on any scale; 0 is never."""

    weights_V: np.ndarray | None = dataclasses.field(default=None, compare=False)

    terms = ("disc",)
    masks = False

    def init(self, key: jax.Array) -> dict:
        """Returns embeddings and discriminator."""
        params = networks.init(self.networks, key)
        return {part: params[part] for part in ("embeddings", "discriminator")}

    def flops(self, length: int) -> accounting.Flops:
        """Forward operations of a row of `length` tokens."""
        return accounting.detection(self.networks, length)

    def scored_places(self, length: int) -> int:
        """None: nothing predicts words."""
        del length
        return 0

    def weights(self, batch: batch_lib.Batch, knobs: dict) -> dict[str, jax.Array]:
        """How many tokens the loss is a mean over."""
        return {"disc": super().weights(batch, knobs)["disc"]}

    def loss(
        self,
        params: dict,
        batch: batch_lib.Batch,
        keys: streams.Keys,
        knobs: dict,
        carry: None = None,
    ) -> tuple[dict[str, jax.Array], metrics.Sums, None]:
        """The discriminator's loss as a sum."""
        played = self.play(params, batch, keys, knobs)
        losses_BL = rtd.detection_loss(played) * self.judged(batch, played)
        return {"disc": losses_BL.sum()}, self.measure(played, batch), carry

    def generate(
        self, params: dict, batch: batch_lib.Batch, keys: streams.Keys, knobs: dict
    ) -> corruption.Corrupted:
        """Chooses slots and writes draws there; nothing is masked."""
        del params
        chosen = self.choose(batch, keys, knobs)
        drawn_BN = self.draw(jnp.asarray(self.weights_V, jnp.float32), keys.sample_B)
        corrupted_BL = corrupt.write(batch.ids_BL, chosen, drawn_BN)
        return corruption.Corrupted(
            chosen=chosen,
            masked_BL=batch.ids_BL,
            sampled_BN=drawn_BN,
            corrupted_BL=corrupted_BL,
            replaced_BL=corrupt.label(batch.ids_BL, corrupted_BL),
        )
