# SPDX-License-Identifier: Apache-2.0
"""TEAMS: beside detecting replaced tokens, the discriminator finds the original among a few tokens.

    x_corrupt  [CLS]  the   dog   sat   on   the  mat  [SEP]
    D            original or replaced, for every token         as in replaced-token detection
    offered                 cat               the              for every slot: the original, and
                            man               a                four others that the generator
                            bird              his              thinks likely
                            girl              one
                            boy               top
    selection               cat               the              the loss of telling which it is

"Was it replaced?" is one bit a token. Which of five likely words stood here asks for more of the
context, at little cost: the vocabulary is not scored once more. Source: Shen et al., "Training
ELECTRA Augmented with Multi-word Selection" (Findings of ACL 2021, arXiv:2106.00139), and its code
in the TensorFlow Model Garden, official/projects/teams.

    O  tokens that are offered at a slot
"""

import dataclasses

import jax
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.core import metrics, streams
from electra_jax.model import accounting, networks
from electra_jax.objectives import measuring, vocabulary_softmax
from electra_jax.objectives import replaced_token_detection as rtd
from electra_jax.objectives.objective import ArrayOrNone, Corrupted


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Selected(rtd.Detected):
    """A batch on its way through both networks, with what was selected at its slots."""

    selection_scores_BNO: ArrayOrNone = None  # float32, of the tokens that are offered


@dataclasses.dataclass(frozen=True)
class MultiWordSelection(rtd.ReplacedTokenDetection):
    """Replaced-token detection, and selection of the original at the chosen slots."""

    # L = gen_weight L_MLM + disc_weight L_Disc + selection_weight L_Selection
    terms = ("gen", "disc", "selection")

    def init(self, key: jax.Array) -> dict:
        """Returns embeddings, generator, and the discriminator with its head for selection."""
        params = super().init(key)
        selection = networks.init_selection(self.networks, streams.stream(key, "selection"))
        return params | {"discriminator": params["discriminator"] | {"selection": selection}}

    def flops(self, length: int) -> accounting.Flops:
        """Forward operations of a row of `length` tokens."""
        selected = accounting.selection(self.networks, self.slots, self.selection_size)
        found = super().flops(length)
        return dataclasses.replace(found, discriminator=found.discriminator + selected)

    def denominators(self, batch: batch_lib.Batch, knobs: dict) -> dict[str, jax.Array]:
        """L_MLM and L_Selection are means over the used slots, L_Disc over all tokens."""
        found = super().denominators(batch, knobs)
        return found | {"selection": found["gen"]}

    def predict_and_sample(
        self,
        params: dict,
        vectors_BNE: jax.Array,
        originals_BN: jax.Array,
        keys: streams.Keys,
        temperature: jax.Array | float,
        *,
        disallow_correct: bool,
    ) -> vocabulary_softmax.SlotPredictions:
        """p_G at every slot, a sample from it, and the tokens that are offered."""
        return self.placement.rowwise(
            vocabulary_softmax.predict_sample_and_offer,
            (vectors_BNE, originals_BN, keys.sample_B, keys.offer_B),
            shared=(*networks.generator_table(self.networks, params), temperature),
            size=self.networks.vocab_size,
            forbidden_ids=self.special_ids,
            offered=self.selection_size,
            disallow_correct=disallow_correct,
            products=self.networks.discriminator.products,
        )

    def discriminate(
        self, params: dict, batch: batch_lib.Batch, corrupted: Corrupted, keys: streams.Keys
    ) -> Selected:
        """D(x_corrupt, t) for every token, and a score of every token that is offered."""
        hidden_BLD, logits_BL = self.outputs(params, batch, corrupted, keys)
        slots_BN = corrupted.chosen.slots_BN
        scores_BNO = networks.selection_scores(
            self.networks,
            params,
            jnp.take_along_axis(hidden_BLD, slots_BN[:, :, None], axis=1),
            corrupted.offered_BNO,
            self.placement,
        )

        return corrupted.further(
            Selected, disc_logits_BL=logits_BL, selection_scores_BNO=scores_BNO
        )

    def sums(self, detected: rtd.Detected, batch: batch_lib.Batch) -> dict[str, jax.Array]:
        """The sum of each of the three terms."""
        assert isinstance(detected, Selected)
        selection = (selection_loss(detected) * detected.chosen.used_BN).sum()
        return super().sums(detected, batch) | {"selection": selection}

    def measure(self, detected: rtd.Detected, batch: batch_lib.Batch) -> metrics.Sums:
        """All metrics of a training step."""
        assert isinstance(detected, Selected)
        found = super().measure(detected, batch)
        return found | measuring.selection_sums(
            selection_loss(detected), detected.selection_scores_BNO, detected.chosen.used_BN
        )


def selection_loss(selected: Selected) -> jax.Array:
    """L_Selection of each slot: -log of the softmax over the tokens offered, [B, N]."""
    scores_BNO = selected.selection_scores_BNO
    return jax.nn.logsumexp(scores_BNO, axis=-1) - scores_BNO[..., 0]
