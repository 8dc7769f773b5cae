# SPDX-License-Identifier: Apache-2.0
"""Whether a vocabulary and its normalisation fit a text.

    some text of a source, strip_accents  ->  refuse_lost_marks     vowels and tones that would go
                                          ->  lost_accents          letters that become others
    a vocabulary of a file                ->  refuse_unreachable    pieces that no text can produce
                                              is_cased              many pieces have capitals
    some text of a unit, a vocabulary     ->  unknown_characters    how many become [UNK]

Tokens do not tell the last one: a run of unknown characters, however long, is a single [UNK].
`totals.py` warns of it or refuses it, for each source.
"""

import collections
import functools
import itertools
import unicodedata
from collections.abc import Sequence

from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.data import vocabulary_codecs

# In these scripts readers do without the marks, or BERT's uncased models do, which strip them. In
# others they are vowels, tones and consonants: Thai, Devanagari, Burmese, Japanese, and many more.
_SPARED = ("LATIN", "GREEK", "CYRILLIC", "ARABIC", "HEBREW", "SYRIAC")
_LOST_REFUSED = 0.01  # of a source's characters
_WRITTEN = ("LATIN", "GREEK", "CYRILLIC")  # the spared scripts whose readers write the marks
_LOST_TOLD = 0.005  # of a source's characters; the foreign words of English text have fewer
_UNREACHABLE_REFUSED = 0.05  # of a vocabulary's pieces; BERT's uncased one has none
SAMPLE = 200_000  # characters of each source in which lost marks are counted
_LOOKED_AT = 20_000  # characters of each unit in which unknown ones are counted


def refuse_lost_marks(spec: str, lines: Sequence[str]) -> None:
    """Raises ValueError, one line, if stripping accents takes letters of this source's scripts."""
    characters = lost = 0
    for line in lines:
        characters += len(line)
        if not line.isascii():
            lost += _lost_marks(line)
    if characters and lost > _LOST_REFUSED * characters:
        raise ValueError(
            f"data.strip_accents=True would take {lost / characters:.0%} of the characters of"
            f" {spec}: signs of vowels, tones or consonants, as Thai, Hindi and Japanese have them;"
            f" more than {_LOST_REFUSED:.0%} is refused: data.strip_accents=False"
        )


def lost_accents(spec: str, lines: Sequence[str]) -> str:
    """A warning, one line, if stripping accents changes many letters of this source; '' if not.

    BERT's uncased models strip them, but in many languages they tell words apart.
    """
    characters, lost = 0, collections.Counter()
    for line in lines:
        characters += len(line)
        if not line.isascii():
            composed = unicodedata.normalize("NFC", line)
            lost.update(letter.lower() for letter in composed if _has_written_accent(letter))
    if lost.total() <= _LOST_TOLD * characters:
        return ""

    shown = ", ".join(
        f"{letter} becomes {vocabulary_codecs.strip(letter)}" for letter, _ in lost.most_common(3)
    )
    return (
        f"data.strip_accents=True takes the accents of {lost.total() / characters:.1%} of the"
        f" characters of {spec} ({shown}); where they tell words apart, set"
        " data.strip_accents=False"
    )


@functools.cache
def _has_written_accent(character):
    if character.isascii() or not unicodedata.name(character, "").startswith(_WRITTEN):
        return False
    return vocabulary_codecs.strip(character) != character


def _lost_marks(line):
    """How many marks of a line stand on letters of scripts that cannot do without them."""
    lost, spared = 0, True
    for character in unicodedata.normalize("NFD", line):
        if unicodedata.category(character) == "Mn":
            lost += not spared
        else:
            spared = character.isascii() or _is_spared(character)
    return lost


@functools.cache
def _is_spared(character):
    return unicodedata.name(character, "").startswith(_SPARED) or not character.isalpha()


def refuse_unreachable(vocabulary: vocabulary_lib.Vocabulary, where: str) -> None:
    """Raises ValueError, one line, if the normalisation never produces many of the pieces.

    An example is a cased vocabulary with lower-cased text.
    """
    text = _of_text(vocabulary)
    losses = {}  # setting -> pieces that it makes unreachable
    if vocabulary.strip_accents and vocabulary.kind != "tokenizer_json":
        losses["strip_accents"] = [piece for piece in text if _has_accents(piece)]
    if vocabulary.lower_case and vocabulary.kind == "wordpiece":
        losses["lower_case"] = _with_capitals(text)

    for setting, pieces in losses.items():
        if len(pieces) > _UNREACHABLE_REFUSED * len(text):
            raise ValueError(
                f"{len(pieces) / len(text):.0%} of the pieces of {where}, as {pieces[0]!r}, never"
                f" occur with data.{setting}=True; more than {_UNREACHABLE_REFUSED:.0%} is refused:"
                f" data.{setting}=False"
            )


def is_cased(vocabulary: vocabulary_lib.Vocabulary) -> bool:
    """Whether a vocabulary has so many pieces with capitals that it was made of cased text."""
    text = _of_text(vocabulary)
    return len(_with_capitals(text)) > _UNREACHABLE_REFUSED * len(text)


def _of_text(vocabulary):
    """The pieces that stand for text, without special and unused ones."""
    return [
        piece
        for number, piece in enumerate(vocabulary.pieces)
        if number not in (*vocabulary.special_ids, vocabulary.unk_id) and not piece.startswith("[")
    ]


def _with_capitals(pieces):
    return [piece for piece in pieces if piece != piece.lower()]


def _has_accents(piece):
    return unicodedata.normalize("NFD", piece) != vocabulary_codecs.strip(piece)


def unknown_characters(
    documents: Sequence[str], vocabulary: vocabulary_lib.Vocabulary
) -> tuple[int, int]:
    """(characters that were looked at, those of them behind [UNK]), without white space."""
    looked, unknown, lines = 0, 0, []
    for line in itertools.chain.from_iterable(document.split("\n") for document in documents):
        lines.append(line[: _LOOKED_AT - looked])
        looked += len(lines[-1])
        if looked >= _LOOKED_AT:
            break

    visible = sum(not character.isspace() for line in lines for character in line)
    for ids, spans in vocabulary.encode_with_offsets(lines):
        begin, end = spans[ids == vocabulary.unk_id].T
        unknown += int((end - begin).sum())
    return visible, unknown
