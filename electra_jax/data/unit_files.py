# SPDX-License-Identifier: Apache-2.0
"""Files of one unit of text while its folder is being prepared, and the documents it reads.

All of them are in the subfolder `units` and begin with the unit's name (see planning.UnitTask):

    .documents.json     the documents, if the sample for the vocabulary has read all of them
    .hashes.npy         [documents, 2] uint64, their hashes            duplicates.py
                        or [documents, 128] uint32, their sketches
    .duplicates.npy     [documents] bool, True for duplicates          duplicates.py
    .unigram.npy        [3, n] the ids that occur, and their counts in train and held-out text
    .json               counts and shards; written last, so its presence means that the unit is done

Large files, which are cut into stripes, have folders of their own beside them, see stripes.py.
"""

import collections
import io
import json
import os
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from electra_jax.data import planning, records, segments, stripes
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.host import safe_files

UNITS = "units"  # subfolder of the prepared folder; removed when that is complete
DOCUMENTS = ".documents.json"
UNIGRAM, HASHES, DUPLICATES = ".unigram.npy", ".hashes.npy", ".duplicates.npy"
RESULT = ".json"  # written last
_NOTHING: Mapping[str, int] = types.MappingProxyType({})


def unit_path(task: planning.UnitTask, ending: str) -> str:
    """The path of a unit's file; see the endings above."""
    return os.path.join(task.folder, UNITS, task.name + ending)


def save_array(path: str, array: np.ndarray) -> None:
    """Writes a .npy file, either completely or not at all."""
    data = io.BytesIO()  # numpy's own write errors do not say that the disk is full
    np.save(data, array)
    safe_files.write(path, data.getvalue())


def text_bytes(task: planning.UnitTask) -> int:
    """The approximate size of a unit's text; at least 1."""
    path = unit_path(task, DOCUMENTS)
    return max(1, os.path.getsize(path) if os.path.exists(path) else task.unit.bytes)


def read_documents(
    task: planning.UnitTask, counts: collections.Counter, *, whole: bool = True
) -> Iterator[str]:
    """The documents of a unit, from .documents.json if it exists, else from the source.

    Adds to `counts` what the source counts while it is read (empty documents and so on).

    Args:
      whole: whether it is read to its end. If not, a large file is not read for all of its stripes
        first.
    """
    path = unit_path(task, DOCUMENTS)
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            kept, counted = json.load(file)
        counts.update(counted)
        return iter(kept)

    units = os.path.join(task.folder, UNITS)
    striped = stripes.documents(task, units, task.options, counts, write=whole)
    return task.unit.documents(task.options, counts) if striped is None else striped


def read_kept_documents(task: planning.UnitTask, counts: collections.Counter) -> Iterator[str]:
    """The documents of a unit, without duplicates if data.deduplicate is set."""
    documents = read_documents(task, counts)
    if not task.settings.deduplicate:
        return documents

    return _without(documents, np.load(unit_path(task, DUPLICATES)), counts)


def _without(documents, duplicates, counts):
    for document, duplicate in zip(documents, duplicates, strict=True):
        if duplicate:
            counts["duplicates"] += 1
        else:
            yield document


def finished(
    task: planning.UnitTask, bucket_sizes: Mapping[str, int] = _NOTHING
) -> dict[str, Any] | None:
    """The content of the unit's .json file, or None if the unit must be built (again).

    It must be built again if it was made with another vocabulary or another bound for held-out
    documents, or if one of its files is missing or has the wrong size. `bucket_sizes` has the bytes
    of files that are in a bucket, by their paths in the prepared folder.
    """
    result = finished_with_any_bound(task, bucket_sizes)
    return result if result and result["heldout_below"] == task.heldout_below else None


def finished_with_any_bound(
    task: planning.UnitTask, bucket_sizes: Mapping[str, int] = _NOTHING
) -> dict[str, Any] | None:
    """The same as `finished`, but whichever bound for held-out documents the unit was made with."""
    try:
        with open(unit_path(task, RESULT), encoding="utf-8") as file:
            result = json.load(file)
    except FileNotFoundError:
        return None

    same = result["vocabulary"] == task.vocabulary
    whole = os.path.exists(unit_path(task, UNIGRAM)) and all(
        records.shards_are_whole(
            task.folder, split, found, task.settings.sequence_length, result["lanes"], bucket_sizes
        )
        for split, found in shards_of(result).items()
    )
    return result if same and whole else None


def shards_of(result: dict[str, Any]) -> dict[str, tuple[records.Shard, ...]]:
    """{split: shards} of a unit's result."""
    return {
        split: tuple(records.Shard(**shard) for shard in found)
        for split, found in result["shards"].items()
    }


def lanes_of(vocabulary: vocabulary_lib.Vocabulary) -> dict[str, str]:
    """The dtype of each lane of the records, for this vocabulary."""
    return {"ids": segments.ids_dtype(vocabulary.size).str, "marks": "|u1"}
