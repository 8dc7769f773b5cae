# SPDX-License-Identifier: Apache-2.0
"""Scores sentences with a trained run: the higher the score, the more natural the sentence.

    with a discriminator       one pass: the sum over words of log P(original) (zero-shot, as in
                               prompting by replaced-token detection)
    replace_mlm,               one pass: the sum over words of log p(this word is the original), as
    all_tokens_mlm             the main network learns to predict from corrupted text
    electric                   one pass: the sum over words of -E, the log-probability of each word
                               given all others (Clark et al. 2020, EMNLP)
    masked_lm                  one pass per word: the sum of log p(word | all others), each word
                               masked in turn (pseudo-log-likelihood, Salazar et al. 2020)

Scores of one run can be compared with each other, best between sentences of equal length.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np
import numpy.typing as npt
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.objectives.objective import Objective

ROWS = 64  # rows per batch
_BLOCK = 1024  # sentences whose rows are in memory at once, and sorted by length
_STEP = 32  # lengths are rounded up to a multiple, so that few programs are compiled


def scores(
    objective: Objective,
    params: dict,
    words: vocabulary_lib.Vocabulary,
    sentences: Sequence[str],
    limit: int,
    names: Sequence[str] = (),
    truncate: bool = False,
) -> Iterator[float]:
    """The score of each sentence, one after another; what follows may still have to be computed.

    Args:
      limit: the most tokens per row, [CLS] and [SEP] included.
      names: how errors call the sentences; by default by their numbers.
      truncate: of a sentence with too many tokens, score the beginning.

    Raises:
      ValueError: a sentence without words or with too many, or an objective that cannot score.
        Before any score is computed.
    """
    if objective.token_scores is None and objective.masked_scores is None:
        raise ValueError(
            f"a run of {type(objective).__name__} cannot score: it has neither token_scores nor"
            " masked_scores; use one of masked_lm, electric or an objective that judges"
        )

    names = names or [f"sentence {number}" for number in range(1, len(sentences) + 1)]
    for name, count in zip(names, token_counts(words, sentences)):
        _check_length(name, count, limit, truncate)

    plain = _of_any_length(objective)
    program = jax.jit(
        lambda params, ids_BL, places_B: _scores(plain, params, words, ids_BL, places_B)
    )
    score = functools.partial(program, params)
    return itertools.chain.from_iterable(
        _summed(score, _tasks(objective, words, block, limit), len(block), words.pad_id)
        for block in _blocks(sentences)
    )


def token_counts(words: vocabulary_lib.Vocabulary, sentences: Sequence[str]) -> list[int]:
    """How many tokens each sentence has, without [CLS] and [SEP]."""
    return [len(ids) for block in _blocks(sentences) for ids in words.encode(block)]


def preferred(groups: Sequence[Sequence[float]]) -> list[int | None]:
    """Which alternative of each group has the highest score.

    None where two are equally high or a score is NaN: nothing is preferred there, and what is not
    preferred does not count as right.
    """
    return [place if place >= 0 else None for place in (int(highest(group)) for group in groups)]


def highest(scores: npt.ArrayLike) -> np.ndarray:
    """The index of the highest score along the last axis; -1 where several are equally high or one
    is NaN."""
    scores = np.asarray(scores)
    alone = (scores == scores.max(-1, keepdims=True)).sum(-1) == 1  # the maximum of a NaN is NaN
    return np.where(alone, scores.argmax(-1), -1)


def _of_any_length(objective):
    """The objective with plain attention: kernels of accelerators want rows of certain lengths."""
    shape = objective.networks
    plain = {
        name: dataclasses.replace(getattr(shape, name), attention="einsum")
        for name in ("discriminator", "generator")
    }
    return dataclasses.replace(objective, networks=dataclasses.replace(shape, **plain))


def _check_length(name, count, limit, truncate):
    """Raises ValueError for a sentence that has no words, or too many of them for a row."""
    if not count:
        raise ValueError(f"{name} has no words")
    if count + 2 > limit and not truncate:
        raise ValueError(
            f"{name} has {count} tokens, more than the {limit - 2} that fit a row of {limit}, the"
            " longest whose positions this run knows; shorten it, or take --long=truncate or"
            " --long=skip"
        )


def _blocks(sentences):
    return (sentences[first : first + _BLOCK] for first in range(0, len(sentences), _BLOCK))


def _tasks(objective, words, sentences, limit):
    """(row, place, sentence) of each pass: one a sentence, or one for each word to be masked."""
    rows = [
        np.concatenate([[words.cls_id], ids[: limit - 2], [words.sep_id]])
        for ids in words.encode(sentences)
    ]
    if objective.token_scores is not None:
        return [(row, 0, number) for number, row in enumerate(rows)]
    return [
        (row, place, number) for number, row in enumerate(rows) for place in range(1, len(row) - 1)
    ]


def _scores(objective, params, words, ids_BL, places_B):
    """Scores of all words of a row in one pass, or of the one word that is masked: [B]."""
    marks_BL = jnp.zeros_like(ids_BL).at[:, 0].set(batch_lib.DOCUMENT_START)
    row_B = jnp.arange(len(ids_BL), dtype=jnp.uint32)
    batch = batch_lib.from_lanes(ids_BL, marks_BL, row_B, words.pad_id)
    if objective.token_scores is not None:
        is_word_BL = ~jnp.isin(ids_BL, jnp.array(words.special_ids))
        return jnp.where(is_word_BL, objective.token_scores(params, batch), 0).sum(1)
    return objective.masked_scores(params, batch, places_B)


def _summed(
    score: Callable, tasks: list[tuple[np.ndarray, int, int]], count: int, pad_id: int
) -> list[float]:
    """Runs tasks of (row, place, sentence) in batches of similar length; sums per sentence."""
    totals = np.zeros(count)
    tasks = sorted(tasks, key=lambda task: len(task[0]))
    for first in range(0, len(tasks), ROWS):
        part = tasks[first : first + ROWS]
        length = -(-max(len(row) for row, _, _ in part) // _STEP) * _STEP

        ids_BL = np.full((ROWS, length), pad_id, np.int32)
        places_B = np.zeros(ROWS, np.int32)
        for at, (row, place, _) in enumerate(part):
            ids_BL[at, : len(row)], places_B[at] = row, place

        found_B = np.asarray(score(ids_BL, places_B), np.float64)
        for at, (_, _, number) in enumerate(part):
            totals[number] += found_B[at]

    return totals.tolist()
