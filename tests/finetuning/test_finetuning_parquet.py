# SPDX-License-Identifier: Apache-2.0
"""Parquet files become examples, with the names of their classes where they are in the file."""

import gzip
import json
import zipfile

import pyarrow
import pytest
from pyarrow import parquet

from electra_jax.finetuning.tasks import custom, examples, new_files, reading

CLASSES = {"names": ["bad", "good"], "_type": "ClassLabel"}
TAGS = {"names": ["O", "B-PER"], "_type": "ClassLabel"}


def write(path, features=None, **columns):
    """A file with these columns and, as `datasets` writes it, what they are."""
    table = pyarrow.table(columns)
    if features:
        about = json.dumps({"info": {"features": features}})
        table = table.replace_schema_metadata({"huggingface": about})
    parquet.write_table(table, path)


def read(place, **settings):
    return reading.read(custom.task({"train": "a.parquet", "dev": "a.parquet"} | settings), place)


def labels(data):
    """The labels of train in words, or as numbers if they are not classes."""
    numbers = [example.label for example in data.train.examples]
    return [data.task.labels[n] if data.task.labels else n for n in numbers]


@pytest.mark.parametrize(
    ("column", "features", "expected"),
    [
        (["good", "bad"], None, ["good", "bad"]),
        ([1, 0], None, ["1", "0"]),
        ([1, 0], {"y": CLASSES, "t": {"dtype": "string", "_type": "Value"}}, ["good", "bad"]),
        ([1, 0], {"y": {"dtype": "int64", "_type": "Value"}}, ["1", "0"]),
        (pyarrow.array(["good", "bad"]).dictionary_encode(), None, ["good", "bad"]),
    ],
)
def test_labels_are_text_or_numbers_or_the_names_that_belong_to_numbers(
    column, features, expected, tmp_path
):
    write(tmp_path / "a.parquet", features, i=[7, 8], t=["A", "B"], y=column)
    data = read(tmp_path, text="t", label="y", id="i")
    assert labels(data) == expected
    assert [(e.id, e.a) for e in data.train.examples] == [("7", "A"), ("8", "B")]


def test_numbers_and_pairs_are_read(tmp_path):
    write(tmp_path / "a.parquet", a=["A", "B"], b=["C", None], y=[2.5, 0.0])
    data = read(tmp_path, kind="regression", text="a", pair="b", label="y")
    assert [(e.a, e.b, e.label) for e in data.train.examples] == [("A", "C", 2.5), ("B", "", 0.0)]


@pytest.mark.parametrize("items", ["List", "Sequence", None])
def test_several_labels_are_a_list_or_columns_of_0_and_1(items, tmp_path):
    of_list = {"feature": CLASSES, "length": -1, "_type": items} if items else [CLASSES]
    write(
        tmp_path / "a.parquet",
        {"y": of_list},
        t=["A", "B"],
        y=[[1, 0], []],
        bad=[True, False],
        good=[1, 0],
    )
    for label, names in (("y", "bad good"), (("bad", "good"), "bad good"), (("2", "-1"), "2 -1")):
        data = read(tmp_path, kind="multi_label", text="t", label=label)
        assert [sorted(e.label) for e in data.train.examples] == [[0, 1], []], label
        assert data.task.labels == tuple(names.split())


def test_columns_may_be_numbers_and_a_file_compressed_or_in_an_archive(tmp_path):
    write(tmp_path / "a.parquet", t=["A", "B"], y=["x", "z"])
    content = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.PARQUET.GZ").write_bytes(gzip.compress(content))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("in/a.parquet", content)
    (tmp_path / "a").write_bytes(content)
    for name, layout in (("a.PARQUET.GZ", ""), ("a.zip/in/a.parquet", ""), ("a", "parquet")):
        data = read(tmp_path, train=name, dev=name, format=layout, label="-1")
        assert [e.a for e in data.train.examples] == ["A", "B"] and labels(data) == ["x", "z"]


def test_a_test_set_may_lack_its_labels_or_have_them_as_unknown(tmp_path):
    write(tmp_path / "a.parquet", {"y": CLASSES}, t=["A", "B"], y=[1, 0])
    write(tmp_path / "none.parquet", t=["C"])
    write(tmp_path / "unknown.parquet", {"y": CLASSES}, t=["C"], y=[-1])
    for name in ("none", "unknown"):
        data = read(tmp_path, test=f"{name}.parquet", text="t", label="y")
        assert [e.label for e in data.test["test"].examples] == [None], name
    with pytest.raises(ValueError, match="unknown.parquet:0: no label"):
        read(tmp_path, dev="unknown.parquet", text="t", label="y")


@pytest.mark.parametrize("layout", ["parquet", "jsonl", "json"])
def test_words_and_their_tags_are_lists(layout, tmp_path):
    words, tags = [["Ann", "is"], [], ["it"]], [["B-PER", "O"], [], ["O"]]
    numbers = [[TAGS["names"].index(tag) for tag in row] for row in tags]
    write(tmp_path / "a.parquet", {"y": {"feature": TAGS, "_type": "List"}}, w=words, y=numbers)
    rows = [json.dumps({"w": w, "y": y}) + "\n" for w, y in zip(words, tags, strict=True)]
    for ending in ("jsonl", "json"):
        (tmp_path / f"a.{ending}").write_text("".join(rows))

    name = f"a.{layout}"
    data = read(tmp_path, kind="tagging", train=name, dev=name, test=name, text="w", label="y")
    expected = [(("Ann", "is"), ("B-PER", "O")), (("it",), ("O",))]
    assert [(e.words, e.tags) for e in data.train.examples] == expected
    assert data.task.labels == ("O", "B-PER")
    assert "custom train: 1 sentences without a word skipped" in data.report.lines()


def test_tags_of_a_test_set_may_be_unknown(tmp_path):
    features = {"y": {"feature": TAGS, "_type": "Sequence"}}
    write(tmp_path / "a.parquet", features, w=[["Ann", "is"]], y=[[1, 0]])
    write(tmp_path / "t.parquet", features, w=[["Bob", "is"]], y=[[-1, -1]])
    data = read(tmp_path, kind="tagging", test="t.parquet")  # the first column and the last
    assert [(e.words, e.tags) for e in data.test["test"].examples] == [(("Bob", "is"), None)]
    with pytest.raises(ValueError, match="t.parquet:0: a word without a tag; mend or delete it"):
        read(tmp_path, kind="tagging", dev="t.parquet")


def answers(*pairs):
    return {"text": [text for text, _ in pairs], "answer_start": [at for _, at in pairs]}


def test_questions_have_the_fields_of_squad(tmp_path):
    found = [answers(("Bob", 0), ("Zoë", 8)), answers()]
    asked = dict(id=["q", "r"], question=["Who ?", "When ?"], context=["Bob and Zoë"] * 2)
    write(tmp_path / "a.parquet", title=["x", "y"], answers=found, **asked)
    first, second = read(tmp_path, kind="span", impossible=True).train.examples
    assert first.answers == (("Bob", 0), ("Zoë", 8)) and not first.impossible
    assert second.answers == () and second.impossible and second.question == "When ?"

    write(tmp_path / "a.parquet", answers=found, is_impossible=[False, None], **asked)
    first, second = read(tmp_path, kind="span", impossible=True).train.examples
    assert not first.impossible and second.impossible  # as merged rows of SQuAD 1 and 2 have it

    write(tmp_path / "t.parquet", answers=[answers()] * 2, **asked)  # all empty: not known
    data = read(tmp_path, kind="span", impossible=True, test="t.parquet")
    assert not any(example.impossible for example in data.test["test"].examples)


@pytest.mark.parametrize(
    ("columns", "settings", "message"),
    [
        ({}, {"text": "txet", "label": "y"}, "a.parquet: no column 'txet'; there is t, y, w$"),
        ({}, {"text": "t", "label": "5"}, "a.parquet: no column 5; there is t, y, w"),
        ({}, {"text": "t", "label": "0"}, "a.parquet: column 't' would be the text and its label"),
        ({"y": [0, 2]}, {"text": "t", "label": "y"}, "a.parquet:1: 'y' is 2, which is no class of"),
        ({}, {"text": "w", "label": "y"}, "a.parquet:0: field 'w' is list, not text"),
        ({"y": [0.5, float("nan")]}, {"text": "t", "label": "y"}, "a.parquet:1: the label is nan"),
        ({"y": [[0], [None]]}, {"text": "t", "label": "y"}, "a.parquet:1: one of several labels"),
        (
            {},
            {"kind": "tagging", "text": "t", "label": "w"},
            "is str, not a list; set custom.text to",
        ),
        ({}, {"kind": "tagging", "text": "x", "label": "w"}, "no column 'x'; there is t, y, w"),
        ({"v": [["A"], ["B"]]}, {"kind": "tagging", "text": "v", "label": "w"}, "a.parquet:0: 1 w"),
        ({"v": [[1], [2]]}, {"kind": "tagging", "text": "v", "label": "w"}, "holds 1, which is no"),
        ({}, {"kind": "span"}, "a.parquet:0: no 'context'"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_column_or_its_row(
    columns, settings, message, tmp_path
):
    some = dict(t=["A", "B"], y=[1, 0], w=[["a", "b"], ["c"]]) | columns
    write(tmp_path / "a.parquet", {"y": CLASSES}, **some)
    with pytest.raises(ValueError, match=message) as raised:
        read(tmp_path, **settings)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_none_or_is_damaged_is_named(tmp_path):
    settings = dict(text="t", label="y")
    (tmp_path / "a.parquet").write_text("t,y\nA,x\n")
    with pytest.raises(ValueError, match="a.parquet is not a parquet file: "):
        read(tmp_path, **settings)
    write(tmp_path / "a.parquet", t=["A" * 1000, "B"], y=["x", "z"])
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    content[4:40] = b"\xff" * 36
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(ValueError, match="a.parquet cannot be read: .*; is the file whole?"):
        read(tmp_path, **settings)
    write(tmp_path / "a.parquet", t=pyarrow.array([], "string"), y=pyarrow.array([], "string"))
    with pytest.raises(ValueError, match="a.parquet holds no example"):
        read(tmp_path, **settings)


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("classification", {"t": ["A", "B"]}),
        ("tagging", {"t": [["A"], ["B"]]}),
        ("span", {"id": ["0", "1"], "question": ["A", "B"], "context": ["C", "D"]}),
    ],
)
def test_new_examples_need_no_labels(kind, columns, tmp_path):
    write(tmp_path / "new.parquet", **columns)
    task = custom.task({"kind": kind, "train": "a.csv", "text": "t", "label": "y", "labels": "O,x"})
    split = new_files.read_new(task, str(tmp_path / "new.parquet"), examples.Report())
    assert [e.id for e in split.examples] == ["0", "1"] and not split.labelled
