# SPDX-License-Identifier: Apache-2.0
"""Replaced-token detection as published: section 2 of the paper, from top to bottom.

A small generator fills masked slots; the discriminator says of every token whether it was
replaced. Both learn at once, from two losses that no gradient crosses: the sampled ids are cut
off by `stop_gradient` (`corruption.generate`), and what they share is the embedding tables.
"""

import dataclasses

import jax
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.core import metrics, streams
from electra_jax.model import accounting, networks
from electra_jax.objectives import corrupt, corruption, measuring, unigram_probe


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Played(corruption.Corrupted):
    """All that happened to a batch on its way through both networks."""

    disc_logits_BL: jax.Array | None = None  # float32, above 0: believed to be replaced


@dataclasses.dataclass(frozen=True)
class ReplacedTokenDetection(corruption.Corruption):
    """The objective of the paper."""

    terms = ("gen", "disc")  # L = gen_weight L_MLM + disc_weight L_Disc, lambda = 50

    def init(self, key: jax.Array) -> dict:
        """Returns embeddings, generator and discriminator."""
        return networks.init(self.networks, key)

    def flops(self, length: int) -> accounting.Flops:
        """Forward operations of a row of `length` tokens."""
        judged = accounting.detection(self.networks, length)
        return accounting.with_generator(judged, self.networks, length, self.slots)

    def weights(self, batch: batch_lib.Batch, knobs: dict) -> dict[str, jax.Array]:
        """How many slots and tokens the two losses are means over."""
        return {
            "gen": self.count(batch, knobs).sum().astype(jnp.float32),
            "disc": batch.real_BL.sum().astype(jnp.float32),
        }

    def loss(
        self,
        params: dict,
        batch: batch_lib.Batch,
        keys: streams.Keys,
        knobs: dict,
        carry: None = None,
    ) -> tuple[dict[str, jax.Array], metrics.Sums, None]:
        """Both losses as sums, and what was measured on the way."""
        played = self.play(params, batch, keys, knobs)
        sums = {
            "gen": (played.gen_losses_BN * played.chosen.used_BN).sum(),
            "disc": (detection_loss(played) * self.judged(batch, played)).sum(),
        }
        return sums, self.measure(played, batch), carry

    def play(self, params: dict, batch: batch_lib.Batch, keys: streams.Keys, knobs: dict) -> Played:
        """Masks a batch, lets the generator fill it and the discriminator judge it."""
        return self.judge(params, batch, self.generate(params, batch, keys, knobs), keys)

    def judge(
        self,
        params: dict,
        batch: batch_lib.Batch,
        made: corruption.Corrupted,
        keys: streams.Keys,
    ) -> Played:
        """D(x_corrupt, t) for every token: what was made, with the discriminator's logits."""
        seen = dataclasses.replace(batch, ids_BL=made.corrupted_BL)
        logits_BL = networks.discriminate(self.networks, params, seen, keys.discriminator_B)
        return Played(**_fields(made), disc_logits_BL=logits_BL)

    def judged(self, batch: batch_lib.Batch, played: Played) -> jax.Array:
        """The tokens that L_Disc is a mean over: all of them, [CLS] and [SEP] included."""
        del played
        return batch.real_BL

    def measure(self, played: Played, batch: batch_lib.Batch) -> metrics.Sums:
        """All metrics of a training step."""
        judged_BL = self.judged(batch, played)
        disc = detection_loss(played), played.disc_logits_BL, played.replaced_BL, judged_BL
        made = {} if played.gen_losses_BN is None else measuring.generated(played, batch)
        return made | measuring.detected(*disc) | measuring.corrupted(played, batch)

    def token_scores(self, params: dict, batch: batch_lib.Batch) -> jax.Array:
        """log P(original) of every token of a text as it is, [B, L]."""
        return -jax.nn.softplus(networks.discriminate(self.networks, params, batch))

    def evaluate(
        self,
        params: dict,
        batch: batch_lib.Batch,
        keys: streams.Keys,
        knobs: dict,
        probe: unigram_probe.Probe,
    ) -> metrics.Sums:
        """The metrics of a step without dropout, with `disc_auc` and `disc_auc_unigram`.

        A discriminator is judged against its own generator's samples, so its figures are not
        comparable across runs; `disc_auc_unigram` is: it is asked about the probe's draws, which
        follow from no setting of the run (`unigram_probe.py`).
        """
        played = self.play(params, batch, keys, knobs)
        sums = self.measure(played, batch)
        sums["disc_auc"] = metrics.histogram(
            played.disc_logits_BL, played.replaced_BL, batch.real_BL
        )

        corrupted_BL = unigram_probe.corrupted(probe, batch, self.special_ids, self.rowwise)
        seen = dataclasses.replace(batch, ids_BL=corrupted_BL)
        logits_BL = networks.discriminate(self.networks, params, seen)
        sums["disc_auc_unigram"] = metrics.histogram(
            logits_BL, corrupt.label(batch.ids_BL, corrupted_BL), batch.real_BL
        )
        return sums


def detection_loss(played: Played) -> jax.Array:
    """L_Disc of each token: binary cross-entropy of 'was replaced', [B, L]."""
    logits_BL = played.disc_logits_BL
    return jax.nn.softplus(jnp.where(played.replaced_BL, -logits_BL, logits_BL))


def _fields(made):
    return {field.name: getattr(made, field.name) for field in dataclasses.fields(made)}
