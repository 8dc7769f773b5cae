# SPDX-License-Identifier: Apache-2.0
"""The words of running text, for tasks that tag words.

    Dr. A. Ng (51) didn't.   ->   Dr  .  A.  Ng  (  51  )  didn't  .
    東京に住む               ->   東  京  に  住  む

Texts with tags were cut into words by rules of their own, of which a file says nothing. These are
what most of them have in common: blanks part words, marks before and after a word are words
themselves, and of scripts without blanks each character is one, as in WikiANN.
"""

import re
import unicodedata
from typing import NamedTuple

from electra_jax.data import vocabulary_codecs

_BETWEEN_BLANKS = re.compile(r"\S+")
_INITIALS = re.compile(r"(?:[^\W\d_]\.)+")  # A. and U.S. keep their full stops


class Word(NamedTuple):
    """A word and its place: text[start:end]."""

    text: str
    start: int
    end: int


def words(text: str) -> list[Word]:
    """Returns the words of a text, in their order; a text of blanks has none."""
    return [
        Word(text[start:end], start, end)
        for found in _BETWEEN_BLANKS.finditer(text)
        for start, end in _cut(text, *found.span())
    ]


def _cut(text, start, end):
    """Yields the places of the words in a stretch without blanks."""
    for first, last, whole in _stretches(text, start, end):
        if whole:
            yield first, last
        else:
            yield from _without_marks(text, first, last)


def _stretches(text, start, end):
    """Yields (start, end, whether it is a word): characters of scripts without blanks, the rest."""
    begun = place = start
    while place < end:
        if not _without_blanks(text[place]):
            place += 1
            continue
        if begun < place:
            yield begun, place, False
        begun, place = place, place + 1
        while place < end and unicodedata.category(text[place]).startswith("M"):
            place += 1  # vowels and tones that stand above or below
        yield begun, place, True
        begun = place
    if begun < end:
        yield begun, end, False


def _without_marks(text, start, end):
    """Yields the marks before a word, the word, and the marks after it, each by its place."""
    first, last = start, end
    while first < last and _is_mark(text[first]):
        first += 1
    while first < last and _is_mark(text[last - 1]):
        last -= 1
    if last < end and _INITIALS.fullmatch(text, first, last + 1):
        last += 1
    yield from ((place, place + 1) for place in range(start, first))
    if first < last:
        yield first, last
    yield from ((place, place + 1) for place in range(last, end))


def _is_mark(character):
    """Whether it is punctuation or a symbol."""
    return unicodedata.category(character)[0] in "PS"


def _without_blanks(character):
    """Whether it is of a script that puts no blanks between words; marks of any script are not."""
    return not _is_mark(character) and any(
        low <= character <= high for low, high in vocabulary_codecs.WITHOUT_BLANKS
    )
