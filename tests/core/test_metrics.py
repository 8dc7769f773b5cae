# SPDX-License-Identifier: Apache-2.0
"""Means and areas from sums that merge by addition."""

import numpy as np
import pytest
from jax import numpy as jnp

from electra_jax.core import metrics


def area(logits, positive):
    """The chance that a positive scores above a negative, by asking every pair; ties half."""
    above = logits[positive][:, None] - logits[~positive][None, :]
    return ((above > 0) + (above == 0) / 2).mean()


def area_of(logits, positive, counted=None):
    counted = np.ones_like(positive) if counted is None else counted
    sums = {"disc_auc": metrics.histogram(*map(jnp.asarray, (logits, positive, counted)))}
    return metrics.compute(sums)["disc_auc"]


def test_a_pair_is_a_sum_and_a_weight():
    values, weights = jnp.array([1.0, 2.0, 30.0]), jnp.array([True, True, False])
    assert metrics.pair(values, weights).tolist() == [3, 2]


def test_two_pairs_merge_into_the_mean_of_all_and_not_of_means():
    one = {"gen_loss": metrics.pair(jnp.array([1.0]), jnp.ones(1))}
    three = {"gen_loss": metrics.pair(jnp.array([5.0, 5.0, 5.0]), jnp.ones(3))}
    assert metrics.compute(metrics.add(one, three)) == {"gen_loss": 4.0}


def test_nothing_counted_is_none():
    assert metrics.compute({"gen_loss": np.zeros(2)}) == {"gen_loss": None}
    nothing = metrics.compute({"disc_auc": np.zeros((2, metrics.BINS))})
    assert nothing == {"disc_auc": None, "disc_recall_at_2": None}


def test_precision_and_recall_make_f1():
    values = metrics.compute(
        {
            "disc_precision": np.array([2.0, 4.0]),
            "disc_recall": np.array([2.0, 8.0]),
        }
    )
    assert values["disc_f1"] == pytest.approx(2 * 0.5 * 0.25 / 0.75)


def test_believing_nothing_has_an_f1_of_zero():
    values = metrics.compute({"disc_precision": np.zeros(2), "disc_recall": np.array([0.0, 3.0])})
    assert values == {"disc_precision": None, "disc_recall": 0.0, "disc_f1": 0.0}


@pytest.mark.parametrize(
    ("logits", "positive", "expected"),
    [
        ([-2, -1, 1, 2], [0, 0, 1, 1], 1.0),
        ([-2, -1, 1, 2], [1, 1, 0, 0], 0.0),
        ([3, 3, 3, 3], [0, 1, 0, 1], 0.5),  # ties count half
        ([-100, 100, 1, 2], [0, 1, 0, 1], 1.0),  # beyond the range: in the outer bins
        ([1, 2, 3, 4], [0, 1, 0, 1], 0.75),
    ],
)
def test_areas_by_eye(logits, positive, expected):
    assert area_of(np.array([logits], np.float32), np.array([positive], bool)) == expected


def test_the_area_is_that_of_all_pairs():
    draw = np.random.default_rng(0)
    positive = draw.random(3000) < 0.1
    logits = (2.5 * draw.standard_normal(3000) + positive - 2).astype(np.float32)
    assert area_of(logits, positive) == pytest.approx(area(logits, positive), abs=2e-4)
    # On the grid of the bins itself nothing is lost.
    logits = np.round(logits * 8) / 8
    assert area_of(logits, positive) == pytest.approx(area(logits, positive), abs=1e-12)


@pytest.mark.parametrize(
    ("logits", "positive", "expected"),
    [
        (range(102), [0] * 100 + [1, 1], 1.0),  # both above all originals
        (range(102), [1, 1] + [0] * 100, 0.0),
        (range(102), [1] + [0] * 97 + [1] + [0] * 3, 0.0),  # three originals above the better one
        (range(102), [1] + [0] * 98 + [1] + [0] * 2, 0.5),  # two: 2 % of the originals
        ([0] * 102, [0] * 100 + [1, 1], 0.02),  # all alike: by lot
    ],
)
def test_recall_at_two_percent_of_false_alarms_by_eye(logits, positive, expected):
    logits, positive = (np.array(list(x), np.float32)[None] for x in (logits, positive))
    every = jnp.ones(logits.shape, bool)
    sums = {"disc_auc": metrics.histogram(jnp.array(logits / 8), positive > 0, every)}
    assert metrics.compute(sums)["disc_recall_at_2"] == pytest.approx(expected)


def test_padding_is_not_in_the_area():
    draw = np.random.default_rng(1)
    logits, positive = draw.standard_normal(500).astype(np.float32), draw.random(500) < 0.3
    counted = draw.random(500) < 0.7
    assert area_of(logits, positive, counted) == area_of(logits[counted], positive[counted])


def test_a_logit_that_is_no_number_is_ranked_wrong():
    logits = np.array([np.nan, np.nan, 1, 2], np.float32)
    assert area_of(logits, np.array([0, 1, 0, 1], bool)) == 0.25  # only 2 above 1 is right


def test_histograms_merge_by_addition():
    draw = np.random.default_rng(2)
    logits, positive = draw.standard_normal((4, 50)).astype(np.float32), draw.random((4, 50)) < 0.3

    def sums(rows):
        counted = jnp.ones_like(logits[rows], bool)
        return {"disc_auc": metrics.histogram(logits[rows], jnp.array(positive[rows]), counted)}

    merged = metrics.add(sums(slice(0, 1)), sums(slice(1, 4)))
    assert metrics.compute(merged) == metrics.compute(sums(slice(0, 4)))
