# SPDX-License-Identifier: Apache-2.0
"""All-Tokens MLM: the main network predicts every original token, with a copy gate (table 5).

    p(x_t) = D_t [x_t = what it sees] + (1 - D_t) softmax(e . h_t),   D_t = sigmoid(w . h_t)

With the gate the network need not learn to copy. 84.3 against 85.0 for ELECTRA in the paper. The
vocabulary is scored in pieces (`vocabulary_softmax.score`), so no [B, L, V] is ever in memory.
"""

import dataclasses

import jax
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.core import metrics, streams
from electra_jax.model import accounting, networks
from electra_jax.objectives import measuring, replace_mlm


@dataclasses.dataclass(frozen=True)
class AllTokensMLM(replace_mlm.ReplaceMLM):
    """Replace MLM with the loss of the main network at every token."""

    def init(self, key: jax.Array) -> dict:
        """Returns embeddings, generator and the main network with its gate."""
        params = super().init(key)
        gate = networks.init_gate(self.networks, streams.stream(key, "copy_gate"))
        return params | {"discriminator": params["discriminator"] | {"copy": gate}}

    def flops(self, length: int) -> accounting.Flops:
        """Forward operations of a row of `length` tokens."""
        predicted = accounting.prediction(self.networks, length, length)
        return accounting.with_generator(predicted, self.networks, length, self.slots)

    def scored_places(self, length: int) -> int:
        """All of them: the main network predicts every token."""
        return length

    def denominators(self, batch: batch_lib.Batch, knobs: dict) -> dict[str, jax.Array]:
        """The generator's loss is a mean over slots, the main network's over all tokens."""
        return {
            "gen": self.count(batch, knobs).sum().astype(jnp.float32),
            "mlm": batch.real_BL.sum().astype(jnp.float32),
        }

    def loss(
        self, params: dict, batch: batch_lib.Batch, keys: streams.Keys, knobs: dict
    ) -> tuple[dict[str, jax.Array], metrics.Sums]:
        """Both losses as sums, and the metrics."""
        corrupted = self.generate(params, batch, keys, knobs)

        # -log p of every original, by the softmax alone and with the copy gate.
        seen = dataclasses.replace(batch, ids_BL=corrupted.corrupted_BL)
        losses_BL, hits_BL, vectors_BLE = self.predict(
            params, seen, replace_mlm.every_slot(batch), batch.ids_BL, keys.discriminator_B
        )
        gate_BL = networks.gate(params["discriminator"]["copy"], vectors_BLE)
        losses_BL = copied_loss(losses_BL, gate_BL, ~corrupted.replaced_BL)
        # What the gate takes: the token that it sees, or the softmax's best. That is the best guess
        # of the mixture, unless both are nearly as likely.
        hits_BL = jnp.where(gate_BL > 0, ~corrupted.replaced_BL, hits_BL)

        sums = {
            "gen": (corrupted.gen_losses_BN * corrupted.chosen.used_BN).sum(),
            "mlm": (losses_BL * batch.real_BL).sum(),
        }
        replaced_BL = corrupted.replaced_BL & batch.real_BL
        measured = measuring.predictor_sums(losses_BL, hits_BL, batch.real_BL, replaced_BL)
        measured["copy_rate"] = metrics.pair(jax.lax.stop_gradient(gate_BL > 0), batch.real_BL)
        measured |= measuring.generator_sums(corrupted, batch)
        measured |= measuring.corruption_sums(corrupted, batch)
        return sums, measured

    def token_scores(self, params: dict, batch: batch_lib.Batch) -> jax.Array:
        """log p of every token being the original, with the copy gate: [B, L]."""
        losses_BL, _, vectors_BLE = self.predict(
            params, batch, replace_mlm.every_slot(batch), batch.ids_BL
        )
        gate_BL = networks.gate(params["discriminator"]["copy"], vectors_BLE)
        return -copied_loss(losses_BL, gate_BL, jnp.ones_like(batch.real_BL))


def copied_loss(losses: jax.Array, gate: jax.Array, seen: jax.Array) -> jax.Array:
    """-log p of the mixture of copying and predicting, of any shape.

    Args:
      losses: -log p of the softmax.
      gate: the logit of D.
      seen: whether the network sees the original.
    """
    not_copied = losses + jax.nn.softplus(gate)  # -log((1 - D) p)
    copied = jax.nn.softplus(-gate)  # -log D
    return jnp.where(seen, -jnp.logaddexp(-copied, -not_copied), not_copied)
