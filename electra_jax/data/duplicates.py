# SPDX-License-Identifier: Apache-2.0
"""Marks duplicate documents: each whose text occurs earlier, in the order of all sources.

Workers hash the documents of each unit; the main process sorts all hashes at once (75 bytes of
memory for each, of which the hash is 16) and writes one boolean per document for each unit.
"""

import collections
import os
from collections.abc import Sequence

import numpy as np

from electra_jax.data import executors, planning, progress_lines, tokenising, unit_files


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

    hashes = [np.load(unit_files.unit_path(task, unit_files.HASHES)) for task in tasks]
    whole = np.concatenate(hashes)

    # Equal hashes become neighbours; among them the earliest comes first and is kept.
    order = np.lexsort((np.arange(len(whole)), whole[:, 1], whole[:, 0]))
    same = (whole[order][1:] == whole[order][:-1]).all(1)
    duplicates = np.zeros(len(whole), bool)
    duplicates[order[1:][same]] = True

    for task, found in zip(tasks, np.split(duplicates, np.cumsum([len(h) for h in hashes])[:-1])):
        unit_files.save_array(unit_files.unit_path(task, unit_files.DUPLICATES), found)

    phases.tell(f"{duplicates.sum():,} of {len(duplicates):,} documents are duplicates")


def hash_unit(task: planning.UnitTask) -> None:
    """Writes .hashes.npy of one unit; runs in a worker process."""
    hashes = [
        tokenising.document_hash(document)
        for document in unit_files.read_documents(task, collections.Counter())
    ]
    unit_files.save_array(
        unit_files.unit_path(task, unit_files.HASHES), np.array(hashes, np.uint64).reshape(-1, 2)
    )
