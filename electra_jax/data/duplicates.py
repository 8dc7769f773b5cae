# SPDX-License-Identifier: Apache-2.0
"""Documents that came before in another place, marked for every unit."""

import collections
import os

import numpy as np

from electra_jax.data import tokenising, unit_files


def mark(tasks, workers, progress):
    """Leaves for each unit which of its documents came before, in the order of all sources."""
    if all(os.path.exists(unit_files.unit_path(task, ".duplicates.npy")) for task in tasks):
        return
    progress("looking for duplicates")
    todo = [task for task in tasks if not os.path.exists(unit_files.unit_path(task, ".hashes.npy"))]
    collections.deque(workers.each(_hash_unit, todo), maxlen=0)
    hashes = [np.load(unit_files.unit_path(task, ".hashes.npy")) for task in tasks]
    whole = np.concatenate(hashes)
    order = np.lexsort((np.arange(len(whole)), whole[:, 1], whole[:, 0]))
    same = (whole[order][1:] == whole[order][:-1]).all(1)
    duplicates = np.zeros(len(whole), bool)
    duplicates[order[1:][same]] = True
    for task, found in zip(tasks, np.split(duplicates, np.cumsum([len(h) for h in hashes])[:-1])):
        unit_files.save_array(unit_files.unit_path(task, ".duplicates.npy"), found)
    progress(f"{duplicates.sum():,} of {len(duplicates):,} documents are duplicates")


def _hash_unit(task):
    hashes = [
        tokenising.document_hash(document)
        for document in unit_files.read_documents(task, collections.Counter())
    ]
    unit_files.save_array(
        unit_files.unit_path(task, ".hashes.npy"), np.array(hashes, np.uint64).reshape(-1, 2)
    )
