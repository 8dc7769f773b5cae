# SPDX-License-Identifier: Apache-2.0
"""Electric: an energy for every token, learnt by telling data from noise (EMNLP 2020).

    p(x_t | others) = exp(-E(x)_t) / Z            the main network's logit is E, one number a token
    q(x_t | others)                               two towers, in one pass (`model/two_towers.py`)
    noise             k of the n words of a row, each replaced by a draw from q, all at once
    P(noise | x, t) = k q / (k q + (n - k) p)     so its logit is E + log q + log(k / (n - k))

The towers learn from -log q of every word; the energies from the cross-entropy of that logit, where
every noised place counts as noise, lucky draws too. Since noise is contrasted with p itself, Z goes
to 1 and -E is log p: one pass scores a sentence (`score`). Departures: k is exact and without
replacement, q is normalised over words (special tokens are neither drawn nor scored). The noise is
q's own, so neither a temperature nor `disallow_correct` is read.
"""

import dataclasses

import jax
from jax import lax
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.core import metrics, streams
from electra_jax.model import accounting, networks
from electra_jax.objectives import corrupt, fill, measuring, unigram_probe
from electra_jax.objectives import replaced_token_detection as rtd


@dataclasses.dataclass(frozen=True)
class Electric(rtd.ReplacedTokenDetection):
    """Two towers and a main network that gives energies."""

    masks = False

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
        """All of them."""
        return length

    def weights(self, batch: batch_lib.Batch, knobs: dict) -> dict[str, jax.Array]:
        """Both losses are means over all words."""
        del knobs
        words = self._words(batch).sum().astype(jnp.float32)
        return {"gen": words, "disc": words}

    def loss(
        self,
        params: dict,
        batch: batch_lib.Batch,
        keys: streams.Keys,
        knobs: dict,
        carry: None = None,
    ) -> tuple[dict[str, jax.Array], metrics.Sums, None]:
        """Both losses as sums."""
        played, gen_losses_BL, gen_hits_BL = self._play(params, batch, keys, knobs)
        words_BL, losses_BL = self._words(batch), rtd.detection_loss(played)
        sums = {"gen": (gen_losses_BL * words_BL).sum(), "disc": (losses_BL * words_BL).sum()}
        heard = losses_BL, played.disc_logits_BL, played.replaced_BL, words_BL
        measured = measuring.detected(*heard) | measuring.corrupted(played, batch)
        measured |= lax.stop_gradient(
            {  # every word is hidden from the towers, so all count as masked
                "gen_loss": metrics.pair(gen_losses_BL, words_BL),
                "gen_masked_loss": metrics.pair(gen_losses_BL, words_BL),
                "gen_accuracy": metrics.pair(gen_hits_BL, words_BL),
                "gen_masked_accuracy": metrics.pair(gen_hits_BL, words_BL),
            }
        )
        return sums, measured, carry

    def play(
        self, params: dict, batch: batch_lib.Batch, keys: streams.Keys, knobs: dict
    ) -> rtd.Played:
        """Noises a batch and judges it; `replaced` is 'was noised', equal draws included."""
        return self._play(params, batch, keys, knobs)[0]

    def evaluate(
        self,
        params: dict,
        batch: batch_lib.Batch,
        keys: streams.Keys,
        knobs: dict,
        probe: unigram_probe.Probe,
    ) -> metrics.Sums:
        """The metrics of a step without dropout, with `disc_auc` over words."""
        del probe
        played = self.play(params, batch, keys, knobs)
        sums = self.loss(params, batch, keys, knobs)[1]
        judged = played.disc_logits_BL, played.replaced_BL, self._words(batch)
        return sums | {"disc_auc": metrics.histogram(*judged)}

    def token_scores(self, params: dict, batch: batch_lib.Batch) -> jax.Array:
        """log p(x_t | others) of every token as the main network sees it: -E, [B, L]."""
        return -networks.discriminate(self.networks, params, batch)

    def _words(self, batch):
        return corrupt.candidates(batch.ids_BL, self.special_ids) & batch.real_BL

    def _play(self, params, batch, keys, knobs):
        chosen = self.choose(batch, keys, knobs)
        vectors_BLE = networks.towers(self.networks, params, batch, keys.generator_B)
        table = networks.generator_table(self.networks, params)
        losses_BL, hits_BL = self._score(table, vectors_BLE, batch.ids_BL)
        slots_BN1 = chosen.slots_BN[:, :, None]
        vectors_BNE = lax.stop_gradient(jnp.take_along_axis(vectors_BLE, slots_BN1, axis=1))
        originals_BN = corrupt.at(batch.ids_BL, chosen)
        # The contrast is with q itself, so no setting of the draw may make it another: at another
        # temperature or without the correct token the logit below would not be that of the noise.
        filled = self.fill(
            params, vectors_BNE, originals_BN, keys, jnp.float32(1), disallow_correct=False
        )
        drawn_BN = lax.stop_gradient(filled.sampled_BN)
        drawn_losses_BN, _ = self._score(lax.stop_gradient(table), vectors_BNE, drawn_BN)
        noised_BL = corrupt.write(batch.ids_BL, chosen, drawn_BN)
        log_q_BL = -lax.stop_gradient(corrupt.write(losses_BL, chosen, drawn_losses_BN))
        k_B1 = self.count(batch, knobs)[:, None]
        odds_B1 = k_B1 / jnp.maximum(self._words(batch).sum(1, keepdims=True) - k_B1, 1)
        seen = dataclasses.replace(batch, ids_BL=noised_BL)
        energy_BL = networks.discriminate(self.networks, params, seen, keys.discriminator_B)
        is_noise_BL = corrupt.write(jnp.zeros_like(batch.ids_BL), chosen, chosen.used_BN) > 0
        played = rtd.Played(
            chosen=chosen,
            masked_BL=batch.ids_BL,
            sampled_BN=drawn_BN,
            corrupted_BL=noised_BL,
            replaced_BL=is_noise_BL,
            disc_logits_BL=energy_BL + log_q_BL + jnp.log(jnp.maximum(odds_B1, 1e-6)),
        )
        return played, losses_BL, hits_BL

    def _score(self, table, vectors_BNE, targets_BN):
        def score_rows(table, vectors_BNE, targets_BN):
            size, forbidden_ids = self.networks.vocab_size, self.special_ids
            return fill.score(
                vectors_BNE, *table, targets_BN, size=size, forbidden_ids=forbidden_ids
            )

        return self.rowwise(score_rows)(table, vectors_BNE, targets_BN)
