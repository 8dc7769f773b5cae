# SPDX-License-Identifier: Apache-2.0
"""Metrics of answers to questions, by the rules of SQuAD (Rajpurkar et al. 2016, 2018).

    answer texts, right texts  ->  exact match and F1 of each question  ->  means over questions
    null scores                ->  best_threshold  ->  which questions to leave unanswered

A question without any right text has no answer. In scripts that put no blanks between words each
character counts as a word, as in MLQA's evaluation of Chinese (Lewis et al. 2020). Q questions.
"""

import collections
import dataclasses
import re
import string
import unicodedata
from collections.abc import Sequence

import numpy as np

from electra_jax.data import vocabulary_codecs
from electra_jax.finetuning.results import label_scores

Answers = Sequence[Sequence[str]]  # per question the right texts; none: it has no answer


@dataclasses.dataclass(frozen=True)
class Threshold:
    """A question is answered if its null score is at most `value`."""

    value: float
    score: float  # the mean score with this threshold


def normalised(text: str) -> str:
    """The text in lower case, without punctuation that is ASCII or Chinese, English articles and
    extra blanks."""
    kept = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", kept).split())


def exact_match(predictions: Sequence[str], answers: Answers) -> float:
    """Share of questions whose answer equals a right one after both are normalised."""
    return _mean(_exact_and_f1(predictions, answers)[0])


def span_f1(predictions: Sequence[str], answers: Answers) -> float:
    """Mean over questions of the F1 of words, each against the best fitting right answer."""
    return _mean(_exact_and_f1(predictions, answers)[1])


def has_answer_exact_match(predictions: Sequence[str], answers: Answers) -> float:
    """`exact_match` over the questions that have an answer; 0 if there are none."""
    return _mean(_exact_and_f1(predictions, answers)[0][_answered(answers)])


def has_answer_f1(predictions: Sequence[str], answers: Answers) -> float:
    """`span_f1` over the questions that have an answer; 0 if there are none."""
    return _mean(_exact_and_f1(predictions, answers)[1][_answered(answers)])


def no_answer_accuracy(predictions: Sequence[str], answers: Answers) -> float:
    """Share of the questions without an answer that are left unanswered; 0 if there are none."""
    return _mean(_exact_and_f1(predictions, answers)[0][~_answered(answers)])


def exact_and_f1(
    predictions: Sequence[str], answers: Answers, version: str
) -> tuple[np.ndarray, np.ndarray]:
    """Exact match and F1 of each question, float64 [Q] each, by the rules of '1.1' or '2.0'.

    The versions differ for texts of which normalising leaves nothing ("the", "!"). In 1.1 two such
    texts share no word, so their F1 is 0 although they match. In 2.0 two of them get 1; a right
    answer of this kind counts only if there is no other, and then it means no answer. The right
    prediction for a question without an answer is the empty text.

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
    """The threshold of null scores with the best mean score on these questions.

    Args:
      score_Q: the score of each question's best span (one of `exact_and_f1`).
      predictions: the best spans, no threshold applied.
      null_Q: null score of each question; the larger, the likelier it is that there is no answer.

    Without any answer the total score is the number of questions that have none. Questions are
    then answered in the order of rising null scores. An answer adds its score if the question has
    an answer, and costs 1 if it has none, unless the text is empty. Questions with equal null
    scores are answered together, since a threshold cannot separate them. If answering never pays,
    the threshold is just below the lowest null score.
    """
    null_Q, score_Q = np.asarray(null_Q, np.float64), np.asarray(score_Q, np.float64)
    label_scores.same_length(predictions, answers)
    has_answer_Q = _answered(answers)

    has_text_Q = np.array([bool(text) for text in predictions])
    gain_Q = np.where(has_answer_Q, score_Q, -has_text_Q.astype(np.float64))
    order = np.argsort(null_Q, kind="stable")
    total_Q = (~has_answer_Q).sum() + np.cumsum(gain_Q[order])

    sorted_Q = null_Q[order]
    last_Q = np.append(sorted_Q[1:] != sorted_Q[:-1], True)  # the last of equal null scores
    total_Q = np.where(last_Q, total_Q, -np.inf)

    best = int(total_Q.argmax())
    if total_Q[best] > (~has_answer_Q).sum():
        return Threshold(float(sorted_Q[best]), float(total_Q[best] / len(null_Q)))
    below = float(np.nextafter(sorted_Q[0], -np.inf))
    return Threshold(below, float((~has_answer_Q).mean()))


# 。、「」 and the like, and the wide forms of ASCII, none of which English is written with.
_WIDE = (chr(n) for n in (*range(0x3000, 0x3040), *range(0xFF00, 0xFF66)))
_WIDE_PUNCTUATION = "".join(c for c in _WIDE if unicodedata.category(c)[0] in "PS")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation + _WIDE_PUNCTUATION)
_ARTICLE = re.compile(r"\b(?:the|an|a)\b")


def _answered(answers: Answers) -> np.ndarray:
    """Whether a question has an answer, bool [Q]."""
    return np.array([len(right) > 0 for right in answers], bool)


def _exact_and_f1(predictions, answers):
    """By the rules of 2.0 if any question has no answer, which never happens in 1.1."""
    version = "1.1" if all(len(right) for right in answers) else "2.0"
    return exact_and_f1(predictions, answers, version)


def _word_f1(ours: str, theirs: str, version: str) -> float:
    """F1 of the words of two normalised texts; repeated words count repeatedly."""
    ours, theirs = _words(ours), _words(theirs)
    if version == "2.0" and not (ours and theirs):
        return float(ours == theirs)
    shared = (collections.Counter(ours) & collections.Counter(theirs)).total()
    return 2 * shared / (len(ours) + len(theirs)) if shared else 0.0


def _words(text):
    """The words of a normalised text, and each character that no blanks part from others."""
    parted = (f" {c} " if vocabulary_codecs.without_blanks(c) else c for c in text)
    return text.split() if text.isascii() else "".join(parted).split()


def _mean(values_Q: np.ndarray) -> float:
    return float(values_Q.mean()) if len(values_Q) else 0.0
