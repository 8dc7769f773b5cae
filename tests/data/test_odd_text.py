# SPDX-License-Identifier: Apache-2.0
"""Text with too little in it, too much in a line, or words that are not known."""

import gzip

import pytest

from electra_jax.data import (
    preparation,
    tokenising,
)
from support.prepared import prepare, settings_for

ONE = "has only one document, and one must be held out; "


@pytest.mark.parametrize(
    ("content", "documents", "message"),
    [
        ("", "blank_lines", "has no text"),
        ("\n\n \n\n", "blank_lines", "has no text"),
        ("the cat\n", "blank_lines", ONE + "put blank lines between documents, .* or add some"),
        ("the cat\n\nthe dog\n", "files", ONE + "set data.documents=blank_lines .*, or add some"),
        ("the cat\n\nthe  cat\n", "blank_lines", "holds 2 documents that are all equal"),
    ],
)
def test_too_little_text_is_refused_in_one_line(tmp_path, vocab, content, documents, message):
    (tmp_path / "1.txt").write_text(content)
    with pytest.raises(ValueError, match=message) as error:
        prepare(settings_for(tmp_path, vocab, documents=documents), tmp_path / "data")
    assert "\n" not in str(error.value)
    assert f"{tmp_path}/*.txt" in str(error.value)


def test_a_broken_file_is_named_though_the_vocabulary_is_already_in_training(tmp_path):
    """SentencePiece has taken the lines of a.txt when b.txt.gz turns out to be cut off."""
    (tmp_path / "a.txt").write_text("the cat sees a dog\n\n" * 20)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"the dog sees a cat\n\n" * 20)[:-9])
    source = f"text:{tmp_path}/a.txt; text:{tmp_path}/b.txt.gz"
    with pytest.raises(ValueError, match=r"^/.*/b\.txt\.gz cannot be read: .*whole\?$") as error:
        prepare(settings_for(tmp_path, "train:sentencepiece:32", source=source), tmp_path / "data")
    assert isinstance(error.value.__cause__, EOFError)


def test_a_long_line_is_cut_in_time_that_grows_with_it():
    """One character at a time: copying the rest for each part took four minutes for 50 MB."""

    class Line(str):
        copied = 0

        def __getitem__(self, key):
            part = super().__getitem__(key)
            Line.copied += len(part)
            return Line(part)

    line = Line("word " * 100_000)
    parts = list(tokenising.line_parts(line))
    assert "".join(parts) == line
    assert max(map(len, parts)) <= tokenising._LINE_CHARACTERS
    assert Line.copied <= 2 * len(line)
    assert list(tokenising.line_parts("x" * 40_000)) == ["x" * 16_384, "x" * 16_384, "x" * 7_232]


@pytest.mark.parametrize(("unknown", "verdict"), [(0, ""), (1, "warned"), (12, "refused")])
def test_text_that_the_vocabulary_does_not_know(tmp_path, vocab, unknown, verdict):
    line = " ".join(["дом"] * unknown + ["cat"] * (10 if unknown < 10 else 8))
    (tmp_path / "1.txt").write_text(f"{line}\n\n{line} dog\n\n{line} river\n")
    settings, lines = settings_for(tmp_path, vocab), []
    if verdict == "refused":
        with pytest.raises(ValueError, match="5.... of the tokens of .*became .UNK.; look at data"):
            preparation.prepare(settings, str(tmp_path / "data"), lines.append)
        assert not list((tmp_path / "data").glob("*/manifest.json"))
        return
    for _ in range(2):  # each run that takes the folder is told
        lines.clear()
        preparation.prepare(settings, str(tmp_path / "data"), lines.append)
        assert any(line.startswith("warning: ") for line in lines) == (verdict == "warned"), lines


@pytest.mark.parametrize("break_", [" ", "\n"], ids=["a line each", "a line a sentence"])
def test_documents_of_one_line_have_no_second_segments_and_that_is_said(tmp_path, vocab, break_):
    text = break_.join(["the cat sees the dog"] * 30)
    (tmp_path / "1.txt").write_text("".join(f"{text} {n}\n\n" for n in range(120)))
    lines = []
    preparation.prepare(settings_for(tmp_path, vocab), str(tmp_path / "data"), lines.append)
    (about,) = [line for line in lines if "second segment" in line] or [""]
    assert about.startswith("warning: 0.0% of the rows have") == (break_ == " "), lines


def test_documents_without_tokens_are_counted_and_left_out(tmp_path, vocab):
    (tmp_path / "1.txt").write_text("the cat\n\n\u0301\u200b\n\nthe dog\n\n\u200b\n")
    opened = prepare(settings_for(tmp_path, vocab), tmp_path / "data")
    assert opened.manifest.totals["documents"] == 2
    assert opened.manifest.totals["empty"] == 2
    assert opened.manifest.totals["rows"] == opened.manifest.totals["heldout_rows"] == 1


def test_a_document_of_a_million_tokens(tmp_path, vocab):
    (tmp_path / "1.txt").write_text("the cat follows a dog " * 200_000 + "\n\nthe cat\n\na dog\n")
    opened = prepare(settings_for(tmp_path, vocab, sequence_length=128), tmp_path / "data")
    totals = opened.manifest.totals
    assert totals["tokens"] + totals["heldout_tokens"] == 1_000_004
    assert totals["rows"] + totals["heldout_rows"] >= 1_000_000 // 126
    assert opened.manifest.wasted_fraction < 0.05
