# SPDX-License-Identifier: Apache-2.0
"""Adds pieces to a vocab.txt: those that shorten a text most, found by training on that text.

    lines of the text -> a vocabulary of their own -> its pieces that the old one lacks
                                                   -> those that save most tokens, behind the old

The ids of the old pieces stay as they are, so weights keep their rows. With `init.new_tokens=mean`
a new piece begins as the mean of those that spelled it.
"""

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Set

import numpy as np

from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.data import vocabulary_training

_INSIDE = "##"  # begins a piece that does not begin a word


@dataclasses.dataclass(frozen=True)
class Extended:
    """A longer vocabulary, and what it does for the text that it was made of."""

    vocabulary: vocabulary_lib.Vocabulary
    added: int
    tokens_before: float  # per word of the text
    tokens_after: float


def extend(old: vocabulary_lib.Vocabulary, count: int, lines: Iterable[str]) -> Extended:
    """Returns a WordPiece vocabulary with at most `count` further pieces.

    Candidates are the pieces of a vocabulary that is trained on the lines. Each saves, as often as
    it occurs, the tokens that it takes with the old pieces, less one. A piece that the old ones
    cannot spell counts as if each of its characters were a token.

    Args:
      old: of kind 'wordpiece'.
      count: how many pieces are asked for; there are fewer if the text has no more that save any.
      lines: the text.

    Raises ValueError, one line, for no text.
    """
    lines = list(vocabulary_training.cleaned(lines))
    words = vocabulary_training.words_of(lines, old.lower_case, old.strip_accents)
    if not words:  # lines of accents, or of blanks without width
        raise vocabulary_training.no_text()
    # So many pieces that enough would be left if all the old ones were among them.
    least, most = vocabulary_training.SIZES
    size = min(max(old.size + count, least), most)
    own = vocabulary_training.train(
        "wordpiece", size, iter(lines), old.lower_case, old.strip_accents
    )

    known = set(old.pieces)
    special = {*own.special_ids, own.unk_id}
    candidates = [
        piece for n, piece in enumerate(own.pieces) if piece not in known and n not in special
    ]
    occurrences = _occurrences(_longer(old, candidates), words)
    saved = {
        piece: occurrences[piece] * (_tokens_of(piece, known) - 1)
        for piece in candidates
        if occurrences[piece]
    }
    best = sorted((piece for piece in saved if saved[piece] > 0), key=lambda p: (-saved[p], p))

    made = _longer(old, best[:count])
    return Extended(made, made.size - old.size, _per_word(old, words), _per_word(made, words))


def _longer(old, pieces):
    """The vocabulary with these pieces behind its own."""
    text = "\n".join([*old.pieces, *pieces]) + "\n"
    return vocabulary_lib.Vocabulary("wordpiece", text.encode(), old.lower_case, old.strip_accents)


def _occurrences(vocabulary, words: Mapping[str, int]) -> collections.Counter[str]:
    """How often each piece occurs in the text, by its words and their numbers."""
    counts_V = np.zeros(vocabulary.size, np.int64)
    for ids, count in zip(vocabulary.encode(list(words)), words.values(), strict=True):
        np.add.at(counts_V, ids, count)
    return collections.Counter(dict(zip(vocabulary.pieces, counts_V.tolist(), strict=True)))


def _tokens_of(piece: str, known: Set[str]) -> int:
    """How many tokens the old pieces take for this one, the longest first as WordPiece does."""
    prefix, text = (_INSIDE, piece[2:]) if piece.startswith(_INSIDE) else ("", piece)
    tokens, begin = 0, 0
    while begin < len(text):
        ends = (end for end in range(len(text), begin, -1) if prefix + text[begin:end] in known)
        end = next(ends, None)
        if end is None:
            return len(text) + 1
        tokens, begin, prefix = tokens + 1, end, _INSIDE
    return tokens


def _per_word(vocabulary, words):
    """Tokens per word of the text."""
    encoded = vocabulary.encode(list(words))
    tokens = sum(len(ids) * count for ids, count in zip(encoded, words.values(), strict=True))
    return tokens / words.total()
