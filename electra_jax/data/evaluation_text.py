# SPDX-License-Identifier: Apache-2.0
"""Rows of any text, to evaluate a run on: read in order up to a limit, and kept in memory.

    'news=text:news/*.txt; builtin'  ->  sources       parse: the grammar of data.source, with names
    source, vocabulary               ->  Text          read: rows as preparation makes them, counts

Preparation splits text into training and held-out documents; here all documents are used. The limit
is in characters, not in rows, because rows of two vocabularies hold different amounts of text, and
every run should read the same text. The random numbers for cutting rows depend only on the position
in the text, not on the run's seed or the other sources, so runs with the same vocabulary and the
same kind of rows get the same rows.
"""

import collections
import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from electra_jax.data import (
    by_source,
    downloads,
    planning,
    records,
    segments,
    text,
    tokenising,
    utf8,
)
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.data.text_options import TextOptions

_SEED = 0  # as in the configurations, so the held-out text of a run gives that run's held-out rows
_LONGEST_WORD = 100  # characters; text without a blank in so many may be cut anywhere
_BATCH_ROWS = 2048  # per call of segments.lay
_PROGRESS_SECONDS = 10


@dataclasses.dataclass(frozen=True)
class Text:
    """The rows of one source, and the counts of the text in them."""

    name: str
    spec: str
    ids: np.ndarray  # [n, L] uint16 or uint32
    marks: np.ndarray  # [n, L] uint8
    counts_V: np.ndarray  # int64, how often each id occurs in the text, without special tokens
    documents: int
    words: int  # separated by white space
    characters: int  # with one blank between words, and none between documents
    invalid_utf8: int  # byte sequences that became U+FFFD
    whole: bool  # False if there is more text after the limit
    sha256: str  # of the documents; does not depend on the vocabulary


def parse(specs: str) -> tuple[text.Source, ...]:
    """Parses '[NAME=]SPEC; [NAME=]SPEC'. Raises ValueError, one line, for anything else."""
    for part in filter(None, map(str.strip, specs.split(";"))):
        if text.parse(part)[0].weight is not None:
            raise ValueError(
                f"{part!r} has a weight, which only training reads; leave the @ and the number out"
            )

    sources = text.parse(specs)
    if any(source.name == "all" for source in sources):
        raise ValueError("'all' is the column of all texts together; give yours another NAME=")
    return sources


def check(sources: tuple[text.Source, ...], text_field: str = "", documents: str = "") -> None:
    """Reads and downloads nothing.

    Args:
      text_field: as in `config.data`, for these sources; '' leaves it to the run.
      documents: likewise.

    Raises ValueError, one line, if a file does not exist, or a setting names no source.
    """
    names = [source.name for source in sources]
    for field, value, choices in (
        ("data.text_field", text_field, ()),
        ("data.documents", documents, text.DOCUMENTS),
    ):
        if value:
            by_source.check(field, value, names, choices)
    for source in sources:
        text.fingerprint(source)


def read(
    source: text.Source,
    settings: planning.DataSettings,
    vocabulary: vocabulary_lib.Vocabulary,
    limit: int,
    progress: Callable[[str], Any] = lambda line: None,
) -> Text:
    """Reads a source from its beginning up to the limit.

    Args:
      settings: those of the run; used are those of the rows, data.text_field and
        data.documents.
      vocabulary: that of the run.
      limit: maximum number of characters; the last document is cut at a blank. 0 means no limit.
      progress: called with a line every 10 seconds, and before a file is downloaded.

    Raises:
      ValueError: there is no text, or it is not UTF-8. One line.
    """
    counts: collections.Counter = collections.Counter()
    documents = _Documents(_options(settings, source), limit, counts)
    rows = _Rows(segments.Layout.of(vocabulary, settings.sequence_length))
    counts_V = _cut_rows(source, settings, vocabulary, documents, rows, progress)

    if not counts_V.any():
        _refuse_empty(source, documents, limit)
    # More of a file is decoded than its text up to the limit, so not all that is invalid is in it.
    invalid_utf8 = min(counts["invalid_utf8"], documents.replaced)
    _check_encoding(source, documents, invalid_utf8)

    ids_BL, marks_BL = rows.arrays()
    return Text(
        name=source.name,
        spec=source.spec,
        ids=ids_BL,
        marks=marks_BL,
        counts_V=counts_V,
        documents=documents.number,
        words=documents.words,
        characters=documents.characters,
        invalid_utf8=invalid_utf8,
        whole=not documents.full,
        sha256=documents.digest.hexdigest(),
    )


def _cut_rows(source, settings, vocabulary, documents, rows, progress):
    """Cuts `documents` into `rows`; returns how often each id occurs, [V]."""
    counts_V, reported = np.zeros(vocabulary.size, np.int64), time.monotonic()
    for number, unit in enumerate(text.units(source)):
        if line := downloads.about_to_come(unit):
            progress(f"{source.name}: {line}")

        cutter = _cutter(settings, number)
        for batch in tokenising.batches(documents.of(unit)):
            encoded = [found[2:] for found in tokenising.encode(batch, vocabulary)]
            for ids, line_lengths in encoded:
                rows.add(cutter.add(ids, line_lengths))
            every = np.concatenate([ids for ids, _ in encoded])
            counts_V += np.bincount(every, minlength=vocabulary.size)

            if time.monotonic() - reported > _PROGRESS_SECONDS:
                reported = time.monotonic()
                progress(f"{source.name}: {documents.characters:,} characters read")

        rows.add(cutter.close())
        if documents.full:
            break
    return counts_V


def _cutter(settings, number):
    """Cuts rows with the seeds of the held-out rows of a run's first source, see unit_rows.py."""
    return segments.Cutter(
        settings.rows,
        settings.sequence_length,
        [_SEED, 0, number, records.SPLITS.index("heldout")],
        settings.single_segment_rate,
        settings.short_row_rate,
    )


class _Rows:
    """Rows that are laid out as soon as there are `_BATCH_ROWS`, so that few wait as lists."""

    def __init__(self, layout):
        self._layout, self._waiting, self._laid = layout, [], []

    def add(self, rows):
        self._waiting += rows
        while len(self._waiting) >= _BATCH_ROWS:
            self._lay(_BATCH_ROWS)

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """All ids [n, L] and marks [n, L]."""
        if self._waiting:
            self._lay(len(self._waiting))
        ids_BL, marks_BL = map(np.concatenate, zip(*self._laid))
        return ids_BL, marks_BL

    def _lay(self, count):
        self._laid.append(segments.lay(self._waiting[:count], self._layout))
        del self._waiting[:count]


def _refuse_empty(source, documents, limit):
    where = f" in its first {limit:,} characters" if documents.full else ""
    raise ValueError(
        f"source {source.spec} has no text{where}; give it "
        + ("more of them" if documents.full else "another file")
    )


def _options(settings, source):
    """How the source is read. Raises ValueError if neither the run nor the caller says it."""
    fields = {
        name: by_source.of(getattr(settings, name), source.name)
        for name in ("text_field", "documents")
    }
    for name, value in fields.items():
        if not value:
            raise ValueError(
                f"the run reads its own sources by {name}={getattr(settings, name)!r}, which has no"
                f" value for the source {source.name!r}; set data.{name}"
            )
    return TextOptions(**fields)


def _check_encoding(source, documents, invalid_utf8):
    if invalid_utf8 > utf8.INVALID_SHARE * documents.characters:
        raise ValueError(
            f"source {source.spec} is not UTF-8: {invalid_utf8:,} places in"
            f" {documents.characters:,} characters cannot be read; {utf8.REMEDY}"
        )


class _Documents:
    """The documents of a source up to the limit, counted while they are read."""

    def __init__(self, options, limit, counts):
        self._options = options
        self._limit = limit or float("inf")
        self._counts = counts
        self.number = self.words = self.characters = 0
        self.replaced = 0  # characters U+FFFD, most of which stand for invalid bytes
        self.full = False  # True once text was left out
        self.digest = hashlib.sha256()

    def of(self, unit) -> Iterator[str]:
        """Yields the documents of one unit."""
        for document in unit.documents(self._options, self._counts):
            left = self._limit - self.characters
            if left < 1:
                self.full = True
                return

            if len(document) > left:
                document, shortened = _cut(document, int(left))
                self.full = shortened

            # Counts and hash do not depend on the kind of white space between words.
            found = document.split()
            plain = " ".join(found)
            if plain:
                self.number += 1
                self.words += len(found)
                self.characters += len(plain)
                self.replaced += plain.count("\ufffd")
                self.digest.update(plain.encode("utf-8", "surrogatepass") + b"\n")
                yield document

            if self.full:
                return


def _cut(document, room):
    """(the document cut between two words to at most `room` characters, True if it was cut)."""
    if len(" ".join(document.split())) <= room:  # several blanks count as one
        return document, False

    kept = document[: room + 1]
    blank = max(kept.rfind(blank) for blank in (" ", "\n", "\t"))
    if room - blank > _LONGEST_WORD:  # a language without blanks
        blank = room

    return kept[: max(blank, 0)], True
