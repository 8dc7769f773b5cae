# SPDX-License-Identifier: Apache-2.0
"""Metrics of rankings: the candidates of each query, in the order of their scores.

    score and query of each candidate, labels  ->  one ranking per query  ->  mean over queries

A label says how relevant a candidate is to its query: class 0 or 1, or a number from 0 on. A
candidate is relevant if its label is above 0, as for trec_eval.

Candidates with equal scores have no order. A metric is its expected value over all their orders
(McSherry and Najork 2008), so ties do not flatter a model, and the order of a file does not matter.
Equal scores for all candidates therefore get what a random order gets on average.

As for trec_eval, a query without any relevant candidate counts with a value of 0. Only the given
candidates are known: a relevant text that is not among them is not missed. R candidates.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from electra_jax.finetuning.results import label_scores

_MOST = 10  # places of a ranking that the metrics with at_10 look at

Ranking = Sequence[Sequence[float]]  # labels, best score first; those of equal scores together


class Ranked(NamedTuple):
    """A candidate as a model ranks it."""

    score: float  # the higher, the further in front
    query: str


def ndcg_at_10(ranked: Sequence[Ranked], labels) -> float:
    """Mean over queries of the normalised discounted cumulative gain of the first 10 candidates.

    The gain is the label itself (Järvelin and Kekäläinen 2002), as in trec_eval and scikit-learn.
    The other common gain, 2^label - 1 (Burges et al. 2005), is made for grades of 0 to 4; labels of
    0 to 100 would be counted by their best candidate alone. Labels of 0 and 1 give both the same.
    """
    return _mean(_ndcg, ranked, labels)


def mrr_at_10(ranked: Sequence[Ranked], labels) -> float:
    """Mean over queries of 1 / place of the first relevant candidate; 0 behind place 10."""
    return _mean(_reciprocal_rank, ranked, labels)


def mean_average_precision(ranked: Sequence[Ranked], labels) -> float:
    """Mean over queries of the mean precision at the place of each relevant candidate."""
    return _mean(_average_precision, ranked, labels)


def rankings(ranked: Iterable[Ranked], labels: Iterable[float]) -> list[Ranking]:
    """The ranking of each query, in the order in which queries first occur."""
    by_query: dict[str, dict[float, list[float]]] = {}
    for (score, query), label in zip(ranked, labels):
        by_query.setdefault(query, {}).setdefault(score, []).append(float(label))
    return [[ties[score] for score in sorted(ties, reverse=True)] for ties in by_query.values()]


def _mean(of_query: Callable[[Ranking], float], ranked: Sequence[Ranked], labels) -> float:
    """The mean of a function over queries; nan if a score is not finite, as it has no place."""
    label_scores.same_length(ranked, labels)
    if not all(math.isfinite(one.score) for one in ranked):
        return math.nan
    values = [of_query(ranking) for ranking in rankings(ranked, labels)]
    return sum(values) / len(values)


def _ndcg(ranking: Ranking) -> float:
    best = sorted((label for ties in ranking for label in ties), reverse=True)
    ideal = sum(label * _discount(place) for place, label in enumerate(best[:_MOST], 1))

    gain, before = 0.0, 0
    for ties in ranking:
        places = range(before + 1, min(before + len(ties), _MOST) + 1)
        gain += sum(ties) / len(ties) * sum(map(_discount, places))
        before += len(ties)
    return gain / ideal if ideal else 0.0


def _discount(place: int) -> float:
    return 1 / math.log2(place + 1)


def _reciprocal_rank(ranking: Ranking) -> float:
    before = 0
    for ties in ranking:
        count, relevant = len(ties), _relevant(ties)
        if not relevant:
            before += count
            continue

        # Of all choices of places for the relevant ones, those with the first of them at `place`.
        choices = math.comb(count, relevant)
        return sum(
            math.comb(count - place, relevant - 1) / choices / (before + place)
            for place in range(1, min(count, _MOST - before) + 1)
        )
    return 0.0


def _average_precision(ranking: Ranking) -> float:
    total, found, before = 0.0, 0, 0
    for ties in ranking:
        count, relevant = len(ties), _relevant(ties)
        for place in range(1, count + 1):
            # If the candidate here is relevant, so many of its ties before it are on average.
            beside = (place - 1) * (relevant - 1) / (count - 1) if count > 1 else 0.0
            total += relevant / count * (found + beside + 1) / (before + place)
        found, before = found + relevant, before + count
    return total / found if found else 0.0


def _relevant(labels: Iterable[float]) -> int:
    return sum(label > 0 for label in labels)
