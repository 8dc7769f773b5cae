# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of a prepared folder: the given one, or one trained on a sample of the text."""

import collections
import functools
import hashlib
import json
import os

from electra_jax.data import (
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

_SAMPLED_UNITS = 16  # at least so many units, where there are, make up the vocabulary's sample
_SAMPLED_TOO_MUCH = (
    1_000_000  # characters that the last document may add, which is a file or a line
)


def make(plan, tasks, workers, progress):
    """The folder's vocabulary: kept if it is there, else loaded or trained, and saved."""
    directory = os.path.join(plan.folder, records.VOCABULARY)
    settings = plan.settings
    if os.path.exists(directory):
        try:
            return vocabulary.load(directory)
        except ValueError as error:
            progress(f"the vocabulary is not whole and is made again: {error}")
    if not settings.vocab.startswith("train:"):
        words = planning.load_vocabulary(settings)
    else:
        kind, size = planning.trained_kind(settings.vocab)
        progress(f"training a {kind} vocabulary of {size:,} pieces")
        with progress_lines.repeated(
            progress, lambda s: f"still reading for it and training it, {s:,.0f} s"
        ):
            words = vocabulary_training.train(
                kind,
                size,
                sample(plan, tasks, workers),
                settings.lower_case,
                settings.strip_accents,
                settings.seed,
            )
    words.save(directory)
    return words


@functools.lru_cache(maxsize=2)
def loaded(folder, sha256):
    """The folder's vocabulary, loaded once a process; its hash tells it from an older one."""
    words = vocabulary.load(os.path.join(folder, records.VOCABULARY))
    if words.sha256 != sha256:
        raise ValueError(f"the vocabulary in {folder} was changed while it was used; run again")
    return words


def sample(plan, tasks, workers):
    """Lines of training documents, `vocab_sample_characters` of them in all.

    Each source gives its share. Its units come in an order that spreads over the source, and some
    of them share what is wanted: a file is seldom the same from its beginning to its end.
    """
    sizes = [text.size(source) for source in plan.sources]
    for s, share in enumerate(planning.mixture_shares(plan, sizes)):
        wanted = int(share * plan.settings.vocab_sample_characters)
        units = [task for task in tasks if task.source_index == s]
        units.sort(key=lambda task: hashlib.sha256(task.name.encode()).digest())
        while units and wanted > 0:
            asked, units = units[:_SAMPLED_UNITS], units[_SAMPLED_UNITS:]
            function = functools.partial(_sample_unit, characters=-(-wanted // len(asked)))
            found = {task.name: lines for task, lines in workers.each(function, asked)}
            for task in asked:
                yield from found[task.name]
                wanted -= sum(map(len, found[task.name]))


def _sample_unit(task, characters):
    """Lines from the beginning of a unit. A unit that was read to its end need not be again."""
    kept, lines, counts = [], [], collections.Counter()
    for document in unit_files.read_documents(task, counts):
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
