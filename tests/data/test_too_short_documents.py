# SPDX-License-Identifier: Apache-2.0
"""Plain text that is cut into its paragraphs is warned about, with a remedy."""

import types

import pytest

from electra_jax.data import preparation, records, text, text_warnings
from electra_jax.data.text_options import TextOptions
from support.corpus import text_settings

PARAGRAPH = "the cat sees a letter."  # 6 tokens
BOOK = "\n\n".join([PARAGRAPH] * 500 + ["the end."])


@pytest.mark.parametrize(
    ("content", "changes", "warned"),
    [
        (BOOK, {}, True),
        (BOOK, {"documents": "files"}, False),
        (BOOK, {"rows": "packed"}, False),
        (BOOK.replace("\n\n", "\n", 499), {}, False),  # a sentence per line, and one blank line
    ],
    ids=["paragraphs", "files", "packed", "lines"],
)
def test_books_that_are_cut_into_paragraphs_are_named(tmp_path, content, changes, warned):
    """Three of 501 paragraphs each; a row has 30 places for the text of one of them."""
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(content.replace("cat", f"cat {number}"))
    settings = text_settings(
        f"text:{tmp_path}/?.txt", "train:wordpiece:64", 32, heldout_fraction=1e-6, workers=1,
        **changes,
    )  # fmt: skip
    lines = []
    folder = preparation.prepare(settings, str(tmp_path / "data"), lines.append)
    said = [line for line in lines if "are padding" in line]
    assert len(said) == warned
    if warned:
        assert said[0].startswith(f"warning: text:{tmp_path}/?.txt: documents of its plain text")
        assert "set data.documents=files" in said[0] and "choose data.rows=packed" in said[0]
    if changes == {"documents": "files"}:
        assert records.read_manifest(folder).totals["documents"] == 3


def warning(*found, documents="blank_lines"):
    """What is said of (name of the file, its rows, padding, documents, tokens), ...

    A file is a source of its own if its name has another first letter. Rows have 100 tokens.
    """
    names = dict.fromkeys(f"text:{name[0]}" for name, *_ in found)
    settings = types.SimpleNamespace(
        documents=documents, sequence_length=100, source=";".join(names)
    )
    tasks, results = [], []
    for name, *numbers in found:
        unit, source = text.FileUnit(name, 0, 1), list(names).index(f"text:{name[0]}")
        how = TextOptions(documents=documents)
        tasks.append(
            types.SimpleNamespace(settings=settings, unit=unit, source_index=source, options=how)
        )
        counts = dict(zip(("rows", "padding", "documents", "tokens"), numbers, strict=True))
        results.append({"counts": counts | {"heldout_tokens": 0}})
    return text_warnings.too_short(tasks, results)


def test_where_each_line_is_a_document_short_ones_are_packed():
    said = warning(*BOOKS, documents="lines")
    assert "rows of data.sequence_length=100 are padding; choose data.rows=packed, which" in said
    one_file = warning(("a.txt", 1_000, 80_000, 1_000, 18_000), documents="lines")
    assert "documents=files" not in one_file and "have 18 tokens on average" in one_file


BOOKS = [("a1.txt", 600, 48_000, 400, 10_800), ("a2.txt", 400, 32_000, 600, 7_200)]


def test_the_numbers_are_those_of_the_plain_text_of_a_source():
    said = "text:a: documents of its plain text have 18 tokens on average, so 80% of the places in"
    assert warning(*BOOKS).startswith(said)
    json = ("a3.jsonl", 9_000, 0, 9_000, 882_000)
    assert warning(*BOOKS, json) == warning(*BOOKS)
    others = [(f"b{number}.txt", 600, 40_000, 1_000, 18_800) for number in range(2)]  # 67 %
    assert warning(*others, *BOOKS).startswith(said)
    assert warning(*others).startswith("text:b: documents of its plain text have 19 tokens")


@pytest.mark.parametrize(
    "found",
    [
        BOOKS[:1] * 2,  # two stripes of one file, which as a document would be alone
        [(name, rows, rows * 50, *more) for name, rows, _, *more in BOOKS],  # half of it padding
        [(name, rows - 1, *more) for name, rows, *more in BOOKS],  # few rows
        [(f"a{n}.txt", 1, 80, 1, 18) for n in range(1000)],  # each file is short, too
        [(name.replace("txt", "jsonl"), *more) for name, *more in BOOKS],
    ],
    ids=["one file", "little", "few", "short files", "json"],
)
def test_nothing_is_said_where_files_as_documents_would_not_help(found):
    assert warning(*found) == ""


def test_nothing_is_said_of_files_that_are_documents():
    assert warning(*BOOKS, documents="files") == ""
