# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of a prepared folder: loaded from a file, or made of a sample of the text.

make      once per folder, in the main process: loads, trains or extends, and saves a copy
sample    the text that it is made of
loaded    in each worker: that copy

vocabulary_fit.py checks that the vocabulary and the text fit each other.
"""

import collections
import functools
import hashlib
import itertools
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
    vocabulary_extension,
    vocabulary_fit,
    vocabulary_training,
)
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.host import safe_files

_SAMPLED_UNITS = 16  # the sample comes from at least so many units of a source, if it has them
# Repetitions at most of a source with too little text; more would fit pieces to a few words.
_REPEATED = 10
# Characters by which the sample may exceed what was asked for. The last document is taken whole
# up to here; it may be as long as its file.
_SAMPLED_TOO_MUCH = 1_000_000


def make(
    plan: planning.DataPlan,
    tasks: Sequence[planning.UnitTask],
    workers: executors.Executor,
    phases: progress_lines.Phases,
) -> vocabulary_lib.Vocabulary:
    """Returns the folder's vocabulary; loads or makes it, and saves it, unless this was done."""
    directory = os.path.join(plan.folder, records.VOCABULARY)
    settings = plan.settings

    if os.path.exists(directory):
        try:
            return vocabulary_lib.load(directory)
        except ValueError as error:
            phases.tell(f"the vocabulary is not whole and is made again: {error}")

    if not settings.vocab.startswith("train:"):
        vocabulary = planning.load_vocabulary(settings)
        vocabulary_fit.refuse_unreachable(vocabulary, settings.vocab)
        if settings.added_pieces:
            vocabulary = _extended(vocabulary, plan, tasks, workers, phases)
    else:
        kind, size = planning.trained_kind(settings.vocab)
        vocabulary = vocabulary_training.train(
            kind,
            size,
            _announced(plan, tasks, workers, phases),
            settings.lower_case,
            settings.strip_accents,
            settings.seed,
        )
        if vocabulary.size < size:
            phases.tell(
                f"warning: the text gives a {kind} vocabulary of {vocabulary.size:,} pieces, not of"
                f" the {size:,} of data.vocab={settings.vocab}"
            )

    vocabulary.save(directory)
    return vocabulary


@functools.lru_cache(maxsize=2)
def loaded(folder: str, sha256: str) -> vocabulary_lib.Vocabulary:
    """The folder's vocabulary, loaded once per process.

    The hash is part of the key of the cache: a folder that was made again may have another
    vocabulary. Raises ValueError, one line, if the file has another hash.
    """
    vocabulary = vocabulary_lib.load(os.path.join(folder, records.VOCABULARY))
    if vocabulary.sha256 != sha256:
        raise ValueError(f"the vocabulary in {folder} was changed while it was used; run again")
    return vocabulary


def _extended(vocabulary, plan, tasks, workers, phases):
    """The vocabulary with further pieces, found in a sample of the text; says what they save."""
    asked, read = plan.settings.added_pieces, [0.0]
    phases.begin(
        "reading",
        "reading text to find pieces that its vocabulary lacks",
        share=lambda: read[-1],
        more=downloads.so_far(tasks, workers),
    )
    lines = list(sample(plan, tasks, workers, read.append))
    phases.begin("training the vocabulary", f"choosing {asked:,} pieces to add")
    found = vocabulary_extension.extend(vocabulary, asked, lines)
    phases.tell(
        f"{found.added:,} pieces added to the {vocabulary.size:,} of {plan.settings.vocab}: a word"
        f" of the sample has {found.tokens_after:.2f} tokens, {found.tokens_before:.2f} before"
    )
    if found.added < asked:
        phases.tell(
            f"warning: the text gives only {found.added:,} pieces that save tokens, not the"
            f" {asked:,} of data.added_pieces"
        )
    return found.vocabulary


def _announced(plan, tasks, workers, phases):
    """Yields the sample; says when reading it begins, and when it is read and training begins.

    The trainers take all lines before they begin, so both phases can be told apart. After the last
    line it warns of accents that would be taken away, and raises ValueError, one line, if letters
    would be.
    """
    read, seen = [0.0], [[] for _ in plan.sources]
    phases.begin(
        "reading",
        "reading text to train a vocabulary on",
        share=lambda: read[-1],
        more=downloads.so_far(tasks, workers),
    )
    yield from sample(plan, tasks, workers, read.append, seen)
    if plan.settings.strip_accents:
        for source, lines in zip(plan.sources, seen, strict=True):
            vocabulary_fit.refuse_lost_marks(source.spec, lines)
            if warning := vocabulary_fit.lost_accents(source.spec, lines):
                phases.tell(f"warning: {warning}")

    # Neither of the two libraries reports its progress.
    kind, size = planning.trained_kind(plan.settings.vocab)
    phases.begin("training the vocabulary", f"training a {kind} vocabulary of {size:,} pieces")


def _keep(seen, lines):
    """Adds lines to those that were seen, until these are enough."""
    room = vocabulary_fit.SAMPLE - sum(map(len, seen))
    for line in lines:
        if room <= 0:
            return
        seen.append(line)
        room -= len(line)


def sample(
    plan: planning.DataPlan,
    tasks: Sequence[planning.UnitTask],
    workers: executors.Executor,
    reached: Callable[[float], Any] = lambda share: None,
    seen: Sequence[list[str]] | None = None,
) -> Iterator[str]:
    """Yields lines of training documents, about data.vocab_sample_characters characters in all.

    Each source gives its share of the mixture, by its weight or its size in bytes. The characters
    come in equal parts from several units, which are taken in the order of a hash of their names:
    text often differs between the beginning and the end of a source. Of several sources, one that
    has too little text is repeated, as it is in training.

    Args:
      reached: called with the share of the sample that has been read, from 0 to 1, after each unit.
      seen: a list for each source, to which its first lines are added.
    """
    sizes = [text.size(source) for source in plan.sources]
    shares = planning.mixture_shares(plan, sizes)
    read: list[list[str]] = [[] for _ in shares]

    for s, share in enumerate(shares):
        own = [task for task in tasks if task.source_index == s]
        wanted = int(share * plan.settings.vocab_sample_characters)
        for lines in _of_source(own, wanted, workers, _part_of(reached, sum(shares[:s]), share)):
            if seen is not None:
                _keep(seen[s], lines)
            if len(shares) == 1:  # nothing to wait for
                yield from lines
            else:
                read[s] += lines

    yield from mixed(read, shares)


def mixed(read: Sequence[Sequence[str]], shares: Sequence[float]) -> Iterator[str]:
    """Yields the lines of several sources, each repeated until its characters have its share.

    The source that has most for its share is not repeated, and others `_REPEATED` times at most.
    """
    counts = [sum(map(len, lines)) for lines in read]
    total = max(count / share for count, share in zip(counts, shares, strict=True))
    for lines, count, share in zip(read, counts, shares, strict=True):
        missing = min(share * total, _REPEATED * count)
        for line in itertools.cycle(lines) if count else ():
            if missing < 0.5:
                break
            yield line
            missing -= len(line)


def _part_of(reached, begin, share):
    """A function of the share of one source, from 0 to 1, that tells that of all sources."""
    return lambda own: reached(begin + share * own)


def _of_source(units, wanted, workers, reached):
    """Yields the lines of each unit that is read, about `wanted` characters in all."""
    so_far = _SourceRead(wanted, len(units))
    units = sorted(units, key=lambda task: hashlib.sha256(task.name.encode()).digest())

    # What a short unit lacks is asked of the next ones.
    while units and wanted > 0:
        asked, units = units[:_SAMPLED_UNITS], units[_SAMPLED_UNITS:]
        function = functools.partial(_sample_unit, characters=-(-wanted // len(asked)))
        found = {}
        for task, lines in workers.each(function, asked):
            found[task.name] = lines
            reached(so_far.add(lines))

        # In the order of the tasks, since workers finish in any order.
        for task in asked:
            yield found[task.name]
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
