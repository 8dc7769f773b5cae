# SPDX-License-Identifier: Apache-2.0
"""Metrics of rankings: by hand, against scikit-learn, and against every order of equal scores."""

import itertools
import math

import numpy as np
import pytest
import sklearn.metrics

from electra_jax.finetuning.results import ranking_scores, scores, statistics

METRICS = ("ndcg_at_10", "mrr_at_10", "map")
SEEDS = range(5)


def ranked(score_R, queries="q"):
    """Candidates of one query, or each of the query whose letter stands at its place."""
    queries = queries * len(score_R) if len(queries) == 1 else queries
    return [ranking_scores.Ranked(score, query) for score, query in zip(score_R, queries)]


def compute(score_R, labels, queries="q"):
    return list(scores.compute(METRICS, None, labels, ranked(score_R, queries)).values())


def of_an_order(labels):
    """The metrics of labels in a fixed order, by their definitions."""
    relevant = [place for place, label in enumerate(labels, 1) if label > 0]
    if not relevant:
        return [0.0, 0.0, 0.0]

    def dcg(row):
        return sum(label / math.log2(place + 1) for place, label in enumerate(row[:10], 1))

    precisions = [sum(other <= place for other in relevant) / place for place in relevant]
    return [
        dcg(labels) / dcg(sorted(labels, reverse=True)),
        1 / relevant[0] if relevant[0] <= 10 else 0.0,
        sum(precisions) / len(relevant),
    ]


def test_a_ranking_by_hand():
    """Best first the labels are 0, 3, 0, 1; the ideal order is 3, 1, 0, 0."""
    found = compute([0.9, 0.1, 0.8, 0.2], [0, 1, 3, 0])
    gain = 3 / math.log2(3) + 1 / math.log2(5)
    ideal = 3 / math.log2(2) + 1 / math.log2(3)
    assert found == pytest.approx([gain / ideal, 1 / 2, (1 / 2 + 2 / 4) / 2])
    assert compute([4, 2, 1, 3], [3, 0, 0, 1]) == [1.0, 1.0, 1.0]


def test_queries_count_the_same_however_many_candidates_they_have():
    labels = [1, 0, 0, 0, 0, 0, 1]
    found = compute([5, 4, 3, 2, 1, 9, 8], labels, "aaaaabb")  # a: found first; b: second
    assert found == pytest.approx([(1 + 1 / math.log2(3)) / 2, 3 / 4, 3 / 4])
    mixed = [5, 0, 6, 1, 2, 3, 4]  # the rows of a query need not stand together
    again = compute(
        [[5, 4, 3, 2, 1, 9, 8][row] for row in mixed],
        [labels[row] for row in mixed],
        ["aaaaabb"[row] for row in mixed],
    )
    assert again == pytest.approx(found)


def test_a_query_without_a_relevant_candidate_counts_as_zero():
    found = compute([2, 1, 2, 1], [1, 0, 0, 0], "aabb")
    assert found == pytest.approx([1 / 2, 1 / 2, 1 / 2])


def test_behind_place_ten_only_the_average_precision_sees_anything():
    labels = [0] * 10 + [1, 0]
    assert compute(range(12, 0, -1), labels) == pytest.approx([0.0, 0.0, 1 / 11])
    # Of 12 equal scores 10 places count.
    found = compute([0.0] * 12, labels)
    tenths = [1 / place for place in range(1, 13)]
    discounts = [1 / math.log2(place + 1) for place in range(1, 11)]
    assert found == pytest.approx([sum(discounts) / 12, sum(tenths[:10]) / 12, sum(tenths) / 12])


@pytest.mark.parametrize("labels", [(0, 1, 0), (2, 1, 0, 0), (0, 3, 0, 1, 1, 0)])
@pytest.mark.parametrize("score_R", [(0, 0, 0, 0, 0, 0), (1, 1, 0, 0, 0, 0), (2, 1, 1, 1, 1, 0)])
def test_equal_scores_get_the_mean_over_all_their_orders(labels, score_R):
    """Whatever the order of the rows, and never what the best order would get."""
    score_R = score_R[: len(labels)]
    orders = [
        of_an_order([labels[row] for row in order])
        for order in itertools.permutations(range(len(labels)))
        if sorted(score_R, reverse=True) == [score_R[row] for row in order]
    ]
    expected = np.mean(orders, axis=0)
    assert compute(score_R, labels) == pytest.approx(expected)
    assert compute(score_R[::-1], labels[::-1]) == pytest.approx(expected)
    assert (expected < np.max(orders, axis=0)).any()


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_ndcg_and_average_precision_are_those_of_scikit_learn(seed, ties):
    """Its NDCG has the same gain and the same mean over ties; its precision has no ties."""
    rng = np.random.default_rng(seed)
    labels_QR = rng.integers(0, 4, (6, 25))
    score_QR = labels_QR + rng.normal(0, 2, (6, 25))
    score_QR = score_QR.round() if ties else score_QR
    queries = np.repeat(list("abcdef"), 25).tolist()

    ndcg, _, precision = compute(score_QR.ravel().tolist(), labels_QR.ravel(), queries)
    assert ndcg == pytest.approx(sklearn.metrics.ndcg_score(labels_QR, score_QR, k=10))
    if not ties:
        theirs = map(sklearn.metrics.average_precision_score, labels_QR > 0, score_QR)
        assert precision == pytest.approx(np.mean(list(theirs)))


def test_a_diverged_model_ranks_nothing():
    assert all(map(math.isnan, compute([1.0, math.nan], [0, 1])))
    (found,) = statistics.degenerate(
        "regression", "map", [1.0, math.nan], [0, 1], ranked=ranked([1.0, math.nan])
    )
    assert "the run diverged" in found


def test_the_guess_is_a_random_order():
    labels = [1, 0, 0, 0]
    found = scores.baseline("classification", ["accuracy", *METRICS], labels, list("qqqq"))
    tenths = sum(1 / place for place in range(1, 5)) / 4
    discounts = sum(1 / math.log2(place + 1) for place in range(1, 5)) / 4
    assert found == pytest.approx(
        {"accuracy": 3 / 4, "ndcg_at_10": discounts, "mrr_at_10": tenths, "map": tenths}
    )


def test_one_class_for_all_candidates_may_be_a_good_ranking():
    """Where most candidates are not relevant, no class need be the relevant one."""
    predictions, labels = [0, 0, 0, 0], [0, 0, 1, 0]
    right = ranked([-3.0, -4.0, -1.0, -2.0])
    assert statistics.degenerate("classification", "map", predictions, labels, (), right) == []
    (found,) = statistics.degenerate(
        "classification", "map", predictions, labels, (), ranked([-1.0] * 4)
    )
    assert found == "predicts the same score for every candidate"
    (found,) = statistics.degenerate(
        "classification", "map", predictions, labels, (), ranked([4.0, 3.0, 1.0, 2.0])
    )
    assert "map 0.2500 is no better than a constant guess, 0.5208" in found


def test_each_candidate_has_a_label():
    with pytest.raises(ValueError, match="1 predictions for 2 labels"):
        ranking_scores.ndcg_at_10(ranked([1.0]), [0, 1])
