# SPDX-License-Identifier: Apache-2.0
"""Text in many scripts: what would take its letters away or turn them into [UNK] is refused."""

import os
import unicodedata

import numpy as np
import pytest

from electra_jax.data import (
    folder_vocabulary,
    planning,
    preparation,
    records,
    vocabulary,
    vocabulary_codecs,
    vocabulary_fit,
    vocabulary_training,
)
from support.corpus import text_settings, write_corpus

THAI, HINDI, JAPANESE = (
    "มนุษย์ทั้งหลายเกิดมามีอิสระ",
    "सभी मनुष्यों को गौरव",
    "すべての人間は、生まれながらにして自由であり",
)
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def vocab_file(path, *pieces):
    path.write_text("\n".join([*SPECIAL, *pieces]) + "\n")
    return str(path)


@pytest.mark.parametrize("text", [THAI, HINDI, JAPANESE])
def test_marks_that_are_letters_are_not_stripped(text):
    with pytest.raises(ValueError, match=r"would take \d+% of the characters of text:x: signs of"):
        vocabulary_fit.refuse_lost_marks("text:x", ["some text", text])


def test_accents_that_bert_strips_too_may_go():
    european = "Ça été, für Ödön, ёлка й, Ἀθῆναι, tiếng Việt"
    others = "أهلاً وسهلاً, שָׁלוֹם, 한국어, 中文, ☃️"  # the last one has a mark that is no letter's
    vocabulary_fit.refuse_lost_marks("text:x", [european, others])
    vocabulary_fit.refuse_lost_marks("text:x", [])
    vocabulary_fit.refuse_lost_marks("text:x", ["a" * 1000, "が"])  # one in a thousand


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Áin rennur í sjóinn og björninn sefur á ísnum", "á becomes a, í becomes i, ó becomes o"),
        ("Så går båden på åen, og alle står på broen", "å becomes a"),
        ("Sa\u030a ga\u030ar ba\u030aden pa\u030a", "å becomes a"),  # decomposed
    ],
)
def test_accents_that_go_are_told_where_they_are_many(text, shown):
    told = vocabulary_fit.lost_accents("text:x", [text, "and English"])
    assert f"of the characters of text:x ({shown}" in told
    assert told.endswith("where they tell words apart, set data.strip_accents=False")


def test_accents_of_foreign_words_and_marks_that_readers_leave_out_are_not_told():
    english = "A naïve café owner had a résumé. " + "Nobody in the town had asked for it. " * 50
    assert vocabulary_fit.lost_accents("text:x", [english]) == ""
    # Letters that stay, and scripts whose marks are of another kind.
    others = "søer og æbler, weiß, łodka, أهلاً وسهلاً, שָׁלוֹם, 한국어, 中文, が, ทั้ง, ☃️"
    assert vocabulary_fit.lost_accents("text:x", [others]) == ""
    assert vocabulary_fit.lost_accents("text:x", []) == ""


def test_accents_that_go_are_told_before_a_vocabulary_is_trained(tmp_path):
    write_corpus(tmp_path / "en.txt", 40)
    (tmp_path / "da.txt").write_text("".join(f"båden går på åen {n}\n\n" for n in range(40)))
    source = f"text:{tmp_path}/en.txt; text:{tmp_path}/da.txt"
    for strip, count in ((True, 1), (False, 0)):
        lines = []
        settings = text_settings(
            source, "train:sentencepiece:64", 16, workers=1, strip_accents=strip
        )
        preparation.prepare(settings, str(tmp_path / "data"), lines.append)
        found = [line for line in lines if "takes the accents of" in line]
        assert len(found) == count
        assert not found or found[0].startswith("warning: ") and "/da.txt (å becomes a)" in found[0]


def test_the_default_refuses_thai_before_a_vocabulary_is_trained(tmp_path):
    write_corpus(tmp_path / "en.txt", 40)
    (tmp_path / "th.txt").write_text("".join(f"{THAI} {n}\n\n" for n in range(40)))
    source = f"text:{tmp_path}/en.txt; text:{tmp_path}/th.txt"
    settings, lines = text_settings(source, "train:sentencepiece:64", 16, workers=1), []
    with pytest.raises(ValueError, match=r"of text:.*/th.txt: .* data.strip_accents=False$"):
        preparation.prepare(settings, str(tmp_path / "data"), lines.append)
    assert not any("training" in line for line in lines)

    kept = text_settings(
        source, "train:sentencepiece:64", 16, workers=1, strip_accents=False,
        min_document_characters=0,
    )  # fmt: skip
    words = vocabulary.load(
        os.path.join(preparation.prepare(kept, str(tmp_path / "data")), "vocab")
    )
    assert "ั" in "".join(words.pieces)


def test_pieces_that_no_text_produces_are_refused(tmp_path):
    cased = vocab_file(tmp_path / "cased.txt", *"Der die Das und Hund".split())
    with pytest.raises(
        ValueError, match="60% of the pieces of x, as 'Der', .* data.lower_case=False"
    ):
        vocabulary_fit.refuse_unreachable(vocabulary.load(cased), "x")
    vocabulary_fit.refuse_unreachable(vocabulary.load(cased, lower_case=False), "x")
    with pytest.raises(ValueError, match="never occur with data.lower_case=True"):
        planning.check_vocabulary(text_settings("builtin", cased, 16))  # as --dry_run does

    accents = vocab_file(tmp_path / "accents.txt", "für", "##é", "und")
    with pytest.raises(ValueError, match="67% of the pieces .* data.strip_accents=False"):
        vocabulary_fit.refuse_unreachable(vocabulary.load(accents), "x")
    vocabulary_fit.refuse_unreachable(vocabulary.load(accents, strip_accents=False), "x")

    plain = vocab_file(tmp_path / "plain.txt", "[unused1]", "der", "한국", "##ы")
    vocabulary_fit.refuse_unreachable(vocabulary.load(plain), "x")


def test_a_source_that_is_unknown_is_refused_although_its_tokens_are_few(tmp_path):
    """Each line is one token, [UNK], beside many that are known."""
    write_corpus(tmp_path / "en.txt", 60)
    (tmp_path / "ru.txt").write_text("".join(f"{'привет' * n}\n\n" for n in range(1, 15)))
    vocab = vocab_file(
        tmp_path / "v.txt",
        *"abcdefghijklmnopqrstuvwxyz.",
        *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"),
    )
    settings = text_settings(
        f"text:{tmp_path}/en.txt; text:{tmp_path}/ru.txt", vocab, 16, workers=1,
        min_document_characters=0, heldout_fraction=0.1,
    )  # fmt: skip
    with pytest.raises(
        ValueError, match=r"100.0% of the characters of text:.*/ru.txt .* is refused"
    ):
        preparation.prepare(settings, str(tmp_path / "data"))


def test_characters_behind_unknown_tokens_are_counted(tmp_path):
    words = vocabulary.load(vocab_file(tmp_path / "v.txt", "cat", "dog"))
    assert vocabulary_fit.unknown_characters(["cat привет\ndog", "ёж"], words) == (14, 8)
    looked_at, unknown = vocabulary_fit.unknown_characters(["привет " * 9000], words)
    assert looked_at == unknown and 17_000 < looked_at < 18_000  # of 20,000 with their blanks


def test_long_lines_of_korean_train_a_vocabulary():
    """In parts a syllable has up to nine bytes, and SentencePiece skips lines of over 65,536."""
    line = ("안녕하세요 세계 여러분 반갑습니다 " * 900)[:16_000]
    assert len(vocabulary_codecs.strip(line).encode()) > 1 << 16
    words = vocabulary_training.train("sentencepiece", 21, iter([line, line]))
    assert words.unk_id not in words.encode(["안녕하세요 세계"])[0]


def test_a_source_with_too_little_text_is_repeated_in_the_sample():
    found = list(folder_vocabulary.mixed([["aaaa", "bbbb"], ["cc"], []], [0.25, 0.5, 0.25]))
    assert found == ["aaaa", "bbbb", *["cc"] * 8]  # 8 characters are a quarter, so 16 are half
    assert list(folder_vocabulary.mixed([["a"], ["b"]], [0.5, 0.5])) == ["a", "b"]
    assert list(folder_vocabulary.mixed([["a" * 99], ["b"]], [0.5, 0.5]))[1:] == ["b"] * 10
    assert list(folder_vocabulary.mixed([[], []], [0.5, 0.5])) == []


def test_where_no_blanks_part_words_each_piece_is_one(tmp_path):
    """Else whole-word masking would choose a whole line as one word."""
    (tmp_path / "zh.txt").write_text(
        "人人生而自由在尊严和权利上一律平等\n\n他们赋有理性和良心\n\n" * 9
    )
    settings = text_settings(
        f"text:{tmp_path}/zh.txt", "train:sentencepiece:31", 16, workers=1,
        min_document_characters=0, heldout_fraction=0.3,
    )  # fmt: skip
    opened = records.open(preparation.prepare(settings, str(tmp_path / "data")))
    words = vocabulary.load(os.path.join(opened.directory, "vocab"))
    letters = [n for n, piece in enumerate(words.pieces) if unicodedata.category(piece[-1]) == "Lo"]
    assert len(letters) > 20 and words.starts_word_V[letters].all()
    english = vocabulary_training.train("sentencepiece", 16, iter(["the cat sees the dog"] * 9))
    inside = np.array([p.isascii() and p.islower() for p in english.pieces])
    assert inside.any() and not english.starts_word_V[inside].any()


@pytest.mark.parametrize(
    ("text", "spans"), [("ที่ดี", [(0, 3), (3, 5)]), ("कु", [(0, 2)]), ("cafés", [(0, 5)])]
)
def test_a_token_has_the_marks_that_stand_on_its_letters(text, spans):
    first = [(begin, begin + 1) for begin, _ in spans] if text != "cafés" else spans
    assert vocabulary._visible(text, first) == spans
