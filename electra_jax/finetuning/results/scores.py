# SPDX-License-Identifier: Apache-2.0
"""The scores of predictions: every metric, for every kind of task.

    outputs of a head  ->  decide   ->  predictions  ->  compute  ->  {metric: value}
                                         by_label ->  F1, precision and recall of each label
    labels             ->  baseline ->  the same metrics for a constant guess

Values are shares in 0..1 and correlations in -1..1; `mse` has the unit of the label, squared. A
value that its formula leaves undefined (0 / 0) is 0. `label_scores.py`, `question_scores.py` and
`ranking_scores.py` hold the formulas.

    kind            outputs                      predictions             labels
    classification  logits [R, C]                class [R]               class [R]
    regression      value [R]                    value [R]               value [R]
    multi_label     probabilities [R, C]         0 or 1 [R, C]           0 or 1 [R, C]
    tagging         tags of each sentence        the same                tags of each sentence
    span            answer to each question      the same                right answers to each

Metrics of rankings read a `ranking_scores.Ranked` of each example instead of its prediction: the
score of a candidate, and its query. R examples, C classes.
"""

import collections
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from electra_jax.finetuning.results import label_scores, question_scores, ranking_scores
from electra_jax.finetuning.tasks import task as task_lib

KINDS = ("classification", "regression", "multi_label", "tagging", "span")
LOWER_IS_BETTER = frozenset({"mse"})

METRICS: Mapping[str, Callable[..., float]] = {
    "accuracy": label_scores.accuracy,
    "f1": label_scores.f1,
    "macro_f1": label_scores.macro_f1,
    "micro_f1": label_scores.micro_f1,
    "relation_f1": label_scores.relation_f1,
    "mcc": label_scores.mcc,
    "pearson": label_scores.pearson,
    "spearman": label_scores.spearman,
    "mse": label_scores.mse,
    "ndcg_at_10": ranking_scores.ndcg_at_10,
    "mrr_at_10": ranking_scores.mrr_at_10,
    "map": ranking_scores.mean_average_precision,
    "entity_f1": label_scores.entity_f1,
    "entity_precision": label_scores.entity_precision,
    "entity_recall": label_scores.entity_recall,
    "token_accuracy": label_scores.token_accuracy,
    "exact_match": question_scores.exact_match,
    "span_f1": question_scores.span_f1,
    "has_answer_exact_match": question_scores.has_answer_exact_match,
    "has_answer_f1": question_scores.has_answer_f1,
    "no_answer_accuracy": question_scores.no_answer_accuracy,
}


def decide(kind: str, outputs):
    """The outputs of a head as predictions; a label is predicted from probability 0.5 on."""
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r} is unknown; use one of {', '.join(KINDS)}")
    if kind == "classification":
        return np.asarray(outputs).argmax(axis=-1)
    if kind == "multi_label":
        return (np.asarray(outputs) >= 0.5).astype(np.int64)
    return outputs


def compute(
    metrics: Iterable[str],
    predictions,
    labels,
    ranked: Sequence[ranking_scores.Ranked] | None = None,
) -> dict[str, float]:
    """The named metrics, in order.

    Args:
      ranked: what metrics of rankings read; None if no such metric is named.

    Raises ValueError for a name that is not in METRICS.
    """
    return {
        name: function(name)(ranked if is_of_rankings(name) else predictions, labels)
        for name in metrics
    }


def is_of_rankings(name: str) -> bool:
    """Whether a metric is computed within the candidates of each query."""
    return name in task_lib.RANKING_METRICS


def function(name: str) -> Callable[..., float]:
    """The function of a metric. Raises ValueError, with the known names, if there is none."""
    if name not in METRICS:
        raise ValueError(f"metric {name!r} is unknown; use one of {', '.join(METRICS)}")
    return METRICS[name]


def by_label(
    kind: str, metrics: Iterable[str], predictions, labels, names: Sequence[str]
) -> dict[str, label_scores.LabelScore]:
    """The scores of each class, label, type of entities or tag; {} for other kinds of tasks.

    Args:
      metrics: of the task; tags are those of entities where a metric is of entities.
      names: the labels of the task.
    """
    if kind in ("classification", "multi_label"):
        return label_scores.of_classes(predictions, labels, names)
    if kind == "tagging" and any(name.startswith("entity_") for name in metrics):
        return label_scores.of_entity_types(predictions, labels)
    if kind == "tagging":
        return label_scores.of_tags(predictions, labels)
    return {}


def guess(kind: str, labels):
    """The constant prediction that the frequencies of the labels suggest, one per example.

    It is the most frequent class or tag, the mean value, the majority for each label, or no answer.
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


def baseline(
    kind: str,
    metrics: Iterable[str],
    labels,
    queries: Sequence[str] | None = None,
) -> dict[str, float]:
    """The scores of `guess`. A model that is no better has learnt nothing by these metrics.

    Args:
      queries: those of the examples; None if no metric is of rankings. All candidates of a query
        have the same score, so metrics of rankings are those of a random order.
    """
    ranked = None if queries is None else [ranking_scores.Ranked(0.0, query) for query in queries]
    return compute(metrics, guess(kind, labels), labels, ranked)


def better(name: str, left: float, right: float) -> bool:
    """Whether `left` is a better value than `right`; any number is better than nan."""
    if math.isnan(right):
        return not math.isnan(left)
    return left < right if name in LOWER_IS_BETTER else left > right
