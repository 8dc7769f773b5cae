# SPDX-License-Identifier: Apache-2.0
"""Units of a prepared folder that is in a bucket, built by several processes.

Each process has a copy of the folder of its own (host/staging.py), so the files of a unit go
through the bucket:

    before       the vocabulary, and which documents are duplicates    from the copy that prepares
    build        a unit's shards and counts                            from the copy that builds it
    took         its counts, without its shards                        into the copy that prepares

So all that is finished is in the bucket, and after an interruption another machine continues with
it. If the folder is in no bucket, all see its files, and nothing is sent.
"""

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

from electra_jax.data import duplicates, planning, records, unit_files, unit_rows
from electra_jax.host import staging


def elsewhere(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns what does the same as one of our functions on tasks, but in another process."""
    return {unit_rows.build: build, duplicates.hash_unit: hash_unit}.get(function, function)


def before(function: Callable[[Any], Any], tasks: Sequence[planning.UnitTask]) -> None:
    """Sends what others need to do these tasks."""
    if function is not unit_rows.build or not tasks or not staging.address(tasks[0].folder):
        return

    folder = tasks[0].folder
    names = os.listdir(os.path.join(folder, records.VOCABULARY))
    staging.send(folder, [os.path.join(records.VOCABULARY, name) for name in names])
    if tasks[0].settings.deduplicate:
        names = [_name(task, unit_files.DUPLICATES) for task in tasks]
        # A unit that this process has built before has left its file in the bucket alone.
        staging.send(folder, [one for one in names if os.path.exists(os.path.join(folder, one))])


def build(task: planning.UnitTask) -> dict[str, Any]:
    """Builds a unit as `unit_rows.build` does, sends its files and keeps none of them."""
    if not staging.address(task.folder):
        return unit_rows.build(task)

    os.makedirs(os.path.join(task.folder, unit_files.UNITS), exist_ok=True)
    _have_vocabulary(task.folder, task.vocabulary)
    given = [_name(task, unit_files.DUPLICATES)] if task.settings.deduplicate else []
    staging.receive(task.folder, given)

    result = unit_rows.build(task)
    # The .json file is sent last: where it is, everything else of the unit is too.
    made = [*_shards(result), _name(task, unit_files.UNIGRAM), _name(task, unit_files.RESULT)]
    staging.send(task.folder, made)
    _remove(task.folder, [*given, *made])
    return result


def hash_unit(task: planning.UnitTask) -> None:
    """Hashes the documents of a unit as `duplicates.hash_unit` does, and sends the hashes."""
    os.makedirs(os.path.join(task.folder, unit_files.UNITS), exist_ok=True)
    duplicates.hash_unit(task)
    if staging.address(task.folder):
        staging.send(task.folder, [_name(task, unit_files.HASHES)])
        _remove(task.folder, [_name(task, unit_files.HASHES)])


def took(function: Callable[[Any], Any], task: planning.UnitTask, result: Any) -> None:
    """Fetches what the process that prepares needs of a task which another one has done."""
    if not staging.address(task.folder):
        return
    if function is duplicates.hash_unit:
        staging.receive(task.folder, [_name(task, unit_files.HASHES)])
    if function is unit_rows.build:
        staging.receive(
            task.folder, [_name(task, unit_files.UNIGRAM), _name(task, unit_files.RESULT)]
        )
        # A unit may have been built here before, with another bound for held-out documents.
        _remove(task.folder, _shards(result))


@functools.lru_cache(maxsize=2)
def _have_vocabulary(folder, sha256):
    """Fetches the vocabulary once per process; the hash is part of the key of the cache."""
    staging.fetch(folder, (records.VOCABULARY,))


def _name(task, ending):
    return os.path.join(unit_files.UNITS, task.name + ending)


def _shards(result):
    """The files of a unit's shards, relative to the prepared folder."""
    return [
        os.path.join("records", split, f"{shard.name}.{lane}")
        for split, found in unit_files.shards_of(result).items()
        for shard in found
        for lane in result["lanes"]
    ]


def _remove(folder, names):
    for name in names:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            os.remove(path)
