# SPDX-License-Identifier: Apache-2.0
"""CoNLL columns -> words with tags.

    -DOCSTART- -X- -X- O          left out
                                  a line of nothing but blanks ends a sentence
    en:Ann   B-PER                WikiANN writes its language before every word: taken off
    en:sleeps O

Columns are parted by tabs where the file has tabs, else by blanks.
"""

import re
from collections.abc import Iterator

from electra_jax.finetuning.tasks import examples, files, task

_PREFIX = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*:")
_DOCUMENT = "-DOCSTART-"


def read(
    path: str, source: task.Source, labelled: bool, where: str, report: examples.Report
) -> list[examples.Words]:
    """The sentences of a file, numbered from 0.

    Args:
      labelled: whether there must be tags; else a file of words alone will do.

    Raises ValueError, one line with file and line: a line with other columns, no sentence at all.
    """
    sentences = list(_sentences(path, source, labelled, where, report))
    if not sentences:
        raise ValueError(f"{path} holds no sentence; is it the right file?")
    prefix = _prefix(sentences)
    if prefix:
        report.note(f"{path}: {prefix!r} taken off every word")
    return [
        examples.Words(str(number), tuple(word.removeprefix(prefix) for word in words), tags)
        for number, (words, tags) in enumerate(sentences)
    ]


def _sentences(path, source, labelled, where, report) -> Iterator[tuple]:
    width = 0
    words, tags = [], []
    lines = files.lines(path, source.encoding)
    separator = "\t" if any("\t" in line.strip() for line in lines) else None
    for number, line in enumerate([*lines, ""], 1):
        if not line.strip():
            if words:
                yield tuple(words), tuple(tags) if tags else None
            words, tags = [], []
            continue
        # Blanks alone part columns: a word may be, or hold, a no-break space.
        cells = line.split(separator) if separator else [c for c in line.split(" ") if c]
        if cells[0] == _DOCUMENT:
            report.count(where, "document marks skipped")
            continue
        if not width:
            width = len(cells)
            _check(path, number, source, labelled, width)
        if len(cells) != width:
            raise ValueError(
                f"{path}:{number}: {len(cells)} columns where the first line has {width}; mend it"
            )
        words.append(cells[source.a])
        if width > 1 and source.label is not None:
            tags.append(cells[source.label].strip())


def _check(path, number, source, labelled, width):
    if labelled and width < 2:
        raise ValueError(f"{path}:{number}: a word without a tag; tabs or blanks part columns")
    for column in (source.a, source.label):
        if width > 1 and not (isinstance(column, int) and -width <= column < width):
            raise ValueError(f"{path}:{number}: no column {column!r}; there is 0 to {width - 1}")


def _prefix(sentences) -> str:
    """What all words begin with, as 'en:'; '' where they do not."""
    match = _PREFIX.match(sentences[0][0][0])
    prefix = match[0] if match else ""
    return prefix if all(w.startswith(prefix) for words, _ in sentences for w in words) else ""
