# SPDX-License-Identifier: Apache-2.0
"""The vocabulary that a preparation trains or takes, and how well it fits the text."""

import dataclasses
import os
import pathlib
import re

import pytest

from electra_jax.data import (
    planning,
    preparation,
    records,
    vocabulary,
)
from electra_jax.report import data_summary
from support.digests import digests
from support.prepared import prepare, sample, settings_for, texts


@pytest.mark.parametrize("size", ["15", "2000001", "99999999999", "abc", "", "-5", "1.5", "3:4"])
def test_sizes_of_a_vocabulary_are_bounded(size):
    with pytest.raises(ValueError, match="the size .* is not a whole number from 16 to 2,000,000"):
        planning.trained_kind(f"train:wordpiece:{size}")
    assert planning.trained_kind("train:wordpiece:16") == ("wordpiece", 16)


@pytest.mark.parametrize(("kind", "size"), [("sentencepiece", 36), ("wordpiece", 44)])
def test_a_vocabulary_is_trained_and_repeatable(corpus, kind, size):
    settings = settings_for(corpus, f"train:{kind}:{size}")
    folders = [prepare(settings, corpus / name).directory for name in ("one", "two")]
    words = vocabulary.load(os.path.join(folders[0], "vocab"))
    assert (words.kind, words.size) == (kind, size)
    assert digests(folders[0]).keys() == digests(folders[1]).keys()
    if kind == "sentencepiece":
        assert records.open(folders[0]).manifest.hash == records.open(folders[1]).manifest.hash


def test_the_vocabulary_is_trained_on_training_text_of_the_size_asked_for(corpus, vocab):
    settings = settings_for(corpus, vocab, vocab_sample_characters=2000)
    lines = sample(settings)
    assert 1900 < sum(map(len, lines)) < 2000 + 6 * 200
    everything = dataclasses.replace(settings, vocab_sample_characters=10**9)
    tokens = " ".join(sample(everything)).split()
    opened = prepare(settings, corpus / "data")
    assert len(tokens) == opened.manifest.totals["tokens"]


def test_the_sample_for_a_vocabulary_stops_within_an_enormous_document(tmp_path, vocab):
    (tmp_path / "1.txt").write_text("the cat sees\n" * 200_000 + "\nthe dog\n")
    settings = settings_for(tmp_path, vocab, vocab_sample_characters=1_000, heldout_fraction=1e-6)
    sampled = sum(map(len, sample(settings)))
    assert 1_000 <= sampled < 1_100_000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab": "no/such/vocab.txt"}, "data.vocab='no/such/vocab.txt' does not exist"),
        (
            {"vocab": "train:bpe:100"},
            "data.vocab='train:bpe:100': 'bpe' is not one of sentencepiece, wordpiece",
        ),
        ({"vocab": "train:sentencepiece"}, "the size '' is not a whole number from 16"),
        ({"rows": "pair"}, "data.rows='pair' is not one of pairs, packed"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(corpus, vocab, change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        prepare(settings_for(corpus, **({"vocab": vocab} | change)), corpus / "data")


def test_large_vocabularies_get_wider_ids(tmp_path):
    vocab = tmp_path / "vocab.txt"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(69_995))]
    vocab.write_text("\n".join(pieces) + "\n")
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "1.txt").write_text("w69994\n\nw69993\n")
    opened = prepare(settings_for(tmp_path / "text", str(vocab)), tmp_path / "data")
    assert opened.manifest.lanes == {"ids": "<u4", "marks": "|u1"}
    assert sorted(texts(opened, "train") + texts(opened, "heldout")) == ["w69993", "w69994"]


def test_the_summary_says_of_each_source_how_well_the_vocabulary_fits_it(tmp_path, vocab):
    (tmp_path / "1.txt").write_text("\n\n".join(["the cat", "a dog sees", "the old house"] * 5))
    (tmp_path / "2.txt").write_text("\n\n".join(["the kat", "a dog sees", "the old huus"] * 5))
    source = f"text:{tmp_path}/1.txt; text:{tmp_path}/2.txt"
    opened = prepare(settings_for(tmp_path, vocab, source=source), tmp_path / "data")
    # 8 tokens for 30 and 29 characters with their blanks; of 24 without them 7 are unknown.
    assert re.findall("characters per token +(.*)", data_summary.text(opened.directory)) == [
        "3.75; 0.000% of the characters are unknown",
        "3.62; 29.167% of the characters are unknown",
    ]


def test_another_vocabulary_in_a_finished_folder_is_not_taken_for_its_own(corpus, vocab):
    opened = prepare(settings_for(corpus, vocab), corpus / "data")
    before = digests(opened.directory)
    other = vocabulary.load(vocab.replace("vocab.txt", "other.txt"), True, True)
    other.save(os.path.join(opened.directory, "vocab"))
    lines = []
    preparation.prepare(settings_for(corpus, vocab), str(corpus / "data"), lines.append)
    assert any("is not the one that the records were made with" in line for line in lines)
    assert digests(opened.directory) == before


def test_the_same_vocabulary_elsewhere_is_the_same_folder(corpus, vocab, tmp_path_factory):
    copy = tmp_path_factory.mktemp("elsewhere") / "vocab.txt"
    copy.write_text(pathlib.Path(vocab).read_text())
    before = planning.folder_of(settings_for(corpus, vocab), "data")
    assert planning.folder_of(settings_for(corpus, str(copy)), "data") == before
