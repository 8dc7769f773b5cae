# SPDX-License-Identifier: Apache-2.0
"""Text to be evaluated on: the rows of preparation, bounded in characters, counted as drawn."""

import numpy as np
import pytest

from electra_jax.data import (
    evaluation_text,
    pipeline,
    preparation,
    records,
    tokenising,
    totals,
    vocabulary,
)
from support.corpus import text_settings, write_corpus

DRAWN = (  # 3 documents, 11 words, 46 characters with one blank between words
    "the cat\nsat  down .\n"  # 'the cat sat down .' 18
    "\n"
    "a\tdog runs\n"  # 'a dog runs' 10
    "\n"
    "no-one saw Zoë\n"  # 'no-one saw Zoë' 14
)
WORDS, CHARACTERS = 11, 18 + 10 + 14


def vocab_file(folder, pieces):
    path = folder / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces]) + "\n")
    return vocabulary.load(str(path))


@pytest.fixture
def drawn(tmp_path):
    (tmp_path / "drawn.txt").write_text(DRAWN, encoding="utf-8")
    return f"text:{tmp_path}/drawn.txt"


@pytest.fixture
def letters(tmp_path):
    """Every letter is a piece; full stops and hyphens are not known."""
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    return vocab_file(tmp_path, [*alphabet, *(f"##{letter}" for letter in alphabet)])


def read(spec, words, limit=0, **changes):
    settings = text_settings(spec, "", 16, **changes)
    (source,) = evaluation_text.parse(spec)
    return evaluation_text.read(source, settings, words, limit)


@pytest.mark.parametrize("rows", ["pairs", "packed"])
def test_heldout_text_of_a_run_gives_the_heldout_rows_of_the_run(rows, tmp_path):
    corpus = write_corpus(tmp_path / "corpus.txt", documents=120)
    settings = text_settings(
        f"text:{corpus}", "train:sentencepiece:64", 32, heldout_fraction=0.3, rows=rows, workers=1
    )
    opened = records.open(preparation.prepare(settings, str(tmp_path / "data"), lambda line: None))
    words = vocabulary.load(f"{opened.directory}/{records.VOCABULARY}")
    below = int(settings.heldout_fraction * 2**64)
    documents = corpus.read_text().strip().split("\n\n")
    heldout = [document for document in documents if tokenising.document_hash(document)[0] < below]
    assert 20 < len(heldout) == opened.manifest.totals["heldout_documents"]

    (tmp_path / "heldout.txt").write_text("\n\n".join(heldout) + "\n")
    (source,) = evaluation_text.parse(f"text:{tmp_path}/heldout.txt")
    found = evaluation_text.read(source, settings, words, 0)
    expected = pipeline.heldout(opened, 0, 10**6)
    assert np.array_equal(found.ids, expected.ids)
    assert np.array_equal(found.marks, expected.marks)
    assert np.array_equal(found.counts_V, opened.unigram()[1])
    entropy = totals.unigram_entropy(found.counts_V)
    assert entropy == opened.manifest.unigram_entropy
    assert found.documents == len(heldout)


def test_the_seed_of_the_run_and_what_it_left_out_change_no_row(letters, tmp_path):
    spec = f"text:{write_corpus(tmp_path / 'corpus.txt', documents=40)}"
    alone = read(spec, letters)
    other = read(spec, letters, seed=7, heldout_fraction=0.5, min_document_characters=10**6)
    assert np.array_equal(alone.ids, other.ids)
    assert np.array_equal(alone.marks, other.marks)


def test_words_characters_and_tokens_are_counted_as_drawn(drawn, letters):
    found = read(drawn, letters)
    assert (found.documents, found.words, found.characters) == (3, WORDS, CHARACTERS)
    assert found.whole
    # Letters are a token each; the full stop and the hyphen are unknown.
    assert found.counts_V.sum() == CHARACTERS - (WORDS - 3)
    assert found.counts_V[letters.unk_id] == 2
    real = ~np.isin(found.ids, letters.special_ids)
    assert np.array_equal(np.bincount(found.ids[real], minlength=letters.size), found.counts_V)


def test_a_file_that_is_a_document_is_one_here_too(drawn, letters):
    found = read(drawn, letters, documents="files")
    # In one document there is a blank between any two words.
    assert (found.documents, found.words, found.characters) == (1, WORDS, CHARACTERS + 2)


def test_another_vocabulary_reads_the_same_text_however_it_is_bounded(drawn, letters, tmp_path):
    whole_words = vocab_file(tmp_path, ["the", "cat", "sat", "down", "dog"])
    for limit in (0, 9, 21, 40):
        one, other = read(drawn, letters, limit), read(drawn, whole_words, limit)
        assert one.counts_V.sum() != other.counts_V.sum()
        assert one.sha256 == other.sha256
        assert (one.words, one.characters) == (other.words, other.characters)


@pytest.mark.parametrize(
    ("limit", "documents", "words", "characters"),
    [
        (3, 1, 1, 3),  # the
        (6, 1, 1, 3),  # the | cat is not cut
        (7, 1, 2, 7),  # the cat
        (18, 1, 5, 18),  # the first document
        (19, 2, 6, 19),  # and 'a'
        (28, 2, 8, 28),
    ],
)
def test_the_bound_cuts_at_white_space(drawn, letters, limit, documents, words, characters):
    found = read(drawn, letters, limit)
    assert (found.documents, found.words, found.characters) == (documents, words, characters)
    assert not found.whole


def test_a_bound_that_the_text_just_fills_leaves_nothing_out(drawn, letters):
    assert read(drawn, letters, CHARACTERS).whole
    assert not read(drawn, letters, CHARACTERS - 1).whole


def test_text_without_blanks_is_cut_where_the_bound_is(letters, tmp_path):
    (tmp_path / "long.txt").write_text("x" * 1000)
    found = read(f"text:{tmp_path}/long.txt", letters, 130)
    assert (found.words, found.characters, found.whole) == (1, 130, False)
    with pytest.raises(ValueError, match="no text in its first 30 characters; give it more"):
        read(f"text:{tmp_path}/long.txt", letters, 30)


def test_a_blank_far_before_the_bound_is_no_place_to_cut(letters, tmp_path):
    """As in a Chinese document, which has one behind its title and none after it."""
    (tmp_path / "title.txt").write_text("t\n" + "x" * 1000)
    assert read(f"text:{tmp_path}/title.txt", letters, 500).characters == 500
    (tmp_path / "words.txt").write_text("t\n" + "word " * 200)
    assert read(f"text:{tmp_path}/words.txt", letters, 502).characters == 501  # not inside a word


def test_reading_stops_at_the_bound(letters, tmp_path):
    """What lies behind it is not even looked at, and no word is cut."""
    (tmp_path / "a.txt").write_text("the cat sat\n\n" * 400)
    (tmp_path / "b.jsonl").write_text("not JSON\n")
    assert read(f"text:{tmp_path}/*", letters, 100).characters == 99
    with pytest.raises(ValueError, match="line 1: not JSON"):
        read(f"text:{tmp_path}/*", letters)


def test_names_are_given_or_made():
    found = evaluation_text.parse("news=text:a=b/*.txt; builtin;text:en/*.txt")
    assert [(source.name, source.spec) for source in found] == [
        ("news", "text:a=b/*.txt"),
        ("builtin", "builtin"),
        ("en", "text:en/*.txt"),
    ]


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ("", "is empty"),
        ("en/*.txt", "is none of builtin, text:GLOB"),
        ("x=", "is none of builtin, text:GLOB"),
        ("builtin@2", "'builtin@2' has a weight, which only training reads"),
        ("builtin@2; text:a.txt", "'builtin@2' has a weight, which only training reads"),
        ("all=builtin; b=text:2.txt", "'all' is the column of all texts together; give yours"),
        ("a=text:1.txt; a=text:2.txt", "two sources are called 'a'; name one of them NAME=SPEC"),
    ],
)
def test_what_cannot_be_meant_is_one_line(specs, message):
    with pytest.raises(ValueError, match=message) as error:
        evaluation_text.parse(specs)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\n \n", "has no text; give it another file"),
        ("Öl, Käse, Brötchen\n\n".encode("latin-1") * 9, "is not UTF-8: 27 places in 162 charac"),
        ("the cat".encode("utf-16"), "is UTF-16; convert it: iconv -f UTF-16 -t UTF-8"),
        ("the cat".encode("utf-32"), "is UTF-32; convert it: iconv -f UTF-32 -t UTF-8"),
    ],
)
def test_text_that_cannot_be_read_is_one_line(data, message, letters, tmp_path):
    (tmp_path / "bad.txt").write_bytes(data)
    with pytest.raises(ValueError, match=message) as error:
        read(f"text:{tmp_path}/bad.txt", letters)
    assert "\n" not in str(error.value)


def test_a_few_bad_bytes_are_counted(letters, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"the cat sat. " * 200 + b"caf\xe9\n")
    assert read(f"text:{tmp_path}/a.txt", letters).invalid_utf8 == 1


@pytest.mark.parametrize("limit", [0, 1_000])
def test_bad_bytes_beyond_the_bound_are_not_those_of_its_text(limit, letters, tmp_path):
    """Two in 20,000 characters are few, and all of them in the first 1,000 would be too many."""
    (tmp_path / "a.txt").write_bytes(b"the cat sat. " * 1_500 + b"caf\xe9 " * 2)
    assert read(f"text:{tmp_path}/a.txt", letters, limit).invalid_utf8 == (0 if limit else 2)
