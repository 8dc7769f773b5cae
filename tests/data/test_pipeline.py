# SPDX-License-Identifier: Apache-2.0
"""The order of rows: each once an epoch, the same from anywhere, mixed by weight."""

import dataclasses
import itertools
import threading

import numpy as np
import pytest

from electra_jax.data import pipeline, records
from support import made_records


def order_of(tmp_path, sources, seed=0, weights=None):
    """Opens records whose rows hold their own numbers."""
    made_records.write(str(tmp_path), sources)
    if weights:
        made = records.open(str(tmp_path)).manifest.sources
        weighted = [dataclasses.replace(s, weight=w) for s, w in zip(made, weights)]
        made_records.write_manifest(str(tmp_path), weighted)
    return pipeline.Order(records.open(str(tmp_path)), seed)


def numbers(order, first, count):
    """The numbers that the rows hold."""
    return order.take(first, count).ids[:, 0].astype(int).tolist()


@pytest.mark.parametrize(
    "shards", [[1], [2], [5], [64], [65], [3, 1, 7], [10] * 40, [1] * 33, [97, 3] * 20]
)
def test_every_row_comes_once_an_epoch_in_another_order(tmp_path, shards):
    order, size = order_of(tmp_path, [shards]), sum(shards)
    epochs = [numbers(order, epoch * size, size) for epoch in range(3)]
    for epoch in epochs:
        assert sorted(epoch) == list(range(size))
    if size > 30:
        assert epochs[0] != epochs[1] != epochs[2]
        assert epochs[0] != sorted(epochs[0])


def test_seeds_give_other_orders(tmp_path):
    first = order_of(tmp_path, [[50, 50]], seed=0)
    again = pipeline.Order(records.open(str(tmp_path)), 0)
    other = pipeline.Order(records.open(str(tmp_path)), 1)
    assert numbers(first, 0, 100) == numbers(again, 0, 100) != numbers(other, 0, 100)


def test_a_batch_depends_on_its_place_alone(tmp_path):
    order = order_of(tmp_path, [[300, 77], [50] * 5])
    all_rows = numbers(order, 0, 30_000)
    for first, count in [(0, 1), (1, 700), (8190, 5), (4090, 20), (16_000, 14_000)]:
        assert numbers(order, first, count) == all_rows[first : first + count]
        fresh = pipeline.Order(records.open(str(tmp_path)), 0)
        assert numbers(fresh, first, count) == all_rows[first : first + count]


def test_any_number_of_processes_reads_the_same_global_batch(tmp_path):
    order = order_of(tmp_path, [[300, 77]])
    whole = order.take(48, 24)
    for processes in (2, 3, 8):
        part = 24 // processes
        parts = [order.take(48 + p * part, part) for p in range(processes)]
        for lane in ("ids", "marks", "source"):
            joined = np.concatenate([getattr(rows, lane) for rows in parts])
            np.testing.assert_array_equal(joined, getattr(whole, lane))


def test_the_order_is_golden(tmp_path):
    # Changes only if the order changes, and then a resumed run sees other rows: say so loudly.
    order = order_of(tmp_path, [[6, 6], [4]], seed=7)
    assert numbers(order, 0, 12) == [8, 1000, 1001, 6, 3, 9, 7, 10, 1002, 1003, 11, 0]


def test_rows_carry_their_marks_and_their_source(tmp_path):
    rows = order_of(tmp_path, [[30], [20]]).take(5, 40)
    assert rows.ids.shape == rows.marks.shape == (40, 4)
    assert rows.ids.dtype == np.uint16 and rows.marks.dtype == np.uint8
    np.testing.assert_array_equal(rows.source, rows.ids[:, 0] // 1000)
    np.testing.assert_array_equal(rows.marks, rows.ids % 7)
    assert set(rows.source.tolist()) == {0, 1}


def test_sources_come_by_weight_and_each_source_in_whole_epochs(tmp_path):
    order = order_of(tmp_path, [[64], [16], [8]], weights=[0.5, 0.375, 0.125])
    rows = order.take(0, 4096)
    assert np.bincount(rows.source).tolist() == [2048, 1536, 512]
    for s, size in enumerate([64, 16, 8]):
        mine = rows.ids[rows.source == s, 0].astype(int) - 1000 * s
        epochs = mine.reshape(-1, size)
        np.testing.assert_array_equal(
            np.sort(epochs, 1), np.tile(np.arange(size), (len(epochs), 1))
        )
    # Well mixed: no long stretch of one source.
    longest = max(len(list(run)) for _, run in itertools.groupby(rows.source.tolist()))
    assert longest < 20


@pytest.mark.parametrize(
    ("weights", "counts"),
    [
        ([1], [10]),
        ([1, 1], [5, 5]),
        ([1, 1, 1], [4, 3, 3]),
        ([0.66, 0.34], [7, 3]),
        ([1000, 1, 1], [8, 1, 1]),  # nobody gets none
    ],
)
def test_apportioning_by_largest_remainder(weights, counts):
    assert pipeline.apportion(weights, 10).tolist() == counts


def test_the_permutation_is_one_for_every_size_and_key():
    for size in [*range(1, 40), 127, 128, 129, 1000]:
        for key in (0, 1, 2**63):
            places = np.arange(size)
            shuffled = pipeline.permute(
                places, np.full(size, size), np.full(size, key, dtype=np.uint64)
            )
            assert sorted(shuffled.tolist()) == places.tolist()


def test_the_permutation_looks_random():
    # Over 4,000 keys each place of ten lands everywhere about equally often, and neighbours do not
    # stay neighbours. A chi-square of 81 degrees of freedom stays under 140 but for 1 in 10,000.
    size, keys = 10, 4000
    shuffled = pipeline.permute(
        np.tile(np.arange(size), keys),
        np.full(size * keys, size),
        np.repeat(np.arange(keys, dtype=np.uint64) << np.uint64(32), size),
    ).reshape(keys, size)
    counts = np.stack([np.bincount(shuffled[:, i], minlength=size) for i in range(size)])
    assert ((counts - keys / size) ** 2 / (keys / size)).sum() < 140
    steps = np.diff(shuffled, axis=1)
    assert 0.07 < np.mean(steps == 1) < 0.13  # 9 of 90 ordered pairs


def test_only_a_group_of_shards_is_read_at_a_time(tmp_path):
    order = order_of(tmp_path, [[10] * 40])
    shards = np.array(numbers(order, 0, 400)) // 10
    assert len(set(shards[:160].tolist())) == pipeline.GROUP
    assert len(set(shards[160:320].tolist())) == pipeline.GROUP
    assert not set(shards[:160].tolist()) & set(shards[160:320].tolist())
    assert len(set(shards[:20].tolist())) > 8  # and inside a group the shards are mixed


def test_heldout_rows_are_fixed_and_limited(tmp_path):
    order_of(tmp_path, [[5], [5]])
    opened = records.open(str(tmp_path))
    assert pipeline.heldout(opened, 1, 2).ids[:, 0].tolist() == [0, 1]
    rows = pipeline.heldout(opened, 1, 100)
    assert rows.ids[:, 0].tolist() == [0, 1, 2]
    assert rows.source.tolist() == [1, 1, 1]


def test_prefetching_gives_the_same_batches_in_order():
    with pipeline.Prefetch(lambda step: step * 10, first=3) as prefetch:
        assert [next(prefetch) for _ in range(5)] == [30, 40, 50, 60, 70]
    assert list(prefetch) == []  # closed


def test_prefetching_reads_only_so_far_ahead():
    made, third = [], threading.Event()

    def make(step):
        made.append(step)
        if step == 2:
            third.set()
        return step

    prefetch = pipeline.Prefetch(make, first=0, depth=2)
    assert next(prefetch) == 0
    assert third.wait(10)
    prefetch.close()
    assert made == [0, 1, 2]


def test_an_error_while_prefetching_reaches_the_consumer_where_it_belongs():
    def make(step):
        if step == 2:
            raise OSError("the disk is gone")
        return step

    with pipeline.Prefetch(make, first=0) as prefetch:
        assert [next(prefetch), next(prefetch)] == [0, 1]
        for _ in range(2):  # whoever asks again does not wait for ever
            with pytest.raises(OSError, match="the disk is gone"):
                next(prefetch)


def test_closing_ends_the_thread_even_if_nobody_reads():
    before = threading.active_count()
    prefetch = pipeline.Prefetch(lambda step: step, first=0)
    prefetch.close()
    assert threading.active_count() == before
    prefetch.close()
