# SPDX-License-Identifier: Apache-2.0
"""Rows into batches of few shapes: every row once, one padded batch, equal shapes for all seeds."""

import collections

import numpy as np
import pytest

from electra_jax.finetuning.tuning import batches

LENGTHS = np.array([3, 7, 8, 2, 12, 5, 16, 9, 4, 6, 1])
BUCKETS = (4, 8, 16)


def epoch(seed=0, number=0, shared_seed=0):
    return batches.epoch(LENGTHS, BUCKETS, 2, seed=seed, shared_seed=shared_seed, number=number)


def test_buckets_that_hold_few_rows_are_left_out():
    lengths = np.array([10] * 50 + [60] * 2 + [100] * 50)
    assert batches.buckets(lengths, 512, 4) == (32, 128)  # 2 of 102 rows: 64 is not worth it
    assert batches.buckets(lengths, 512, 4, allowed=(100,)) == (100,)
    assert batches.buckets(lengths, 110, 4) == (32, 110)  # rows of 110 are what the encoder reads
    assert batches.buckets(np.array([5] * 9), 512, 4) == (32,)
    assert batches.buckets(np.array([5] * 9), 20, 4) == (20,)


def test_every_row_is_in_an_epoch_once_and_fits():
    pieces = epoch()
    assert sorted(row for piece in pieces for row in piece.rows) == list(range(11))
    assert all(LENGTHS[piece.rows].max() <= piece.length for piece in pieces)
    assert len(pieces) == batches.steps(11, 2, 1) == 6
    assert sum(len(piece.rows) < 2 for piece in pieces) == 1  # 11 rows in batches of 2


def test_what_a_bucket_has_left_over_goes_into_the_next():
    """1 to 4: 3, 2, 4, 1 are two batches. Up to 8: 7, 8, 5, 6 are two. Then 12, 16, 9."""
    shapes = collections.Counter(piece.length for piece in epoch())
    assert shapes == {4: 2, 8: 2, 16: 2}
    three = batches.in_order(np.array([1, 2, 3, 12]), BUCKETS, 2)
    assert [(p.length, p.rows.tolist()) for p in three] == [(4, [0, 1]), (16, [2, 3])]


def test_seeds_meet_the_same_shapes_with_rows_of_their_own():
    one, other = epoch(seed=1), epoch(seed=2)
    assert [p.length for p in one] == [p.length for p in other]
    assert [p.rows.tolist() for p in one] != [p.rows.tolist() for p in other]
    assert [p.rows.tolist() for p in one] == [p.rows.tolist() for p in epoch(seed=1)]


def test_epochs_differ_and_the_shapes_do_not_come_in_a_row():
    orders = [[p.length for p in epoch(number=n)] for n in range(6)]
    assert len(set(map(tuple, orders))) > 2
    assert any(order != sorted(order) for order in orders)


ROWS = batches.TaskRows(
    ids=[np.array([5, 6, 7]), np.array([5, 8])],
    marks=[np.array([1, 0, 0], np.uint8), np.array([1, 4], np.uint8)],
    labels={
        "label": np.array([1.5, 2.5], np.float32),
        "tags": [np.array([-1, 2, -1], np.int32), np.array([-1, 0], np.int32)],
        "allowed": [np.array([True, False, True]), np.array([True, True])],
    },
)


def test_a_batch_is_padded_to_its_length_and_to_its_rows():
    made = batches.arrays(ROWS, batches.BatchPiece(4, np.array([1, 0])), 3, pad_id=9)
    assert made["ids"].tolist() == [[5, 8, 9, 9], [5, 6, 7, 9], [9, 9, 9, 9]]
    assert made["marks"].tolist() == [[1, 4, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    assert made["weight"].tolist() == [1, 1, 0]
    assert made["label"].tolist() == [2.5, 1.5, 0]
    assert made["tags"].tolist() == [[-1, 0, -1, -1], [-1, 2, -1, -1], [-1] * 4]
    assert made["allowed"].tolist() == [
        [True, True, False, False], [True, False, True, False], [False] * 4,
    ]  # fmt: skip
    pieces = [batches.BatchPiece(4, np.array([1, 0])), batches.BatchPiece(8, np.array([0]))]
    assert batches.tokens(pieces, ROWS.lengths) == 5 + 3
    assert batches.places(pieces, batch_size=2) == 2 * 4 + 2 * 8


def test_seeds_lie_side_by_side():
    pieces = [batches.BatchPiece(4, np.array([0])), batches.BatchPiece(4, np.array([1]))]
    made = batches.stacked(ROWS, pieces, 1, pad_id=0)
    assert made["ids"].tolist() == [[[5, 6, 7, 0]], [[5, 8, 0, 0]]]


@pytest.mark.parametrize(
    ("steps", "times", "looks"),
    [(8, 4, {2, 4, 6, 8}), (3, 9, {1, 2, 3}), (7, 2, {4, 7}), (5, 1, {5})],
)
def test_dev_is_looked_at_at_equal_distances_and_at_the_end(steps, times, looks):
    from electra_jax.finetuning.tuning import loop

    assert loop.evaluated_at(steps, times) == looks
