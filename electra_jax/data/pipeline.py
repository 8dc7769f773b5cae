# SPDX-License-Identifier: Apache-2.0
"""The order of training rows, as a pure function of their number; and a thread that reads ahead.

    global row r  ->  source s and its n-th row      a fixed pattern of 4,096 rows
    n             ->  epoch n // size, place i       i = n % size
    i             ->  row                            a seeded permutation that is never stored

The permutation has two levels, so that a host needs only a few files at a time. Each epoch shuffles
the shards, takes them in groups of 16, and shuffles the rows inside each group with a Feistel
network. The network permutes a power of two; a result outside the group goes through it again
until it is inside (cycle walking, Black and Rogaway 2002). Each row comes once per epoch.

There is no state: to resume, to seek, to change the number of processes, or to mix sources by
weight, only the number of the first row is needed. The random numbers are integer hashes that are
written out below, so they are the same with all versions of all libraries.
"""

import collections
import dataclasses
import functools
import threading
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np

from electra_jax.data import records as records_lib
from electra_jax.data import staged_shards

PATTERN = 4096  # rows; in each pattern, sources have their exact shares
GROUP = 16  # shards whose rows are shuffled together
WINDOW = 8192  # rows of a source whose order is computed at once
ROUNDS = 12  # of the Feistel network; with 8, permutations of five rows are visibly uneven


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows as stored in the records, with the source of each."""

    ids: np.ndarray  # [n, L] uint16 or uint32
    marks: np.ndarray  # [n, L] uint8
    source: np.ndarray  # [n] int32, index into manifest.sources


class Order:
    """The endless sequence of training rows, numbered from 0."""

    def __init__(self, records: records_lib.Records, seed: int):
        self._records = records
        self._seed = seed

        sources = records.manifest.sources
        self._sizes = [records.rows("train", s) for s in range(len(sources))]

        # The source of each row in a pattern, in a shuffled order.
        counts = apportion([source.weight for source in sources], PATTERN)
        pattern = np.repeat(np.arange(len(sources)), counts)
        if len(sources) > 1:
            pattern = pattern[np.argsort(_hash(np.arange(PATTERN), seed, 0), kind="stable")]
        self._pattern = pattern.astype(np.int32)

        # For each row of the pattern, how many rows before it are of the same source.
        self._counts = np.bincount(pattern, minlength=len(sources))
        self._ranks = np.zeros(PATTERN, np.int64)
        for s in range(len(sources)):
            self._ranks[pattern == s] = np.arange(self._counts[s])

        self._window = functools.lru_cache(maxsize=4 * len(sources))(self._order_window)
        self._groups = functools.lru_cache(maxsize=4 * len(sources))(self._groups_of)
        self._staged = staged_shards.StagedShards(records)

    def take(self, first_row: int, count: int) -> Rows:
        """Reads rows `first_row` to `first_row + count - 1`; each process reads its own part."""
        source_n, rows_n = self.numbers(first_row, count)
        present = np.unique(source_n)
        self._staged.move(self, first_row, count)

        if len(present) == 1:
            ids, marks = self._records.read("train", int(present[0]), rows_n)
            return Rows(ids, marks, source_n)

        ids = marks = None
        for s in present.tolist():
            places = source_n == s
            part_ids, part_marks = self._records.read("train", s, rows_n[places])
            if ids is None:
                ids = np.empty((count, part_ids.shape[1]), part_ids.dtype)
                marks = np.empty(ids.shape, part_marks.dtype)
            ids[places], marks[places] = part_ids, part_marks

        return Rows(ids, marks, source_n)

    def close(self) -> None:
        """Does nothing: all rows are prepared. Elsewhere it ends a `take` in another thread."""

    def numbers(self, first_row: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The sources [count] of the rows, and their numbers within these sources [count]."""
        if first_row < 0 or count < 1:
            raise ValueError(
                f"{count} rows from row {first_row} were asked for; give a count of 1 or more and a"
                " first row of 0 or more"
            )

        blocks, places = np.divmod(np.arange(first_row, first_row + count), PATTERN)
        source_n = self._pattern[places]
        nth = blocks * self._counts[source_n] + self._ranks[places]

        rows = np.empty(count, np.int64)
        for s in np.unique(source_n).tolist():
            mine = np.flatnonzero(source_n == s)
            windows, inside = np.divmod(nth[mine], WINDOW)
            for window in np.unique(windows).tolist():
                here = windows == window
                rows[mine[here]] = self._window(s, window)[inside[here]]

        return source_n, rows

    def spans(self, first_row: int, end_row: int) -> dict[int, tuple[int, int]]:
        """{source: (first, end)}, counted within the source, of rows first_row to end_row - 1."""
        begin, end = (self._taken_before(row) for row in (first_row, end_row))
        return {s: (int(begin[s]), int(end[s])) for s in np.flatnonzero(end > begin).tolist()}

    def shards_between(self, source: int, first: int, end: int) -> frozenset[int]:
        """The shards of all groups in which the rows first to end - 1 of a source lie."""
        size = self._sizes[source]
        if end - first >= size:
            return frozenset(range(len(self._records.shard_rows("train", source))))

        found = set()
        for epoch in range(first // size, (end - 1) // size + 1):
            shards, _, group_ends = self._groups(source, epoch)
            places = max(first - epoch * size, 0), min(end - epoch * size, size) - 1
            begin, last = np.searchsorted(group_ends, places, side="right")
            found.update(shards[begin * GROUP : (last + 1) * GROUP].tolist())
        return frozenset(found)

    def _taken_before(self, row):
        """How many rows of each source come before a row [sources]."""
        blocks, place = divmod(row, PATTERN)
        inside = np.bincount(self._pattern[:place], minlength=len(self._counts))
        return blocks * self._counts + inside

    def _groups_of(self, source, epoch):
        """The shards of a source in the order of an epoch, in groups of GROUP.

        Returns (shards [shards], where the rows of each end [shards], the rows of groups [groups]).
        """
        shard_rows = self._records.shard_rows("train", source)
        shards = shuffled_shards(len(shard_rows), self._seed, source, epoch)
        ends = np.cumsum(shard_rows[shards])
        lasts = np.minimum(np.arange(GROUP, len(ends) + GROUP, GROUP), len(ends)) - 1
        return shards, ends, ends[lasts]

    def _order_window(self, source, window):
        """The row numbers of one window of a source [WINDOW].

        A window is the n-th rows of the source, with n from window * WINDOW on; it may lie in
        several epochs and in several groups of shards.
        """
        shard_rows = self._records.shard_rows("train", source)
        starts = np.cumsum(shard_rows) - shard_rows

        nth = np.arange(window * WINDOW, (window + 1) * WINDOW)
        epochs, places = np.divmod(nth, self._sizes[source])

        # For each n: its group of shards, the group's size, and the place within the group.
        group_rows = np.empty(WINDOW, np.int64)
        group_place = np.empty(WINDOW, np.int64)
        group_number = np.empty(WINDOW, np.int64)
        tables = {}

        for epoch in np.unique(epochs).tolist():
            here = slice(*np.searchsorted(epochs, (epoch, epoch + 1)))

            shards, ends, group_ends = self._groups(source, epoch)
            group_starts = np.concatenate([[0], group_ends[:-1]])
            group = np.searchsorted(group_ends, places[here], side="right")

            group_rows[here] = (group_ends - group_starts)[group]
            group_place[here] = places[here] - group_starts[group]
            group_number[here] = group
            tables[here.start, here.stop] = shards, ends, group_starts

        # One call for all epochs: each group has its own key.
        shuffled = shuffled_places(
            group_place, group_rows, group_number, self._seed, source, epochs
        )

        # Shuffled place -> shard in the order of its epoch -> row number in the source.
        rows = np.empty(WINDOW, np.int64)
        for (begin, end), (shards, ends, group_starts) in tables.items():
            here = slice(begin, end)
            place = group_starts[group_number[here]] + shuffled[here]
            nth_shard = np.searchsorted(ends, place, side="right")
            shard = shards[nth_shard]
            rows[here] = starts[shard] + place - (ends[nth_shard] - shard_rows[shard])

        return rows


def check_room(rows_by_stage: Collection[records_lib.Records]) -> None:
    """Raises ValueError, one line, if the disk is too small for rows that come from a bucket.

    `rows_by_stage` are the rows of each stage of a run.
    """
    staged_shards.check_room(rows_by_stage, GROUP)


def heldout(records: records_lib.Records, source_index: int, limit: int) -> Rows:
    """Reads the first `limit` held-out rows of a source, in the order of the text."""
    count = min(limit, records.rows("heldout", source_index))
    ids, marks = records.read("heldout", source_index, np.arange(count))
    return Rows(ids, marks, np.full(count, source_index, np.int32))


class Prefetch:
    """Calls make(first), make(first + 1), ... ahead of time, in a thread; an iterator of results.

    At most `depth` results wait. If `make` raises an error, `next` raises it in place of that
    result, and again at each further call.
    """

    def __init__(self, make: Callable[[int], Any], first: int, depth: int = 2):
        self._make = make
        self._depth = depth
        self._ready: collections.deque[tuple[Any, BaseException | None]] = collections.deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, args=(first,), daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._closed)
            if self._closed:
                raise StopIteration

            batch, error = self._ready[0]
            if error is None:  # an error stays, so that each further call raises it, too
                self._ready.popleft()
            self._changed.notify_all()

        if error is not None:
            raise error

        return batch

    def is_ready(self, seconds: float) -> bool:
        """Waits at most so long; returns whether `next` has a result or an error by then."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._ready) or self._closed, seconds)

    def close(self) -> None:
        """Stops the thread and waits for its end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

        self._thread.join()
        self._ready.clear()

    def __enter__(self) -> "Prefetch":
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def _work(self, step):
        while True:
            with self._changed:
                self._changed.wait_for(lambda: len(self._ready) < self._depth or self._closed)
                if self._closed:
                    return

            batch = error = None
            try:
                batch = self._make(step)
            except BaseException as raised:  # of any kind; `next` raises it
                error = raised

            with self._changed:
                self._ready.append((batch, error))
                self._changed.notify_all()

            if error is not None:
                return
            step += 1


def apportion(weights: list[float], places: int) -> np.ndarray:
    """Divides `places` in proportion to the weights, into integers of at least one.

    Uses the method of the largest remainder.
    """
    if len(weights) > places:
        raise ValueError(f"{len(weights)} sources are more than {places}; join some of them")

    exact = np.asarray(weights, np.float64) / sum(weights) * places
    counts = np.floor(exact).astype(np.int64)
    ranking = np.argsort(counts - exact, kind="stable")
    counts[ranking[: places - counts.sum()]] += 1

    # A source without any place takes one from the source that has most.
    while not counts.all():
        counts[np.argmin(counts)] += 1
        counts[np.argmax(counts)] -= 1

    return counts


def shuffled_shards(count: int, seed: int, source: int, epoch: int) -> np.ndarray:
    """The numbers of a source's shards in the order of an epoch [count]."""
    return np.argsort(_hash(np.arange(count), seed, 1, source, epoch), kind="stable")


def shuffled_places(
    places: np.ndarray,
    sizes: np.ndarray,
    groups: np.ndarray,
    seed: int,
    source: int,
    epochs: np.ndarray,
) -> np.ndarray:
    """Maps each place within a group of shards to another one; a permutation of each group.

    Args:
      places: places within the groups [n].
      sizes: the number of rows of the group of each [n].
      groups: the number of the group of each [n].
      seed: that of the order.
      source: the number of the source that the groups belong to.
      epochs: the epoch of each [n].
    """
    return permute(places, sizes, _hash(groups, seed, 2, source, epochs))


def permute(places: np.ndarray, sizes: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Maps each place to another one; for each key this is a permutation of 0 .. size - 1.

    An alternating Feistel network permutes the next power of two. Results outside of the size go
    through it again. All arrays are [n]; keys are uint64.
    """
    bits = np.maximum(2, np.ceil(np.log2(np.maximum(2, sizes))).astype(np.uint64))
    bits += (np.left_shift(np.uint64(1), bits) < sizes.astype(np.uint64)).astype(np.uint64)
    low = bits >> np.uint64(1)

    result = places.astype(np.uint64)
    pending = np.arange(len(places))
    while len(pending):
        walked = _feistel(result[pending], low[pending], bits[pending], keys[pending])
        result[pending] = walked
        pending = pending[walked >= sizes[pending].astype(np.uint64)]

    return result.astype(np.int64)


def _feistel(x, low, bits, keys):
    """Permutes numbers of `bits` bits, of which the lower `low` form one half. All uint64 [n]."""
    one = np.uint64(1)
    low_mask = (one << low) - one
    high_mask = (one << (bits - low)) - one
    left, right = x >> low, x & low_mask

    for i in range(ROUNDS):
        keys = _mix(keys)  # a new key for each round, or all rounds would be the same
        if i % 2:
            right = right ^ (_mix(left ^ keys) & low_mask)
        else:
            left = left ^ (_mix(right ^ keys) & high_mask)

    return left << low | right


def _hash(numbers, *salts):
    """Hashes integers [n] with salts (integers, or arrays [n]) to uint64 [n]."""
    x = np.asarray(numbers).astype(np.uint64)
    for salt in salts:
        x = _mix(x + np.atleast_1d(np.asarray(salt)).astype(np.uint64) + _GOLDEN)
    return x


_GOLDEN = np.array([0x9E3779B97F4A7C15], np.uint64)


def _mix(x):
    """The mixing function of splitmix64 (Steele, Lea, Flood 2014)."""
    x = x + _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
