# SPDX-License-Identifier: Apache-2.0
"""Which row comes when: batches as a pure function of the rows seen, and a thread that reads ahead.

    global row r  ->  source s and its n-th row      a fixed pattern of 4,096 places
    n             ->  epoch n // size, place i
    i             ->  row                            a seeded permutation that is never stored

The permutation has two levels, so that a host needs only a few files at a time: each epoch
shuffles the shards, takes them in groups of 16, and shuffles the rows inside a group with a
Feistel network, walking along its cycle until it lands inside the group (Black and Rogaway 2002).
Every row comes once an epoch. No state: resuming, seeking, other numbers of processes and
mixtures by weight need only the number of the first row. The numbers come from integer hashing
written out below, so they are the same under every version of every library.
"""

import collections
import dataclasses
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from electra_jax.data import records as records_lib

PATTERN = 4096  # rows in which a mixture's weights come out exactly
GROUP = 16  # shards whose rows are shuffled together
WINDOW = 8192  # rows of a source whose order is worked out at once
ROUNDS = 12  # with 8, permutations of five rows are visibly uneven


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows as the records hold them, and the source of each."""

    ids: np.ndarray  # [n, L] uint16 or uint32
    marks: np.ndarray  # [n, L] uint8
    source: np.ndarray  # [n] int32, index into manifest.sources


class Order:
    """The endless sequence of training rows."""

    def __init__(self, records: records_lib.Records, seed: int):
        self._records = records
        self._seed = seed
        sources = records.manifest.sources
        self._sizes = [records.rows("train", s) for s in range(len(sources))]
        counts = apportion([source.weight for source in sources], PATTERN)
        pattern = np.repeat(np.arange(len(sources)), counts)
        if len(sources) > 1:
            pattern = pattern[np.argsort(_hash(np.arange(PATTERN), seed, 0), kind="stable")]
        self._pattern = pattern.astype(np.int32)
        self._counts = np.bincount(pattern, minlength=len(sources))
        self._ranks = np.zeros(PATTERN, np.int64)  # how often its source came before in the pattern
        for s in range(len(sources)):
            self._ranks[pattern == s] = np.arange(self._counts[s])
        self._window = functools.lru_cache(maxsize=4 * len(sources))(self._order_window)

    @property
    def rows_per_epoch(self) -> int:
        """Training rows of all sources."""
        return sum(self._sizes)

    def epoch(self, rows_seen: int) -> float:
        """Passes over the data so far; with several sources, over as many rows as all have."""
        return rows_seen / self.rows_per_epoch

    def take(self, first_row: int, count: int) -> Rows:
        """Global rows first_row .. first_row + count - 1; a process asks for its own part."""
        source_n, rows_n = self.numbers(first_row, count)
        present = np.unique(source_n)
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

    def numbers(self, first_row: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The sources [count] of global rows and their row numbers within them [count]."""
        if first_row < 0 or count < 1:
            raise ValueError(f"rows {first_row}..+{count} asked for; both must be positive")
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

    def _order_window(self, source, window):
        """Row numbers of a source's places window * WINDOW .. + WINDOW - 1 [WINDOW]."""
        shard_rows = self._records.shard_rows("train", source)
        starts = np.cumsum(shard_rows) - shard_rows
        nth = np.arange(window * WINDOW, (window + 1) * WINDOW)
        epochs, places = np.divmod(nth, self._sizes[source])
        group_rows = np.empty(WINDOW, np.int64)  # of the group in which a place lies
        group_place = np.empty(WINDOW, np.int64)  # its place in there
        group_number = np.empty(WINDOW, np.int64)
        tables = {}
        for epoch in np.unique(epochs).tolist():
            here = slice(*np.searchsorted(epochs, (epoch, epoch + 1)))
            key = _hash(np.arange(len(shard_rows)), self._seed, 1, source, epoch)
            shards = np.argsort(key, kind="stable")
            ends = np.cumsum(shard_rows[shards])
            group_ends = ends[np.minimum(np.arange(GROUP, len(ends) + GROUP, GROUP), len(ends)) - 1]
            group_starts = np.concatenate([[0], group_ends[:-1]])
            group = np.searchsorted(group_ends, places[here], side="right")
            group_rows[here] = (group_ends - group_starts)[group]
            group_place[here] = places[here] - group_starts[group]
            group_number[here] = group
            tables[here.start, here.stop] = shards, ends, group_starts
        keys = _hash(group_number, self._seed, 2, source, epochs)
        shuffled = permute(group_place, group_rows, keys)
        rows = np.empty(WINDOW, np.int64)
        for (begin, end), (shards, ends, group_starts) in tables.items():
            here = slice(begin, end)
            place = group_starts[group_number[here]] + shuffled[here]
            nth_shard = np.searchsorted(ends, place, side="right")
            shard = shards[nth_shard]
            rows[here] = starts[shard] + place - (ends[nth_shard] - shard_rows[shard])
        return rows


def heldout(records: records_lib.Records, source_index: int, limit: int) -> Rows:
    """The first `limit` held-out rows of a source, in the order of the text, always the same."""
    count = min(limit, records.rows("heldout", source_index))
    ids, marks = records.read("heldout", source_index, np.arange(count))
    return Rows(ids, marks, np.full(count, source_index, np.int32))


class Prefetch:
    """Makes batches ahead in a thread: `next` gives make(first), make(first + 1), ...

    An error of the thread is raised by the `next` that would have had its batch.
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
            if error is None:  # an error stays: whoever asks again hears it again
                self._ready.popleft()
            self._changed.notify_all()
        if error is not None:
            raise error
        return batch

    def close(self) -> None:
        """Ends the thread and waits for it."""
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
            except BaseException as raised:  # handed to the consumer, whatever it is
                error = raised
            with self._changed:
                self._ready.append((batch, error))
                self._changed.notify_all()
            if error is not None:
                return
            step += 1


def apportion(weights: list[float], places: int) -> np.ndarray:
    """Whole numbers that sum to `places`, in proportion: largest remainder, nobody gets none."""
    if len(weights) > places:
        raise ValueError(f"{len(weights)} sources are more than {places}; join some of them")
    exact = np.asarray(weights, np.float64) / sum(weights) * places
    counts = np.floor(exact).astype(np.int64)
    ranking = np.argsort(counts - exact, kind="stable")
    counts[ranking[: places - counts.sum()]] += 1
    while not counts.all():
        counts[np.argmin(counts)] += 1
        counts[np.argmax(counts)] -= 1
    return counts


def permute(places: np.ndarray, sizes: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Place -> place, for each key a permutation of 0 .. size - 1. All [n]; keys uint64.

    An alternating Feistel network on the next power of two; what falls outside goes round again.
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
    one = np.uint64(1)
    low_mask = (one << low) - one
    high_mask = (one << (bits - low)) - one
    left, right = x >> low, x & low_mask
    for i in range(ROUNDS):
        keys = _mix(keys)  # a new one for each round, or the rounds would be alike
        if i % 2:
            right = right ^ (_mix(left ^ keys) & low_mask)
        else:
            left = left ^ (_mix(right ^ keys) & high_mask)
    return left << low | right


def _hash(numbers, *salts):
    """uint64 [n] from integers [n] and salts (integers, or arrays [n])."""
    x = np.asarray(numbers).astype(np.uint64)
    for salt in salts:
        x = _mix(x + np.atleast_1d(np.asarray(salt)).astype(np.uint64) + _GOLDEN)
    return x


_GOLDEN = np.array([0x9E3779B97F4A7C15], np.uint64)


def _mix(x):
    """The finisher of splitmix64 (Steele, Lea, Flood 2014)."""
    x = x + _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
