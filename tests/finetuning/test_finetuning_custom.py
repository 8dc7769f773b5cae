# SPDX-License-Identifier: Apache-2.0
"""Tables, lists and folders of one's own become examples, or are refused with their line."""

import gzip
import json
import zipfile

import pytest

from electra_jax.finetuning.tasks import built_in, custom, reading
from support.task_files import read, read_custom, texts


def test_csv_keeps_commas_and_line_ends_within_quotes(tmp_path):
    (tmp_path / "a.csv").write_bytes(
        b'text,y\r\n"One, two\r\nthree","a ""b"""\r\nPlain,c\r\n"Bad, row",x,y\r\n'
    )
    settings = {"train": "a.csv", "dev": "a.csv", "text": "text", "label": "y"}
    with pytest.raises(ValueError, match="a.csv:5: 3 cells where there are 2 columns"):
        read_custom(tmp_path, **settings)
    data = read_custom(tmp_path, odd_rows="skip", **settings)
    assert data.task.labels == ('a "b"', "c")
    assert [e.a for e in data.train.examples] == ["One, two\r\nthree", "Plain"]
    (tmp_path / "a.csv").write_text('text,y\n"open,c\n')
    with pytest.raises(ValueError, match="a.csv:2: .*; if quotation marks are plain text"):
        read_custom(tmp_path, **settings)


def test_f1_of_more_than_two_classes_is_refused(tmp_path):
    (tmp_path / "a.tsv").write_text("t\ty\nA\tx\nB\ty\nC\tz\n")
    settings = {"train": "a.tsv", "dev": "a.tsv", "text": "t", "label": "y"}
    assert read_custom(tmp_path, **settings).task.labels == ("x", "y", "z")
    with pytest.raises(ValueError, match="f1 is for 2 labels, not 3; use macro_f1"):
        read_custom(tmp_path, metrics="f1", **settings)


def test_json_lines_take_labels_of_any_spelling(tmp_path):
    rows = [{"t": "A", "y": 1}, {"t": "B", "y": 10.0}, {"t": "C", "y": "2"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = read_custom(tmp_path, train="a.jsonl", dev="a.jsonl", text="t", label="y")
    assert data.task.labels == ("1", "2", "10")
    assert [e.label for e in data.train.examples] == [0, 2, 1]
    (tmp_path / "a.jsonl").write_text('{"t": "A", "y": 1}\n{"t": "B"}\n')
    with pytest.raises(ValueError, match="a.jsonl:2: no field 'y'; there is t"):
        read_custom(tmp_path, train="a.jsonl", text="t", label="y")
    (tmp_path / "a.jsonl").write_text('{"t": "A", "y": null}\n{"t": "B", "y": 1}\n')
    with pytest.raises(ValueError, match="a.jsonl:1: no label"):
        read_custom(tmp_path, train="a.jsonl", dev="a.jsonl", text="t", label="y", labels="0,1")


def test_several_labels_stand_in_one_cell_in_columns_or_in_a_list(tmp_path):
    (tmp_path / "cell.tsv").write_text("t\ty\nA\tart,sport\nB\t\nC\tart\n")
    (tmp_path / "columns.tsv").write_text("t\tart\tsport\nA\t1\t1\nB\t0\t0\nC\t1\t0\n")
    rows = [{"t": "A", "y": ["art", "sport"]}, {"t": "B", "y": []}, {"t": "C", "y": ["art"]}]
    (tmp_path / "list.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for file, label in (("cell.tsv", "y"), ("columns.tsv", ["art", "sport"]), ("list.jsonl", "y")):
        data = read_custom(
            tmp_path, kind="multi_label", train=file, dev=file, text="t", label=label
        )
        assert data.task.labels == ("art", "sport")
        assert [e.label for e in data.train.examples] == [(0, 1), (), (0,)], file
    (tmp_path / "columns.tsv").write_text("t\tart\tsport\nA\t1\t2\n")
    with pytest.raises(ValueError, match="columns.tsv:2: '2' in column 'sport' is neither 0 nor 1"):
        read_custom(
            tmp_path, kind="multi_label", train="columns.tsv", text="t", label=["art", "sport"]
        )


def test_a_file_for_each_class_in_an_archive(tmp_path):
    with zipfile.ZipFile(tmp_path / "subjectivity.zip", "w") as archive:
        archive.writestr("subjectivity/quote.tok.gt9.5000", "so m\xe9lo !\n" * 30, None)
        plots = "".join(f"plot {i}\n" for i in range(30))
        archive.writestr("subjectivity/plot.tok.gt9.5000", plots.encode("latin-1"))
    data = read("subjectivity", tmp_path, dev_share=0.2)
    found = [*data.train.examples, *data.dev["dev"].examples]
    assert sum(e.label == 0 for e in found) == 30
    assert data.task.labels == ("subjective", "objective") and len(found) == 60


def test_endings_in_capitals_are_the_same_endings(tmp_path):
    (tmp_path / "a.TSV.GZ").write_bytes(gzip.compress(b"t\ty\nA\tx\n"))
    with zipfile.ZipFile(tmp_path / "b.ZIP", "w") as archive:
        archive.writestr("B.CSV", "t,y\nB,x\nC,z\n")
    data = read_custom(tmp_path, train="a.TSV.GZ; b.ZIP/B.CSV", text="t", label="y", dev_share=0)
    assert [e.a for e in data.train.examples] == ["A", "B", "C"]


def test_a_file_that_is_named_in_two_ways_is_read_once(tmp_path, monkeypatch):
    (tmp_path / "x" / "y").mkdir(parents=True)
    (tmp_path / "x" / "y" / "a.tsv").write_text("t\ty\nA\tx\nB\tz\n")
    settings = dict(text="t", label="y", dev_share=0)
    for folder, train in (
        (tmp_path, "x/y/a.tsv; x/*/a.tsv; **/a.tsv"),
        (tmp_path, "**/y/**/*.tsv"),
        ("", "x/y/a.tsv; ./x/*/a.tsv"),
    ):
        monkeypatch.chdir(tmp_path)
        assert len(read_custom(folder, train=train, **settings).train.examples) == 2, train


def test_a_test_example_may_have_none_of_several_labels(tmp_path):
    for name in ("train", "test"):
        (tmp_path / f"{name}.csv").write_text("text,bad,rude\na,1,0\nb,0,0\nc,0,1\n")
    task = custom.task(
        dict(kind="multi_label", train="train.csv", test="test.csv", text="text",
             label=["bad", "rude"])
    )  # fmt: skip
    found = reading.read(task, str(tmp_path), dev_share=0.4)
    assert [x.label for x in found.test["test"].examples] == [(0,), (), (1,)]


@pytest.mark.parametrize(("cells", "labels"), [(("bad", "", "rude,bad"), [(0,), (), (1, 0)]),
                                               (("", "", ""), [None] * 3)])  # fmt: skip
def test_an_empty_cell_of_test_is_a_label_unless_all_are_empty(cells, labels, tmp_path):
    head, rows = "text\ty\n", ("a\tbad", "b\trude", "c\t")
    (tmp_path / "train.tsv").write_text(head + "\n".join(rows))
    (tmp_path / "test.tsv").write_text(head + "".join(f"a\t{cell}\n" for cell in cells))
    settings = dict(kind="multi_label", train="train.tsv", dev="train.tsv", test="test.tsv")
    split = read_custom(tmp_path, text="text", label="y", **settings).test["test"]
    assert [x.label for x in split.examples] == labels
    assert split.labelled == (labels[1] == ())


@pytest.mark.parametrize(
    ("of_test", "labels"), [(([], []), [None, None]), (([], ["bad"]), [(), (0,)])]
)
def test_a_list_of_labels_that_is_empty_in_all_of_test_says_nothing(of_test, labels, tmp_path):
    for name, rows in (("train", (["bad"], ["rude"])), ("test", of_test)):
        lines = [json.dumps({"t": "a", "y": row}) + "\n" for row in rows]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    files_ = dict(train="train.jsonl", dev="train.jsonl", test="test.jsonl")
    found = read_custom(tmp_path, kind="multi_label", text="t", label="y", **files_)
    assert [x.label for x in found.test["test"].examples] == labels


@pytest.mark.parametrize(
    ("name", "content", "settings"),
    [
        ("a.tsv", "y\tt\n1\tA\n0\tB\n", dict(label="y")),  # the text is the first column by itself
        ("a.tsv", "y\tt\n1\tA\n0\tB\n", dict(label="-2", text="y")),
        ("a.csv", "t,p,y\nA,1,1\nB,0,0\n", dict(text="t", pair="1", label="p")),
        ("a.tsv", "bad\trude\n1\t1\n0\t1\n", dict(kind="multi_label", label=("rude", "bad"))),
        ("a.conll", "A x O\nB y B-P\n", dict(kind="tagging", text="2")),
    ],
)
def test_a_text_is_never_its_own_label(name, content, settings, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=f"{name}.*: column . would be the (text|word) and its"):
        read_custom(tmp_path, train=name, dev=name, **settings)
    with pytest.raises(ValueError, match="task custom: column 't' would be the text and its label"):
        custom.task(dict(train="a.jsonl", text="t", label="t"))


def test_an_empty_label_is_named_where_another_is_missing(tmp_path):
    (tmp_path / "a.tsv").write_text("t\ty\nA\tgood\nB\t\n")
    with pytest.raises(ValueError, match=r"one label in train, and none in .*a.tsv:3; look at"):
        read_custom(tmp_path, train="a.tsv", dev="a.tsv", label="y")


def test_a_test_file_of_texts_alone_has_no_label_in_its_last_column(tmp_path):
    (tmp_path / "a.tsv").write_text("A\t1\nB\t0\n")
    (tmp_path / "t.tsv").write_text("C\nD\n")
    found = read_custom(
        tmp_path, train="a.tsv", dev="a.tsv", test="t.tsv", header=False, text="0", label="-1"
    )
    assert texts(found.test["test"]) == [("0", "C", None, None), ("1", "D", None, None)]


def test_columns_are_counted_from_the_end_of_the_header(tmp_path):
    """Rows may have empty cells behind their last column."""
    (tmp_path / "a.csv").write_text("t,y\nA,1,\nB,0,,\nC,1\n")
    found = read_custom(tmp_path, train="a.csv", dev="a.csv", text="-2", label="-1")
    assert [(x.a, x.label) for x in found.train.examples] == [("A", 1), ("B", 0), ("C", 1)]


def test_a_text_of_a_csv_may_be_as_long_as_it_is(tmp_path):
    """By itself the module csv ends at 131,072 characters."""
    (tmp_path / "a.csv").write_text(f"t,y\n{'word ' * 40_000},1\nB,0\n")
    found = read_custom(tmp_path, train="a.csv", dev="a.csv", text="t", label="y")
    assert len(found.train.examples[0].a) == 5 * 40_000 - 1


def test_a_class_may_have_a_comma_in_its_name(tmp_path):
    (tmp_path / "a.csv").write_text('t,y\nA,"news, old"\nB,art\nC,"news, old"\n')
    settings = dict(train="a.csv", dev="a.csv", text="t", label="y")
    for labels, numbers in (("", [1, 0, 1]), ('"news, old",art', [0, 1, 0])):
        data = read_custom(tmp_path, labels=labels, **settings)
        assert sorted(data.task.labels) == ["art", "news, old"]
        assert [e.label for e in data.train.examples] == numbers
    with pytest.raises(ValueError, match=r"a.csv:2: label 'news, old' is none of news, old, art"):
        read_custom(tmp_path, labels="news, old,art", **settings)


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("NaN", "a.jsonl:2: the label is nan, which is no number"),
        ("-Infinity", "a.jsonl:2: the label is -inf, which is no number"),
        ("1e999", "a.jsonl:2: the label is inf, which is no number"),
        ('"high"', "a.jsonl:2: label 'high' is no number"),
        ("[1]", "a.jsonl:2: several labels"),
        ('{"x": 1}', "a.jsonl:2: a label is dict, neither text nor number"),
    ],
)
@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_a_label_that_is_no_number_is_named_with_its_line(label, message, kind, tmp_path):
    if kind == "classification" and label == '"high"':
        return  # a class like any other
    (tmp_path / "a.jsonl").write_text(f'{{"t": "A", "y": 1.5}}\n{{"t": "B", "y": {label}}}\n')
    with pytest.raises(ValueError, match=message):
        read_custom(tmp_path, kind=kind, train="a.jsonl", dev="a.jsonl", text="t", label="y")


def test_a_label_beside_the_range_of_a_task_of_ones_own_is_named_with_its_line(tmp_path):
    settings = dict(kind="regression", train="a.csv", dev="b.csv", text="t", label="y")
    (tmp_path / "a.csv").write_text("t,y\nA,1000000\nB,-2.5\n")
    (tmp_path / "b.csv").write_text("t,y\nC,1234568\n")
    with pytest.raises(ValueError, match="b.csv:2: label 1234568 is not within -2.5 to 1234567; m"):
        read_custom(tmp_path, label_range=(-2.5, 1234567), **settings)
    with pytest.raises(ValueError, match="a.csv:3: label -2.5 is not within 0 to .*; mend that"):
        read_custom(tmp_path, label_range=(0, 2e6), **settings)
    data = read_custom(tmp_path, label_range=(-2.5, 1234568), **settings)
    assert [e.label for e in data.train.examples] == [1e6, -2.5]


@pytest.mark.parametrize(
    ("name", "codec", "mark"),
    [
        ("utf-8", "utf-8", b"\xef\xbb\xbf"),
        ("UTF-8", "utf-8", b"\xef\xbb\xbf"),
        ("utf8", "utf-8", b"\xef\xbb\xbf"),
        ("U8", "utf-8", b"\xef\xbb\xbf"),
        ("utf-8-sig", "utf-8", b"\xef\xbb\xbf"),
        ("utf-16", "utf-16-le", b"\xff\xfe"),
        ("UTF-16LE", "utf-16-le", b"\xff\xfe"),
        ("utf_16_be", "utf-16-be", b"\xfe\xff"),
    ],
)
def test_a_byte_order_mark_is_no_text_however_the_encoding_is_spelled(name, codec, mark, tmp_path):
    (tmp_path / "train.csv").write_bytes(mark + "text,label\nfür,x\nwider,y\n".encode(codec))
    settings = dict(train="train.csv", text="text", label="label", encoding=name)
    split = read_custom(tmp_path, dev_share=0, **settings).train
    assert texts(split) == [("0", "für", None, 0), ("1", "wider", None, 1)]


def test_a_label_stands_before_the_first_blank(tmp_path):
    """As in the files of TREC, which are Latin-1."""
    (tmp_path / "train_5500.label").write_bytes(
        "DESC:manner How did serfdom develop ?\n"
        "HUM:ind\tWho wrote  `` Les Misérables '' ?\r\n"
        "NUM:date When ?\n".encode("latin-1")
    )
    settings = dict(train="train_5500.label", format="label_first", encoding="latin-1")
    data = read_custom(tmp_path, dev_share=0, **settings)
    assert data.task.labels == ("DESC:manner", "HUM:ind", "NUM:date")
    assert texts(data.train) == [
        ("0", "How did serfdom develop ?", None, 0),
        ("1", "Who wrote  `` Les Misérables '' ?", None, 1),
        ("2", "When ?", None, 2),
    ]
    (tmp_path / "train_5500.label").write_text("DESC:manner How ?\n\nHUM:ind \n")
    with pytest.raises(ValueError, match="train_5500.label:3: 'HUM:ind ' is no label with a text"):
        read_custom(tmp_path, **settings)


def test_files_of_a_task_of_ones_own_are_found_where_the_command_runs(tmp_path, monkeypatch):
    """data.dir is 'tfds' where nobody sets it, which says where tasks that are built in are."""
    monkeypatch.chdir(tmp_path)
    settings = dict(train="train.csv", dev="dev.csv", text="text", label="label")
    with pytest.raises(ValueError, match="this folder holds no train.csv; set data.dir to its"):
        reading.read(custom.task(settings), "tfds")
    for name in ("train", "dev"):
        (tmp_path / f"{name}.csv").write_text("text,label\nwe,x\nyou,y\n")
    assert len(reading.read(custom.task(settings), "tfds").train.examples) == 2
    settings |= dict(train="train.csv;more.csv")
    with pytest.raises(ValueError, match="this folder holds no more.csv for train; correct custom"):
        reading.read(custom.task(settings), "tfds")
    with pytest.raises(ValueError, match="task ner is not in TFDS; give a folder"):
        reading.read(built_in.named("ner"), "tfds")


def test_the_label_that_f1_is_of_is_said(tmp_path):
    (tmp_path / "a.tsv").write_text("t\ty\nA\tinteraction\nB\tnone\n")
    settings = dict(train="a.tsv", dev="a.tsv", text="t", label="y", metrics="f1,accuracy")
    assert "f1 is of the label 'none'" in str(read_custom(tmp_path, **settings).report.lines())
    turned = read_custom(tmp_path, labels="none,interaction", **settings)
    assert "f1 is of the label 'interaction'" in str(turned.report.lines())


def test_a_label_that_train_lacks_is_refused_with_the_remedy(tmp_path):
    (tmp_path / "a.tsv").write_text("t\ty\nA\tX\nB\tZ\n")
    (tmp_path / "dev.tsv").write_text("t\ty\nA\tNEW\n")
    with pytest.raises(
        ValueError, match="dev.tsv:2: label 'NEW' is none of X, Z; .* custom.labels"
    ):
        read_custom(tmp_path, train="a.tsv", dev="dev.tsv", text="t", label="y")
