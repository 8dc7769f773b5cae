# SPDX-License-Identifier: Apache-2.0
"""What predictions are worth: every metric of every kind of task.

    outputs of a head  ->  decide   ->  predictions  ->  compute  ->  {metric: value}
    labels             ->  baseline ->  what one constant guess gets under the same metrics

Values are shares in 0..1 and correlations in -1..1; `mse` has the unit of the label, squared.
A number that its formula leaves undefined (0 / 0) is 0: it shows nothing.

    kind            outputs                      predictions             labels
    classification  logits [R, C]                class [R]               class [R]
    regression      value [R]                    value [R]               value [R]
    multi_label     probabilities [R, C]         0 or 1 [R, C]           0 or 1 [R, C]
    tagging         tags of each sentence        the same                tags of each sentence
    span            text of each question        the same                texts that are right

R examples, C classes, Q questions. Entities follow the rules of the CoNLL-2000 evaluation; answers
to questions those of SQuAD's (Rajpurkar et al. 2016, 2018), where a question without any right text
has no answer.
"""

import collections
import dataclasses
import math
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

KINDS = ("classification", "regression", "multi_label", "tagging", "span")
LOWER_IS_BETTER = frozenset({"mse"})

Answers = Sequence[Sequence[str]]  # of each question the texts that are right; none: no answer


def decide(kind: str, outputs):
    """Outputs of a head as predictions; a probability of one half is a yes."""
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r} is unknown; use one of {', '.join(KINDS)}")
    if kind == "classification":
        return np.asarray(outputs).argmax(axis=-1)
    if kind == "multi_label":
        return (np.asarray(outputs) >= 0.5).astype(np.int64)
    return outputs


def compute(metrics: Iterable[str], predictions, labels) -> dict[str, float]:
    """The named metrics in their order. Raises ValueError for a name that METRICS has not."""
    return {name: function(name)(predictions, labels) for name in metrics}


def function(name: str) -> Callable[..., float]:
    """Of METRICS, with the known names in the error."""
    if name not in METRICS:
        raise ValueError(f"metric {name!r} is unknown; use one of {', '.join(METRICS)}")
    return METRICS[name]


def guess(kind: str, labels):
    """The constant prediction that a look at the labels' frequencies suggests.

    The most frequent class or tag, the mean value, each label's majority, no answer.
    """
    if kind == "span":
        return [""] * len(labels)
    if kind == "tagging":
        counts = collections.Counter(tag for tags in labels for tag in tags)
        return [[counts.most_common(1)[0][0]] * len(tags) for tags in labels]
    labels = np.asarray(labels)
    if kind == "regression":
        return np.full(len(labels), labels.mean())
    if kind == "multi_label":
        return np.tile(labels.mean(axis=0) > 0.5, (len(labels), 1)).astype(np.int64)
    values, counts = np.unique(labels, return_counts=True)
    return np.full(len(labels), values[counts.argmax()])


def baseline(kind: str, metrics: Iterable[str], labels) -> dict[str, float]:
    """What `guess` gets: a run at or below it has learnt nothing that this metric sees."""
    return compute(metrics, guess(kind, labels), labels)


def better(name: str, left: float, right: float) -> bool:
    """Whether `left` is the better value of the two; any number is better than nan."""
    if math.isnan(right):
        return not math.isnan(left)
    return left < right if name in LOWER_IS_BETTER else left > right


# --- classes ----------------------------------------------------------------------------------


def accuracy(predictions, labels) -> float:
    """Share of examples that are right; of several labels an example, all must be."""
    predictions_R, labels_R = _pair(predictions, labels)
    hits = predictions_R == labels_R
    return float(hits.reshape(len(hits), -1).all(axis=1).mean())


def f1(predictions, labels) -> float:
    """Of class 1 against class 0."""
    predictions_R, labels_R = _pair(predictions, labels)
    found = set(np.unique(labels_R)) | set(np.unique(predictions_R))
    if predictions_R.ndim != 1 or not found <= {0, 1}:
        raise ValueError("f1 is of the classes 0 and 1; use macro_f1 or micro_f1 for others")
    hits, said, true = _counts(predictions_R == 1, labels_R == 1)
    return _f1(hits.sum(), said.sum(), true.sum())


def macro_f1(predictions, labels) -> float:
    """The mean over classes that are predicted or true; of several labels, over all labels."""
    hits_C, said_C, true_C = _class_counts(*_pair(predictions, labels))
    return float(np.mean([_f1(*counts) for counts in zip(hits_C, said_C, true_C)]))


def micro_f1(predictions, labels) -> float:
    """Counts of all classes together; of one label an example it is the accuracy."""
    hits_C, said_C, true_C = _class_counts(*_pair(predictions, labels))
    return _f1(hits_C.sum(), said_C.sum(), true_C.sum())


def mcc(predictions, labels) -> float:
    """Matthews' correlation, for more than two classes as Gorodkin (2004) has it."""
    predictions_R, labels_R = _pair(predictions, labels)
    hits_C, said_C, true_C = _class_counts(predictions_R, labels_R)
    count = float(len(labels_R))
    covariance = count * hits_C.sum() - said_C @ true_C
    spread = (count**2 - said_C @ said_C) * (count**2 - true_C @ true_C)
    return float(covariance / math.sqrt(spread)) if spread > 0 else 0.0


# --- numbers ----------------------------------------------------------------------------------


def pearson(predictions, labels) -> float:
    """Linear correlation; 0 where either side is constant."""
    x_R, y_R = (np.asarray(values, np.float64) for values in _pair(predictions, labels))
    if np.ptp(x_R) == 0 or np.ptp(y_R) == 0:
        return 0.0
    x_R, y_R = x_R - x_R.mean(), y_R - y_R.mean()
    # Each side is scaled by itself, so that tiny and huge values neither vanish nor overflow.
    x_R, y_R = x_R / np.linalg.norm(x_R), y_R / np.linalg.norm(y_R)
    return float(np.clip(x_R @ y_R, -1, 1))


def spearman(predictions, labels) -> float:
    """Correlation of ranks; equal values share the mean of their ranks."""
    predictions_R, labels_R = _pair(predictions, labels)
    if not np.isfinite(predictions_R).all():
        return math.nan  # a rank would hide it
    return pearson(_ranks(predictions_R), _ranks(labels_R))


def mse(predictions, labels) -> float:
    """Mean squared error."""
    x_R, y_R = (np.asarray(values, np.float64) for values in _pair(predictions, labels))
    return float(((x_R - y_R) ** 2).mean())


# --- tags -------------------------------------------------------------------------------------


def entity_f1(predictions, labels) -> float:
    """Of whole entities of all types together: type, first and last word must be right."""
    return _f1(*_entity_counts(predictions, labels))


def entity_precision(predictions, labels) -> float:
    hits, said, _ = _entity_counts(predictions, labels)
    return hits / said if said else 0.0


def entity_recall(predictions, labels) -> float:
    hits, _, true = _entity_counts(predictions, labels)
    return hits / true if true else 0.0


def token_accuracy(predictions, labels) -> float:
    """Share of words with the right tag."""
    pairs = [pair for ours, theirs in _sentences(predictions, labels) for pair in zip(ours, theirs)]
    return sum(ours == theirs for ours, theirs in pairs) / len(pairs) if pairs else 0.0


def entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """(type, first word, word after the last) of each entity in a sentence's BIO or BIOES tags.

    A wrong sequence is read as the CoNLL-2000 evaluation reads it: an entity opens at any tag
    but O that is B or S, follows O, E or S, or changes the type.

        B-PER I-PER O I-LOC I-PER  ->  PER 0..2, LOC 3..4, PER 4..5
    """
    found, opened = [], None  # type and first word
    before, type_before = "O", ""
    for place, tag in enumerate([*tags, "O"]):
        mark, type_ = _mark(tag)
        fresh = mark in "BS" or before in "OES" or type_ != type_before
        if opened is not None and (mark == "O" or fresh):
            found.append((*opened, place))
            opened = None
        if mark != "O" and fresh:
            opened = (type_, place)
        before, type_before = mark, type_
    return found


# --- answers to questions ---------------------------------------------------------------------


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
    return _mean(_question_scores(predictions, answers)[0])


def span_f1(predictions: Sequence[str], answers: Answers) -> float:
    """Mean over questions of the F1 of words against the right answer that fits best."""
    return _mean(_question_scores(predictions, answers)[1])


def has_answer_exact_match(predictions: Sequence[str], answers: Answers) -> float:
    """Over questions that have an answer; 0 where there is none."""
    return _mean(_question_scores(predictions, answers)[0][_answered(answers)])


def has_answer_f1(predictions: Sequence[str], answers: Answers) -> float:
    """Over questions that have an answer; 0 where there is none."""
    return _mean(_question_scores(predictions, answers)[1][_answered(answers)])


def no_answer_accuracy(predictions: Sequence[str], answers: Answers) -> float:
    """Share of the questions without an answer that are left unanswered; 0 where none is."""
    return _mean(_question_scores(predictions, answers)[0][~_answered(answers)])


def question_scores(
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
    _same_length(predictions, answers)
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
      score_Q: what each question's best span is worth (one of `question_scores`).
      predictions: the best spans, never withheld.
      null_Q: null score of each question; larger means that no answer is likelier.

    Answers are given in the order of rising null scores. An answer to a question that has one
    gains its score, to one that has none it costs 1. Equal null scores go together, so that the
    score told is the one that the threshold gives. Where answering never pays, the threshold is
    just below the least null score.
    """
    null_Q, score_Q = np.asarray(null_Q, np.float64), np.asarray(score_Q, np.float64)
    _same_length(predictions, answers)
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


METRICS: Mapping[str, Callable[..., float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "micro_f1": micro_f1,
    "mcc": mcc,
    "pearson": pearson,
    "spearman": spearman,
    "mse": mse,
    "entity_f1": entity_f1,
    "entity_precision": entity_precision,
    "entity_recall": entity_recall,
    "token_accuracy": token_accuracy,
    "exact_match": exact_match,
    "span_f1": span_f1,
    "has_answer_exact_match": has_answer_exact_match,
    "has_answer_f1": has_answer_f1,
    "no_answer_accuracy": no_answer_accuracy,
}

# --- helpers ----------------------------------------------------------------------------------

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:the|an|a)\b")


def _same_length(predictions, labels) -> None:
    if len(predictions) != len(labels):
        raise ValueError(f"{len(predictions)} predictions for {len(labels)} labels; give one each")
    if not len(labels):
        raise ValueError("no labels to score against; is the split empty?")


def _pair(predictions, labels) -> tuple[np.ndarray, np.ndarray]:
    _same_length(predictions, labels)
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    if predictions.shape != labels.shape:
        raise ValueError(
            f"predictions of shape {predictions.shape} for labels of shape {labels.shape};"
            " decide() makes the ones of the other"
        )
    return predictions, labels


def _counts(said_RC, true_RC) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How often a class is predicted rightly, predicted, true."""
    return (
        (said_RC & true_RC).sum(axis=0).astype(np.float64),
        said_RC.sum(axis=0).astype(np.float64),
        true_RC.sum(axis=0).astype(np.float64),
    )


def _class_counts(predictions_R, labels_R) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`_counts` [C] of the classes that occur; of several labels an example, of every column."""
    if predictions_R.ndim == 2:
        return _counts(predictions_R.astype(bool), labels_R.astype(bool))
    classes_C = np.union1d(predictions_R, labels_R)
    return _counts(predictions_R[:, None] == classes_C, labels_R[:, None] == classes_C)


def _f1(hits, said, true) -> float:
    return float(2 * hits / (said + true)) if said + true else 0.0


def _ranks(values_R) -> np.ndarray:
    _, place_R, count = np.unique(values_R, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place_R]


def _sentences(predictions, labels) -> list[tuple[Sequence[str], Sequence[str]]]:
    _same_length(predictions, labels)
    pairs = list(zip(predictions, labels))
    for place, (ours, theirs) in enumerate(pairs):
        if len(ours) != len(theirs):
            raise ValueError(
                f"sentence {place} has {len(ours)} predicted tags and {len(theirs)} true ones"
            )
    return pairs


def _entity_counts(predictions, labels) -> tuple[int, int, int]:
    hits = said = true = 0
    for ours, theirs in _sentences(predictions, labels):
        ours, theirs = set(entities(ours)), set(entities(theirs))
        hits, said, true = hits + len(ours & theirs), said + len(ours), true + len(theirs)
    return hits, said, true


def _mark(tag: str) -> tuple[str, str]:
    """`B-PER` -> B, PER; O has no type, and a bare B a nameless one."""
    mark, _, type_ = tag.partition("-")
    if mark not in ("O", "B", "I", "E", "S"):
        raise ValueError(f"tag {tag!r} is none of O, B-, I-, E-, S-; use BIO or BIOES tags")
    return mark, "" if mark == "O" else type_


def _answered(answers: Answers) -> np.ndarray:
    """Whether a question lists an answer, bool [Q]."""
    return np.array([len(right) > 0 for right in answers], bool)


def _question_scores(predictions, answers):
    """By the rules of 2.0 where any question lists no answer; a set of 1.1 never does."""
    version = "1.1" if all(len(right) for right in answers) else "2.0"
    return question_scores(predictions, answers, version)


def _word_f1(ours: str, theirs: str, version: str) -> float:
    ours, theirs = ours.split(), theirs.split()
    if version == "2.0" and not (ours and theirs):
        return float(ours == theirs)
    shared = (collections.Counter(ours) & collections.Counter(theirs)).total()
    return 2 * shared / (len(ours) + len(theirs)) if shared else 0.0


def _mean(values_Q: np.ndarray) -> float:
    return float(values_Q.mean()) if len(values_Q) else 0.0
