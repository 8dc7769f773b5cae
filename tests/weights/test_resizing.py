# SPDX-License-Identifier: Apache-2.0
"""Trained tables for another vocabulary and more positions: by eye, on tables of a few rows."""

import numpy as np
import pytest
import tokenizers

from electra_jax.data import vocabulary, vocabulary_training
from electra_jax.weights import resizing
from support.corpus import write_corpus

ROLES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def words(*pieces):
    return vocabulary.Vocabulary("wordpiece", "\n".join(pieces).encode(), True, True)


OLD = words(*ROLES, "sun", "##day", "moon")
NEW = words("[MASK]", "moon", "sunday", "[PAD]", "[CLS]", "[SEP]", "[UNK]", "sun", "##sun", "日")
TABLE = np.array([[0.0], [1], [2], [3], [4], [10], [20], [30], [99]], np.float32)  # 99: the tail


def test_five_words_out_of_three():
    """Kept by text and by role; new: the mean of sun and ##day; sun alone; the mean of all."""
    plan = resizing.tokens(OLD, NEW)
    fresh = np.full((11, 1), -1, np.float32)
    found = resizing.rows(TABLE, fresh, plan)
    assert found[:, 0].tolist() == [4, 30, 15, 0, 2, 3, 1, 10, 10, 20, -1]
    assert str(plan) == (
        "7 tokens keep their rows, 2 begin as the mean of their old sub-tokens, 1 as the mean of"
        " all; 1 old ones are gone"
    )


def test_a_bias_grows_like_a_table():
    plan = resizing.tokens(OLD, NEW)
    found = resizing.rows(TABLE[:, 0], np.zeros(11, np.float32), plan)
    assert found.tolist() == [4, 30, 15, 0, 2, 3, 1, 10, 10, 20, 0]


def test_moments_of_new_tokens_begin_at_zero():
    plan = resizing.tokens(OLD, NEW)
    found = resizing.kept_rows(TABLE, np.zeros((11, 1), np.float32), plan)
    assert found[:, 0].tolist() == [4, 30, 0, 0, 2, 3, 1, 10, 0, 0, 0]


def test_an_old_row_is_kept_to_the_bit():
    table = np.random.default_rng(0).normal(size=(8, 5)).astype(np.float32)
    found = resizing.rows(table, np.zeros((8, 5), np.float32), resizing.tokens(OLD, OLD))
    np.testing.assert_array_equal(found, table)


def test_an_old_token_that_is_unknown_in_part_is_left_out_of_the_mean():
    """moon and then a character that the old vocabulary does not have."""
    plan = resizing.tokens(OLD, words(*ROLES, "moon 日"))
    found = resizing.rows(TABLE, np.zeros((6, 1), np.float32), plan)
    assert found[5] == 30


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    corpus = write_corpus(tmp_path_factory.mktemp("text") / "corpus.txt")
    return vocabulary_training.train("sentencepiece", 64, iter(corpus.read_text().splitlines()))


def test_from_wordpiece_to_sentencepiece_and_back(pieces):
    """A beginning and an inside of a word stay what they are, though they are spelled otherwise."""
    begins = next(p for p in pieces.pieces if p.startswith("▁") and len(p) > 2)[1:]
    inside = next(p for p in pieces.pieces if p.isalpha() and len(p) > 1)
    other = words(*ROLES, begins, f"##{inside}", f"##{begins}")
    there, back = resizing.tokens(other, pieces), resizing.tokens(pieces, other)
    for plan, kept in ((there, (f"▁{begins}", inside)), (back, (begins, f"##{inside}"))):
        new = pieces if plan is there else other
        same = {new.piece(n) for n in np.flatnonzero(plan.kept_V)} - set(ROLES)
        assert same >= set(kept) and len(same) <= 3


def test_a_sign_of_a_beginning_by_itself_is_no_part(pieces):
    """SentencePiece makes '▁' and [UNK] of what it does not know, and '▁' and it of a middle."""
    plan = resizing.tokens(pieces, words(*ROLES, "한국", "##qqq"))
    assert plan.lost_V.tolist() == [False] * 5 + [True, True]
    blank = pieces.pieces.index("▁")
    every = resizing.tokens(pieces, words(*ROLES, *(f"##{p}{p}" for p in "aeinort")))
    assert not every.lost_V.any() and blank not in every.ids


def test_byte_level_pieces_are_read_as_text(tmp_path):
    """'Ġcafé' is spelled in bytes there; its text is what the old vocabulary encodes."""
    model = tokenizers.models.BPE(
        {piece: n for n, piece in enumerate((*ROLES, "Ġ", "c", "Ġc", "Ã", "©", "Ã©"))},
        [("Ġ", "c"), ("Ã", "©")], unk_token="[UNK]",
    )  # fmt: skip
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.save(str(tmp_path / "tokenizer.json"))
    new = vocabulary.load(str(tmp_path / "tokenizer.json"))
    old = vocabulary.Vocabulary("wordpiece", "\n".join((*ROLES, "c", "é")).encode(), True, False)
    plan = resizing.tokens(old, new)
    found = resizing.rows(TABLE[:7], np.zeros((11, 1), np.float32), plan)
    by_piece = dict(zip(new.pieces, found[:, 0].tolist()))
    assert by_piece["Ġc"] == 10 and by_piece["Ã©"] == 20
    assert plan.kept_V[new.pieces.index("Ġc")]
    assert by_piece["Ã"] == 15  # half a character: the mean of all


POSITIONS = np.array([[0.0], [10], [20], [60]], np.float32)


@pytest.mark.parametrize(
    ("how", "rows", "kept"),
    [
        ("copied", [0, 10, 20, 60, 0, 10], [0, 10, 20, 60, 7, 7]),
        ("interpolated", [0, 6, 12, 18, 36, 60], [7] * 6),
        ("fresh", [7] * 6, [7] * 6),
    ],
)
def test_six_positions_out_of_four(how, rows, kept):
    fresh = np.full((6, 1), 7, np.float32)
    assert resizing.positions(POSITIONS, fresh, how)[:, 0].tolist() == pytest.approx(rows)
    assert resizing.kept_positions(POSITIONS, fresh, how)[:, 0].tolist() == kept


@pytest.mark.parametrize("how", ["copied", "interpolated", "fresh"])
def test_fewer_positions_are_the_first_ones(how):
    fresh = np.full((3, 1), 7, np.float32)
    assert resizing.positions(POSITIONS, fresh, how)[:, 0].tolist() == [0, 10, 20]
    assert resizing.kept_positions(POSITIONS, fresh, how)[:, 0].tolist() == [0, 10, 20]


def test_the_lowest_layers_of_the_discriminator():
    layers = np.arange(3.0)[:, None]  # [layers, D]
    end = np.array([7.0])  # the norm behind all layers, where there is one
    params = {
        "discriminator/projection/kernel": np.ones((2, 1)),
        "discriminator/encoder/attention/norm/bias": layers,
        "discriminator/encoder/norm/scale": end,
        "discriminator/head/dense/bias": end,
    }
    fresh = {
        "generator/projection/kernel": np.zeros((2, 1)),
        "generator/encoder/attention/norm/bias": np.zeros((2, 1)),
        "generator/encoder/norm/scale": np.zeros(1),
        "generator/head/dense/bias": np.zeros(1),
    }
    found = resizing.lower_layers(params, fresh)
    assert {path: x.tolist() for path, x in found.items()} == {
        "generator/projection/kernel": [[1], [1]],
        "generator/encoder/attention/norm/bias": [[0], [1]],
        "generator/encoder/norm/scale": [7],
    }
    for shape in ((4, 1), (2, 3)):
        wider = fresh | {"generator/encoder/attention/norm/bias": np.zeros(shape)}
        with pytest.raises(ValueError, match=r"norm/bias is \(3, 1\), the generator's \(\d, \d\);"):
            resizing.lower_layers(params, wider)
