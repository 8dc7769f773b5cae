# SPDX-License-Identifier: Apache-2.0
"""The order of rows that are trained on while others are prepared: the same whenever they come."""

import dataclasses
import threading

import numpy as np
import pytest

from electra_jax.data import pipeline, records, shard_writer, streaming
from support import made_records


class Made:
    """Units with these numbers of rows per shard; row k of all training rows holds k."""

    def __init__(self, folder, units, heldout=2):
        self.folder, self.units = str(folder), units
        shards, row = [], 0
        for unit, sizes in enumerate(units):
            found = {}
            for split, lengths in (("train", sizes), ("heldout", [heldout])):
                name = f"source0-{unit:05d}"
                place = records.split_directory(self.folder, split)
                found[split] = ()
                for number, size in enumerate(lengths):
                    writer = shard_writer.ShardWriter(place, f"{name}-{number:03d}part")
                    ids = np.repeat(np.arange(row, row + size)[:, None], 4, 1).astype("<u2")
                    writer.write(ids, ids.astype(np.uint8))
                    found[split] += writer.close()
                    row += size if split == "train" else 0
            shards.append(found)
        self.shards, self.size = shards, row

        whole = records.RecordedSource(
            "source0", "text:x", 1.0,
            {split: sum((found[split] for found in shards), ()) for split in records.SPLITS}, {},
        )  # fmt: skip
        made_records.write_manifest(self.folder, [whole])
        words = {"size": 60_000} | {f"{name}_id": 0 for name in "pad unk cls sep mask".split()}
        self.plan = dataclasses.replace(
            records.read_manifest(self.folder),
            settings={"seed": 0},
            vocabulary=words,
            sources=(
                dataclasses.replace(
                    whole, shards=dict.fromkeys(records.SPLITS, ()), counts={"units": len(units)}
                ),
            ),
        )

    def order(self, units=None):
        """The order of the rows, of all of them if no units are given."""
        units = units or streaming.Units.of_whole(self.folder, len(self.units))
        rows = streaming.StreamedRecords(self.folder, self.plan, units)
        return streaming.StreamedOrder(rows, 0)


def numbers(order, first, count):
    """The numbers that the rows hold."""
    return order.take(first, count).ids[:, 0].astype(int).tolist()


def test_if_every_unit_is_one_shard_the_order_is_that_of_prepared_rows(tmp_path):
    made = Made(tmp_path, [[3 + k % 5] for k in range(37)])
    prepared = pipeline.Order(records.open(str(tmp_path)), 0)
    assert numbers(made.order(), 0, 5 * made.size) == numbers(prepared, 0, 5 * made.size)


@pytest.mark.parametrize(
    "units", [[[5]], [[4], [], [7, 2]], [[3, 3], [], [1]] * 11, [[2]] * 16, [[]] * 20 + [[9]] * 40]
)
def test_every_row_comes_once_an_epoch_and_a_batch_depends_on_its_place_alone(tmp_path, units):
    made = Made(tmp_path, units)
    whole = numbers(made.order(), 0, 3 * made.size)
    epochs = [whole[e * made.size : (e + 1) * made.size] for e in range(3)]
    assert all(sorted(epoch) == list(range(made.size)) for epoch in epochs)
    if made.size > 30:
        assert epochs[0] != epochs[1] != epochs[2]
    for first, count in [(0, 1), (made.size - 1, 3), (made.size // 2, made.size), (made.size, 1)]:
        assert numbers(made.order(), first, count) == whole[first : first + count]


def test_rows_wait_for_their_own_group_alone_and_never_change(tmp_path):
    """Units come in the least convenient order; no row is read before its group is there."""
    made = Made(tmp_path, [[3 + k % 5] for k in range(37)])
    expected = numbers(made.order(), 0, 2 * made.size)

    units = streaming.Units(37)
    needed = streaming.units_in_order(made.plan)
    for unit in reversed(needed[:16]):
        units.came(unit, made.shards[unit])
    order = made.order(units)  # waits for the first group, and returns
    first = sum(made.units[unit][0] for unit in needed[:16])
    assert numbers(order, 0, first) == expected[:first]

    with pipeline.Prefetch(lambda n: numbers(order, first + n, 1), 0) as later:
        for unit in reversed(needed[17:]):
            units.came(unit, made.shards[unit])
        units.came(needed[16], made.shards[needed[16]])
        assert [next(later) for _ in range(40)] == [[x] for x in expected[first : first + 40]]
    assert numbers(order, 0, 2 * made.size) == expected


def test_the_rows_of_an_epoch_are_known_once_all_units_came_though_few_are_read(tmp_path):
    made = Made(tmp_path, [[3 + k % 5] for k in range(37)])
    units = streaming.Units(37)
    *others, last = streaming.units_in_order(made.plan)
    for unit in others:
        units.came(unit, made.shards[unit])
    rows = streaming.StreamedRecords(made.folder, made.plan, units)
    assert rows.rows_per_epoch() is None
    units.came(last, made.shards[last])
    assert rows.rows_per_epoch() == made.size == rows.rows("train", 0)


def test_who_waits_is_told_that_nothing_comes_or_that_nobody_needs_it(tmp_path):
    made = Made(tmp_path, [[4]] * 20)
    units = streaming.Units(20)
    for unit in streaming.units_in_order(made.plan)[:16]:
        units.came(unit, made.shards[unit])

    order, began = made.order(units), threading.Event()

    def take(number):
        began.set()
        return numbers(order, 64 + number, 1)

    waiting = pipeline.Prefetch(take, 0)
    assert began.wait(60)
    order.close()
    waiting.close()  # would wait for ever if the thread did

    units.failed(streaming.PreparationError("the file is gone"))
    with pytest.raises(streaming.PreparationError, match="the file is gone"):
        numbers(made.order(units), 64, 1)
    assert len(numbers(made.order(units), 0, 64)) == 64  # what is there stays there


@pytest.mark.parametrize(
    ("units", "heldout", "said"),
    [([[4]] * 3, 0, "no held-out row; raise"), ([[]] * 16 + [[]], 2, "no training row; lower")],
)
def test_a_beginning_without_one_side_is_refused(tmp_path, units, heldout, said):
    with pytest.raises(streaming.PreparationError, match=said) as error:
        Made(tmp_path, units, heldout).order()
    assert "data.streaming=off" in str(error.value)
