# SPDX-License-Identifier: Apache-2.0
"""Rows in a bucket: which shards lie on a machine, while every row is what it is on a disk."""

import collections
import concurrent.futures
import dataclasses
import os
import shutil
import threading

import numpy as np
import pytest

from electra_jax.data import pipeline, records, staged_shards, streaming
from electra_jax.host import buckets, staged_files, staging
from support import folder_bucket, made_records

SHARD, SHARDS = 7, 70  # rows of each, and how many
EPOCH, GROUP = SHARD * SHARDS, SHARD * pipeline.GROUP  # rows
AHEAD, BATCH = 20, 10  # rows
ROWS = "gs://lab/rows"


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """A bucket, and one machine."""
    monkeypatch.setattr(staged_shards, "AHEAD", AHEAD)
    found = folder_bucket.FolderBucket(tmp_path / "bucket", monkeypatch)
    found.machine(tmp_path / "cache")
    yield found
    left = [fetch for fetch in staged_files._fetches.values() if not fetch.cancel()]
    concurrent.futures.wait(left)
    staged_files._fetches.clear()
    staging._own_root.cache_clear()


def write(bucket, sources=([SHARD] * SHARDS,)):
    """Writes rows into the bucket, and returns them as rows of a disk."""
    return records.open(made_records.write(str(bucket.folder / "rows"), sources))


def opened():
    """The same rows, opened on the present machine."""
    here = staging.local(ROWS)
    records.fetch(here)
    return records.open(here)


def here(rows):
    """The names of the training shards that are on this machine, once all fetches are done."""
    for fetch in list(staged_files._fetches.values()):
        fetch.result()
    folder = records.split_directory(rows.directory, "train")
    return {name.partition(".")[0] for name in os.listdir(folder)}


def names(rows, shards):
    """The names of training shards of the first source, by their numbers."""
    return {rows.manifest.sources[0].shards["train"][shard].name for shard in shards}


def fetched(bucket):
    """{training shard: how often it was fetched}; both of its files as often."""
    ids, marks = (
        collections.Counter(
            name.removesuffix(lane) for name in bucket.fetched if name.endswith(lane)
        )
        for lane in (".ids", ".marks")
    )
    assert ids == marks
    return ids


def test_only_the_shards_of_few_groups_lie_here_and_every_row_is_right(bucket):
    local = pipeline.Order(write(bucket), seed=0)
    rows = opened()
    order, held_out = pipeline.Order(rows, seed=0), pipeline.heldout(rows, 0, 3).ids
    bucket.fetched.clear()
    most, bound = 0, staged_shards.room(rows, pipeline.GROUP)

    for first in range(0, 2 * EPOCH, BATCH):
        # The parts of a batch are taken in any order, and that of the last rows first.
        for part in (first + BATCH // 2, first):
            mine, theirs = order.take(part, BATCH // 2), local.take(part, BATCH // 2)
            np.testing.assert_array_equal(mine.ids, theirs.ids)
            np.testing.assert_array_equal(mine.marks, theirs.marks)

            # What is read in AHEAD rows is here, or on its way.
            soon = order.numbers(part, BATCH // 2 + AHEAD)[1] // SHARD
            assert names(rows, soon) <= here(rows)
            assert len(here(rows)) * SHARD * rows.bytes_per_row() <= bound
            most = max(most, len(here(rows)))
        if first == EPOCH - 2 * AHEAD:
            assert set(fetched(bucket).values()) == {1}  # none is removed too early

    # Two groups, and where an epoch ends with a short group that one too; never all 70.
    assert 2 * pipeline.GROUP <= most <= 2 * pipeline.GROUP + SHARDS % pipeline.GROUP
    assert len(fetched(bucket)) == SHARDS
    np.testing.assert_array_equal(pipeline.heldout(rows, 0, 3).ids, held_out)
    assert len(os.listdir(records.split_directory(rows.directory, "heldout"))) == 2
    # A file that is still mapped takes its room although it has no name any more.
    assert {shard for split, _, shard in rows._maps if split == "train"} <= {
        shard for shard in range(SHARDS) if names(rows, [shard]) <= here(rows)
    }


def test_each_host_fetches_the_groups_that_it_reads_and_another_number_goes_on(bucket, tmp_path):
    local = pipeline.Order(write(bucket), seed=3)
    in_order, half = pipeline.shuffled_shards(SHARDS, 3, 0, 0), BATCH // 2
    # Both halves of every batch lie in the same groups, and so both hosts need the same shards.
    for steps, groups in ((2, 1), (GROUP // BATCH - 1, 2), (2 * GROUP // BATCH, 3)):
        for host in range(2):
            bucket.machine(tmp_path / f"host {host} of {steps}")
            bucket.fetched.clear()
            rows = opened()
            order = pipeline.Order(rows, seed=3)
            for first in range(host * half, steps * BATCH, BATCH):
                np.testing.assert_array_equal(
                    order.take(first, half).ids, local.take(first, half).ids
                )
            here(rows)
            assert fetched(bucket).keys() == names(rows, in_order[: groups * pipeline.GROUP])

    # One machine continues alone, and back to rows that have passed, and far ahead.
    bucket.machine(tmp_path / "third")
    order = pipeline.Order(opened(), seed=3)
    for first in (2 * GROUP, 3 * EPOCH + 41, 0, EPOCH - 5):
        np.testing.assert_array_equal(order.take(first, BATCH).ids, local.take(first, BATCH).ids)


def test_each_source_of_a_mixture_has_its_own_groups(bucket):
    local = pipeline.Order(write(bucket, ([SHARD] * SHARDS, [3] * 40)), seed=1)
    rows = opened()
    order = pipeline.Order(rows, seed=1)
    for first in range(0, 2 * EPOCH, BATCH):
        np.testing.assert_array_equal(order.take(first, BATCH).ids, local.take(first, BATCH).ids)
        assert len(here(rows)) <= 5 * pipeline.GROUP < SHARDS + 40


def test_rows_of_a_folder_that_grew_while_it_was_prepared_are_removed_too(bucket):
    """With data.streaming=on, from the second start on."""
    whole = write(bucket).manifest
    seed = next(n for n in range(99) if 0 in pipeline.shuffled_shards(SHARDS, n, 0, 0)[:16])
    source = dataclasses.replace(
        whole.sources[0], shards=dict.fromkeys(records.SPLITS, ()), counts={"units": SHARDS}
    )
    plan = dataclasses.replace(whole, settings={"seed": seed}, sources=(source,))

    def order_of(folder):
        units = streaming.Units.of_whole(folder, SHARDS)
        there = staging.sizes(folder)
        rows = streaming.StreamedRecords(folder, plan, units, bucket_sizes=there)
        return rows, streaming.StreamedOrder(rows, seed)

    _, local = order_of(str(bucket.folder / "rows"))
    rows, order = order_of(opened().directory)
    for first in range(0, 2 * EPOCH, BATCH):
        np.testing.assert_array_equal(order.take(first, BATCH).ids, local.take(first, BATCH).ids)
        assert len(here(rows)) <= 2 * pipeline.GROUP + SHARDS % pipeline.GROUP


def test_what_is_not_whole_in_the_bucket_is_never_removed(bucket):
    """Rows that this machine has prepared, of which a file was not sent."""
    local = write(bucket)
    shutil.copytree(local.directory, staging.local(ROWS))
    kept = names(local, [0])
    (name,) = kept
    os.remove(os.path.join(records.split_directory(local.directory, "train"), f"{name}.marks"))

    rows = opened()
    order = pipeline.Order(rows, seed=0)
    for first in range(0, EPOCH, BATCH):
        order.take(first, BATCH)
        assert kept <= here(rows)
    assert len(here(rows)) < SHARDS
    assert not bucket.fetched.count(f"{name}.ids")


def test_rows_of_a_disk_are_never_removed(bucket):
    local = write(bucket)
    order = pipeline.Order(local, seed=0)
    for first in range(0, EPOCH, BATCH):
        order.take(first, BATCH)
    assert here(local) == names(local, range(SHARDS))
    pipeline.check_room([local])


def test_a_disk_that_is_too_small_is_refused_in_one_line(bucket, monkeypatch):
    write(bucket)
    rows = opened()
    needed = (2 * pipeline.GROUP * SHARD + 4 * AHEAD) * rows.bytes_per_row()
    assert staged_shards.room(rows, pipeline.GROUP) == needed

    usage = shutil.disk_usage(bucket.folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=needed))
    pipeline.check_room([rows])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=needed - 1))
    with pytest.raises(ValueError, match="^the rows of gs://lab/rows take up to ") as refusal:
        pipeline.check_room([rows])
    assert "set ELECTRA_JAX_CACHE to a folder on a larger disk" in str(refusal.value)
    assert "\n" not in str(refusal.value)

    pipeline.Order(rows, seed=0).take(0, 1)  # what is here already needs no more room
    here(rows)
    pipeline.check_room([rows])


def test_verifying_leaves_no_shards_here_that_were_not(bucket):
    write(bucket)
    rows = opened()
    pipeline.Order(rows, seed=0).take(0, 1)
    before = here(rows)
    assert records.verify(rows.directory) == 2 * (SHARDS + 1)
    assert here(rows) == before


def test_what_could_not_be_fetched_ahead_is_fetched_when_it_is_read(bucket, monkeypatch):
    local = pipeline.Order(write(bucket), seed=0)
    rows = opened()
    monkeypatch.setattr(buckets, "download", _away)
    staged_files.have_soon(path := next(iter(rows.shard_files("train", 0, 0))))
    with pytest.raises(OSError, match="away"):
        staged_files._fetches[path].result()
    monkeypatch.setattr(buckets, "download", bucket.download)
    np.testing.assert_array_equal(
        rows.read("train", 0, np.arange(3))[0], local._records.read("train", 0, np.arange(3))[0]
    )


def _away(*_):
    raise OSError("the bucket is away")


def test_four_threads_fetch_ahead_and_what_is_needed_now_does_not_wait_for_them(
    bucket, monkeypatch
):
    write(bucket)
    rows, go_on = opened(), threading.Event()
    files = [path for shard in range(SHARDS) for path in rows.shard_files("train", 0, shard)]
    download, main = buckets.download, threading.current_thread()

    def slow(address, path):
        assert threading.current_thread() is main or go_on.wait(60)
        download(address, path)

    monkeypatch.setattr(buckets, "download", slow)
    for path in files:
        staged_files.have_soon(path)
    assert sum(thread.name == "fetch" for thread in threading.enumerate()) == 4
    staged_files.have(files[-1])
    assert os.path.exists(files[-1])
    staged_files.drop(files[-2])  # which nobody has begun to fetch
    go_on.set()
    here(rows)
    assert [os.path.exists(path) for path in files[-3:]] == [True, False, True]
