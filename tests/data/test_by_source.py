# SPDX-License-Identifier: Apache-2.0
"""Sources of a mixture have names, and by them settings of their own."""

import json

import pytest

from electra_jax.data import (
    by_source,
    evaluation_text,
    planning,
    preparation,
    records,
    text,
    text_warnings,
    vocabulary,
)
from support.corpus import text_settings

NAMES = ("wiki", "papers", "books")
KINDS = ("blank_lines", "lines", "files")
FIELD = "text; papers=title+abstract"
DOCUMENTS = "blank_lines;books=files"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("lines", ["lines", "lines", "lines"]),
        ("blank_lines; books=files", ["blank_lines", "blank_lines", "files"]),
        ("papers = lines ;blank_lines;", ["blank_lines", "lines", "blank_lines"]),
        ("wiki=lines; papers=files; books=files", ["lines", "files", "files"]),
    ],
)
def test_a_named_source_has_its_own_value(value, found):
    by_source.check("data.documents", value, NAMES, KINDS)
    assert [by_source.of(value, name) for name in NAMES] == found


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("pages", "data.documents='pages' is not one of 'blank_lines', 'lines', 'files'"),
        ("lines; books=pages", "data.documents='pages' is not one of"),
        (
            "lines; book=files",
            "no source is called 'book'; known here: wiki, papers, books; data",
        ),
        (
            "books=files",
            "no value for the source 'wiki'; .* data.documents='blank_lines; NAME=VALU",
        ),
        ("lines; books=", "no value for the source 'books'; write books=VALUE, or leave it out"),
        ("lines; files", "two values for all sources; say which .* 'files' is for: 'lines; NAME=f"),
        ("lines; books=files; books=lines", "two values for the source 'books'; leave one out"),
        ("", "no value for the source 'wiki'"),
    ],
)
def test_a_value_that_cannot_be_meant_is_one_line(value, message):
    with pytest.raises(ValueError, match=message) as error:
        by_source.check("data.documents", value, NAMES, KINDS)
    assert "\n" not in str(error.value)


def test_a_remedy_for_one_source_leaves_the_others_as_they_are():
    said = by_source.for_one("data.documents", "lines; wiki=files", "books", NAMES)
    assert said == " (of this source alone: data.documents='lines; wiki=files; books=...')"
    assert by_source.for_one("data.documents", "lines", "books", ["books"]) == ""


def test_a_book_beside_other_text_is_told_how_to_be_one_alone(tmp_path):
    (tmp_path / "wiki.txt").write_text("the cat\n\nthe dog\n")
    (tmp_path / "book.txt").write_text("one book\nof two lines\n")
    settings = text_settings(
        f"text:{tmp_path}/wiki.txt; text:{tmp_path}/book.txt", "train:wordpiece:40", 16, workers=1
    )
    with pytest.raises(ValueError, match=r"lines if each .*blank_lines; book=\.\.\.'\), or add"):
        preparation.prepare(settings, str(tmp_path / "data"), lambda line: None)


def test_names_are_given_or_made():
    sources = text.parse("wiki=text:a=b/*.txt@3; builtin@1; text:en/*.txt@1; b=text:wiki/*.txt@.5")
    assert [(source.name, source.spec, source.weight) for source in sources] == [
        ("wiki", "text:a=b/*.txt", 3.0),
        ("builtin", "builtin", 1.0),
        ("en", "text:en/*.txt", 1.0),
        ("b", "text:wiki/*.txt", 0.5),
    ]
    # Letters are those of all scripts, as in names that are made, however they are composed.
    (named,) = text.parse("bu\u0308cher = text:en/*.txt")
    assert (named.name, named.spec) == ("b\u00fccher", "text:en/*.txt")
    by_source.check("data.documents", "lines; bu\u0308cher=files", ["b\u00fccher", "wiki"], KINDS)
    assert by_source.of("lines; bu\u0308cher=files", named.name) == "files"
    # A name that is given is not made again, wherever it stands.
    assert [one.name for one in text.parse("text:en/*.txt; EN=builtin")] == ["en2", "EN"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a=builtin; a=text:1.txt", "two sources are called 'a'; name one of them NAME=SPEC"),
        ("a.b=builtin", "calls a source 'a.b'; a name has letters, digits, '-' and '_' alone"),
        ("my wiki=text:1.txt", "calls a source 'my wiki'"),
        ("=builtin", "calls a source ''"),
        ("a=builtin; A=text:1.txt", "two sources are called 'A'"),
        ("a=", "is none of builtin, text:GLOB"),
        ("a=en/1.txt", "'en/1.txt' is none of builtin, .*; did you mean text:en/1.txt?"),
        (f"{41 * 'a'}=builtin", "has a name of 41 characters; give it one of at most 40"),
    ],
)
def test_a_name_that_cannot_be_used_is_one_line(source, message):
    with pytest.raises(ValueError, match=message) as error:
        text.parse(source)
    assert "\n" not in str(error.value)


@pytest.fixture
def mixture(tmp_path):
    """Text of three sources: 40 paragraphs, 30 records with two fields, 20 books of two paragraphs.

    The words of each source are its own.
    """
    paragraphs = (f"a cat of {n:02d}" for n in range(40))
    (tmp_path / "wiki.txt").write_text("\n\n".join(paragraphs) + "\n")
    found = ({"title": f"On dogs {n:02d}", "abstract": "They bark."} for n in range(30))
    (tmp_path / "papers.jsonl").write_text("".join(json.dumps(one) + "\n" for one in found))
    (tmp_path / "books").mkdir()
    for n in range(20):
        (tmp_path / f"books/{n:02d}.txt").write_text(f"one bird {n:02d}\n\ntwo birds\n")
    return (
        f"wiki=text:{tmp_path}/wiki.txt@1; papers=text:{tmp_path}/papers.jsonl@1;"
        f" books=text:{tmp_path}/books/*.txt@1"
    )


def test_each_source_is_read_by_its_own_settings(mixture, tmp_path):
    settings = text_settings(
        mixture,
        "train:wordpiece:80",
        16,
        text_field=FIELD,
        documents=DOCUMENTS,
        heldout_fraction=0.2,
        workers=1,
    )
    planning.check_beginnings(settings)
    told = []
    opened = records.open(preparation.prepare(settings, str(tmp_path / "data"), told.append))
    sources = opened.manifest.sources
    assert [source.name for source in sources] == ["wiki", "papers", "books"]
    assert [source.counts["documents"] for source in sources] == [40, 30, 20]
    assert not [line for line in told if "field" in line]

    words = vocabulary.load(f"{opened.directory}/{records.VOCABULARY}")
    first = opened.read("train", 1, range(1))[0][0]
    pieces = "".join(words.spelled(int(id_)).removeprefix("##") for id_ in first)
    assert "ondogs" in pieces and "theybark" in pieces


def test_rows_know_nothing_of_the_settings_of_other_sources(mixture, tmp_path):
    """Without them a field is missing, and each paragraph of a book is a document."""
    options = dict(heldout_fraction=0.2, workers=1)
    settings = text_settings(mixture, "train:wordpiece:80", 16, documents=DOCUMENTS, **options)
    with pytest.raises(ValueError, match=r"no field 'text' \(there is: title, abstract\)"):
        planning.check_beginnings(settings)

    settings = text_settings(mixture, "train:wordpiece:80", 16, text_field=FIELD, **options)
    *_, books = text.parse(mixture)
    assert planning.options(settings, books).documents == "blank_lines"
    tasks = planning.make_tasks(planning.make_plan(settings, str(tmp_path)))
    fields = {task.source_index: task.options.text_field for task in tasks}
    assert fields == {0: "text", 1: "title+abstract", 2: "text"}


def test_a_misspelt_field_of_one_source_is_named(mixture, tmp_path):
    settings = text_settings(
        mixture, "train:wordpiece:80", 16, text_field="text; papers=titel+abstract"
    )
    tasks = planning.make_tasks(planning.make_plan(settings, str(tmp_path)))
    said = text_warnings.missing_fields(tasks)
    assert "has the field 'titel' of data.text_field='titel+abstract'" in said


def test_other_text_of_the_same_name_is_read_as_the_run_reads_it(mixture, tmp_path):
    words = tmp_path / "vocab.txt"
    words.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\none\nbird\ntwo\nbirds\n")
    words = vocabulary.load(str(words))
    settings = text_settings(mixture, "", 16, text_field=FIELD, documents=DOCUMENTS)

    def documents(name):
        (source,) = evaluation_text.parse(f"{name}=text:{tmp_path}/books/*.txt")
        return evaluation_text.read(source, settings, words, 0).documents

    assert documents("books") == 20
    assert documents("others") == 40

    only = text_settings(mixture, "", 16, text_field="wiki=text; papers=title; books=text")
    (source,) = evaluation_text.parse(f"others=text:{tmp_path}/books/*.txt")
    # `evaluate` writes --text_field for data.text_field, which is the remedy, not what the run has.
    message = "by text_field='wiki=.*', which has no value for the source 'others'; set data.text_f"
    with pytest.raises(ValueError, match=message):
        evaluation_text.read(source, only, words, 0)
    with pytest.raises(ValueError, match="no source is called 'books'; known here: others"):
        evaluation_text.check((source,), documents=DOCUMENTS)
