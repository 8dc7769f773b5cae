# SPDX-License-Identifier: Apache-2.0
"""Metrics of answers to questions, by the rules of SQuAD (Rajpurkar et al. 2016, 2018).

    answer texts, right texts  ->  exact match and F1 of each question  ->  means over questions
    null scores                ->  best_threshold  ->  which questions to leave unanswered

A question without any right text has no answer. Q questions.
"""

import collections
import dataclasses
import re
import string
from collections.abc import Sequence

import numpy as np

from electra_jax.finetuning.results import label_scores

Answers = Sequence[Sequence[str]]  # of each question the texts that are right; none: no answer


@dataclasses.dataclass(frozen=True)
class Threshold:
    """A question is answered where its null score is at most `value`."""

    value: float
    score: float  # with that threshold


def normalised(text: str) -> str:
    """Lower case without ASCII punctuation, English articles and needless blanks."""
    kept = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", kept).split())


def exact_match(predictions: Sequence[str], answers: Answers) -> float:
    """Share of questions whose answer is one of the right ones once both are normalised."""
    return _mean(_exact_and_f1(predictions, answers)[0])


def span_f1(predictions: Sequence[str], answers: Answers) -> float:
    """Mean over questions of the F1 of words against the right answer that fits best."""
    return _mean(_exact_and_f1(predictions, answers)[1])


def has_answer_exact_match(predictions: Sequence[str], answers: Answers) -> float:
    """Over questions that have an answer; 0 where there is none."""
    return _mean(_exact_and_f1(predictions, answers)[0][_answered(answers)])


def has_answer_f1(predictions: Sequence[str], answers: Answers) -> float:
    """Over questions that have an answer; 0 where there is none."""
    return _mean(_exact_and_f1(predictions, answers)[1][_answered(answers)])


def no_answer_accuracy(predictions: Sequence[str], answers: Answers) -> float:
    """Share of the questions without an answer that are left unanswered; 0 where none is."""
    return _mean(_exact_and_f1(predictions, answers)[0][~_answered(answers)])


def exact_and_f1(
    predictions: Sequence[str], answers: Answers, version: str
) -> tuple[np.ndarray, np.ndarray]:
    """Exact match and F1 of each question, float64 [Q] each, by the rules of '1.1' or '2.0'.

    They part where normalising leaves nothing ("the", "!"). In 1.1 such texts share no word, so
    their F1 is 0 though they match; in 2.0 two of them get 1, and such a right answer counts only
    where it is the only one, then as no answer. A question without an answer wants the empty text.

    Raises:
      ValueError: a question has no right answer in 1.1, or the lengths differ.
    """
    if version not in ("1.1", "2.0"):
        raise ValueError(f"version {version!r} is unknown; use '1.1' or '2.0'")
    label_scores.same_length(predictions, answers)
    exact, overlap = [], []
    for place, (text, right) in enumerate(zip(predictions, answers)):
        ours, theirs = normalised(text), [normalised(answer) for answer in right]
        if version == "2.0":
            theirs = [answer for answer in theirs if answer] or [""]
        elif not theirs:
            raise ValueError(f"question {place} has no right answer; use version '2.0'")
        exact.append(float(ours in theirs))
        overlap.append(max(_word_f1(ours, answer, version) for answer in theirs))
    return np.array(exact), np.array(overlap)


def best_threshold(
    score_Q: np.ndarray, predictions: Sequence[str], answers: Answers, null_Q: np.ndarray
) -> Threshold:
    """The null score up to which answering pays most on these questions.

    Args:
      score_Q: what each question's best span is worth (one of `exact_and_f1`).
      predictions: the best spans, never withheld.
      null_Q: null score of each question; larger means that no answer is likelier.

    Answers are given in the order of rising null scores. An answer to a question that has one
    gains its score, to one that has none it costs 1. Equal null scores go together, so that the
    score told is the one that the threshold gives. Where answering never pays, the threshold is
    just below the least null score.
    """
    null_Q, score_Q = np.asarray(null_Q, np.float64), np.asarray(score_Q, np.float64)
    label_scores.same_length(predictions, answers)
    has_answer_Q = _answered(answers)
    said_Q = np.array([bool(text) for text in predictions])
    gain_Q = np.where(has_answer_Q, score_Q, -said_Q.astype(np.float64))
    order = np.argsort(null_Q, kind="stable")
    total_Q = (~has_answer_Q).sum() + np.cumsum(gain_Q[order])
    sorted_Q = null_Q[order]
    last_Q = np.append(sorted_Q[1:] != sorted_Q[:-1], True)  # of its equals
    total_Q = np.where(last_Q, total_Q, -np.inf)
    best = int(total_Q.argmax())
    if total_Q[best] > (~has_answer_Q).sum():
        return Threshold(float(sorted_Q[best]), float(total_Q[best] / len(null_Q)))
    below = float(np.nextafter(sorted_Q[0], -np.inf))
    return Threshold(below, float((~has_answer_Q).mean()))


_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:the|an|a)\b")


def _answered(answers: Answers) -> np.ndarray:
    """Whether a question lists an answer, bool [Q]."""
    return np.array([len(right) > 0 for right in answers], bool)


def _exact_and_f1(predictions, answers):
    """By the rules of 2.0 where any question lists no answer; a set of 1.1 never does."""
    version = "1.1" if all(len(right) for right in answers) else "2.0"
    return exact_and_f1(predictions, answers, version)


def _word_f1(ours: str, theirs: str, version: str) -> float:
    ours, theirs = ours.split(), theirs.split()
    if version == "2.0" and not (ours and theirs):
        return float(ours == theirs)
    shared = (collections.Counter(ours) & collections.Counter(theirs)).total()
    return 2 * shared / (len(ours) + len(theirs)) if shared else 0.0


def _mean(values_Q: np.ndarray) -> float:
    return float(values_Q.mean()) if len(values_Q) else 0.0
