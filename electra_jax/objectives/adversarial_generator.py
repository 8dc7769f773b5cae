# SPDX-License-Identifier: Apache-2.0
"""A generator that learns to fool the discriminator: REINFORCE with a learned baseline.

Section 3.2 and appendix F of the paper. Sampling cannot be differentiated, so the generator goes
up the policy gradient of the discriminator's loss at its own slots,

    R(x_hat, t) = -log D(real)      where the sample is the original
                  -log(1 - D(real)) where it is another token
    grad = E[ grad log q(x_hat_t) (R - b_t) ],   b_t = w . h_t learnt by squared error

where q is what the samples are drawn from: p_G at the temperature of the moment, over the ids that
may be drawn. Only then is the mean of grad log q 0 and the gradient free of bias, whatever the
baseline. The generator's masked-language-model loss is measured and is not a term. The method loses
to maximum likelihood in the paper, for want of sample efficiency and of variety in what it writes.
"""

import dataclasses

import jax
from jax import lax

from electra_jax.core import batch as batch_lib
from electra_jax.core import metrics, streams
from electra_jax.model import networks
from electra_jax.objectives import corrupt, fill
from electra_jax.objectives import replaced_token_detection as rtd


@dataclasses.dataclass(frozen=True)
class AdversarialGenerator(rtd.ReplacedTokenDetection):
    """Terms: `policy` is a surrogate with the right gradient and measures nothing."""

    baseline_weight: float = 1.0

    terms = ("policy", "baseline", "disc")

    @property
    def policy_weight(self) -> float:
        """The generator's weight, as published."""
        return self.gen_weight

    def init(self, key: jax.Array) -> dict:
        """Returns embeddings, generator with its baseline, and discriminator."""
        params = super().init(key)
        baseline = networks.init_gate(self.networks, streams.stream(key, "baseline"))
        return params | {"generator": params["generator"] | {"baseline": baseline}}

    def weights(self, batch: batch_lib.Batch, knobs: dict) -> dict[str, jax.Array]:
        """Policy and baseline are means over slots, the discriminator's loss over all tokens."""
        weights = super().weights(batch, knobs)
        return {"policy": weights["gen"], "baseline": weights["gen"], "disc": weights["disc"]}

    def loss(
        self,
        params: dict,
        batch: batch_lib.Batch,
        keys: streams.Keys,
        knobs: dict,
        carry: None = None,
    ) -> tuple[dict[str, jax.Array], metrics.Sums, None]:
        """The three terms as sums."""
        played = self.play(params, batch, keys, knobs)
        used_BN, losses_BL = played.chosen.used_BN, rtd.detection_loss(played)
        reward_BN = lax.stop_gradient(corrupt.at(losses_BL, played.chosen))
        baseline_BN = networks.gate(
            params["generator"]["baseline"], lax.stop_gradient(played.vectors_BNE)
        )
        minus_log_BN = self._score_drawn(params, batch, played, knobs["temperature"])
        advantage_BN = reward_BN - lax.stop_gradient(baseline_BN)
        policy_BN = minus_log_BN * advantage_BN
        error_BN = (baseline_BN - reward_BN) ** 2
        sums = {
            "policy": (policy_BN * used_BN).sum(),
            "baseline": (error_BN * used_BN).sum(),
            "disc": (losses_BL * self.judged(batch, played)).sum(),
        }
        measured = self.measure(played, batch)
        measured |= lax.stop_gradient(
            {
                "policy_loss": metrics.pair(policy_BN, used_BN),
                "baseline_loss": metrics.pair(error_BN, used_BN),
                "gen_reward": metrics.pair(reward_BN, used_BN),
            }
        )
        return sums, measured, carry

    def _score_drawn(self, params, batch, played, temperature):
        """-log q of the samples."""

        def score_rows(shared, vectors_BNE, sampled_BN, originals_BN):
            table, temperature = shared
            return fill.score_drawn(
                vectors_BNE,
                *table,
                sampled_BN,
                originals_BN,
                temperature,
                size=self.networks.vocab_size,
                forbidden_ids=self.special_ids,
                disallow_correct=self.disallow_correct,
            )

        shared = networks.generator_table(self.networks, params), temperature
        originals_BN = corrupt.at(batch.ids_BL, played.chosen)
        rows = played.vectors_BNE, played.sampled_BN, originals_BN
        return self.rowwise(score_rows)(shared, *rows)
