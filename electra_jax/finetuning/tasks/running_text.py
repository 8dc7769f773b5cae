# SPDX-License-Identifier: Apache-2.0
"""The words of running text, for tasks that tag words.

    Dr. A. Ng (51) didn't.   ->   Dr  .  A.  Ng  (  51  )  didn't  .
    Ann's 東京に住む         ->   Ann  's  東  京  に  住  む

Texts with tags were cut into words by rules of their own, of which a file says nothing. These are
what many of them share: blanks part words; punctuation and symbols before and after a word, dashes
and ellipses also within, are words themselves; initials keep their full stops, but for a single one
that ends the text; and of scripts without blanks each character is a word. A mark or a joiner goes
with the character before it. Characters that only steer how text is shown are no part of a word.
"""

import re
import unicodedata
from typing import NamedTuple

from electra_jax.data import vocabulary_codecs

_BETWEEN_BLANKS = re.compile("[^\\s\u200b\ufeff]+")  # blanks of no width are blanks
_PARTS_WORDS = "\N{EM DASH}\N{HORIZONTAL BAR}\N{HORIZONTAL ELLIPSIS}"
_POSSESSIVE = "'s", "\N{RIGHT SINGLE QUOTATION MARK}s"
_JOINER = "\u200d"  # makes one sign of two, as in families
_SKIN_TONES = "\U0001f3fb", "\U0001f3ff"


class Word(NamedTuple):
    """A word and its place: text[start:end]."""

    text: str
    start: int
    end: int


def words(text: str) -> list[Word]:
    """Returns the words of a text, in their order; a text of blanks has none."""
    spans = [
        span
        for found in _BETWEEN_BLANKS.finditer(text)
        for stretch in _stretches(text, _signs(text, *found.span()))
        for span in _without_punctuation(text, stretch)
    ]
    trimmed = (_trimmed(text, *span) for span in spans)
    return [Word(text[start:end], start, end) for start, end in trimmed if start < end]


def _signs(text, start, end):
    """The places of the characters of a stretch, each with the marks and joiners behind it."""
    found: list[tuple[int, int]] = []
    for place in range(start, end):
        joined = found and (_goes_on(text[place]) or text[place - 1] == _JOINER)
        if joined:
            found[-1] = (found[-1][0], place + 1)
        else:
            found.append((place, place + 1))
    return found


def _goes_on(character):
    """Whether it belongs to the character before it: accents, vowels, joiners, tones of skin."""
    low, high = _SKIN_TONES
    return (
        unicodedata.category(character)[0] == "M"
        or _is_format(character)
        or (low <= character <= high)
    )


def _stretches(text, signs):
    """Yields signs in stretches: single ones that are words wherever they stand, and the rest."""
    begun = 0
    for number, (start, _) in enumerate(signs):
        if text[start] in _PARTS_WORDS or _is_letter_without_blanks(text[start]):
            yield from filter(None, (signs[begun:number], signs[number : number + 1]))
            begun = number + 1
    if begun < len(signs):
        yield signs[begun:]


def _without_punctuation(text, signs):
    """Yields the places of the signs before a word, of the word, and of the signs after it."""
    first, last = 0, len(signs)
    while first < last and _is_punctuation(text, signs[first]):
        first += 1
    while first < last and _is_punctuation(text, signs[last - 1]):
        last -= 1
    if _are_initials(text, signs[first : last + 1]):
        last += 1

    yield from signs[:first]
    if first < last:
        start, end = signs[first][0], signs[last - 1][1]
        # A possessive is a word of its own, as in the CoNLL sets.
        stem = end - 2 if text[start:end].endswith(_POSSESSIVE) else end
        yield start, stem
        if stem < end:
            yield stem, end
    yield from signs[last:]


def _are_initials(text, signs):
    """Whether letters and full stops alternate: A. and U.S., but not the I. that ends a text."""
    letters, stops = signs[::2], signs[1::2]
    if len(letters) != len(stops) or any(text[start:end] != "." for start, end in stops):
        return False
    # Only letters that have capitals are abbreviated so.
    if not all(text[start].lower() != text[start].upper() for start, _ in letters):
        return False
    return len(letters) > 1 or bool(letters and text[stops[-1][1] :].strip())


def _is_punctuation(text, sign):
    """Whether it is punctuation or a symbol."""
    return unicodedata.category(text[sign[0]])[0] in "PS"


def _is_letter_without_blanks(character):
    """Whether it is of a script that puts no blanks between words, and no punctuation of it."""
    is_letter = unicodedata.category(character)[0] not in "PS"
    return is_letter and vocabulary_codecs.without_blanks(character)


def _is_format(character):
    """Whether it only steers how text is shown, as marks of direction do."""
    return unicodedata.category(character) == "Cf"


def _trimmed(text, start, end):
    """The place without such characters at both ends."""
    while start < end and _is_format(text[start]):
        start += 1
    while start < end and _is_format(text[end - 1]):
        end -= 1
    return start, end
