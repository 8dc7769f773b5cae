# SPDX-License-Identifier: Apache-2.0
"""Replaced-token detection without a generator: samples come from one fixed distribution.

`uniform` is the reference's `uniform_generator` (all logits zero). `unigram` follows the counts of
the training text (tried in section 3.2 of the paper). Only the discriminator learns.
"""

import dataclasses

import jax
import numpy as np
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.core import metrics, streams
from electra_jax.model import accounting, networks
from electra_jax.objectives import masking
from electra_jax.objectives import replaced_token_detection as rtd
from electra_jax.objectives.objective import Corrupted


@dataclasses.dataclass(frozen=True)
class FixedGenerator(rtd.ReplacedTokenDetection):
    """Samples ids in proportion to `weights_V` [padded vocabulary], ids with weight 0 never."""

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
        """None: there is no generator."""
        del length
        return 0

    def denominators(self, batch: batch_lib.Batch, knobs: dict) -> dict[str, jax.Array]:
        """How many tokens the loss is a mean over."""
        return {"disc": super().denominators(batch, knobs)["disc"]}

    def loss(
        self, params: dict, batch: batch_lib.Batch, keys: streams.Keys, knobs: dict
    ) -> tuple[dict[str, jax.Array], metrics.Sums]:
        """The discriminator's loss as a sum, and the metrics."""
        detected = self.intermediates(params, batch, keys, knobs)
        losses_BL = rtd.detection_loss(detected) * self.disc_loss_mask(batch, detected)
        return {"disc": losses_BL.sum()}, self.measure(detected, batch)

    def generate(
        self, params: dict, batch: batch_lib.Batch, keys: streams.Keys, knobs: dict
    ) -> Corrupted:
        """Chooses slots and writes samples there; nothing is masked."""
        del params
        chosen = self.choose(batch, keys, knobs)
        sampled_BN = self.draw(jnp.asarray(self.weights_V, jnp.float32), keys.sample_B)
        corrupted_BL = masking.write(batch.ids_BL, chosen, sampled_BN)
        return Corrupted(
            chosen=chosen,
            masked_BL=batch.ids_BL,
            sampled_BN=sampled_BN,
            corrupted_BL=corrupted_BL,
            replaced_BL=masking.label(batch.ids_BL, corrupted_BL),
        )
