# SPDX-License-Identifier: Apache-2.0
"""Which checkpoint is the best by a held-out metric."""

import pytest

from electra_jax.report import best_checkpoint

#        step  kind     values of the held-out rows; a training row has them of its own
ROWS = [
    {"step": 0, "kind": "eval", "loss": 9.0, "disc_auc": 0.50},
    {"step": 10, "kind": "eval", "loss": 5.0, "disc_auc": 0.70},
    {"step": 20, "kind": "eval", "loss": 4.0, "disc_auc": 0.60},
    {"step": 30, "kind": "eval", "loss": 5.0, "disc_auc": 0.70},
    {"step": 40, "kind": "train", "loss": 1.0, "disc_auc": 0.99},
    {"step": 40, "kind": "eval", "loss": None, "disc_auc": None},
    {"step": 50, "kind": "eval", "loss": 6.0},
]


@pytest.mark.parametrize(
    ("metric", "steps", "best", "newest"),
    [
        ("loss", {10, 20, 30}, (20, 4.0), (30, 5.0)),
        ("loss", {10, 30}, (30, 5.0), (30, 5.0)),  # of two equal ones the newest
        ("loss", {0}, (0, 9.0), (0, 9.0)),
        ("loss", {20, 30, 50}, (20, 4.0), (50, 6.0)),
        ("loss", {10, 40}, (10, 5.0), (10, 5.0)),  # 40 has no finite value
        ("disc_auc", {0, 10, 20}, (10, 0.7), (20, 0.6)),  # of other metrics the highest
        ("disc_auc", {0, 10, 20, 30}, (30, 0.7), (30, 0.7)),
    ],
)
def test_the_lowest_loss_and_the_highest_of_all_else_is_the_best(metric, steps, best, newest):
    assert best_checkpoint.of(ROWS, metric, steps) == best_checkpoint.Best(metric, *best, *newest)


@pytest.mark.parametrize("steps", [set(), {15}, {40}])
def test_without_an_evaluated_checkpoint_there_is_no_best(steps):
    assert best_checkpoint.of(ROWS, "loss", steps) is None


def test_it_is_told_beside_the_newest():
    best = best_checkpoint.of(ROWS, "loss", {20, 30})
    assert str(best) == "step 20, whose loss is 4 (5 at step 30)"
    assert str(best_checkpoint.of(ROWS, "loss", {20})) == "step 20, whose loss is 4"
