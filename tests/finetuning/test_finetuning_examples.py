# SPDX-License-Identifier: Apache-2.0
"""GLUE's files as they are found in the wild become examples, or are refused with their line."""

import gzip
import json
import lzma

import pytest

from electra_jax.finetuning.tasks import built_in, custom, examples, files, reading
from support.task_files import read, read_custom, texts, write


def test_cola_has_no_header_but_in_test_where_columns_differ(tmp_path):
    write(
        tmp_path / "CoLA",
        train="gj04\t1\t\tHe slept.\ncj99\t0\t*\tSlept he has.\n",
        dev='gj04\t1\t\tThe "old" man.\r\ngj04\t0\t*\tMan old.',  # no final newline
        test="index\tsentence\n0\tWho came?\n1\tCame who?\n",
    )
    data = read("cola", tmp_path)
    assert texts(data.train) == [("0", "He slept.", None, 1), ("1", "Slept he has.", None, 0)]
    assert texts(data.dev["dev"])[0][1] == 'The "old" man.'
    assert texts(data.dev["dev"])[1] == ("1", "Man old.", None, 0)
    assert texts(data.test["test"]) == [
        ("0", "Who came?", None, None),
        ("1", "Came who?", None, None),
    ]
    assert data.report.lines()[0] == "cola train: 2 examples"


def test_a_byte_order_mark_and_lone_quotes_lose_no_row(tmp_path):
    head = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    body = '1\t1\t2\tHe said , " yes .\tYes .\n0\t3\t4\t" No\tNone of it .\n1\t5\t6\tA\tB\n'
    write(
        tmp_path / "MRPC",
        train=b"\xef\xbb\xbf" + (head + body).encode(),
        dev=head + body,
        test='index\t#1 ID\t#2 ID\t#1 String\t#2 String\n7\t1\t2\t" a\tb\n',
    )
    data = read("mrpc", tmp_path)
    assert texts(data.train) == [
        ("0", 'He said , " yes .', "Yes .", 1),
        ("1", '" No', "None of it .", 0),
        ("2", "A", "B", 1),
    ]
    assert texts(data.test["test"]) == [("7", '" a', "b", None)]
    assert texts(examples.both_orders(data.train))[3] == ("0", "Yes .", 'He said , " yes .', 1)


STS = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"


def test_scores_are_numbers_within_their_range(tmp_path):
    row = "4\tnews\tMSR\t2012\t4\tnone\tnone\tA plane.\tAn air plane.\t{}\n"
    write(tmp_path / "STS-B", train=STS + row.format("3.800"), dev=STS + row.format("5"))
    data = read("stsb", tmp_path)
    assert texts(data.train) == [("4", "A plane.", "An air plane.", 3.8)]
    for bad, message in (
        ("5.2", "train.tsv:2: label 5.2 is not within 0 to 5"),
        ("nan", "train.tsv:2: label 'nan' is no number"),
        ("", "train.tsv:2: label '' is no number"),
    ):
        write(tmp_path / "STS-B", train=STS + row.format(bad))
        with pytest.raises(ValueError, match=message):
            read("stsb", tmp_path)


def test_mnli_has_two_dev_sets_and_its_label_stands_last(tmp_path):
    head = "index\tpairID\tsentence1\tsentence2\tlabel1\tgold_label\n"
    for name in ("train", "dev_matched", "dev_mismatched"):
        write(tmp_path / "MNLI", **{name: head + "0\tx\tA\tB\tneutral\tcontradiction\n"})
    data = read("mnli", tmp_path)
    assert list(data.dev) == ["dev_matched", "dev_mismatched"]
    assert data.task.labels[data.train.examples[0].label] == "contradiction"


def test_torn_rows_of_qqp_are_counted_and_elsewhere_refused(tmp_path):
    head = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    torn = "1\t2\t3\tHow?\tHow so?\t1\n2\t4\t5\tWhy\n3\t4\t5\tWho?\t\t0\n\n"
    write(tmp_path / "QQP", train=head + torn, dev=head + "9\t1\t1\tA\tB\t0\n")
    data = read("qqp", tmp_path)
    assert [e.id for e in data.train.examples] == ["1", "3"]
    assert data.report.counts["qqp train", "rows with another number of cells skipped"] == 1
    assert data.report.counts["qqp train", "blank lines skipped"] == 1
    assert data.report.counts["qqp train", "empty texts kept"] == 1
    write(tmp_path / "RTE", train="index\tsentence1\tsentence2\tlabel\n0\tA\tB\n")
    with pytest.raises(ValueError, match="RTE/train.tsv:2: 3 cells where there are 4 columns"):
        read("rte", tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("sentence\tlabel\nGood\t2\n", "train.tsv:2: label '2' is none of 0, 1"),
        ("sentence\tlabel\nGood\t1\nBad\t\n", "train.tsv:3: label '' is none of 0, 1"),
        ("sentence\ttag\nGood\t1\n", "train.tsv:1: no column 'label'; there is sentence, tag"),
        (
            "a,label\nGood,1\n",
            "there is a,label, one column; if ',' separates columns, give custom.format=csv",
        ),
        (
            "a;label\nGood;1\n",
            "one column; if ';' separates columns, write commas",
        ),
        ("sentence\tlabel\tlabel\nA\t1\t0\n", "train.tsv:1: column 'label' occurs 2 times"),
        ("sentence\tlabel\n", "train.tsv holds no example"),
        ("", "train.tsv is empty"),
        (b"sentence\tlabel\nGood\t1\nB\xe4d\t0\n", "train.tsv:3: byte 0xe4 is no utf-8"),
        ("sentence\tlabel\nGood\t1\tmore\n", "train.tsv:2: 3 cells where there are 2 columns"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_line(content, message, tmp_path):
    write(tmp_path / "SST-2", train=content)
    with pytest.raises(ValueError, match=message):
        read("sst2", tmp_path)


def test_a_folder_without_the_files_is_named(tmp_path):
    with pytest.raises(ValueError, match="task rte: .* holds no RTE/train.tsv; set data.dir"):
        read("rte", tmp_path)


def test_the_diagnostic_set_has_neither_train_nor_labels(tmp_path):
    write(tmp_path / "diagnostic", diagnostic="index\tsentence1\tsentence2\n0\tA\tB\n")
    data = read("ax", tmp_path)
    assert data.train is None and data.dev == {} and len(data.test["test"].examples) == 1


def test_without_a_train_file_dev_is_parted_by_its_texts(tmp_path):
    rows = "".join(f"{i}\tWhy {i % 50} ?\tSo {i % 50} .\tentailment\n" for i in range(100))
    write(tmp_path / "QNLI", dev="index\tquestion\tsentence\tlabel\n" + rows)
    data = read("qnli", tmp_path, dev_share=0.3)
    train = {e.a for e in data.train.examples}
    dev = {e.a for e in data.dev["dev"].examples}
    assert not train & dev, "equal texts fall on one side"
    assert len(data.train.examples) + len(data.dev["dev"].examples) == 100
    assert 0.1 < len(data.dev["dev"].examples) / 100 < 0.5
    assert "no train file" in data.train.note and data.train.note in data.report.lines()
    assert read("qnli", tmp_path, dev_share=0.3).train == data.train


@pytest.mark.parametrize(
    ("name", "file", "content", "wanted"),
    [
        ("ner", "eng.testb", "EU NNP B-NP B-ORG\n", "eng.train|train.txt|train.conll"),
        ("rte", "RTE/test.tsv", "index\tsentence1\tsentence2\n0\tA\tB\n", "train.tsv"),
    ],
)
def test_a_test_file_alone_is_refused_with_the_file_that_is_missing(
    name, file, content, wanted, tmp_path
):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(content)
    with pytest.raises(ValueError, match=f"nothing to train on beside .*{file}; put ") as refused:
        read(name, tmp_path)
    assert f"put {wanted} there, or set data.dir" in str(refused.value)


def test_a_file_may_be_packed_named_by_a_pattern_or_by_alternatives(tmp_path):
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(b"x\r\ny"))
    (tmp_path / "b.tsv.xz").write_bytes(lzma.compress(b"z\x0cz\n"))
    assert files.find(str(tmp_path), "*.tsv.*") == [
        f"{tmp_path}/{n}" for n in ("a.tsv.gz", "b.tsv.xz")
    ]
    assert files.find(str(tmp_path), "c.tsv|b.tsv.xz") == [f"{tmp_path}/b.tsv.xz"]
    assert files.find(str(tmp_path), "c.tsv") == []
    assert files.lines(f"{tmp_path}/a.tsv.gz") == ["x", "y"]
    assert files.lines(f"{tmp_path}/b.tsv.xz") == ["z\x0cz"]
    (tmp_path / "a.tsv.gz").write_bytes(b"\x1f\x8b damaged")
    with pytest.raises(ValueError, match="a.tsv.gz cannot be read: .*; is it whole"):
        files.lines(f"{tmp_path}/a.tsv.gz")


def test_a_set_with_dev_alone_leaves_no_example_of_train_in_it(tmp_path):
    """MNLI's dev is called dev_matched: what becomes train is not scored under that name."""
    lines = ["\t".join(["index", *["x"] * 7, "sentence1", "sentence2", "x", "gold_label"])]
    for n in range(60):
        lines.append("\t".join([str(n), *["x"] * 7, f"this is {n}", "so it is", "x", "neutral"]))
    (tmp_path / "MNLI").mkdir()
    (tmp_path / "MNLI" / "dev_matched.tsv").write_text("\n".join(lines))
    data = reading.read(built_in.named("mnli"), str(tmp_path), dev_share=0.3)
    assert set(data.splits) == {"train", "dev"}
    assert not {x.id for x in data.train.examples} & {x.id for x in data.dev["dev"].examples}


def test_one_id_in_two_files_is_refused_before_anything_is_trained(tmp_path):
    qa = {"id": "7", "question": "who?", "answers": [{"text": "we", "answer_start": 0}]}
    content = {"data": [{"paragraphs": [{"context": "we are here", "qas": [qa]}]}]}
    for name in ("train", "dev.de", "dev.fr"):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    task = custom.task(dict(kind="span", train="train.json", dev="dev.*.json"))
    with pytest.raises(ValueError, match="id '7' is also that of") as error:
        reading.read(task, str(tmp_path))
    for place in ("dev.fr.json: data[0].paragraphs[0].qas[0]", "dev.de.json: data[0]"):
        assert place in str(error.value), "both places are named"


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("csv", ["id,text,label", "a,we,x", "b,they,y", "a,you,x"]),
        ("csv", ["id,text,label", "1,we,x", ",they,y", "a,you,x"]),  # a row without one is 1 too
        (
            "jsonl",
            ["", *(json.dumps({"id": i, "text": "we", "label": "x"}) for i in (7, 8, "7"))],
        ),
    ],
)
def test_an_id_that_two_rows_have_is_refused_with_both_lines(kind, rows, tmp_path):
    """Predictions are found by their ids, so one of the two would be lost."""
    (tmp_path / f"dev.{kind}").write_text("\n".join(rows) + "\n")
    settings = dict(train=f"dev.{kind}", text="text", label="label", labels="x,y")
    lines = (3, 2) if ",they" in rows[2] and rows[2][0] == "," else (4, 2)
    with pytest.raises(ValueError, match="give every example an id of its own") as error:
        read_custom(tmp_path, id="id", **settings)
    for line in lines:
        assert f"dev.{kind}:{line}" in str(error.value), error.value
    assert len(read_custom(tmp_path, dev_share=0, **settings).train.examples) == 3, "rows count"


def test_one_id_in_two_tables_of_a_split_is_refused(tmp_path):
    for name in ("train", "dev.de", "dev.fr"):
        (tmp_path / f"{name}.csv").write_text("id,text,label\n7,we,x\n8,you,y\n")
    settings = dict(train="train.csv", dev="dev.*.csv", text="text", label="label", id="id")
    with pytest.raises(ValueError, match=r"dev.fr.csv:2: id '7' is also that of .*dev.de.csv:2"):
        read_custom(tmp_path, **settings)


def test_texts_of_dev_that_are_in_train_too_are_counted(tmp_path):
    train = "a\t1\t\tHe slept.\nb\t0\t*\tSlept he has.\nc\t1\t\tShe came.\n"
    dev = "d\t0\t\tHe slept.\ne\t1\t\tWho knows.\nf\t1\t\tShe came.\n"  # of whatever label
    write(tmp_path / "CoLA", train=train, dev=dev)
    assert (
        "cola dev: 2 examples whose text is in train too" in read("cola", tmp_path).report.lines()
    )
    write(tmp_path / "CoLA", train=train, dev=dev.splitlines(keepends=True)[1])
    assert not [line for line in read("cola", tmp_path).report.lines() if "in train too" in line]
