# SPDX-License-Identifier: Apache-2.0
"""Documents as token ids -> rows of one fixed length, with marks that tell their parts.

    text     one document, three lines:  the cat | sat down | no more
    pairs    [CLS] the cat [SEP] sat down [SEP]      A, then B, which follows A in the document
    packed   [CLS] the cat sat down no more [SEP] [CLS] another document [SEP]

A row is first a tuple of `Piece`s, views into the documents' tokens; `lay` writes many rows into
the two lanes that `records.py` stores:

    ids    [CLS]  the  cat  [SEP]  sat  down  [SEP]  [PAD]
    marks   D+W    W    W     W    B+W    W     W      0      D document, B segment B, W word start

`pairs` follows build_pretraining_dataset.py of google-research/electra but for three things: what
does not fit is carried into the next row where the reference throws it away; B is all that
follows A where the reference lets a later short line slip back into A; and the short lengths are
drawn for each row afresh. Like the reference, it knows a line as a sentence.
"""

import bisect
import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

DOCUMENT_START = 1  # bits of a mark; batch.py reads them
SEGMENT_B_START = 2
WORD_START = 4

SHORTEST_TARGET = 5  # tokens; the reference's lower end of a short row
OPEN_ROWS = 256  # packing keeps so many unfinished rows


@dataclasses.dataclass(frozen=True)
class Piece:
    """[CLS] A [SEP] or [CLS] A [SEP] B [SEP]: a stretch of a document, cut once or not at all."""

    tokens: np.ndarray
    a_length: int

    @property
    def length(self) -> int:
        """Places taken in a row, special tokens included."""
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
    """Cuts one document into rows of one or two segments; every token goes into exactly one.

    Args:
      tokens: the document's ids, its lines end to end.
      line_lengths: tokens in each line; their sum is len(tokens).
      length: places in a row.
      rng: draws the short rows, the single segments and the coin of a line that overlaps A's end.
      single_segment_rate: share of rows that get no segment B though there is text for one.
      short_row_rate: share of rows that aim at a random shorter length.
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
        middle = min(middle, start + length - 2)
        stop = max(middle, min(ends[last], start + length - 3))
        yield (Piece(tokens[start:stop], middle - start),)
        start = stop


class Packer:
    """Several short documents in a row, long ones cut over rows: best fit among open rows.

    A document's full rows leave at once; its rest goes where it leaves the least room. What comes
    out depends on the documents and their order alone.
    """

    def __init__(self, length: int, open_rows: int = OPEN_ROWS):
        self._length = length
        self._open_rows = open_rows
        self._rooms: list[tuple[int, int]] = []  # (room, number of the row), sorted
        self._rows: dict[int, list[Piece]] = {}
        self._opened = 0

    def add(self, tokens: np.ndarray) -> Iterator[Row]:
        """Takes a document in and gives the rows that are now finished."""
        room = self._length - 2
        for start in range(0, len(tokens), room):
            piece = Piece(tokens[start : start + room], min(room, len(tokens) - start))
            if piece.length == self._length:
                yield (piece,)
            else:
                yield from self._place(piece)

    def close(self) -> Iterator[Row]:
        """Gives the rows that are still open, the oldest first."""
        for number in sorted(self._rows):
            yield tuple(self._rows[number])
        self._rooms, self._rows = [], {}

    def _place(self, piece):
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
        if room < 3:  # no place for [CLS], a token and [SEP]
            yield tuple(self._rows.pop(number))
        else:
            bisect.insort(self._rooms, (room, number))


class Cutter:
    """Documents, one after the other, into rows of either kind.

    What is drawn follows from `seeds` alone, so equal documents in equal order give equal rows.

    Args:
      kind: `pairs` or `packed`.
      length: places in a row.
      seeds: whole numbers that name the stretch of text.
      single_segment_rate, short_row_rate: see `pairs`; packed rows draw nothing.
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
        """Takes a document in and gives the rows that are now finished."""
        if self._packer:
            return self._packer.add(tokens)
        return pairs(tokens, line_lengths, self._length, self._rng, *self._rates)

    def close(self) -> Iterator[Row]:
        """Gives the rows that are still open."""
        return self._packer.close() if self._packer else iter(())


@dataclasses.dataclass(frozen=True)
class Layout:
    """How rows are written: their length, the special ids and what each id's mark is."""

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
    """The narrowest type of the two that holds every id."""
    return np.dtype("<u2" if vocabulary_size <= 65_536 else "<u4")


def lay(rows: Sequence[Row], layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Rows -> ids [rows, L] and marks [rows, L] (uint8), padded."""
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
            # A stretch may begin inside a word: here that is where the word begins.
            starts_L[at + 1] = WORD_START
            if cut < end:
                ids_L[cut + 1 : end] = piece.tokens[piece.a_length :]
                starts_L[cut + 1] = SEGMENT_B_START | WORD_START
            at = end + 1
    return ids_BL, layout.marks_V[ids_BL] | starts_BL


def _end_of_a(ends, start, line, last, goal, rng):
    """A takes its first line whole, more while they fit, and by a coin one that overlaps."""
    middle = ends[line]
    for end in ends[line + 1 : last + 1]:
        fits = end - start < goal
        if not fits and not (middle - start < goal and rng.random() < 0.5):
            break
        middle = end
    return middle
