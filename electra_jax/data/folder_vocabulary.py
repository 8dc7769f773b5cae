# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of a prepared folder: loaded from a file, or trained on a sample of the text.

make      once per folder, in the main process: loads or trains, and saves a copy
loaded    in each worker: that copy
"""

import collections
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from electra_jax.data import (
    downloads,
    executors,
    planning,
    progress_lines,
    records,
    text,
    tokenising,
    unit_files,
    vocabulary,
    vocabulary_training,
)
from electra_jax.host import safe_files

_SAMPLED_UNITS = 16  # the sample comes from at least so many units of a source, if it has them
# Characters by which the sample may exceed what was asked for. The last document is taken whole
# up to here; it may be as long as its file.
_SAMPLED_TOO_MUCH = 1_000_000


def make(
    plan: planning.DataPlan,
    tasks: Sequence[planning.UnitTask],
    workers: executors.Executor,
    phases: progress_lines.Phases,
) -> vocabulary.Vocabulary:
    """Returns the folder's vocabulary; loads or trains it, and saves it, unless this was done."""
    directory = os.path.join(plan.folder, records.VOCABULARY)
    settings = plan.settings

    if os.path.exists(directory):
        try:
            return vocabulary.load(directory)
        except ValueError as error:
            phases.tell(f"the vocabulary is not whole and is made again: {error}")

    if not settings.vocab.startswith("train:"):
        words = planning.load_vocabulary(settings)
    else:
        kind, size = planning.trained_kind(settings.vocab)
        words = vocabulary_training.train(
            kind,
            size,
            _announced(plan, tasks, workers, phases),
            settings.lower_case,
            settings.strip_accents,
            settings.seed,
        )

    words.save(directory)
    return words


@functools.lru_cache(maxsize=2)
def loaded(folder: str, sha256: str) -> vocabulary.Vocabulary:
    """The folder's vocabulary, loaded once per process.

    The hash is part of the key of the cache: a folder that was made again may have another
    vocabulary. Raises ValueError, one line, if the file has another hash.
    """
    words = vocabulary.load(os.path.join(folder, records.VOCABULARY))
    if words.sha256 != sha256:
        raise ValueError(f"the vocabulary in {folder} was changed while it was used; run again")
    return words


def _announced(plan, tasks, workers, phases):
    """Yields the sample; says when reading it begins, and when it is read and training begins.

    The trainers take all lines before they begin, so both phases can be told apart although the
    lines are never all in memory at once here.
    """
    read = [0.0]
    phases.begin(
        "reading",
        "reading text to train a vocabulary on",
        share=lambda: read[-1],
        more=downloads.so_far(tasks, workers),
    )
    yield from sample(plan, tasks, workers, read.append)

    # How far the training is, neither of the two libraries tells.
    kind, size = planning.trained_kind(plan.settings.vocab)
    phases.begin("training the vocabulary", f"training a {kind} vocabulary of {size:,} pieces")


def sample(
    plan: planning.DataPlan,
    tasks: Sequence[planning.UnitTask],
    workers: executors.Executor,
    reached: Callable[[float], Any] = lambda share: None,
) -> Iterator[str]:
    """Yields lines of training documents, about data.vocab_sample_characters characters in all.

    Calls `reached` with the share of the sample that has been read, from 0 to 1, after each unit.

    Each source gives its share of the mixture, by its weight or its size in bytes. The characters
    come in equal parts from several units, which are taken in the order of a hash of their names:
    text often differs between the beginning and the end of a source.
    """
    sizes = [text.size(source) for source in plan.sources]
    shares = planning.mixture_shares(plan, sizes)

    for s, share in enumerate(shares):
        wanted = int(share * plan.settings.vocab_sample_characters)
        units = [task for task in tasks if task.source_index == s]
        so_far = _SourceRead(wanted, len(units))
        units.sort(key=lambda task: hashlib.sha256(task.name.encode()).digest())

        # Units that end early leave something to ask of the next ones.
        while units and wanted > 0:
            asked, units = units[:_SAMPLED_UNITS], units[_SAMPLED_UNITS:]
            function = functools.partial(_sample_unit, characters=-(-wanted // len(asked)))
            found = {}
            for task, lines in workers.each(function, asked):
                found[task.name] = lines
                reached(sum(shares[:s]) + share * so_far.add(lines))

            # In the order of the tasks, since workers finish in any order.
            for task in asked:
                yield from found[task.name]
                wanted -= sum(map(len, found[task.name]))


class _SourceRead:
    """How much of its part of the sample was read from one source."""

    def __init__(self, wanted, units):
        self._wanted, self._units, self._characters, self._done = wanted, units, 0, 0

    def add(self, lines):
        """Counts the lines of one more unit; returns the share, from 0 to 1."""
        self._characters += sum(map(len, lines))
        self._done += 1
        # Reading ends with enough characters, or with the last unit.
        return min(1.0, max(self._characters / self._wanted, self._done / self._units))


def _sample_unit(task, characters):
    """Returns training lines from the beginning of a unit, until they have enough characters.

    If the unit was read to its end, its documents are saved and need not be read again.
    """
    kept, lines, counts = [], [], collections.Counter()

    for document in unit_files.read_documents(task, counts, whole=False):
        kept.append(document)
        if tokenising.document_hash(document)[0] >= task.heldout_below:
            for part in (
                part for line in document.split("\n") for part in tokenising.line_parts(line)
            ):
                lines.append(part)
                characters -= len(part)
                if characters <= -_SAMPLED_TOO_MUCH:
                    return lines

            characters -= document.count("\n")
            if characters <= 0:
                return lines

    safe_files.write(
        unit_files.unit_path(task, unit_files.DOCUMENTS), json.dumps([kept, counts]).encode()
    )
    return lines
