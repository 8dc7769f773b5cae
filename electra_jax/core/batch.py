# SPDX-License-Identifier: Apache-2.0
"""What a batch is, and the letters that name the dimensions of arrays.

    B  rows in a batch          V  vocabulary, padded to a multiple of 128
    L  tokens in a row          E  embedding size
    N  chosen slots in a row    D  width of a network
    H  attention heads          K  size of one head
    F  feed-forward width       M  keys that a query may read: as many as L
    S  tokens of all rows, as one dimension
    C  classes of a task        R  rows of a split, in fine-tuning
    P  starts in a beam         T  ends in a beam, for each start
    Z  seeds that are fine-tuned side by side

The name of an array ends in its letters (`ids_BL`); a scalar has none. A file that needs other
letters, or these for something else, lists them at its top. Records hold two lanes, `ids` and
`marks`. Everything else that a network reads is computed from them on the device:

    ids       [CLS]  the  cat [SEP] sat  [SEP] [CLS]  no  [SEP] [PAD]
    marks      D+W    W    W    W   B+W    W    D+W    W    W     0      start of a document (D),
                                                                         segment B (B), word (W)
    types       0     0    0    0    1     1     0     0    0     0
    documents   1     1    1    1    1     1     2     2    2     0
    positions   0     1    2    3    4     5     0     1    2     3
"""

import dataclasses
from typing import Any

import jax
from jax import lax
from jax import numpy as jnp

DOCUMENT_START = 1  # bits of a mark, as data/segments.py writes them, which is free of jax
SEGMENT_B_START = 2
WORD_START = 4


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Batch:
    """Rows of token ids with the type, position and document of each token.

    All arrays are int32 unless a comment names another type.
    """

    ids_BL: jax.Array
    types_BL: jax.Array  # 0 in segment A, 1 in segment B
    positions_BL: jax.Array  # within the document
    documents_BL: jax.Array  # 1, 2, ... along a row; 0 is padding
    row_B: jax.Array  # uint32, the row's number in the run; its random keys derive from it
    # bool: the first token of a word, and [CLS], [SEP], [MASK]; never padding
    word_starts_BL: jax.Array

    @property
    def real_BL(self) -> jax.Array:
        """Bool [B, L]: True for tokens, False for padding."""
        return self.documents_BL > 0


def from_lanes(ids_BL: jax.Array, marks_BL: jax.Array, row_B: jax.Array, pad_id: int) -> Batch:
    """Computes types, positions and documents from ids and marks, as the records hold them."""
    ids_BL = ids_BL.astype(jnp.int32)
    marks_BL = marks_BL.astype(jnp.int32)

    starts_BL = (marks_BL & DOCUMENT_START) > 0
    place_BL = lax.broadcasted_iota(jnp.int32, ids_BL.shape, 1)
    start_place_BL = lax.cummax(jnp.where(starts_BL, place_BL, 0), axis=1)

    # -1 until the row's first segment B. A segment B of an earlier document does not count.
    b_starts_BL = (marks_BL & SEGMENT_B_START) > 0
    b_place_BL = lax.cummax(jnp.where(b_starts_BL, place_BL, -1), axis=1)

    real_BL = ids_BL != pad_id
    return Batch(
        ids_BL=ids_BL,
        types_BL=((b_place_BL >= start_place_BL) & real_BL).astype(jnp.int32),
        positions_BL=place_BL - start_place_BL,
        documents_BL=jnp.where(real_BL, jnp.cumsum(starts_BL, axis=1, dtype=jnp.int32), 0),
        row_B=row_B.astype(jnp.uint32),
        word_starts_BL=(marks_BL & WORD_START) > 0,
    )


def positions_in_documents(documents_BL: jax.Array) -> jax.Array:
    """The position of each token in its document, from document ids alone, int32 [B, L].

    Padding counts as one more document.

    documents  1 1 1 2 2 0 0
    positions  0 1 2 0 1 0 1
    """
    place_BL = lax.broadcasted_iota(jnp.int32, documents_BL.shape, 1)
    before_BL = jnp.pad(documents_BL[:, :-1], ((0, 0), (1, 0)), constant_values=-1)
    starts_BL = documents_BL != before_BL
    return place_BL - lax.cummax(jnp.where(starts_BL, place_BL, 0), axis=1)


def split(batch: Any, parts: int) -> Any:
    """Splits arrays [B, ...] into [parts, B / parts, ...]; part i holds rows i, i + parts, ...

    Neighbouring rows go to different parts, so that no row moves to another device.
    """
    return jax.tree.map(
        lambda x: x.reshape(x.shape[0] // parts, parts, *x.shape[1:]).swapaxes(0, 1), batch
    )
