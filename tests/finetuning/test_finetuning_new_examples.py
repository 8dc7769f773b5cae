# SPDX-License-Identifier: Apache-2.0
"""Files for a tuned model: new examples without labels, and labelled ones to score it on."""

import dataclasses

import pyarrow
import pytest

from electra_jax.finetuning.tasks import built_in, custom, examples, new_files
from support.squad_files import qa, write_squad


def texts_of(path, **settings):
    task = custom.task({"train": "train.tsv", "label": "label", "text": "text"} | settings)
    split = new_files.read_new(
        dataclasses.replace(task, labels=("a", "b")), str(path), examples.Report()
    )
    assert not split.labelled
    return [example.a for example in split.examples]


def test_new_texts_stand_one_a_line_with_no_label_in_front_or_in_the_name(tmp_path):
    path = tmp_path / "lr=0.1.txt"
    path.write_text("How did it end ?\n\nWhy ?\n")
    for layout in ({}, {"format": "lines"}, {"format": "label_first", "text": "", "label": ""}):
        assert texts_of(path, **layout) == ["How did it end ?", "Why ?"], layout


def test_new_rows_have_the_columns_of_the_task_and_need_no_label(tmp_path):
    (tmp_path / "new.tsv").write_text("text\tlabel\nHow ?\tunheard of\n")
    (tmp_path / "new.jsonl").write_text('{"text": "How ?"}\n')
    (tmp_path / "new.txt").write_text("text\tother\nHow ?\tx\n")
    assert texts_of(tmp_path / "new.tsv") == texts_of(tmp_path / "new.jsonl") == ["How ?"]
    assert texts_of(tmp_path / "new.txt", format="tsv") == ["How ?"]


@pytest.mark.parametrize(
    "name, content",
    [
        ("new.csv", "text,label\nfirst,\n,\n\nthird,\n"),
        ("new.csv", 'text\nfirst\n""\n\nthird\n'),
        ("new.tsv", "text\tlabel\nfirst\t\n\t\n\nthird\t\n"),
        ("new.jsonl", '{"text": "first"}\n{"text": ""}\n\n{"text": "third"}\n'),
    ],
)
def test_an_empty_text_has_its_answer_and_a_blank_line_none(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    assert texts_of(tmp_path / name) == ["first", "", "third"]


def test_a_half_of_a_character_in_json_becomes_the_sign_that_replaces(tmp_path):
    """A broken emoji; a whole one stays, and all that is written of it can be written."""
    (tmp_path / "new.jsonl").write_text(r'{"text": "a \ud83d b \ud83d\ude00"}' + "\n")
    assert texts_of(tmp_path / "new.jsonl") == ["a \ufffd b \U0001f600"]
    write_squad(tmp_path / "new.json", qa("1", []), context="It \ud83d is.")
    split = new_files.read_new(
        built_in.named("squad"), str(tmp_path / "new.json"), examples.Report()
    )
    assert split.examples[0].context == "It \ufffd is."


def test_zstandard_is_read_as_it_is_for_pre_training(tmp_path):
    with pyarrow.CompressedOutputStream(str(tmp_path / "new.jsonl.zst"), "zstd") as file:
        file.write(b'{"text": "How ?"}\n')
    assert texts_of(tmp_path / "new.jsonl.zst") == ["How ?"]


def labelled(task, path):
    return new_files.read_labelled(task, str(path), examples.Report())


def test_labelled_files_have_the_columns_of_the_dev_set(tmp_path):
    """Of MNLI's official files those of test have no labels."""
    (tmp_path / "new.tsv").write_text(
        "pairID\tgold_label\tsentence1\tsentence2\n7n\tneutral\tIt rains .\tIt pours .\n"
    )
    split = labelled(built_in.named("mnli"), tmp_path / "new.tsv")
    assert [(e.a, e.b, e.label) for e in split.examples] == [("It rains .", "It pours .", 1)]


def test_blanks_around_a_label_are_no_part_of_it(tmp_path):
    (tmp_path / "new.jsonl").write_text('{"text": "A", "label": " b\\n"}\n')
    task = custom.task({"train": "train.jsonl", "label": "label", "text": "text", "labels": "a,b"})
    assert labelled(task, tmp_path / "new.jsonl").examples[0].label == 1


def test_the_name_of_a_file_of_lines_says_their_label(tmp_path):
    path = tmp_path / "lr=0.1.txt"
    path.write_text("How did it end ?\n\nWhy ?\n")
    split = labelled(built_in.named("subjectivity"), f"{path}=objective")
    assert [(example.a, example.label) for example in split.examples] == [
        ("How did it end ?", 1),
        ("Why ?", 1),
    ]
    for name in (path, tmp_path / "plain.txt"):
        with pytest.raises(ValueError, match=rf"{name}: its lines have no label; .*=subjective$"):
            labelled(built_in.named("subjectivity"), name)


@pytest.mark.parametrize(
    ("name", "content", "kind", "message"),
    [
        ("new.csv", "text\nA\n", "", r"new.csv:1: no column 'label'; there is text"),
        ("new.csv", "text,label\nA,a\nB,\n", "", "new.csv:3: no label in column 'label'; write"),
        ("new.csv", "text,label\nA,c\n", "", "new.csv:2: label 'c' is none of a, b; mend"),
        ("new.jsonl", '{"text": "A"}\n', "", "new.jsonl:1: no field 'label'; there is text"),
        ("new.jsonl", '{"text": "A", "label": null}\n', "", "new.jsonl:1: no label in column"),
        ("new.txt", "A\n", "", "new.txt: lines of a .txt file have no column 'label'; give a .tsv"),
        ("new.csv", "text,label\nA,\nB,\n", "multi_label", "column 'label' is empty throughout"),
        ("new.csv", "text,label\nA,much\n", "regression", "new.csv:2: label 'much' is no number"),
    ],
)
def test_a_file_without_labels_cannot_be_scored(tmp_path, name, content, kind, message):
    (tmp_path / name).write_text(content)
    task = custom.task(
        dict(kind=kind or "classification", train="train.csv", text="text", label="label")
    )
    with pytest.raises(ValueError, match=message) as refused:
        labelled(dataclasses.replace(task, labels=("a", "b")), tmp_path / name)
    assert "\n" not in str(refused.value)


def test_of_several_labels_an_example_may_have_none(tmp_path):
    (tmp_path / "new.csv").write_text('text,label\nA,\nB,"b,a"\n')
    task = custom.task(dict(kind="multi_label", train="train.csv", text="text", label="label"))
    split = labelled(dataclasses.replace(task, labels=("a", "b")), tmp_path / "new.csv")
    assert [example.label for example in split.examples] == [(), (1, 0)]


def test_questions_to_score_have_answers_or_are_said_to_have_none(tmp_path):
    write_squad(tmp_path / "new.json", qa("q1", [("Ann", 0)]), qa("q2", [], is_impossible=True))
    split = labelled(built_in.named("squad2"), tmp_path / "new.json")
    assert [example.impossible for example in split.examples] == [False, True]
    with pytest.raises(ValueError, match="a question without an answer; SQuAD 2.0 is task squad2"):
        labelled(built_in.named("squad"), tmp_path / "new.json")
    write_squad(tmp_path / "new.json", qa("q1", [("Ann", 0)]), qa("q2", []))
    with pytest.raises(ValueError, match=r"new.json: question 'q2' has no answer .*; take it out"):
        labelled(built_in.named("squad2"), tmp_path / "new.json")


def test_a_new_question_may_be_marked_as_one_without_an_answer(tmp_path):
    write_squad(tmp_path / "new.json", qa("q1", [], is_impossible=True))
    split = new_files.read_new(
        built_in.named("squad"), str(tmp_path / "new.json"), examples.Report()
    )
    assert [example.id for example in split.examples] == ["q1"]


TAGS = custom.task({"kind": "tagging", "train": "a.conll", "text": 0, "label": 1})


def test_running_text_has_a_text_a_line(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_bytes("\ufeffAnn sleeps.\r\n\r\n In Paris\r\n".encode())
    report = examples.Report()
    found = new_files.read_running_text(TAGS, str(path), report).examples
    assert [(example.id, example.text, example.words) for example in found] == [
        ("0", "Ann sleeps.", ("Ann", "sleeps", ".")),
        ("1", " In Paris", ("In", "Paris")),
    ]
    assert report.notes == []
    with pytest.raises(ValueError, match="task cola tags no words, .* leave out --running_text$"):
        new_files.read_running_text(built_in.named("cola"), str(path), report)


def test_what_is_no_running_text_is_refused_or_pointed_out(tmp_path):
    for ending in (".jsonl", ".parquet", ".JSONL"):
        path = tmp_path / f"new{ending}"
        path.write_text('{"tokens": ["Ann", "sleeps"]}\n')
        with pytest.raises(ValueError, match="holds records, not one text per line; give a .txt"):
            new_files.read_running_text(TAGS, str(path), examples.Report())
    (tmp_path / "new.txt").write_text("\n \n")
    with pytest.raises(ValueError, match="holds no text; is it the right file"):
        new_files.read_running_text(TAGS, str(tmp_path / "new.txt"), examples.Report())

    task = dataclasses.replace(TAGS, labels=("O", "B-PER"))
    (tmp_path / "new.conll").write_text("Ann B-PER\nsleeps O\n\nhere O\n")
    new_files.read_running_text(task, str(tmp_path / "new.conll"), report := examples.Report())
    (note,) = report.notes
    assert note.endswith("if these are words with tags, leave out --running_text")


@pytest.mark.parametrize(
    ("content", "pointed_out"),
    [
        ("Ann sleeps in Paris .\n", True),
        ("Ann sleeps here .\nI do not .\n", True),
        ("Ann Smith sleeps here\nPat O Brian sleeps\nAnd so do I\n", True),  # O is a tag
        ("#a b\n#c d\n", True),
        ("Ann NNP\nsleeps VBZ\n", True),
        ("Ann NNP B-PER\nsleeps VBZ O\n", False),
        ("\tAnn\tB-PER\n\tsleeps\tO\n", False),
        ("Hm O\n\nAnn B-PER\n", False),
        ("Hm\n\nNo\n", False),  # words alone, here and below
        ("5\N{NO-BREAK SPACE}kg\nAnn\n", False),
        ("-DOCSTART- -X- -X- O\n\nAnn\nsleeps\n", False),
    ],
)
def test_columns_that_may_be_running_text_are_pointed_out(tmp_path, content, pointed_out):
    (tmp_path / "new.txt").write_text(content)
    task = dataclasses.replace(TAGS, labels=("O", "B-PER"))
    new_files.read_new(task, str(tmp_path / "new.txt"), report := examples.Report())
    note = "few have a tag of the task beside them; if this is running text, add --running_text"
    assert [one.endswith(note) for one in report.notes] == [True] * pointed_out


@pytest.mark.parametrize(
    "content",
    ["# doc_id = 1\nAnn\nsleeps\n", "-DOCSTART- -X- O\n\nAnn\nsleeps\n"],
)
def test_words_alone_are_no_running_text_where_the_task_has_records(tmp_path, content):
    task = custom.task({"kind": "tagging", "train": "a.jsonl", "text": "words", "label": "tags"})
    (tmp_path / "new.txt").write_text(content)
    split = new_files.read_new(task, str(tmp_path / "new.txt"), report := examples.Report())
    assert [example.words for example in split.examples] == [("Ann", "sleeps")]
    assert report.notes == []


def test_lines_of_other_lengths_say_how_running_text_is_read(tmp_path):
    (tmp_path / "new.txt").write_text("Ann sleeps in Paris .\nAnd so do I .\nHm .\n")
    with pytest.raises(ValueError, match=r"new.txt:3: 2 columns .* with --running_text\)$"):
        new_files.read_new(TAGS, str(tmp_path / "new.txt"), examples.Report())

    (tmp_path / "new.txt").write_bytes(b"Ann \xff\n")
    (tmp_path / "new.jsonl").write_text('{"tokens": "Ann sleeps"}\n')
    for name in ("new.txt", "new.jsonl"):  # neither is mended by it
        with pytest.raises(ValueError) as refused:
            new_files.read_new(TAGS, str(tmp_path / name), examples.Report())
        assert "running" not in str(refused.value)
