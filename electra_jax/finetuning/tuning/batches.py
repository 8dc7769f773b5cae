# SPDX-License-Identifier: Apache-2.0
"""Rows of several lengths -> batches of few shapes.

    lengths of all rows -> buckets (32, 64, 128, ...) -> an order for each seed and epoch -> arrays

A batch has rows of one bucket, so short texts cost little and every shape is compiled once. What a
bucket has left over at the end of an epoch goes on into the next longer one, so an epoch of n rows
is ceil(n / batch) steps, and only its last batch may be padded with rows of weight 0. How many
batches a bucket gives depends on lengths alone; their order on the run and the epoch. So all seeds
meet the same shapes at the same steps, each with rows of its own, and can train in one program.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from electra_jax.finetuning.tuning import features

LENGTHS = (32, 64, 128, 256, 512)
LEAST_SHARE = 0.05  # of the rows: a bucket with fewer is not worth compiling


@dataclasses.dataclass(frozen=True)
class Rows:
    """What batches are made of: one entry a row in each."""

    ids: Sequence[np.ndarray]
    marks: Sequence[np.ndarray]
    labels: Mapping[str, Sequence]  # name -> a number or a vector a row, or a token's of each row

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each row."""
        return np.array([len(ids) for ids in self.ids], np.int64)


@dataclasses.dataclass(frozen=True)
class Piece:
    """The rows of one batch, by number; fewer than the batch has where it is padded."""

    length: int
    rows: np.ndarray


def buckets(
    lengths: np.ndarray, most: int, batch_size: int, allowed: Sequence[int] = LENGTHS
) -> tuple[int, ...]:
    """The lengths that rows are padded to, shortest first; the last one holds the longest row.

    `most` is the longest a row may be; `allowed` holds lengths below it that are worth a look.
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
) -> list[Piece]:
    """The batches of one epoch of one seed.

    Args:
      seed: of the order of the rows.
      shared_seed: of the order of the shapes, which all seeds of a run share.
      number: of the epoch.
    """
    order = np.random.default_rng((seed, number)).permutation(len(lengths))
    pieces = _filled(order, lengths, buckets, batch_size)
    shapes = np.random.default_rng((shared_seed, number, 1)).permutation(len(pieces))
    return [pieces[place] for place in shapes]


def in_order(lengths: np.ndarray, buckets: Sequence[int], batch_size: int) -> list[Piece]:
    """All rows once, short ones first, for evaluation."""
    return _filled(np.arange(len(lengths)), lengths, buckets, batch_size)


def steps(rows: int, batch_size: int, epochs: int) -> int:
    """How many batches so many epochs are."""
    return epochs * -(-rows // batch_size)


def tokens(pieces: Sequence[Piece], lengths: np.ndarray) -> int:
    """Real tokens of these batches."""
    return int(sum(lengths[piece.rows].sum() for piece in pieces))


def arrays(rows: Rows, piece: Piece, batch_size: int, pad_id: int) -> dict[str, np.ndarray]:
    """ids, marks [B, L], weight [B] (0 in padded rows) and the labels of one batch."""
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
    rows: Rows, pieces: Sequence[Piece], batch_size: int, pad_id: int
) -> dict[str, np.ndarray]:
    """The batches of several seeds side by side, [Z, B, ...]."""
    made = [arrays(rows, piece, batch_size, pad_id) for piece in pieces]
    return {name: np.stack([one[name] for one in made]) for name in made[0]}


def side_by_side(epochs: Sequence[Sequence[Piece]]) -> Iterator[tuple[Piece, ...]]:
    """The same step of every seed; their shapes are equal by construction."""
    return zip(*epochs, strict=True)


def _filled(order, lengths, buckets, batch_size):
    pieces, carried = [], order[:0]
    below = -1
    for length in buckets:
        mine = order[(lengths[order] > below) & (lengths[order] <= length)]
        queue = np.concatenate([carried, mine])
        full = len(queue) // batch_size * batch_size
        pieces += [
            Piece(length, queue[first : first + batch_size]) for first in range(0, full, batch_size)
        ]
        carried, below = queue[full:], length
    return pieces + ([Piece(buckets[-1], carried)] if len(carried) else [])


def _labels(name, values, piece, shape):
    """[B] of numbers, [B, C] of vectors of one length, [B, L] of what belongs to tokens."""
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
}  # labels with an entry a token -> what pads them
