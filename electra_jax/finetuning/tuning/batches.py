# SPDX-License-Identifier: Apache-2.0
"""Rows of several lengths -> batches of few shapes.

    lengths of all rows -> buckets (32, 64, 128, ...) -> an order per seed and epoch -> arrays

A bucket holds the rows that are padded to one length. All rows of a batch come from one bucket, so
short texts cost little, and each length is compiled once. Rows of a bucket that fill no whole batch
at the end of an epoch are moved to the next longer bucket. An epoch of n rows therefore has
ceil(n / batch) steps, and only its last batch may be padded, with rows of weight 0.

How many batches a bucket gives depends only on the lengths; the order of the batches depends only
on the run and the epoch. All seeds therefore see the same shapes at the same steps, each with rows
in an order of its own, and can train in one program.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from electra_jax.finetuning.tuning import features

LENGTHS = (32, 64, 128, 256, 512)
LEAST_SHARE = 0.05  # of all rows; a bucket with fewer rows is not worth a compilation


@dataclasses.dataclass(frozen=True)
class TaskRows:
    """The rows that batches are made of; every field has one entry per row."""

    ids: Sequence[np.ndarray]
    marks: Sequence[np.ndarray]
    labels: Mapping[str, Sequence]  # name -> per row a number, a vector, or one value per token

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens in each row."""
        return np.array([len(ids) for ids in self.ids], np.int64)


@dataclasses.dataclass(frozen=True)
class BatchPiece:
    """The numbers of the rows in one batch; fewer than the batch size if the batch is padded."""

    length: int
    rows: np.ndarray


def buckets(
    lengths: np.ndarray, most: int, batch_size: int, allowed: Sequence[int] = LENGTHS
) -> tuple[int, ...]:
    """The lengths that rows are padded to, shortest first; the last one fits the longest row.

    Args:
      most: the longest that a row may be.
      allowed: lengths to choose from, beside `most`.
    """
    longest = int(lengths.max(initial=1))
    top = min([n for n in (*allowed, most) if longest <= n <= most], default=most)

    found, below = [], 0
    for length in sorted(n for n in allowed if n < top):
        held = int(((lengths > below) & (lengths <= length)).sum())
        if held >= max(LEAST_SHARE * len(lengths), batch_size):
            found.append(length)
            below = length

    return (*found, top)


def epoch(
    lengths: np.ndarray,
    buckets: Sequence[int],
    batch_size: int,
    *,
    seed: int,
    shared_seed: int,
    number: int,
) -> list[BatchPiece]:
    """The batches of one epoch of one seed.

    Args:
      seed: decides the order of the rows.
      shared_seed: decides the order of the shapes; all seeds of a run share it.
      number: the epoch's number.
    """
    order = np.random.default_rng((seed, number)).permutation(len(lengths))
    pieces = _filled(order, lengths, buckets, batch_size)

    # The number of pieces and their lengths are equal for all seeds, so one order serves all.
    shapes = np.random.default_rng((shared_seed, number, 1)).permutation(len(pieces))
    return [pieces[place] for place in shapes]


def in_order(lengths: np.ndarray, buckets: Sequence[int], batch_size: int) -> list[BatchPiece]:
    """All rows once, short ones first; for evaluation."""
    return _filled(np.arange(len(lengths)), lengths, buckets, batch_size)


def steps(rows: int, batch_size: int, epochs: int) -> int:
    """The number of batches in this many epochs."""
    return epochs * -(-rows // batch_size)


def tokens(pieces: Sequence[BatchPiece], lengths: np.ndarray) -> int:
    """The number of tokens in these batches, padding not counted."""
    return int(sum(lengths[piece.rows].sum() for piece in pieces))


def places(pieces: Sequence[BatchPiece], batch_size: int) -> int:
    """The number of tokens that would fit these batches."""
    return sum(batch_size * piece.length for piece in pieces)


def arrays(
    rows: TaskRows, piece: BatchPiece, batch_size: int, pad_id: int
) -> dict[str, np.ndarray]:
    """One batch: ids and marks [B, L], weight [B] (0 in padded rows), and the labels."""
    shape = (batch_size, piece.length)
    made = {
        "ids": np.full(shape, pad_id, np.int32),
        "marks": np.zeros(shape, np.uint8),
        "weight": np.zeros(batch_size, np.float32),
    }
    made["weight"][: len(piece.rows)] = 1

    for place, row in enumerate(piece.rows):
        made["ids"][place, : len(rows.ids[row])] = rows.ids[row]
        made["marks"][place, : len(rows.marks[row])] = rows.marks[row]

    for name, values in rows.labels.items():
        made[name] = _labels(name, values, piece, shape)
    return made


def stacked(
    rows: TaskRows, pieces: Sequence[BatchPiece], batch_size: int, pad_id: int
) -> dict[str, np.ndarray]:
    """The batches of several seeds stacked, [Z, B, ...]."""
    made = [arrays(rows, piece, batch_size, pad_id) for piece in pieces]
    return {name: np.stack([one[name] for one in made]) for name in made[0]}


def side_by_side(epochs: Sequence[Sequence[BatchPiece]]) -> Iterator[tuple[BatchPiece, ...]]:
    """Step by step the batches of all seeds, which `epoch` gives the same shapes."""
    return zip(*epochs, strict=True)


def _filled(order, lengths, buckets, batch_size):
    """Full batches of each bucket. Rows left over go to the next longer bucket; in the longest they
    become one batch that is not full."""
    pieces, carried = [], order[:0]
    below = -1
    for length in buckets:
        mine = order[(lengths[order] > below) & (lengths[order] <= length)]
        queue = np.concatenate([carried, mine])
        full = len(queue) // batch_size * batch_size
        pieces += [
            BatchPiece(length, queue[first : first + batch_size])
            for first in range(0, full, batch_size)
        ]
        carried, below = queue[full:], length
    return pieces + ([BatchPiece(buckets[-1], carried)] if len(carried) else [])


def _labels(name, values, piece, shape):
    """Labels of one batch: [B] of numbers, [B, C] of vectors, [B, L] of values per token."""
    by_token = name in BY_TOKEN
    first = np.asarray(values[0])
    size = shape if by_token else (shape[0], *first.shape)
    made = np.full(size, BY_TOKEN.get(name, 0), first.dtype)

    for place, row in enumerate(piece.rows):
        value = values[row]
        if by_token:
            made[place, : len(value)] = value
        else:
            made[place] = value

    return made


BY_TOKEN = {
    "tags": features.NO_LABEL,
    "allowed": False,
}  # labels with one value per token -> the value that pads them
