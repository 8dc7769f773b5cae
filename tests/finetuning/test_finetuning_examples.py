# SPDX-License-Identifier: Apache-2.0
"""Files as they are found in the wild become examples, whole, or are refused with their line."""

import gzip
import json
import lzma
import os
import subprocess
import sys
import zipfile

import pytest

from electra_jax.finetuning.tasks import built_in, custom, examples, files, reading, tfds_records
from support.corpus import ROOT
from support.squad_files import qa, write_squad


def write(folder, **contents):
    """Writes NAME.tsv of each name, bytes as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / f"{name}.tsv").write_bytes(data)
    return folder


def read(name, place, **options):
    return reading.read(built_in.named(name), str(place), **options)


def texts(split):
    return [(e.id, e.a, e.b, e.label) for e in split.examples]


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


def read_custom(place, dev_share=0.1, **settings):
    return reading.read(custom.task(settings), str(place), dev_share)


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


def test_squad_of_both_versions(tmp_path):
    write_squad(tmp_path / "train-v1.1.json", qa("1", [("Ann", 0)]))
    write_squad(tmp_path / "dev-v1.1.json", qa("2", [("Bob", 12), ("Ann", 20)]))
    data = read("squad", tmp_path)
    context = "Ann sleeps. Bob and Ann eat."
    assert data.train.examples == (examples.QuestionExample("1", "Who ?", context, (("Ann", 0),)),)
    assert data.dev["dev"].examples[0].answers == (("Bob", 12), ("Ann", 20))
    hopeless = qa("3", [], is_impossible=True, plausible_answers=[])
    write_squad(tmp_path / "train-v2.0.json", qa("1", [("Ann", 0)], is_impossible=False), hopeless)
    write_squad(tmp_path / "dev-v2.0.json", hopeless)
    found = read("squad2", tmp_path).train.examples
    assert [(e.answers, e.impossible) for e in found] == [((("Ann", 0),), False), ((), True)]
    write_squad(tmp_path / "train-v1.1.json", hopeless)
    with pytest.raises(ValueError, match=r"qas\[0\]: a question without an answer.*squad2"):
        read("squad", tmp_path)


def test_questions_of_ones_own_without_an_answer_are_allowed_by_a_setting(tmp_path):
    write_squad(tmp_path / "a.json", qa("1", [("Ann", 0)]), qa("2", [], is_impossible=True))
    settings = dict(kind="span", train="a.json", dev="a.json")
    with pytest.raises(ValueError, match="without an answer; .* with custom.impossible=True$"):
        read_custom(tmp_path, impossible=False, **settings)
    found = read_custom(tmp_path, impossible=True, **settings).train.examples
    assert [one.impossible for one in found] == [False, True]


def test_an_answer_beside_its_place_is_found_and_a_missing_one_counted(tmp_path):
    write_squad(tmp_path / "train-v1.1.json", qa("1", [("Ann", 19)]), qa("2", [("Eve", 0)]))
    write_squad(tmp_path / "dev-v1.1.json", qa("1", [("Ann", 0)]))
    data = read("squad", tmp_path)
    assert [e.answers for e in data.train.examples] == [(("Ann", 20),), (("Eve", -1),)]
    assert data.report.counts["squad train", "answers found beside their place"] == 1
    assert data.report.counts["squad train", "answers that are not in their context"] == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"data": [\n{"paragraphs"}]}', "train-v1.1.json:2: not JSON"),
        ('{"rows": []}', "train-v1.1.json: no 'data'; the format is SQuAD's JSON"),
        ('{"data": []}', "train-v1.1.json holds no question"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', r"data\[0\].paragraphs\[0\]: no 'context'"),
    ],
)
def test_other_json_is_refused_with_its_place(content, message, tmp_path):
    (tmp_path / "train-v1.1.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        read("squad", tmp_path)


def test_questions_of_one_context_stay_together(tmp_path):
    articles = [
        {
            "paragraphs": [
                {"context": f"Ann {i}", "qas": [qa(f"{i}{k}", [("Ann", 0)]) for k in "ab"]}
            ]
        }
        for i in range(40)
    ]
    (tmp_path / "a.json").write_text(json.dumps({"data": articles}))
    data = read_custom(tmp_path, kind="span", train="a.json")
    dev = {e.context for e in data.dev["dev"].examples}
    assert dev and not dev & {e.context for e in data.train.examples}


def test_without_a_dev_file_questions_without_an_answer_stay_in_train(tmp_path):
    articles = [
        {"paragraphs": [{"context": f"Ann {i}", "qas": [qa(f"{i}", [("Ann", 0)] * (i % 2))]}]}
        for i in range(40)
    ]
    (tmp_path / "a.json").write_text(json.dumps({"data": articles}))
    data = read_custom(tmp_path, kind="span", train="a.json", dev_share=0.3)
    dev = data.dev["dev"].examples
    assert dev and all(e.answers for e in dev)
    assert sum(not e.answers for e in data.train.examples) == 20


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


def test_classes_of_tfds_are_ours_by_name_or_by_number(monkeypatch, tmp_path):
    kept = {
        "cola": (
            ("unacceptable", "acceptable"),
            {"sentence": "A", "idx": 4, "label": "acceptable"},
        ),
        "rte": (
            ("entailment", "not_entailment"),
            {"sentence1": "A", "sentence2": "B", "idx": 4, "label": "not_entailment"},
        ),
    }

    def named(spec):
        return kept[spec.split("/")[1].split(":")[0]]

    monkeypatch.setattr(
        tfds_records, "classes", lambda spec, field: named(spec)[0] if field else ()
    )
    monkeypatch.setattr(tfds_records, "records", lambda spec: [(f"{spec}:0", dict(named(spec)[1]))])
    data = read("cola", "tfds")
    assert texts(data.train) == [("4", "A", None, 1)]
    assert texts(data.test["test"]) == [("4", "A", None, None)]
    assert data.train.files == ("tfds:glue/cola:train",)
    assert data.dev["dev"].files == ("tfds:glue/cola:validation",)
    assert texts(read("rte", "tfds").train) == [("4", "A", "B", 1)]


TFDS = """
import sys
import numpy as np
import tensorflow_datasets as tfds
from electra_jax.finetuning.tasks import custom, reading

ANSWERS = tfds.features.Sequence({"text": tfds.features.Text(), "answer_start": np.int32})

class TinyTasks(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict({
            "id": np.str_,
            "context": tfds.features.Text(),
            "question": tfds.features.Text(),
            "answers": ANSWERS,
            "label": tfds.features.ClassLabel(names=["bad", "good"]),
            "tokens": tfds.features.Sequence(tfds.features.Text()),
            "tags": tfds.features.Sequence(tfds.features.ClassLabel(names=["O", "B-PER"])),
        }))

    def _split_generators(self, manager):
        return {"train": self._generate_examples(3), "validation": self._generate_examples(1)}

    def _generate_examples(self, count):
        for i in range(count):
            answers = {"text": ["Bob", "Zoë"], "answer_start": [0, 8]}
            yield i, {"id": f"q{i}", "context": "Bob and Zoë", "question": "Who ?", "label": i % 2,
                      "answers": answers, "tokens": ["Zoë", "is"], "tags": ["B-PER", "O"]}

TinyTasks(file_format="array_record").download_and_prepare()
FILES = {"train": "tfds:tiny_tasks:train", "dev": "tfds:tiny_tasks:validation"}
for settings in (
    {"kind": "classification", "text": "context", "label": "label"},
    {"kind": "span"},
    {"kind": "tagging", "text": "tokens", "label": "tags"},
):
    data = reading.read(custom.task(FILES | settings), "")
    print("found", ascii([*data.train.examples, len(data.dev["dev"].examples), data.task.labels]))
print("tensorflow" in sys.modules)
"""


def test_a_tfds_set_gives_texts_questions_and_words_without_tensorflow(tmp_path):
    (tmp_path / "program.py").write_text(TFDS)
    environment = os.environ | {"TFDS_DATA_DIR": str(tmp_path / "tfds"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = [line[6:] for line in done.stdout.splitlines() if line.startswith("found")]
    kinds = (examples.TextExample, examples.QuestionExample, examples.TaggedExample)
    names = {kind.__name__: kind for kind in kinds}
    texts_, questions, sentences = (eval(line, names) for line in found)
    assert {e.label for e in texts_[:3]} == {0, 1} and texts_[3:] == [1, ("bad", "good")]
    assert questions[0].answers == (("Bob", 0), ("Zoë", 8)) and questions[0].context[8:] == "Zoë"
    assert sentences[0].words == ("Zoë", "is") and sentences[0].tags == ("B-PER", "O")
    assert done.stdout.splitlines()[-1] == "False"


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


def test_texts_of_dev_that_are_in_train_too_are_counted(tmp_path):
    train = "a\t1\t\tHe slept.\nb\t0\t*\tSlept he has.\nc\t1\t\tShe came.\n"
    dev = "d\t0\t\tHe slept.\ne\t1\t\tWho knows.\nf\t1\t\tShe came.\n"  # of whatever label
    write(tmp_path / "CoLA", train=train, dev=dev)
    assert (
        "cola dev: 2 examples whose text is in train too" in read("cola", tmp_path).report.lines()
    )
    write(tmp_path / "CoLA", train=train, dev=dev.splitlines(keepends=True)[1])
    assert not [line for line in read("cola", tmp_path).report.lines() if "in train too" in line]
