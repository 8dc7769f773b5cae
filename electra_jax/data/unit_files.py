# SPDX-License-Identifier: Apache-2.0
"""A unit of text while the folder is made: the documents it reads and the files it leaves."""

import io
import json
import os

import numpy as np

from electra_jax.data import records, segments, text
from electra_jax.host import safe_files

UNITS = "units"  # what finished units leave; removed at the end
DOCUMENTS = ".documents.json"


def unit_path(task, ending):
    return os.path.join(task.folder, UNITS, task.name + ending)


def save_array(path, array):
    data = io.BytesIO()  # numpy's own errors do not tell a full disk
    np.save(data, array)
    safe_files.write(path, data.getvalue())


def read_documents(task, counts):
    """The documents of a unit as its source has them, or as the sample left them."""
    path = unit_path(task, DOCUMENTS)
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            kept, counted = json.load(file)
        counts.update(counted)
        return iter(kept)
    s = task.settings
    options = text.Options(
        text_field=s.text_field,
        invalid_utf8=s.invalid_utf8,
        min_document_characters=s.min_document_characters,
    )
    return task.unit.documents(options, counts)


def read_kept_documents(task, counts):
    """Without those that came before, where duplicates are dropped."""
    documents = read_documents(task, counts)
    if not task.settings.deduplicate:
        return documents
    return _without(documents, np.load(unit_path(task, ".duplicates.npy")), counts)


def _without(documents, duplicates, counts):
    for document, duplicate in zip(documents, duplicates, strict=True):
        if duplicate:
            counts["duplicates"] += 1
        else:
            yield document


def finished(task):
    """What a finished unit has left, or None if it is to be done (again)."""
    try:
        with open(unit_path(task, ".json"), encoding="utf-8") as file:
            result = json.load(file)
    except FileNotFoundError:
        return None
    same = (result["vocabulary"], result["heldout_below"]) == (
        task.vocabulary,
        task.heldout_below,
    )
    whole = os.path.exists(unit_path(task, ".unigram.npy")) and all(
        records.shards_are_whole(
            task.folder, split, found, task.settings.sequence_length, result["lanes"]
        )
        for split, found in shards_of(result).items()
    )
    return result if same and whole else None


def shards_of(result):
    return {
        split: tuple(records.Shard(**shard) for shard in found)
        for split, found in result["shards"].items()
    }


def lanes_of(words):
    return {"ids": segments.ids_dtype(words.size).str, "marks": "|u1"}
