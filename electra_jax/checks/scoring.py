# SPDX-License-Identifier: Apache-2.0
"""The discriminator's logits and labels over words, and AUCs of them and of the token's identity.

The metric `disc_auc` counts [CLS] and [SEP], as the loss does. They are never replaced, so knowing
only this gives an AUC of 0.52 with 64 tokens per row. Here special tokens are left out, so that 0.5
is chance.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.core import streams
from electra_jax.model import networks
from electra_jax.objectives import masking
from electra_jax.step import evaluation

BATCH = 64  # rows per call of a network


@dataclasses.dataclass(frozen=True)
class Judged:
    """Rows, the tokens written into them, and the discriminator's logits; numpy arrays [R, L]."""

    ids: np.ndarray
    marks: np.ndarray
    corrupted: np.ndarray
    chosen: np.ndarray  # bool
    replaced: np.ndarray  # bool
    word: np.ndarray  # bool: neither padding nor special
    logits: np.ndarray | None = None  # None before the discriminator has read the rows

    def auc(self) -> float | None:
        """The AUC of finding replaced words."""
        return auc(self.logits[self.word], self.replaced[self.word])

    def loss(self) -> float:
        """The discriminator's loss over words."""
        signed = np.where(self.replaced, -self.logits, self.logits)[self.word]
        return float(np.logaddexp(0, signed).mean())

    @property
    def rate(self) -> float:
        """The share of words that are replaced."""
        return float(self.replaced[self.word].mean())


@dataclasses.dataclass(frozen=True)
class RowJudge:
    """Corrupts rows and lets the discriminator read them, `BATCH` at a time, on one device.

    Random keys are those of evaluations, and there is no dropout. Each program is compiled at its
    first call, for rows of one length.
    """

    objective: Any
    pad_id: int

    def played(self, params: dict, ids: np.ndarray, marks: np.ndarray, heat: float = 1.0) -> Judged:
        """Returns the rows with the generator's samples, judged by the discriminator.

        `heat` multiplies the temperature of the samples.
        """
        return self._rows(lambda batch: self._play(params, batch, heat), ids, marks)

    def drawn(self, weights_V: np.ndarray, ids: np.ndarray, marks: np.ndarray) -> Judged:
        """Returns the rows with draws from one distribution instead of a generator's, no logits."""
        padded_V = np.zeros(self.objective.networks.padded_vocab_size, np.float32)
        padded_V[: len(weights_V)] = weights_V  # padded ids are never drawn
        return self._rows(lambda batch: self._draw(padded_V, batch), ids, marks)

    def judged_again(self, params: dict, judged: Judged) -> Judged:
        """Lets the discriminator read rows that the caller has changed: `judged.corrupted`."""
        batches = _batches(judged.corrupted, judged.marks, self.pad_id)
        logits = [np.asarray(self._discriminate(params, batch)) for batch in batches]
        return dataclasses.replace(judged, logits=np.concatenate(logits)[: len(judged.ids)])

    @functools.cached_property
    def _play(self) -> Callable:
        """(params, batch, heat) -> arrays of `Judged` by name."""
        objective = self.objective

        def intermediates(params, batch, heat):
            knobs = objective.knobs(1.0)
            knobs["temperature"] *= heat
            made = objective.intermediates(params, batch, _keys(batch), knobs)
            found = {
                "corrupted": made.corrupted_BL,
                "chosen": _chosen_places(batch, made.chosen),
            }
            if getattr(made, "disc_logits_BL", None) is not None:
                found["logits"] = made.disc_logits_BL
            return found

        return jax.jit(intermediates)

    @functools.cached_property
    def _draw(self) -> Callable:
        """(weights_V, batch) -> arrays of `Judged` by name."""
        objective = self.objective

        def draw(weights_V, batch):
            keys = _keys(batch)
            chosen = objective.choose(batch, keys, objective.knobs(1.0))
            drawn_BN = objective.draw(weights_V, keys.sample_B)
            return {
                "corrupted": masking.write(batch.ids_BL, chosen, drawn_BN),
                "chosen": _chosen_places(batch, chosen),
            }

        return jax.jit(draw)

    @functools.cached_property
    def _discriminate(self) -> Callable:
        """(params, batch) -> logits."""
        return jax.jit(functools.partial(networks.discriminate, self.objective.networks))

    def _rows(self, program, ids, marks):
        """Calls the program on all batches, and puts what it returns together."""
        parts = [jax.device_get(program(batch)) for batch in _batches(ids, marks, self.pad_id)]
        found = {
            name: np.concatenate([part[name] for part in parts])[: len(ids)] for name in parts[0]
        }
        ids = np.asarray(ids, np.int64)
        return Judged(
            ids=ids,
            marks=np.asarray(marks),
            replaced=found["corrupted"] != ids,
            word=~np.isin(ids, [self.pad_id, *self.objective.special_ids]),
            **found,
        )


def auc(scores: np.ndarray, positive: np.ndarray) -> float | None:
    """Returns the probability that a positive scores above a negative; None without either.

    Ties count as one half. A score of NaN counts as wrong.
    """
    scores = np.where(np.isnan(scores), np.where(positive, -np.inf, np.inf), scores)
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if not positives or not negatives:
        return None

    # The AUC by the rank sum of the positives (Mann-Whitney U).
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # the mean rank of equal scores
    above = ranks[places.reshape(-1)][positive].sum() - positives * (positives + 1) / 2
    return float(above / (positives * negatives))


def identity_auc(judged: Judged, vocab_size: int) -> float | None:
    """Returns the AUC of each id's replaced rate, counted in even rows and tested on odd rows."""
    fit, tried = (
        (judged.corrupted[half][judged.word[half]], judged.replaced[half][judged.word[half]])
        for half in (slice(0, None, 2), slice(1, None, 2))
    )
    seen_V = np.bincount(fit[0], minlength=vocab_size)
    replaced_V = np.bincount(fit[0][fit[1]], minlength=vocab_size)
    rate_V = (replaced_V + fit[1].mean()) / (seen_V + 1)  # smoothed by one token of the mean rate
    return auc(rate_V[tried[0]], tried[1])


def expected_identity_auc(text_V: np.ndarray, drawn_V: np.ndarray, chosen: float) -> float:
    """Computes the same AUC for a generator that draws from `drawn_V` regardless of the context.

    In text with frequencies p, a share m of the words is chosen and filled with draws from q. Then
    id v has the mass m q_v (1 - p_v) as a replaced word and (1 - m) p_v + m p_v q_v as an original.
    """
    p, q = text_V / text_V.sum(), drawn_V / drawn_V.sum()
    replaced_V = chosen * q * (1 - p)
    original_V = (1 - chosen) * p + chosen * p * q

    there = replaced_V + original_V > 0
    replaced, original = replaced_V[there], original_V[there]

    # Ids in the order of their replaced rate; `below` is the original mass of lower rates.
    order = np.argsort(replaced / (replaced + original))
    replaced, original = replaced[order], original[order]
    below = np.cumsum(original) - original / 2
    return float((replaced * below).sum() / (replaced.sum() * original.sum()))


def _keys(batch) -> streams.Keys:
    return streams.keys(jax.random.key(evaluation.SEED), 0, batch.row_B, dropout=False)


def _chosen_places(batch, chosen):
    """Which positions were chosen, bool [B, L]."""
    return masking.write(jnp.zeros_like(batch.ids_BL), chosen, chosen.used_BN) > 0


def _batches(ids, marks, pad_id) -> Iterator[batch_lib.Batch]:
    """Yields batches of `BATCH` rows; the last is filled up, so that one program serves all."""
    for first in range(0, len(ids), BATCH):
        missing = BATCH - len(ids[first : first + BATCH])
        few_ids = np.asarray(ids[first : first + BATCH], np.int32)
        few_marks = np.asarray(marks[first : first + BATCH], np.uint8)
        lanes = (
            np.pad(few_ids, ((0, missing), (0, 0)), constant_values=pad_id),
            np.pad(few_marks, ((0, missing), (0, 0))),
            np.arange(first, first + BATCH, dtype=np.uint32),
        )
        yield batch_lib.from_lanes(*map(jnp.asarray, lanes), pad_id)
