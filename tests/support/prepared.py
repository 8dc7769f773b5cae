# SPDX-License-Identifier: Apache-2.0
"""Text that is prepared in the tests of tests/data: its words, settings, and what came out."""

import collections
import os
import pathlib

import numpy as np

from electra_jax.data import (
    folder_vocabulary,
    planning,
    preparation,
    records,
    vocabulary,
    worker_pool,
)
from support.corpus import text_settings

PIECES = "the cat a dog sees follows river house old young and then home ##s . ,".split()
LENGTH = 16  # tokens per row


def settings_for(folder, vocab, **changes):
    """How all files of a folder are prepared by one process, with these changes."""
    values = {"source": f"text:{folder}/*.txt", "heldout_fraction": 0.1, "workers": 1} | changes
    return text_settings(values.pop("source"), vocab, LENGTH, **values)


def prepare(settings, root):
    """Prepares without a word and opens the result."""
    return records.open(preparation.prepare(settings, str(root), lambda line: None))


def texts(opened, split, source=0):
    """The rows of a split as texts, A and B joined."""
    words = vocabulary.load(os.path.join(opened.directory, "vocab"))
    ids, _ = opened.read(split, source, np.arange(opened.rows(split, source)))
    return [words.decode(row.tolist()) for row in ids]


def words_of(folder):
    """How often each word occurs in the files."""
    text = " ".join(path.read_text() for path in pathlib.Path(folder).glob("*.txt"))
    return collections.Counter(text.split())


def sample(settings):
    """The lines that a vocabulary would be trained on."""
    plan = planning.make_plan(settings, settings.source[5:-6] + "/data")
    os.makedirs(os.path.join(plan.folder, "units"), exist_ok=True)
    with worker_pool.Workers(1) as workers:
        return list(folder_vocabulary.sample(plan, planning.make_tasks(plan), workers))
