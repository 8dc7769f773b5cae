# SPDX-License-Identifier: Apache-2.0
"""Which shards of rows in a bucket lie on this machine: those that are read now and soon.

    rows taken, and AHEAD rows after them   the shards of their groups are fetched
    AHEAD rows more to either side          the shards of their groups stay
    all other rows                          their shards are removed from this machine

What stays reaches further than what is fetched. Devices of one machine take the parts of a batch in
any order, and at the border of two groups no part may remove what another one has just fetched.
With shards of full size (65,536 rows) that are at most two groups, of 16 shards each, per source.

Only what is whole in the bucket is ever removed, never rows of a local folder. No other process is
concerned: each has copies of its own (host/staging.py).
"""

import os
import shutil
from collections.abc import Collection, Mapping
from typing import Protocol

import numpy as np

from electra_jax.data import records
from electra_jax.host import staged_files, staging, user_cache

AHEAD = 65_536  # rows of all sources together
_GIB = 2**30


class ShardLookup(Protocol):
    """What is asked of the order of the rows: where they lie."""

    def spans(self, first_row: int, end_row: int) -> Mapping[int, tuple[int, int]]:
        """{source: (first, end)}, counted within the source, of rows first_row to end_row - 1."""

    def shards_between(self, source: int, first: int, end: int) -> Collection[int]:
        """The shards of all groups in which the rows first to end - 1 of a source lie."""


class StagedShards:
    """Brings the training shards of a folder in a bucket here, and removes them again."""

    def __init__(self, rows: records.Records):
        self._rows = rows
        self._now: dict[int, tuple[frozenset[int], frozenset[int]]] = {}  # source -> (soon, kept)

    def move(self, order: ShardLookup, first_row: int, count: int) -> None:
        """Does what rows `first_row` to `first_row + count - 1`, which are taken now, ask for."""
        if not self._rows.bucket_sizes:
            return

        end_row = first_row + count
        soon = order.spans(first_row, end_row + AHEAD)
        kept = order.spans(max(0, first_row - AHEAD), end_row + 2 * AHEAD)
        for source, span in soon.items():
            now = (
                frozenset(order.shards_between(source, *span)),
                frozenset(order.shards_between(source, *kept[source])),
            )
            if self._now.get(source) != now:
                self._now[source] = now
                self._stage(source, *now)

    def _stage(self, source, soon, kept):
        """Removes most shards of a source from this machine, then begins to fetch some."""
        files = _in_bucket(self._rows, source)
        for shard in files.keys() - kept:
            self._rows.forget("train", source, shard)  # a mapped file still takes its room
            for path in files[shard]:
                staged_files.drop(path)
        for shard in sorted(files.keys() & soon):
            for path in files[shard]:
                staged_files.have_soon(path)


def room(rows: records.Records, group: int) -> int:
    """The largest number of bytes that the shards of a folder take on this machine at once.

    Args:
      rows: that are in a bucket.
      group: shards whose rows are shuffled together.
    """
    everything, borders = 0, 0
    for source in range(len(rows.manifest.sources)):
        everything += rows.rows("train", source)
        # The first and the last group reach beyond the rows that stay; those between do not.
        sizes = np.sort(rows.shard_rows("train", source))[::-1]
        borders += int(sizes[: 2 * group].sum())
    return min(everything, borders + 4 * AHEAD) * rows.bytes_per_row()


def check_room(rows_by_stage: Collection[records.Records], group: int) -> None:
    """Raises ValueError, one line, if the disk is too small for shards that come from a bucket.

    Args:
      rows_by_stage: the rows of each stage of a run.
      group: as in `room`.
    """
    in_bucket = list({rows.directory: rows for rows in rows_by_stage if rows.bucket_sizes}.values())
    if not in_bucket:
        return

    place = in_bucket[0].directory  # all are below one folder of copies
    needed = sum(room(rows, group) for rows in in_bucket)
    usable = shutil.disk_usage(place).free + sum(map(_bytes_here, in_bucket))
    if usable < needed:
        raise ValueError(
            f"the rows of {staging.place(place)} take up to {needed / _GIB:.2f} GiB at a time, and"
            f" {user_cache.folder()} has room for {usable / _GIB:.2f}; free some, or set"
            " ELECTRA_JAX_CACHE to a folder on a larger disk"
        )


def _in_bucket(rows, source):
    """{shard: its files} of the training shards that are whole in the bucket."""
    found = {}
    for shard in range(len(rows.shard_rows("train", source))):
        files = rows.shard_files("train", source, shard)
        sizes = (rows.bucket_sizes.get(os.path.relpath(path, rows.directory)) for path in files)
        if list(sizes) == list(files.values()):
            found[shard] = list(files)
    return found


def _bytes_here(rows):
    """The bytes of those shards that are on this machine."""
    return sum(
        os.path.getsize(path)
        for source in range(len(rows.manifest.sources))
        for files in _in_bucket(rows, source).values()
        for path in files
        if os.path.exists(path)
    )
