# SPDX-License-Identifier: Apache-2.0
"""Metrics of labels: classes, several labels per example, numbers, and the tags of words.

    predictions, labels  ->  accuracy, f1, mcc, pearson, entity_f1, ...  ->  one number
                         ->  of_classes, of_entity_types, of_tags        ->  scores of each label

A number that its formula leaves undefined (0 / 0) is 0. Entities follow the rules of the CoNLL-2000
evaluation. R examples, C classes.
"""

import collections
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# --- classes --------------------------------------------------------------------------------------


def accuracy(predictions, labels) -> float:
    """Share of examples that are right; with several labels per example all must be right."""
    predictions_R, labels_R = _pair(predictions, labels)
    hits = predictions_R == labels_R
    return float(hits.reshape(len(hits), -1).all(axis=1).mean())


def f1(predictions, labels) -> float:
    """F1 of class 1 in a task with the classes 0 and 1."""
    predictions_R, labels_R = _pair(predictions, labels)
    found = set(np.unique(labels_R)) | set(np.unique(predictions_R))
    if predictions_R.ndim != 1 or not found <= {0, 1}:
        raise ValueError("f1 is of the classes 0 and 1; use macro_f1 or micro_f1 for others")
    hits, predicted, true = _counts(predictions_R == 1, labels_R == 1)
    return _f1(hits.sum(), predicted.sum(), true.sum())


def macro_f1(predictions, labels) -> float:
    """Mean F1 over all classes that occur, or over all labels if an example has several."""
    hits_C, predicted_C, true_C = _class_counts(*_pair(predictions, labels))
    return float(np.mean([_f1(*counts) for counts in zip(hits_C, predicted_C, true_C)]))


def micro_f1(predictions, labels) -> float:
    """F1 of the counts of all classes; with one label per example it equals the accuracy."""
    hits_C, predicted_C, true_C = _class_counts(*_pair(predictions, labels))
    return _f1(hits_C.sum(), predicted_C.sum(), true_C.sum())


def relation_f1(predictions, labels) -> float:
    """F1 of the summed counts of all classes except class 0, no relation.

    This is how ChemProt, DDI and TACRED are scored.
    """
    predictions_R, labels_R = _pair(predictions, labels)
    hits_R = (predictions_R == labels_R) & (labels_R != 0)
    return _f1(hits_R.sum(), (predictions_R != 0).sum(), (labels_R != 0).sum())


def mcc(predictions, labels) -> float:
    """Matthews' correlation; for more than two classes that of Gorodkin (2004)."""
    predictions_R, labels_R = _pair(predictions, labels)
    hits_C, predicted_C, true_C = _class_counts(predictions_R, labels_R)
    count = float(len(labels_R))
    covariance = count * hits_C.sum() - predicted_C @ true_C
    spread = (count**2 - predicted_C @ predicted_C) * (count**2 - true_C @ true_C)
    return float(covariance / math.sqrt(spread)) if spread > 0 else 0.0


# --- numbers --------------------------------------------------------------------------------------


def pearson(predictions, labels) -> float:
    """Linear correlation; 0 if either side is constant."""
    x_R, y_R = (np.asarray(values, np.float64) for values in _pair(predictions, labels))
    if np.ptp(x_R) == 0 or np.ptp(y_R) == 0:
        return 0.0

    x_R, y_R = x_R - x_R.mean(), y_R - y_R.mean()
    # Each side is scaled separately, so tiny values do not underflow and huge ones not overflow.
    x_R, y_R = x_R / np.linalg.norm(x_R), y_R / np.linalg.norm(y_R)
    return float(np.clip(x_R @ y_R, -1, 1))


def spearman(predictions, labels) -> float:
    """Correlation of ranks; equal values share the mean of their ranks."""
    predictions_R, labels_R = _pair(predictions, labels)
    if not np.isfinite(predictions_R).all():
        return math.nan  # ranks would hide it
    return pearson(_ranks(predictions_R), _ranks(labels_R))


def mse(predictions, labels) -> float:
    """Mean squared error."""
    x_R, y_R = (np.asarray(values, np.float64) for values in _pair(predictions, labels))
    return float(((x_R - y_R) ** 2).mean())


# --- tags of words --------------------------------------------------------------------------------


def entity_f1(predictions, labels) -> float:
    """F1 of whole entities of all types; type, first and last word must be right."""
    return _f1(*_entity_counts(predictions, labels))


def entity_precision(predictions, labels) -> float:
    """Share of the predicted entities that are right; 0 if none is predicted."""
    hits, predicted, _ = _entity_counts(predictions, labels)
    return hits / predicted if predicted else 0.0


def entity_recall(predictions, labels) -> float:
    """Share of the true entities that are predicted; 0 if there is none."""
    hits, _, true = _entity_counts(predictions, labels)
    return hits / true if true else 0.0


def token_accuracy(predictions, labels) -> float:
    """Share of words with the right tag."""
    pairs = [pair for ours, theirs in _sentences(predictions, labels) for pair in zip(ours, theirs)]
    return sum(ours == theirs for ours, theirs in pairs) / len(pairs) if pairs else 0.0


def entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """(type, first word, word after the last) of each entity in a sentence's BIO or BIOES tags.

    Inconsistent tags are read as in the CoNLL-2000 evaluation. An entity begins at each tag except
    O that is B or S, that follows O, E or S, or that has another type than the tag before it.

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


# --- each label by itself -------------------------------------------------------------------------


class LabelScore(NamedTuple):
    """How well one label is found: a class, a type of entities, a tag."""

    f1: float
    precision: float  # share of its predictions that are right
    recall: float  # share of its examples that are found
    count: int  # its true examples: texts, entities or words


def of_classes(predictions, labels, names: Sequence[str]) -> dict[str, LabelScore]:
    """The scores of each class, or of each label if an example has several.

    Args:
      names: of the classes 0, 1, ... or of the columns; what occurs nowhere is left out.
    """
    predictions, labels = _pair(predictions, labels)
    if predictions.ndim == 1:
        places_C = np.arange(len(names))
        predictions, labels = predictions[:, None] == places_C, labels[:, None] == places_C
    hits_C, predicted_C, true_C = _counts(predictions.astype(bool), labels.astype(bool))
    return {
        name: _label_score(hits, predicted, true)
        for name, hits, predicted, true in zip(names, hits_C, predicted_C, true_C)
        if predicted or true
    }


def of_entity_types(predictions, labels) -> dict[str, LabelScore]:
    """The scores of whole entities by their type, in alphabetical order; '' is a bare B or I."""
    predicted, true = set(), set()
    for place, (ours, theirs) in enumerate(_sentences(predictions, labels)):
        predicted.update((*entity, place) for entity in entities(ours))
        true.update((*entity, place) for entity in entities(theirs))
    return _of_items(predicted, true)


def of_tags(predictions, labels) -> dict[str, LabelScore]:
    """The scores of words by their tag, in alphabetical order: those of parts of speech."""
    predicted, true = set(), set()
    for place, (ours, theirs) in enumerate(_sentences(predictions, labels)):
        predicted.update((tag, word, place) for word, tag in enumerate(ours))
        true.update((tag, word, place) for word, tag in enumerate(theirs))
    return _of_items(predicted, true)


# --- helpers --------------------------------------------------------------------------------------


def same_length(predictions, labels) -> None:
    """Raises ValueError unless there is one prediction per label, and at least one."""
    if len(predictions) != len(labels):
        raise ValueError(f"{len(predictions)} predictions for {len(labels)} labels; give one each")
    if not len(labels):
        raise ValueError("no labels to score against; is the split empty?")


def _pair(predictions, labels) -> tuple[np.ndarray, np.ndarray]:
    """Both as arrays. Raises ValueError if their shapes differ."""
    same_length(predictions, labels)
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    if predictions.shape != labels.shape:
        raise ValueError(
            f"predictions of shape {predictions.shape} for labels of shape {labels.shape};"
            " decide() makes the ones of the other"
        )
    return predictions, labels


def _counts(predicted_RC, true_RC) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per class: how often it is predicted correctly, how often predicted, how often true."""
    return (
        (predicted_RC & true_RC).sum(axis=0).astype(np.float64),
        predicted_RC.sum(axis=0).astype(np.float64),
        true_RC.sum(axis=0).astype(np.float64),
    )


def _class_counts(predictions_R, labels_R) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`_counts` [C] of all classes that occur, or of all labels if an example has several."""
    if predictions_R.ndim == 2:
        return _counts(predictions_R.astype(bool), labels_R.astype(bool))
    classes_C = np.union1d(predictions_R, labels_R)
    return _counts(predictions_R[:, None] == classes_C, labels_R[:, None] == classes_C)


def _f1(hits, predicted, true) -> float:
    return float(2 * hits / (predicted + true)) if predicted + true else 0.0


def _of_items(predicted: set[tuple], true: set[tuple]) -> dict[str, LabelScore]:
    """The scores of items by their label, which comes first in each."""
    items = (predicted & true, predicted, true)
    counts = [collections.Counter(label for label, *_ in each) for each in items]
    hits, predicted_of, true_of = counts
    return {
        label: _label_score(hits[label], predicted_of[label], true_of[label])
        for label in sorted(predicted_of | true_of)
    }


def _label_score(hits, predicted, true) -> LabelScore:
    """The scores of a label: how often it is predicted correctly, predicted, and true."""
    precision, recall = (float(hits / count) if count else 0.0 for count in (predicted, true))
    return LabelScore(_f1(hits, predicted, true), precision, recall, int(true))


def _ranks(values_R) -> np.ndarray:
    """Ranks from 1; equal values share the mean of their ranks."""
    _, place_R, count = np.unique(values_R, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place_R]


def _sentences(predictions, labels) -> list[tuple[Sequence[str], Sequence[str]]]:
    """(predicted tags, true tags) of each sentence. Raises ValueError if their numbers differ."""
    same_length(predictions, labels)
    pairs = list(zip(predictions, labels))
    for place, (ours, theirs) in enumerate(pairs):
        if len(ours) != len(theirs):
            raise ValueError(
                f"sentence {place} has {len(ours)} predicted tags and {len(theirs)} true ones"
            )
    return pairs


def _entity_counts(predictions, labels) -> tuple[int, int, int]:
    """The number of entities predicted correctly, predicted, and true."""
    hits = predicted = true = 0
    for ours, theirs in _sentences(predictions, labels):
        ours, theirs = set(entities(ours)), set(entities(theirs))
        hits, predicted, true = hits + len(ours & theirs), predicted + len(ours), true + len(theirs)
    return hits, predicted, true


def _mark(tag: str) -> tuple[str, str]:
    """`B-PER` -> (B, PER); O has no type, and the type of a bare B is ''."""
    mark, _, type_ = tag.partition("-")
    if mark not in ("O", "B", "I", "E", "S"):
        raise ValueError(f"tag {tag!r} is none of O, B-, I-, E-, S-; use BIO or BIOES tags")
    return mark, "" if mark == "O" else type_
