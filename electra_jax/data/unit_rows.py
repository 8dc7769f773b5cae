# SPDX-License-Identifier: Apache-2.0
"""Builds the rows of one unit of text and writes them as shards; runs in a worker process.

    documents -> token ids -> a writer per split -> rows -> shards
    counts of documents, rows and ids -> the unit's files, see unit_files.py

The files are the same in whichever process a unit is built.
"""

import collections
import dataclasses
import json
from typing import Any

import numpy as np

from electra_jax.data import (
    folder_vocabulary,
    planning,
    records,
    segments,
    shard_writer,
    tokenising,
    unit_files,
    vocabulary_fit,
)
from electra_jax.host import safe_files

_BATCH_ROWS = 2048  # per call of the shard writer
_COUNTS = (  # counted per unit, in addition to those of `_SplitWriter`
    "documents",
    "heldout_documents",
    "characters",
    "empty",
    "skipped_short",
    "duplicates",
    "invalid_utf8",
    "looked_at",  # characters in which unknown ones were counted
    "unknown",  # of them, those that became [UNK]
)


def build(task: planning.UnitTask) -> dict[str, Any]:
    """Writes the shards of one unit; returns what its .json file holds.

    Raises ValueError, one line, if the text cannot be read or the vocabulary is unusable.
    """
    vocabulary = folder_vocabulary.loaded(task.folder, task.vocabulary)
    counts = collections.Counter(dict.fromkeys(_COUNTS, 0))
    shards, counts_2V, extremes = _cut(task, vocabulary, counts)
    _check_counts(counts_2V, vocabulary)

    counts["tokens"], counts["heldout_tokens"] = counts_2V.sum(1).tolist()
    result = {
        "vocabulary": vocabulary.sha256,
        "lanes": unit_files.lanes_of(vocabulary),
        "heldout_below": task.heldout_below,
        "extremes": extremes,
        "counts": dict(sorted((name, int(number)) for name, number in counts.items())),
        "shards": {s: [dataclasses.asdict(x) for x in found] for s, found in shards.items()},
    }

    # The .json file is written last: where it exists, everything else of the unit does, too.
    present = np.flatnonzero(counts_2V.any(0))
    unit_files.save_array(
        unit_files.unit_path(task, unit_files.UNIGRAM), np.vstack([present, counts_2V[:, present]])
    )
    safe_files.write(unit_files.unit_path(task, unit_files.RESULT), json.dumps(result).encode())
    return result


def _cut(task, vocabulary, counts):
    """Cuts the documents of a unit into rows and writes them; adds to `counts`.

    Returns (shards of each split, how often each split has each id [2, V], [smallest, largest hash
    of a document], empty without documents).
    """
    writers = {split: _SplitWriter(task, split, vocabulary) for split in records.SPLITS}
    counts_2V, extremes = np.zeros((2, vocabulary.size), np.int64), []
    try:
        for documents in tokenising.batches(unit_files.read_kept_documents(task, counts)):
            if not counts["looked_at"]:
                counts["looked_at"], counts["unknown"] = vocabulary_fit.unknown_characters(
                    documents, vocabulary
                )
            for document, digest, ids, line_lengths in tokenising.encode(documents, vocabulary):
                if not len(ids):
                    counts["empty"] += 1
                    continue

                split = "heldout" if digest < task.heldout_below else "train"
                writers[split].add(ids, line_lengths)

                counts["documents"] += 1
                counts["heldout_documents"] += split == "heldout"
                counts["characters"] += len(document)
                extremes = [min([digest, *extremes]), max([digest, *extremes])]

            for split, counts_V in zip(records.SPLITS, counts_2V):
                counts_V += writers[split].count()
        shards = {split: writers[split].close() for split in records.SPLITS}
    finally:
        for writer in writers.values():
            writer.discard()

    for split, prefix in zip(records.SPLITS, ("", "heldout_")):
        for name, number in writers[split].counts.items():
            counts[prefix + name] = number
    return shards, counts_2V, extremes


class _SplitWriter:
    """Cuts the documents of one split of one unit into rows and writes them as shards.

    `counts` holds the numbers of rows, of padding tokens and of rows with two segments.
    """

    def __init__(self, task, split, vocabulary):
        s = task.settings

        # Random numbers depend on the unit and not on the process that builds it.
        seeds = [s.seed, task.source_index, task.unit_index, records.SPLITS.index(split)]
        self._cutter = segments.Cutter(
            s.rows, s.sequence_length, seeds, s.single_segment_rate, s.short_row_rate
        )
        self._layout = segments.Layout.of(vocabulary, s.sequence_length)
        self._writer = shard_writer.ShardWriter(
            records.split_directory(task.folder, split), task.name
        )

        self._rows = []  # not yet written
        self._ids = []  # of documents, not yet counted
        self._size = vocabulary.size
        self.counts = collections.Counter(rows=0, padding=0, two_segment_rows=0)

    def add(self, ids, line_lengths):
        """Adds a document: its ids [T] and the number of tokens in each line."""
        self._ids.append(ids)
        for row in self._cutter.add(ids, line_lengths):
            self._take(row)

    def count(self):
        """How often each id has occurred since the last call, [V]."""
        counts_V = np.bincount(np.concatenate(self._ids or [[]]).astype(np.int64))
        self._ids = []
        return np.pad(counts_V, (0, self._size - len(counts_V)))

    def close(self):
        """Writes the remaining rows and returns all shards."""
        for row in self._cutter.close():
            self._take(row)

        self._flush()
        return self._writer.close()

    def discard(self):
        """Removes unfinished files; does nothing after `close`."""
        self._writer.discard()

    def _take(self, row):
        self._rows.append(row)
        if len(self._rows) == _BATCH_ROWS:
            self._flush()

    def _flush(self):
        if self._rows:
            ids_BL, marks_BL = segments.lay(self._rows, self._layout)
            self._writer.write(ids_BL, marks_BL)

            self.counts["rows"] += len(ids_BL)
            self.counts["padding"] += int((ids_BL == self._layout.pad_id).sum())
            self.counts["two_segment_rows"] += int(
                ((marks_BL & segments.SEGMENT_B_START) > 0).any(1).sum()
            )

            self._rows = []


def _check_counts(counts_2V, vocabulary):
    """Raises ValueError, one line, if text has produced special tokens such as [MASK]."""
    found = [i for i in vocabulary.special_ids if counts_2V[:, i].any()]
    if found:
        raise ValueError(
            f"the vocabulary makes special tokens (ids {found}) out of plain text; train one with"
            " train:sentencepiece:SIZE"
        )
