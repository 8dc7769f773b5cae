# SPDX-License-Identifier: Apache-2.0
"""The discriminator's logits and labels over words, and AUCs of them and of the token's identity.

The metric `disc_auc` counts [CLS] and [SEP], as the loss does. They are never replaced, so knowing
only this gives an AUC of 0.52 with 64 tokens per row. Here special tokens are left out, so that 0.5
is chance.
"""

import dataclasses
import functools
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


def judge(
    objective, params: dict, ids: np.ndarray, marks: np.ndarray, pad_id: int, heat: float = 1.0
) -> Judged:
    """Corrupts rows and lets the discriminator read them, with evaluation's keys, without dropout.

    `heat` multiplies the temperature of the generator's samples.
    """

    def play(params, batch, keys, heat):
        knobs = objective.knobs(1.0)
        knobs["temperature"] *= heat
        made = objective.play(params, batch, keys, knobs)
        return made.chosen, made.corrupted_BL, getattr(made, "disc_logits_BL", None)

    return _in_batches(play, params, objective, ids, marks, pad_id, heat)


def draw(objective, weights_V: np.ndarray, ids: np.ndarray, marks: np.ndarray, pad_id: int):
    """Corrupts rows with draws from one distribution instead of a generator's; without logits."""
    padded_V = np.zeros(objective.networks.padded_vocab_size, np.float32)
    padded_V[: len(weights_V)] = weights_V  # padded ids are never drawn

    def play(_, batch, keys, weights_V):
        chosen = objective.choose(batch, keys, objective.knobs(1.0))
        drawn_BN = objective.draw(weights_V, keys.sample_B)
        return chosen, masking.write(batch.ids_BL, chosen, drawn_BN), None

    return _in_batches(play, {}, objective, ids, marks, pad_id, padded_V)


def rejudge(objective, params: dict, judged: Judged, pad_id: int) -> Judged:
    """Lets the discriminator read rows that the caller has changed: `judged.corrupted`."""
    discriminate = jax.jit(functools.partial(networks.discriminate, objective.networks))

    logits = []
    for first in range(0, len(judged.ids), BATCH):
        rows = slice(first, first + BATCH)
        batch = _batch(judged.corrupted[rows], judged.marks[rows], first, pad_id)
        logits.append(np.asarray(discriminate(params, batch)))

    return dataclasses.replace(judged, logits=np.concatenate(logits)[: len(judged.ids)])


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


def _in_batches(play, params, objective, ids, marks, pad_id, knob) -> Judged:
    """Calls `play` on all rows, `BATCH` at a time, and collects what it returns.

    `knob` is an argument of the compiled program, so that another value compiles nothing new.
    """

    @jax.jit
    def one(params, batch, knob):
        keys = streams.keys(jax.random.key(evaluation.KEY), 0, batch.row_B, dropout=False)
        chosen, corrupted_BL, logits_BL = play(params, batch, keys, knob)
        chosen_BL = masking.write(jnp.zeros_like(batch.ids_BL), chosen, chosen.used_BN) > 0
        return {"corrupted": corrupted_BL, "chosen": chosen_BL} | (
            {} if logits_BL is None else {"logits": logits_BL}
        )

    parts: list[dict[str, Any]] = []
    for first in range(0, len(ids), BATCH):
        rows = slice(first, first + BATCH)
        parts.append(
            jax.device_get(one(params, _batch(ids[rows], marks[rows], first, pad_id), knob))
        )

    found = {name: np.concatenate([part[name] for part in parts])[: len(ids)] for name in parts[0]}
    ids = np.asarray(ids, np.int64)

    return Judged(
        ids=ids,
        marks=np.asarray(marks),
        replaced=found["corrupted"] != ids,
        word=~np.isin(ids, [pad_id, *objective.special_ids]),
        **found,
    )


def _batch(ids, marks, first, pad_id):
    """Makes a batch of `BATCH` rows, filled up with padding, so that one program serves all."""
    missing = BATCH - len(ids)
    ids = np.pad(np.asarray(ids, np.int32), ((0, missing), (0, 0)), constant_values=pad_id)
    marks = np.pad(np.asarray(marks, np.uint8), ((0, missing), (0, 0)))
    row_B = np.arange(first, first + BATCH, dtype=np.uint32)
    return batch_lib.from_lanes(*map(jnp.asarray, (ids, marks, row_B)), pad_id)
