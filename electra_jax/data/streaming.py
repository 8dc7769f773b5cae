# SPDX-License-Identifier: Apache-2.0
"""Rows that are trained on while the rest of the text is still prepared (`data.streaming`).

    the plan of the preparation -> its number of units -> their order in the first epoch
    16 units at a time          -> rows shuffled within this group, as soon as it is prepared

The order of `pipeline.Order` needs the number of rows of every shard. This one needs the number of
units of text, which is known before any text is read, and the rows of the groups that come first.
It is otherwise the same order with a unit in place of a shard. Most units have exactly one shard of
training rows, and if all have, the rows come in the order of `pipeline.Order`, bit for bit.

Whether a unit was there already or has to be waited for changes no row. Nothing else that training
reads may depend on the rest of the text either, so held-out rows and the frequencies of ids are
those of the first group alone.
"""

import bisect
import functools
import threading
import types
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from electra_jax.data import pipeline, planning, records, staged_shards, unit_files
from electra_jax.data import vocabulary as vocabulary_lib

PLAN = records.STREAMING  # in the format of the manifest, without what only the whole text tells


class PreparationError(ValueError):
    """The text could not be prepared to its end; one line with the remedy."""


class Closed(Exception):
    """Nobody needs the rows any more that a thread waits for."""


def plan_manifest(
    plan: planning.DataPlan,
    tasks: Sequence[planning.UnitTask],
    vocabulary: vocabulary_lib.Vocabulary,
) -> records.Manifest:
    """What is known of a folder before its text is read; its hash stands for that of the rows.

    The key is made of the names, sizes and digests of the text.
    """
    (source,) = plan.sources
    nothing = {split: () for split in records.SPLITS}
    return records.Manifest(
        format_version=records.FORMAT_VERSION,
        key=plan.key,
        settings=planning.row_settings(plan.settings),
        lanes=unit_files.lanes_of(vocabulary),
        sequence_length=plan.settings.sequence_length,
        vocabulary=vocabulary.description(),
        sources=(
            records.RecordedSource(source.name, source.spec, 1.0, nothing, {"units": len(tasks)}),
        ),
        totals={},
        wasted_fraction=0.0,
        two_segment_fraction=0.0,
        unk_rate=0.0,
        unigram_entropy=0.0,
        duplicates_dropped=0,
        unigram_crc=0,
        seconds=0.0,
    )


def read_plan(folder: str) -> records.Manifest:
    """Reads streaming.json. Raises ValueError, one line, if it is missing or damaged."""
    return records.read_manifest(folder, PLAN)


def write_plan(folder: str, manifest: records.Manifest) -> None:
    """Writes streaming.json unless it is there already."""
    try:
        if read_plan(folder) == manifest:
            return
    except ValueError:
        pass
    records.write_manifest(folder, manifest, PLAN)


def units_in_order(manifest: records.Manifest) -> list[int]:
    """The numbers of all units in the order in which the first epoch needs them."""
    count = manifest.sources[0].counts["units"]
    return pipeline.shuffled_shards(count, manifest.settings["seed"], 0, 0).tolist()


class Units:
    """The shards of each unit, as soon as they are there. Several threads may use it."""

    def __init__(self, count: int):
        self._shards: list[dict[str, tuple[records.Shard, ...]] | None] = [None] * count
        self._error: PreparationError | None = None
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._shards)

    @classmethod
    def of_whole(cls, directory: str, count: int) -> "Units":
        """Those of a folder that was prepared to its end."""
        (source,) = records.read_manifest(directory).sources
        shards: list[dict[str, list[records.Shard]]] = [
            {split: [] for split in records.SPLITS} for _ in range(count)
        ]
        for split in records.SPLITS:
            for shard in source.shards[split]:
                unit, _, _ = shard.name.removeprefix(f"{source.name}-").partition("-")
                shards[int(unit)][split].append(shard)

        found = cls(count)
        for number, mine in enumerate(shards):
            found.came(number, {split: tuple(mine[split]) for split in records.SPLITS})
        return found

    def came(self, unit: int, shards: dict[str, tuple[records.Shard, ...]]) -> None:
        """A unit has been prepared."""
        with self._changed:
            self._shards[unit] = shards
            self._changed.notify_all()

    def failed(self, error: PreparationError) -> None:
        """No more units will come; who waits for one gets this error."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def wait(
        self, unit: int, is_closed: Callable[[], bool] = lambda: False
    ) -> dict[str, tuple[records.Shard, ...]]:
        """Returns {split: shards} of a unit; waits until it has been prepared.

        Raises PreparationError if it will not come, and Closed once `is_closed()` is true. Whoever
        makes it true must call `wake` afterwards.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._shards[unit] or self._error or is_closed())
            if is_closed():
                raise Closed
            if (found := self._shards[unit]) is None:
                raise self._error
            return found

    def training_rows(self) -> int | None:
        """The number of training rows of all units; None until the last of them has come."""
        with self._changed:
            if None in self._shards:
                return None
            return sum(shard.rows for found in self._shards if found for shard in found["train"])

    def wake(self) -> None:
        """Makes all waiting threads look whether they are closed."""
        with self._changed:
            self._changed.notify_all()


class StreamedRecords(records.Records):
    """The rows of a folder in the order of its units in the first epoch, as far as they are there.

    Held-out rows are those of the first group of units.
    """

    def __init__(
        self,
        directory: str,
        manifest: records.Manifest,
        units: Units,
        close: Callable[[], None] = lambda: None,
        bucket_sizes: Mapping[str, int] = types.MappingProxyType({}),
    ):
        """Waits until the first group is prepared.

        Args:
          directory: the folder.
          manifest: its plan.
          units: the shards of its units.
          close: called by `close`; ends the preparation.
          bucket_sizes: bytes of its files that are in a bucket, once all text is prepared.

        Raises PreparationError if the first group cannot be prepared, has no training row or has
        no held-out row.
        """
        super().__init__(directory, manifest, bucket_sizes)
        self._units, self._close = units, close
        self.order = units_in_order(manifest)
        self._shards: dict[str, list[records.Shard]] = {split: [] for split in records.SPLITS}
        self.ends = [0]  # of the training rows of each unit, in this order; grows as units come
        self._grow_lock = threading.Lock()

        first = self.order[: pipeline.GROUP]
        for unit in first:
            self._shards["heldout"] += units.wait(unit)["heldout"]
        self._count_rows("heldout")
        self.grow(len(first))
        self._first_rows = self.ends[-1]
        _refuse_one_sided(manifest, self._first_rows, self.rows("heldout", 0), len(first))

    def close(self) -> None:
        """Ends the preparation of rows that are still missing."""
        self._close()
        self._units.wake()

    def wake(self) -> None:
        """Makes all threads that wait for rows look whether they are closed."""
        self._units.wake()

    def grow(self, units: int, is_closed: Callable[[], bool] = lambda: False) -> np.ndarray:
        """Waits for the first units of the order; returns where their rows end [1 + units].

        Raises PreparationError or Closed, see `Units.wait`.
        """
        for place in range(len(self.ends) - 1, units):
            shards = self._units.wait(self.order[place], is_closed)["train"]
            with self._grow_lock:
                if place == len(self.ends) - 1:  # no other thread was faster
                    self._shards["train"] += shards
                    starts = self._starts["train", 0]
                    added = np.cumsum([shard.rows for shard in shards], dtype=np.int64)
                    # Not counted anew: of thousands of units that would take seconds.
                    self._starts["train", 0] = np.append(starts, starts[-1] + added)
                    self.ends.append(self.ends[-1] + sum(shard.rows for shard in shards))
        return np.asarray(self.ends[: units + 1])

    def rows(self, split: str, source_index: int) -> int:
        """The number of rows of a split. Waits for all training rows, but for no held-out ones."""
        if split == "train":
            self.grow(len(self._units))
        return super().rows(split, source_index)

    def rows_per_epoch(self) -> int | None:
        """The number of training rows; None as long as not all of them are prepared."""
        return self._units.training_rows()

    def unigram(self) -> np.ndarray:
        """How often each id occurs in train and in held-out text of the first group, [2, V]."""
        return self._unigram

    @functools.cached_property
    def _unigram(self):
        about = self.manifest.vocabulary
        counts_2V = np.zeros((2, about["size"]), np.int64)
        lengths = self._first_rows, super().rows("heldout", 0)
        for counts_V, split, count in zip(counts_2V, records.SPLITS, lengths, strict=True):
            for begin in range(0, count, 65_536):
                places = np.arange(begin, min(begin + 65_536, count))
                ids, _ = self.read(split, 0, places)
                counts_V += np.bincount(ids.ravel(), minlength=len(counts_V))
        counts_2V[:, [about[f"{name}_id"] for name in ("pad", "cls", "sep", "mask")]] = 0
        return counts_2V

    def _count_rows(self, split):
        rows = [shard.rows for shard in self._shards[split]]
        self._starts[split, 0] = np.cumsum([0, *rows])

    def _shard(self, split, source_index, shard):
        return self._shards[split][shard]


class StreamedOrder:
    """The endless sequence of training rows of one source, numbered from 0, as they come."""

    def __init__(self, rows: StreamedRecords, seed: int):
        self._rows = rows
        self._seed = seed
        self._closed = False
        self._count = len(rows.order)
        self._group = functools.lru_cache(maxsize=4)(self._shuffled_group)
        self._later = functools.lru_cache(maxsize=2)(self._order_later)
        self._shards = functools.lru_cache(maxsize=4)(self._shards_of_group)
        self._staged = staged_shards.StagedShards(rows)

    def take(self, first_row: int, count: int) -> pipeline.Rows:
        """Reads rows `first_row` to `first_row + count - 1`; waits until they are prepared.

        Raises PreparationError if they cannot be, and Closed after `close`.
        """
        self._staged.move(self, first_row, count)
        source_n, rows_n = self.numbers(first_row, count)
        ids, marks = self._rows.read("train", 0, rows_n)
        return pipeline.Rows(ids, marks, source_n)

    def numbers(self, first_row: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The sources [count] of the rows, all 0, and their numbers within the records [count]."""
        found, row, end = [], first_row, first_row + count
        while row < end:
            epoch, group, place = self._locate(row)
            rows = self._group(epoch, group)[place : place + end - row]
            found.append(rows)
            row += len(rows)
        return np.zeros(count, np.int32), np.concatenate(found)

    def close(self) -> None:
        """Ends a `take` that waits in another thread."""
        self._closed = True
        self._rows.wake()

    def spans(self, first_row: int, end_row: int) -> dict[int, tuple[int, int]]:
        """The rows from the first to the end, which are all of one source."""
        return {0: (first_row, end_row)}

    def shards_between(self, source: int, first: int, end: int) -> frozenset[int]:
        """The shards of all groups in which the rows first to end - 1 lie."""
        if end - first >= self._rows.rows("train", source):
            return frozenset(range(len(self._rows.shard_rows("train", source))))

        found, row = set(), first
        while row < end:
            epoch, group, place = self._locate(row)
            found |= self._shards(epoch, group)
            row += len(self._group(epoch, group)) - place
        return frozenset(found)

    def _shards_of_group(self, epoch, group):
        shard_rows = self._rows.shard_rows("train", 0)
        places = np.searchsorted(np.cumsum(shard_rows), self._group(epoch, group), side="right")
        return frozenset(np.unique(places).tolist())

    def _locate(self, row):
        """(epoch, group, place within the group) of a row. Waits until its unit is there."""
        ends = self._rows.ends
        while row >= ends[-1]:
            # Asked again once all are there: the last of them may have come in between.
            if len(ends) > self._count and row >= ends[-1]:
                return self._locate_later(row, ends[-1])
            self._ends_of_units((len(ends) - 1) // pipeline.GROUP * pipeline.GROUP + pipeline.GROUP)

        group = (bisect.bisect_right(ends, row) - 1) // pipeline.GROUP
        return 0, group, row - ends[group * pipeline.GROUP]

    def _locate_later(self, row, rows_per_epoch):
        epoch, place = divmod(row, rows_per_epoch)
        _, ends = self._later(epoch)
        group_ends = ends[_group_borders(self._count)]
        group = int(np.searchsorted(group_ends, place, side="right")) - 1
        return epoch, group, place - int(group_ends[group])

    def _ends_of_units(self, units):
        return self._rows.grow(min(units, self._count), lambda: self._closed)

    def _order_later(self, epoch):
        """(places of the units in the first epoch, where their rows end) in the order of another.

        Both [units], the ends with a zero before them.
        """
        place_of_unit = np.argsort(self._rows.order)
        places = place_of_unit[pipeline.shuffled_shards(self._count, self._seed, 0, epoch)]
        sizes = np.diff(self._ends_of_units(self._count))[places]
        return places, np.cumsum([0, *sizes])

    def _shuffled_group(self, epoch, group):
        """The numbers within the records of the rows of a group, shuffled."""
        first, end = _group_borders(self._count)[group : group + 2]
        places = np.arange(first, end) if epoch == 0 else self._later(epoch)[0][first:end]

        ends = self._ends_of_units(int(places.max()) + 1)
        rows = np.concatenate([np.arange(ends[place], ends[place + 1]) for place in places])

        size = len(rows)
        shuffled = pipeline.shuffled_places(
            np.arange(size), np.full(size, size), np.full(size, group), self._seed, 0,
            np.full(size, epoch),
        )  # fmt: skip
        return rows[shuffled]


def _group_borders(units):
    """The places at which groups of units begin, and the end of the last."""
    return np.minimum(np.arange(0, units + pipeline.GROUP, pipeline.GROUP), units)


def _refuse_one_sided(manifest, train, heldout, units):
    for rows, kind, remedy in ((train, "training", "lower"), (heldout, "held-out", "raise")):
        if not rows:
            raise PreparationError(
                f"the first {units} units of {manifest.sources[0].spec}, with which"
                f" data.streaming=on begins, have no {kind} row; {remedy} data.heldout_fraction, or"
                " set data.streaming=off, with which all text is prepared first"
            )
