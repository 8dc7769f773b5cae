# SPDX-License-Identifier: Apache-2.0
"""Marks duplicate documents: each that is equal or similar to an earlier one, of any source.

Workers hash or sketch the documents of each unit; the main process compares them all and writes one
boolean per document for each unit. Of equal ones it sorts all hashes at once (75 bytes of memory
for each, of which the hash is 16). Of similar ones it sorts the keys of each band of the sketches,
which stay on the disk, and compares the sketches of those that share a key.
"""

import collections
import os
from collections.abc import Sequence

import numpy as np

from electra_jax.data import (
    executors,
    planning,
    progress_lines,
    sketches,
    tokenising,
    unit_files,
)

_PAIRS = 60_000  # of sketches that are in memory at a time: 100 MB


def mark(
    tasks: Sequence[planning.UnitTask], workers: executors.Executor, phases: progress_lines.Phases
) -> None:
    """Writes .duplicates.npy for each unit, unless all of them exist."""
    if all(os.path.exists(unit_files.unit_path(task, unit_files.DUPLICATES)) for task in tasks):
        return

    todo = [
        task for task in tasks if not os.path.exists(unit_files.unit_path(task, unit_files.HASHES))
    ]
    sizes = {task.name: unit_files.text_bytes(task) for task in todo}
    done = [0]
    phases.begin("looking for duplicates", share=lambda: sum(done) / max(1, sum(sizes.values())))
    for task, _ in workers.each(hash_unit, todo):  # the results are in files
        done.append(sizes[task.name])

    paths = [unit_files.unit_path(task, unit_files.HASHES) for task in tasks]
    similarity = tasks[0].settings.duplicate_similarity
    if similarity == 1:
        duplicates = equal([np.load(path) for path in paths])
    else:
        duplicates = similar(_Files(paths), similarity)

    ends = np.cumsum([len(hashes) for hashes in _Files(paths)])
    for task, found in zip(tasks, np.split(duplicates, ends[:-1])):
        unit_files.save_array(unit_files.unit_path(task, unit_files.DUPLICATES), found)

    phases.tell(f"{duplicates.sum():,} of {len(duplicates):,} documents are duplicates")


def equal(hashes: Sequence[np.ndarray]) -> np.ndarray:
    """Which documents have the hash of an earlier one, [documents of all units] bool.

    Args:
      hashes: of each unit, [documents, 2] uint64.
    """
    whole = np.concatenate(hashes)

    # Equal hashes become neighbours; among them the earliest comes first and is kept.
    order = np.lexsort((np.arange(len(whole)), whole[:, 1], whole[:, 0]))
    same = (whole[order][1:] == whole[order][:-1]).all(1)
    found = np.zeros(len(whole), bool)
    found[order[1:][same]] = True
    return found


def similar(units: Sequence[np.ndarray], similarity: float) -> np.ndarray:
    """Which documents are this similar to an earlier one, [documents of all units] bool.

    Of documents that share a key, each is compared with the first of them and with the one before
    it, and not with all: of a text that stands in a million documents that would be too many. Equal
    ones are found in any case, since the first band is the whole sketch.

    Args:
      units: the sketches of each unit, [documents, 128] uint32.
      similarity: the least one, estimated as in `sketches.agreement`.
    """
    whole = _Stacked(units)
    found = np.zeros(len(whole), bool)
    for band in (slice(sketches.BINS), *sketches.bands(similarity)):
        key_N = np.concatenate([sketches.keys(unit[:, band]) for unit in units])
        for later, earlier in _neighbours(key_N):
            unknown = ~found[later]
            later, earlier = later[unknown], earlier[unknown]
            for start in range(0, len(later), _PAIRS):
                some, others = (x[start : start + _PAIRS] for x in (later, earlier))
                agreement = sketches.agreement(whole.rows(some), whole.rows(others))
                found[some[agreement >= similarity]] = True
    return found


def _neighbours(key_N):
    """Pairs of numbers with equal keys, as (later, earlier): each with the first, then with the
    one before it, of those that have its key."""
    order = np.argsort(key_N, kind="stable")  # so that equal keys stay in the order of documents
    new = np.append(True, key_N[order][1:] != key_N[order][:-1])
    begins = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    others = np.flatnonzero(~new)
    return (
        (order[others], order[begins[others]]),
        (order[others], order[others - 1]),
    )


class _Files(Sequence[np.ndarray]):
    """Arrays on the disk, each of which is mapped while it is read.

    A map keeps its file open, and many a system allows a process no more than 1,024.
    """

    def __init__(self, paths: Sequence[str]):
        self._paths = paths

    def __len__(self):
        return len(self._paths)

    def __getitem__(self, number):
        return np.load(self._paths[number], mmap_mode="r")


class _Stacked:
    """The rows of several arrays as if they were one, without a copy of them all."""

    def __init__(self, arrays: Sequence[np.ndarray]):
        self._arrays = arrays
        self._ends = np.cumsum([len(array) for array in arrays])

    def __len__(self):
        return int(self._ends[-1]) if len(self._ends) else 0

    def rows(self, numbers: np.ndarray) -> np.ndarray:
        """The rows with these numbers, in this order."""
        owner = np.searchsorted(self._ends, numbers, side="right")
        found = np.empty((len(numbers), sketches.BINS), np.uint32)
        for unit in np.unique(owner):
            here, array = owner == unit, self._arrays[unit]
            found[here] = array[numbers[here] - self._ends[unit] + len(array)]
        return found


def hash_unit(task: planning.UnitTask) -> None:
    """Writes .hashes.npy of one unit, hashes or sketches; runs in a worker process."""
    documents = unit_files.read_documents(task, collections.Counter())
    if task.settings.duplicate_similarity == 1:
        hashes = [tokenising.document_hash(document) for document in documents]
        found = np.array(hashes, np.uint64).reshape(-1, 2)
    else:
        found = np.array([sketches.of(document) for document in documents], np.uint32)
        found = found.reshape(-1, sketches.BINS)
    unit_files.save_array(unit_files.unit_path(task, unit_files.HASHES), found)
