# SPDX-License-Identifier: Apache-2.0
"""Rows drawn as text: C is [CLS], S is [SEP], . is padding, letters are tokens."""

import types

import numpy as np
import pytest

from electra_jax.data import segments

PAD, CLS, SEP = 0, 1, 2
LETTERS = ".CSabcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def layout(length, starts=""):
    """A vocabulary of letters, of which `starts` begin words."""
    vocabulary = types.SimpleNamespace(
        size=len(LETTERS),
        pad_id=PAD,
        cls_id=CLS,
        sep_id=SEP,
        special_ids=(PAD, CLS, SEP),
        starts_word_V=np.array([letter in starts for letter in LETTERS]),
    )
    return segments.Layout.of(vocabulary, length)


def tokens(text):
    return np.array([LETTERS.index(letter) for letter in text], np.uint32)


def drawn(rows, length):
    """The rows as strings."""
    ids_BL, _ = segments.lay(list(rows), layout(length))
    return ["".join(LETTERS[i] for i in ids_L) for ids_L in ids_BL]


def pairs(text, length, seed=0, single=0.0, short=0.0):
    """Lines are separated by spaces."""
    lines = text.split(" ")
    rng = np.random.Generator(np.random.Philox(seed))
    found = segments.pairs(
        tokens("".join(lines)), [len(line) for line in lines], length, rng, single, short
    )
    return list(found)


def packed(texts, length, open_rows=segments.OPEN_ROWS):
    packer = segments.Packer(length, open_rows)
    rows = [row for text in texts for row in packer.add(tokens(text))]
    return rows + list(packer.close())


def with_coins(text, length, *rows):
    """As `pairs`; for each row the numbers drawn: short?, single?, and A's coin if it is tossed."""
    numbers = [number for row in rows for number in row]
    rng = types.SimpleNamespace(random=lambda: numbers.pop(0))
    lines = text.split(" ")
    found = segments.pairs(tokens("".join(lines)), [len(x) for x in lines], length, rng, 0, 0)
    return list(found)


def test_b_follows_a_and_overflow_goes_into_the_next_row():
    # A aims at (11 - 3) // 2 = 4 tokens. The first row takes lines until it has 11, lays 8 of
    # them, and the rest of the last line begins the second row.
    rows = with_coins("abc def ghijklm nop", 11, [1, 1, 0.6], [1, 1])
    assert drawn(rows, 11) == ["CabcSdefghS", "CijklmSnopS"]


def test_a_line_over_the_end_of_a_joins_it_by_a_coin():
    joined = with_coins("ab cdefg hi", 11, [1, 1, 0.4], [1, 1])
    assert drawn(joined, 11) == ["CabcdefgShS", "CiS........"]
    apart = with_coins("ab cdefg hi", 11, [1, 1, 0.6], [1, 1])
    assert drawn(apart, 11) == ["CabScdefghS", "CiS........"]


def test_a_short_line_after_b_began_does_not_slip_into_a():
    assert drawn(with_coins("ab cdefgh i", 14, [1, 1, 0.6]), 14) == ["CabScdefghiS.."]


def test_a_single_segment_takes_the_whole_row():
    assert drawn(pairs("abc def ghi jkl", 11, single=1.0), 11) == ["CabcdefghiS", "CjklS......"]


def test_a_line_longer_than_a_row_fills_rows_and_its_rest_goes_on_with_the_next_line():
    assert drawn(pairs("abcdefghijklmnop qr", 8), 8) == [
        "CabcdefS",
        "CghijklS",
        "CmnopSqS",
        "CrS.....",
    ]


def test_a_short_row_is_shorter_and_the_text_goes_on():
    lengths = set()
    for seed in range(200):
        row = pairs("a b c d e f g h i j k l m n o p q r s t", 12, seed, short=1.0)[0]
        lengths.add(sum(len(piece.tokens) for piece in row))
    # Targets 5 .. 12 tokens, of which 9 have room beside [CLS] and two [SEP].
    assert lengths == {5, 6, 7, 8, 9}


@pytest.mark.parametrize("length", [8, 13, 32])
def test_every_token_comes_exactly_once_and_in_order(length):
    rng = np.random.Generator(np.random.Philox(5))
    for _ in range(200):
        lines = rng.integers(0, 20, rng.integers(0, 12)).tolist()
        text = rng.integers(3, 50, sum(lines)).astype(np.uint32)
        rows = list(segments.pairs(text, lines, length, rng, 0.1, 0.3))
        laid = [piece.tokens for row in rows for piece in row]
        assert all(piece.length <= length for row in rows for piece in row)
        np.testing.assert_array_equal(np.concatenate([text[:0], *laid]), text)
        packer = segments.Packer(length)
        packs = [*packer.add(text), *packer.close()]
        assert sum(len(piece.tokens) for row in packs for piece in row) == len(text)


def test_a_document_of_a_million_tokens_wastes_nothing_but_its_end():
    text = np.full(1_000_000, 7, np.uint32)
    rng = np.random.Generator(np.random.Philox(0))
    packer = segments.Packer(128)
    for rows in (
        list(segments.pairs(text, [1_000_000], 128, rng, 0.1, 0.0)),
        [*packer.add(text), *packer.close()],
    ):
        lengths = [row[0].length for row in rows]
        assert lengths == [128] * 7936 + [1_000_000 - 7936 * 126 + 2]


def test_empty_documents_and_empty_lines_make_no_row():
    assert pairs("", 8) == []
    assert packed([""], 8) == []
    assert drawn(pairs(" ab  c ", 8), 8) == ["CabScS.."]


def test_the_single_segment_share_is_the_one_asked_for():
    text = " ".join("abcdefgh"[:4] for _ in range(20_000))
    rows = pairs(text, 32, single=0.1)
    share = np.mean([row[0].a_length == len(row[0].tokens) for row in rows])
    assert 0.085 < share < 0.115


def test_packing_puts_each_piece_where_it_leaves_the_least_room():
    # With [CLS] and [SEP] they are 6, 8, 4 and 4 long; the third fits into both open rows.
    assert drawn(packed(["ijkl", "abcdef", "gh", "mn"], 12), 12) == [
        "CabcdefSCghS",
        "CijklSCmnS..",
    ]


def test_a_long_document_is_cut_over_rows_each_with_its_own_start():
    assert drawn(packed(["abcdefgh", "xy"], 8), 8) == ["CabcdefS", "CghSCxyS"]


def test_with_too_many_open_rows_the_fullest_leaves():
    assert drawn(packed(["abcdef", "fghij", "klmno", "pqr"], 12, open_rows=2), 12) == [
        "CabcdefS....",
        "CfghijSCpqrS",
        "CklmnoS.....",
    ]


def test_packing_is_nearly_full():
    rng = np.random.Generator(np.random.Philox(1))
    packer, rows, count = segments.Packer(128), [], 0
    for size in rng.integers(1, 126, 5000):
        rows += packer.add(np.full(size, 5, np.uint32))
        count += size + 2
    rows += packer.close()
    assert count / (len(rows) * 128) > 0.97


def test_marks_tell_documents_segments_and_words():
    # 'a' and 'd' begin words. A stretch that begins inside a word begins a word of its own.
    rows = [
        (segments.Piece(tokens("bad"), 2), segments.Piece(tokens("ab"), 2)),
        (segments.Piece(tokens("abcd"), 2),),
    ]
    ids_BL, marks_BL = segments.lay(rows, layout(11, starts="ad"))
    assert ["".join(LETTERS[i] for i in row) for row in ids_BL] == ["CbaSdSCabS.", "CabScdS...."]
    d, b, w = 1, 2, 4
    np.testing.assert_array_equal(
        marks_BL,
        [
            # C  b  a  S    d  S    C  a  b  S  .
            [d + w, w, w, w, b + w, w, d + w, w, 0, w, 0],
            # C  a  b  S    c  d  S  .  .  .  .
            [d + w, w, 0, w, b + w, w, w, 0, 0, 0, 0],
        ],
    )
    assert marks_BL.dtype == np.uint8


def test_ids_are_as_narrow_as_the_vocabulary_allows():
    assert segments.ids_dtype(65_536) == np.uint16
    assert segments.ids_dtype(65_537) == np.uint32
