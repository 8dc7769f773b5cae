# SPDX-License-Identifier: Apache-2.0
"""Reads CoNLL files, one word per line with its tag in another column, as sentences of words.

    -DOCSTART- -X- -X- O          skipped
                                  a blank line ends a sentence
    en:Ann   B-PER                WikiANN writes the language before every word: removed
    en:sleeps O

Columns are separated by tabs if the file contains tabs, otherwise by spaces.
"""

import re
from collections.abc import Iterator

from electra_jax.finetuning.tasks import examples, files, task

_PREFIX = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*:")
_DOCUMENT = "-DOCSTART-"


def read(
    path: str, source: task.SplitFiles, labelled: bool, where: str, report: examples.Report
) -> list[examples.TaggedExample]:
    """Returns the sentences of a file, numbered from 0.

    Args:
      labelled: whether tags are required; otherwise a file that holds only words is accepted.

    Raises ValueError with file and line if a line has another number of columns than the first
    one, and ValueError with the file if it holds no sentence.
    """
    sentences = list(_sentences(path, source, labelled, where, report))
    if not sentences:
        raise ValueError(f"{path} holds no sentence; is it the right file?")

    prefix = _shared_prefix(sentences)
    if prefix:
        report.note(f"{path}: {prefix!r} taken off every word")

    return [
        examples.TaggedExample(
            str(number), tuple(word.removeprefix(prefix) for word in words), tags
        )
        for number, (words, tags) in enumerate(sentences)
    ]


def _sentences(path, source, labelled, where, report) -> Iterator[tuple]:
    """Yields (words, tags) for each sentence; the tags are None if the file has one column."""
    width = 0
    words, tags = [], []
    lines = files.lines(path, source.encoding)
    separator = "\t" if any("\t" in line.strip() for line in lines) else None

    for number, line in enumerate([*lines, ""], 1):  # a blank line at the end closes the last one
        if not line.strip():
            if words:
                yield tuple(words), tuple(tags) if tags else None
            words, tags = [], []
            continue

        # Split at the space character only: a word may contain a no-break space.
        cells = line.split(separator) if separator else [c for c in line.split(" ") if c]
        if cells[0] == _DOCUMENT:
            report.count(where, "document marks skipped")
            continue

        if not width:
            width = len(cells)
            _check_columns(path, number, source, labelled, width)
        if len(cells) != width:
            raise ValueError(
                f"{path}:{number}: {len(cells)} columns where the first line has {width}; mend it"
            )

        words.append(cells[source.a])
        if width > 1 and source.label is not None:
            tags.append(cells[source.label].strip())


def _check_columns(path, number, source, labelled, width):
    if labelled and width < 2:
        raise ValueError(f"{path}:{number}: a word without a tag; tabs or blanks part columns")
    for column in (source.a, source.label):
        if width > 1 and not (isinstance(column, int) and -width <= column < width):
            raise ValueError(f"{path}:{number}: no column {column!r}; there is 0 to {width - 1}")
    if width > 1 and source.label is not None and (source.a - source.label) % width == 0:
        raise ValueError(
            f"{path}:{number}: column {source.a % width} would be the word and its tag; set label"
            " or text to another"
        )


def _shared_prefix(sentences) -> str:
    """Returns the prefix that all words share, such as 'en:', or '' if there is none."""
    match = _PREFIX.match(sentences[0][0][0])
    prefix = match[0] if match else ""
    return prefix if all(w.startswith(prefix) for words, _ in sentences for w in words) else ""
