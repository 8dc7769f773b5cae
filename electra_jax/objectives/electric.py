# SPDX-License-Identifier: Apache-2.0
"""Electric: an energy for every token, learned by telling text from noise (EMNLP 2020).

    p(x_t | others) = exp(-E(x)_t) / Z            E is the discriminator's logit, one per token
    q(x_t | others)                               from two towers, in one pass (model/two_towers.py)
    noise             k of the n tokens of a row, each replaced by a sample from q, all at once
    P(noise | x, t) = k q / (k q + (n - k) p)     so its logit is E + log q + log(k / (n - k))

The towers learn from -log q of every token; the energies from the cross-entropy of the logit above,
where every replaced position counts as noise, correct samples too. Since noise is told from p
itself, Z goes to 1 and -E is log p: one pass scores a sentence (`scoring.py`). Departures: k is
exact and without replacement, and q is normalised over all tokens but the special ones, which are
neither sampled nor scored. The noise has to be a sample of q as it is, so neither a temperature nor
`disallow_correct` is read.
"""

import dataclasses

import jax
from jax import lax
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.core import metrics, streams
from electra_jax.model import accounting, networks
from electra_jax.objectives import masking, measuring, unigram_probe
from electra_jax.objectives import replaced_token_detection as rtd


@dataclasses.dataclass(frozen=True)
class Electric(rtd.ReplacedTokenDetection):
    """Two towers, and a discriminator whose logit is an energy."""

    masks = False
    detects = False  # a score is minus an energy

    def init(self, key: jax.Array) -> dict:
        """Returns embeddings, the towers as `generator`, and discriminator."""
        params = networks.init(self.networks, key)
        towers = networks.init_towers(self.networks, streams.stream(key, "generator"))
        return params | {"generator": towers}

    def flops(self, length: int) -> accounting.Flops:
        """Forward operations of a row of `length` tokens."""
        judged = accounting.detection(self.networks, length)
        return accounting.with_towers(judged, self.networks, length)

    def scored_places(self, length: int) -> int:
        """All of them: the towers score every token."""
        return length

    def denominators(self, batch: batch_lib.Batch, knobs: dict) -> dict[str, jax.Array]:
        """Both losses are means over all tokens that are not special."""
        del knobs
        count = self._scored(batch).sum().astype(jnp.float32)
        return {"gen": count, "disc": count}

    def loss(
        self, params: dict, batch: batch_lib.Batch, keys: streams.Keys, knobs: dict
    ) -> tuple[dict[str, jax.Array], metrics.Sums]:
        """Both losses as sums, and the metrics."""
        detected, gen_losses_BL, gen_hits_BL = self._play(params, batch, keys, knobs)
        scored_BL, losses_BL = self._scored(batch), rtd.detection_loss(detected)

        sums = {"gen": (gen_losses_BL * scored_BL).sum(), "disc": (losses_BL * scored_BL).sum()}
        measured = measuring.discriminator_sums(
            losses_BL, detected.disc_logits_BL, detected.replaced_BL, scored_BL
        )
        measured |= measuring.corruption_sums(detected, batch)
        measured |= lax.stop_gradient(
            {  # the towers never see the token that they predict, so all count as masked
                "gen_loss": metrics.pair(gen_losses_BL, scored_BL),
                "gen_masked_loss": metrics.pair(gen_losses_BL, scored_BL),
                "gen_accuracy": metrics.pair(gen_hits_BL, scored_BL),
                "gen_masked_accuracy": metrics.pair(gen_hits_BL, scored_BL),
            }
        )
        return sums, measured

    def intermediates(
        self, params: dict, batch: batch_lib.Batch, keys: streams.Keys, knobs: dict
    ) -> rtd.Detected:
        """Puts noise into a batch and judges it; `replaced_BL` is True at every noised position."""
        return self._play(params, batch, keys, knobs)[0]

    def evaluate(
        self,
        params: dict,
        batch: batch_lib.Batch,
        keys: streams.Keys,
        knobs: dict,
        probe: unigram_probe.Probe,
    ) -> metrics.Sums:
        """The metrics of a step without dropout, with `disc_auc` over the scored tokens."""
        del probe
        detected = self.intermediates(params, batch, keys, knobs)
        sums = self.loss(params, batch, keys, knobs)[1]
        sums["disc_auc"] = metrics.histogram(
            detected.disc_logits_BL, detected.replaced_BL, self._scored(batch)
        )
        return sums

    def token_scores(self, params: dict, batch: batch_lib.Batch) -> jax.Array:
        """log p(x_t | others) of every token: -E, [B, L]."""
        return -networks.discriminate(self.networks, params, batch, placement=self.placement)

    def generator_scores(
        self, params: dict, batch: batch_lib.Batch, places_B: jax.Array
    ) -> jax.Array:
        """log q of one token per row, which the towers do not see there: [B]."""
        vectors_BLE = networks.towers(self.networks, params, batch, placement=self.placement)
        places_B1 = places_B[:, None]
        losses_B1, _ = self.score(
            networks.generator_table(self.networks, params),
            jnp.take_along_axis(vectors_BLE, places_B1[:, :, None], axis=1),
            jnp.take_along_axis(batch.ids_BL, places_B1, axis=1),
            self.special_ids,
        )
        return -losses_B1[:, 0]

    def _scored(self, batch):
        """Bool [B, L]: the tokens that may become noise and are scored; no special token is."""
        return masking.candidates(batch.ids_BL, self.special_ids) & batch.real_BL

    def _play(self, params, batch, keys, knobs):
        """(what happened to the batch, -log q of every token, whether q found it most likely)."""
        # q of every token, from all other tokens.
        chosen = self.choose(batch, keys, knobs)
        vectors_BLE = networks.towers(
            self.networks, params, batch, keys.generator_B, self.placement
        )
        table = networks.generator_table(self.networks, params)
        losses_BL, hits_BL = self.score(table, vectors_BLE, batch.ids_BL, self.special_ids)

        # Noise from q. A temperature, or samples without the correct token, would be another
        # distribution, and the logit below would be wrong for it.
        slots_BN1 = chosen.slots_BN[:, :, None]
        vectors_BNE = lax.stop_gradient(jnp.take_along_axis(vectors_BLE, slots_BN1, axis=1))
        originals_BN = masking.at(batch.ids_BL, chosen)
        predicted = self.predict_and_sample(
            params, vectors_BNE, originals_BN, keys, jnp.float32(1), disallow_correct=False
        )
        noise_BN = lax.stop_gradient(predicted.sampled_BN)
        noised_BL = masking.write(batch.ids_BL, chosen, noise_BN)
        is_noise_BL = masking.write(jnp.zeros_like(batch.ids_BL), chosen, chosen.used_BN) > 0

        # log q of what stands at each position now, and log(k / (n - k)).
        noise_losses_BN, _ = self.score(
            lax.stop_gradient(table), vectors_BNE, noise_BN, self.special_ids
        )
        log_q_BL = -lax.stop_gradient(masking.write(losses_BL, chosen, noise_losses_BN))
        k_B1 = self.count(batch, knobs)[:, None]
        odds_B1 = k_B1 / jnp.maximum(self._scored(batch).sum(1, keepdims=True) - k_B1, 1)

        # The energies.
        seen = dataclasses.replace(batch, ids_BL=noised_BL)
        energy_BL = networks.discriminate(
            self.networks, params, seen, keys.discriminator_B, self.placement
        )

        detected = rtd.Detected(
            chosen=chosen,
            masked_BL=batch.ids_BL,
            sampled_BN=noise_BN,
            corrupted_BL=noised_BL,
            replaced_BL=is_noise_BL,
            disc_logits_BL=energy_BL + log_q_BL + jnp.log(jnp.maximum(odds_B1, 1e-6)),
        )
        return detected, losses_BL, hits_BL
