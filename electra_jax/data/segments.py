# SPDX-License-Identifier: Apache-2.0
"""Cuts documents, given as token ids, into rows of a fixed length, and marks their parts.

    text     one document, three lines:  the cat | sat down | no more
    pairs    [CLS] the cat [SEP] sat down [SEP]      segment A, then B, which follows A in the text
    packed   [CLS] the cat sat down no more [SEP] [CLS] another document [SEP]

A row is first a tuple of `Piece`s, which are views into the tokens of documents. `lay` writes many
rows into the two lanes that records.py stores:

    ids    [CLS]  the  cat  [SEP]  sat  down  [SEP]  [PAD]
    marks   D+W    W    W     W    B+W    W     W      0

    D start of a document, B start of segment B, W start of a word

`pairs` follows build_pretraining_dataset.py of google-research/electra, with three departures.
Tokens that do not fit go into the next row, where the reference drops them. B is everything that
follows A, where the reference may add a later short line to A. The short lengths are drawn for
each row anew. Like the reference, it takes each line for a sentence.
"""

import bisect
import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

DOCUMENT_START = 1  # bits of a mark; core/batch.py reads them
SEGMENT_B_START = 2
WORD_START = 4

SHORTEST_TARGET = 5  # tokens; the reference's lower end of a short row
OPEN_ROWS = 256  # maximum of unfinished rows in packing


@dataclasses.dataclass(frozen=True)
class Piece:
    """A stretch of one document: [CLS] A [SEP], or [CLS] A [SEP] B [SEP]."""

    tokens: np.ndarray  # of A, then of B, without special tokens
    a_length: int  # equal to len(tokens) if there is no B

    @property
    def length(self) -> int:
        """The number of tokens in a row, including special tokens."""
        return len(self.tokens) + (3 if self.a_length < len(self.tokens) else 2)


Row = tuple[Piece, ...]


def pairs(
    tokens: np.ndarray,
    line_lengths: Sequence[int],
    length: int,
    rng: np.random.Generator,
    single_segment_rate: float,
    short_row_rate: float,
) -> Iterator[Row]:
    """Cuts one document into rows of one or two segments; each token goes into exactly one row.

    Args:
      tokens: the ids of the document, one line after the other.
      line_lengths: tokens in each line; their sum is len(tokens).
      length: tokens in a row, including special tokens.
      rng: draws which rows are short, which have a single segment, and whether a line that does
        not fit into A still goes there.
      single_segment_rate: share of rows without segment B, although there would be text for it.
      short_row_rate: share of rows with a random shorter target length.
    """
    ends = np.cumsum(line_lengths).tolist()
    start, line = 0, 0

    while start < len(tokens):
        line = bisect.bisect_right(ends, start, line)  # skips lines that are used up or empty

        target = length
        if rng.random() < short_row_rate:
            target = int(rng.integers(SHORTEST_TARGET, length + 1))

        last = min(bisect.bisect_left(ends, start + target, line), len(ends) - 1)
        if rng.random() < single_segment_rate:
            middle = ends[last]
        else:
            middle = _end_of_a(ends, start, line, last, (target - 3) // 2, rng)

        # Lines may be longer than the row: A leaves room for 2 special tokens, A and B for 3.
        middle = min(middle, start + length - 2)
        stop = max(middle, min(ends[last], start + length - 3))
        yield (Piece(tokens[start:stop], middle - start),)
        start = stop


class Packer:
    """Packs several short documents into one row and cuts long ones over several rows.

    Full rows of a document are finished at once. Its rest goes into the open row that it fills
    best. The result depends only on the documents and their order.
    """

    def __init__(self, length: int, open_rows: int = OPEN_ROWS):
        self._length = length
        self._open_rows = open_rows
        self._rooms: list[tuple[int, int]] = []  # (free tokens, number of the row), sorted
        self._rows: dict[int, list[Piece]] = {}
        self._opened = 0

    def add(self, tokens: np.ndarray) -> Iterator[Row]:
        """Adds a document and yields the rows that are now finished."""
        room = self._length - 2

        for start in range(0, len(tokens), room):
            piece = Piece(tokens[start : start + room], min(room, len(tokens) - start))
            if piece.length == self._length:
                yield (piece,)
            else:
                yield from self._place(piece)

    def close(self) -> Iterator[Row]:
        """Yields the rows that are still open, the oldest first."""
        for number in sorted(self._rows):
            yield tuple(self._rows[number])

        self._rooms, self._rows = [], {}

    def _place(self, piece):
        """Adds a piece to an open row, or to a new one; yields rows that are finished by that."""
        at = bisect.bisect_left(self._rooms, (piece.length, -1))
        if at < len(self._rooms):
            room, number = self._rooms.pop(at)
        else:
            if len(self._rooms) == self._open_rows:
                yield tuple(self._rows.pop(self._rooms.pop(0)[1]))  # the fullest
            room, number = self._length, self._opened
            self._opened += 1
            self._rows[number] = []

        self._rows[number].append(piece)
        room -= piece.length

        if room < 3:  # too little for [CLS], a token and [SEP]
            yield tuple(self._rows.pop(number))
        else:
            bisect.insort(self._rooms, (room, number))


class Cutter:
    """Cuts documents, one after the other, into rows of either kind.

    All random numbers follow from `seeds`, so equal documents in equal order give equal rows.

    Args:
      kind: 'pairs' or 'packed'.
      length: tokens in a row, including special tokens.
      seeds: integers that identify the text, such as seed, source, unit and split.
      single_segment_rate: see `pairs`; packed rows use no random numbers.
      short_row_rate: see `pairs`.
    """

    def __init__(
        self,
        kind: str,
        length: int,
        seeds: Sequence[int],
        single_segment_rate: float,
        short_row_rate: float,
    ):
        self._length = length
        self._rates = single_segment_rate, short_row_rate
        self._rng = np.random.Generator(np.random.Philox(np.random.SeedSequence(seeds)))
        self._packer = Packer(length) if kind == "packed" else None

    def add(self, tokens: np.ndarray, line_lengths: Sequence[int]) -> Iterator[Row]:
        """Adds a document and yields the rows that are now finished."""
        if self._packer:
            return self._packer.add(tokens)

        return pairs(tokens, line_lengths, self._length, self._rng, *self._rates)

    def close(self) -> Iterator[Row]:
        """Yields the rows that are still open."""
        return self._packer.close() if self._packer else iter(())


@dataclasses.dataclass(frozen=True)
class Layout:
    """How `lay` writes rows: their length, the special ids and the mark of each id."""

    length: int
    pad_id: int
    cls_id: int
    sep_id: int
    marks_V: np.ndarray  # uint8
    dtype: np.dtype

    @classmethod
    def of(cls, vocabulary, length: int) -> "Layout":
        """The layout for a `vocabulary.Vocabulary`."""
        marks_V = np.where(vocabulary.starts_word_V, WORD_START, 0).astype(np.uint8)
        marks_V[list(vocabulary.special_ids)] = WORD_START
        marks_V[vocabulary.pad_id] = 0

        return cls(
            length=length,
            pad_id=vocabulary.pad_id,
            cls_id=vocabulary.cls_id,
            sep_id=vocabulary.sep_id,
            marks_V=marks_V,
            dtype=ids_dtype(vocabulary.size),
        )


def ids_dtype(vocabulary_size: int) -> np.dtype:
    """The dtype of ids on disk: uint16 if it holds every id, else uint32."""
    return np.dtype("<u2" if vocabulary_size <= 65_536 else "<u4")


def lay(rows: Sequence[Row], layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Writes rows into arrays, padded: (ids [rows, L], marks [rows, L] uint8)."""
    ids_BL = np.full((len(rows), layout.length), layout.pad_id, layout.dtype)
    starts_BL = np.zeros((len(rows), layout.length), np.uint8)

    for ids_L, starts_L, row in zip(ids_BL, starts_BL, rows):
        at = 0
        for piece in row:
            cut, end = at + 1 + piece.a_length, at + piece.length - 1
            ids_L[at] = layout.cls_id
            ids_L[at + 1 : cut] = piece.tokens[: piece.a_length]
            ids_L[cut] = ids_L[end] = layout.sep_id
            starts_L[at] = DOCUMENT_START

            # A piece may begin inside a word; in this row its first token starts the word.
            starts_L[at + 1] = WORD_START
            if cut < end:
                ids_L[cut + 1 : end] = piece.tokens[piece.a_length :]
                starts_L[cut + 1] = SEGMENT_B_START | WORD_START

            at = end + 1

    return ids_BL, layout.marks_V[ids_BL] | starts_BL


def _end_of_a(ends, start, line, last, goal, rng):
    """Where segment A ends, as an index into the document's tokens.

    A takes its first line completely, then further lines as long as it stays below `goal` tokens.
    A line that crosses the goal is also taken, with probability 1/2.
    """
    middle = ends[line]

    for end in ends[line + 1 : last + 1]:
        fits = end - start < goal

        if not fits and not (middle - start < goal and rng.random() < 0.5):
            break

        middle = end

    return middle
