# SPDX-License-Identifier: Apache-2.0
"""Two lanes tell everything about a row."""

import dataclasses

import jax
import numpy as np
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib

D, B, W = batch_lib.DOCUMENT_START, batch_lib.SEGMENT_B_START, batch_lib.WORD_START


def one_row(ids, marks):
    lanes = np.array([ids], np.uint16), np.array([marks], np.uint8)
    return batch_lib.from_lanes(*map(jnp.asarray, lanes), jnp.arange(1), pad_id=0)


def test_types_documents_and_positions_follow_from_the_marks():
    # [CLS] the cat [SEP] sat [SEP] [CLS] no [SEP] [PAD]
    row = one_row([2, 11, 12, 3, 13, 3, 2, 14, 3, 0], [D, 0, 0, 0, B, 0, D, 0, 0, 0])
    assert row.types_BL.tolist() == [[0, 0, 0, 0, 1, 1, 0, 0, 0, 0]]
    assert row.documents_BL.tolist() == [[1, 1, 1, 1, 1, 1, 2, 2, 2, 0]]
    assert row.positions_BL.tolist()[0][:9] == [0, 1, 2, 3, 4, 5, 0, 1, 2]
    assert row.real_BL.tolist() == [[True] * 9 + [False]]


def test_word_starts_change_nothing_else():
    ids = [2, 11, 12, 3, 13, 3]
    plain, words = one_row(ids, [D, 0, 0, 0, B, 0]), one_row(ids, [D, W, 0, 0, B | W, 0])
    assert words.word_starts_BL.tolist() == [[False, True, False, False, True, False]]
    words = dataclasses.replace(words, word_starts_BL=plain.word_starts_BL)
    assert jax.tree.map(lambda x: x.tolist(), plain) == jax.tree.map(lambda x: x.tolist(), words)


def test_segment_b_ends_with_its_document_and_can_come_again():
    row = one_row([2, 5, 3, 6, 3, 2, 7, 3, 8, 3], [D, 0, 0, B, 0, D, 0, 0, B, 0])
    assert row.types_BL.tolist() == [[0, 0, 0, 1, 1, 0, 0, 0, 1, 1]]


def test_padding_has_no_document_and_no_type():
    row = one_row([2, 5, 3, 6, 3, 0, 0], [D, 0, 0, B, 0, 0, 0])
    assert row.types_BL.tolist() == [[0, 0, 0, 1, 1, 0, 0]]
    assert row.documents_BL.tolist() == [[1, 1, 1, 1, 1, 0, 0]]
    nothing = one_row([0, 0, 0], [0, 0, 0])
    assert nothing.documents_BL.tolist() == [[0, 0, 0]]


def test_narrow_lanes_become_int32():
    row = one_row([2, 65535, 3], [D, 0, 0])
    assert row.ids_BL.tolist() == [[2, 65535, 3]]
    assert {x.dtype.name for x in jax.tree.leaves(row)} == {"int32", "uint32", "bool"}
    assert row.row_B.dtype == np.uint32


def test_split_deals_rows_like_cards():
    whole = batch_lib.from_lanes(
        jnp.arange(1, 7)[:, None], jnp.full((6, 1), D), jnp.arange(6), pad_id=0
    )
    parts = batch_lib.split(whole, 2)
    assert parts.row_B.tolist() == [[0, 2, 4], [1, 3, 5]]
    assert parts.ids_BL.tolist() == [[[1], [3], [5]], [[2], [4], [6]]]
