# SPDX-License-Identifier: Apache-2.0
"""A generator that learns to fool the discriminator: REINFORCE with a learned baseline.

Section 3.2 and appendix F of the paper. A gradient cannot pass through sampling, so the generator
follows the policy gradient of the discriminator's loss at its own slots,

    R(x_hat, t) = -log D(real)      where the sample is the original
                  -log(1 - D(real)) where it is another token
    grad = E[ grad log q(x_hat_t) (R - b_t) ],   b_t = w . h_t, learned by squared error

where q is the distribution that the samples come from: p_G at the current temperature, over the ids
that may be sampled. The mean of grad log q is 0 only for this q, and only then is the gradient
unbiased for every baseline. The generator's masked-language-model loss is measured, but it is not a
term of the loss. In the paper the method is worse than maximum likelihood: it needs more samples,
and its generator writes less varied text.
"""

import dataclasses

import jax
from jax import lax

from electra_jax.core import batch as batch_lib
from electra_jax.core import metrics, streams
from electra_jax.model import networks
from electra_jax.objectives import masking, vocabulary_softmax
from electra_jax.objectives import replaced_token_detection as rtd
from electra_jax.objectives.objective import ArrayOrNone


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Rewarded(rtd.Detected):
    """Everything that happened to a batch, and what each sample earned."""

    reward_BN: ArrayOrNone = None  # the discriminator's loss at the sample
    baseline_BN: ArrayOrNone = None  # how much of it was expected
    minus_log_q_BN: ArrayOrNone = None  # of the samples


@dataclasses.dataclass(frozen=True)
class AdversarialGenerator(rtd.ReplacedTokenDetection):
    """Replaced-token detection with a generator trained by policy gradient.

    The term `policy` is a surrogate: its gradient is the policy gradient; its value means nothing.
    """

    baseline_weight: float = 1.0

    terms = ("policy", "baseline", "disc")

    @property
    def term_weights(self) -> dict[str, float]:
        """The policy has the generator's weight, as published."""
        return {
            "policy": self.gen_weight,
            "baseline": self.baseline_weight,
            "disc": self.disc_weight,
        }

    def init(self, key: jax.Array) -> dict:
        """Returns embeddings, generator with its baseline, and discriminator."""
        params = super().init(key)
        baseline = networks.init_gate(self.networks, streams.stream(key, "baseline"))
        return params | {"generator": params["generator"] | {"baseline": baseline}}

    def denominators(self, batch: batch_lib.Batch, knobs: dict) -> dict[str, jax.Array]:
        """Policy and baseline are means over slots, the discriminator's loss over all tokens."""
        of = super().denominators(batch, knobs)
        return {"policy": of["gen"], "baseline": of["gen"], "disc": of["disc"]}

    def loss(
        self, params: dict, batch: batch_lib.Batch, keys: streams.Keys, knobs: dict
    ) -> tuple[dict[str, jax.Array], metrics.Sums]:
        """The three terms as sums, and the metrics."""
        rewarded = self.intermediates(params, batch, keys, knobs)
        used_BN = rewarded.chosen.used_BN
        policy_BN, error_BN = _losses(rewarded)
        disc_BL = rtd.detection_loss(rewarded) * self.disc_loss_mask(batch, rewarded)

        sums = {
            "policy": (policy_BN * used_BN).sum(),
            "baseline": (error_BN * used_BN).sum(),
            "disc": disc_BL.sum(),
        }
        return sums, self.measure(rewarded, batch)

    def intermediates(
        self, params: dict, batch: batch_lib.Batch, keys: streams.Keys, knobs: dict
    ) -> Rewarded:
        """The batch on its way through both networks, with what each sample earned."""
        detected = super().intermediates(params, batch, keys, knobs)
        reward_BN = masking.at(rtd.detection_loss(detected), detected.chosen)
        baseline_BN = networks.gate(
            params["generator"]["baseline"], lax.stop_gradient(detected.vectors_BNE)
        )

        return detected.further(
            Rewarded,
            reward_BN=lax.stop_gradient(reward_BN),
            baseline_BN=baseline_BN,
            minus_log_q_BN=self._score_sampled(params, batch, detected, knobs["temperature"]),
        )

    def measure(self, detected: rtd.Detected, batch: batch_lib.Batch) -> metrics.Sums:
        """All metrics of a step, of training and on held-out rows."""
        assert isinstance(detected, Rewarded)  # it comes from `intermediates`
        used_BN, (policy_BN, error_BN) = detected.chosen.used_BN, _losses(detected)
        return super().measure(detected, batch) | lax.stop_gradient(
            {
                "policy_loss": metrics.pair(policy_BN, used_BN),
                "baseline_loss": metrics.pair(error_BN, used_BN),
                "gen_reward": metrics.pair(detected.reward_BN, used_BN),
            }
        )

    def _score_sampled(self, params, batch, detected, temperature):
        """-log q of the samples, [B, N]."""
        originals_BN = masking.at(batch.ids_BL, detected.chosen)
        return self.placement.rowwise(
            vocabulary_softmax.score_sampled,
            (detected.vectors_BNE, detected.sampled_BN, originals_BN),
            shared=(*networks.generator_table(self.networks, params), temperature),
            size=self.networks.vocab_size,
            forbidden_ids=self.special_ids,
            disallow_correct=self.disallow_correct,
            products=self.networks.discriminator.products,
        )


def _losses(rewarded):
    """(policy, baseline) of each slot, [B, N]: -log q times the advantage, and a squared error."""
    reward_BN, baseline_BN = rewarded.reward_BN, rewarded.baseline_BN
    advantage_BN = reward_BN - lax.stop_gradient(baseline_BN)
    return rewarded.minus_log_q_BN * advantage_BN, (baseline_BN - reward_BN) ** 2
