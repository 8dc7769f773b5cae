# SPDX-License-Identifier: Apache-2.0
"""What a fine-tuned task says of new texts and files: every kind, as its run said of dev."""

import json
import os
import pathlib
import re
from unittest import mock

import numpy as np
import pytest
from absl.testing import flagsaver

import electra_jax
from electra_jax import config as config_lib
from electra_jax import predict
from electra_jax.finetuning.tasks import examples
from electra_jax.finetuning.tuning import tuned_model
from support import encoder_workdir, finetunings, tuned_answers
from support.commands import command
from support.encoder_workdir import BAD, GOOD
from support.finetunings import KINDS, folder, run

PREDICT = "electra_jax.predict"


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    return finetunings.make_places(tmp_path_factory.mktemp("tuned"))


@pytest.fixture(scope="module")
def finished(places):
    """An uninterrupted classification of two seeds."""
    return run(places, "finished", "classification")


@pytest.mark.parametrize(
    ("kind", "metric", "least"),
    [
        ("regression", "pearson", 0.8),
        ("multi_label", "micro_f1", 0.9),
        ("tagging", "entity_f1", 0.8),
        ("joint", "span_f1", 0.6),
        ("plain", "span_f1", 0.6),
    ],
)
def test_every_kind_of_task_learns(places, kind, metric, least, capsys, tmp_path):
    more = dict(recipe__epochs=15) if kind in ("joint", "plain", "tagging") else {}
    found = run(places, kind, kind, seeds=1, **more)
    (task,) = found.tasks
    (seed,) = task.seeds
    assert seed.curve[0].loss > seed.curve[-1].loss
    assert seed.scores["dev"][metric] > least
    assert seed.scores["dev"][metric] > task.baselines["dev"][metric]
    assert_scores_of_labels_add_up(seed.by_label["dev"], seed.scores["dev"], kind)
    model, written = tuned_answers.assert_new_texts_are_answered_as_dev_was(places, kind)
    dev = os.path.join(places[1], KINDS[kind]["dev"])
    tuned_answers.assert_files_are_answered_as_dev_was(model, written, dev)
    assert_labelled_files_are_scored_as_dev_was(folder(places, kind), seed, dev, capsys)
    assert_an_export_answers_without_the_workdir(places, model, kind, dev, tmp_path / "out")
    if kind == "tagging":
        assert_running_text_has_the_tags_of_its_words(places, model, dev, capsys)


def assert_an_export_answers_without_the_workdir(places, model, kind, dev, out):
    """It says the same of a file, bit for bit, while encoder and results are elsewhere."""
    split = model.read(dev, examples.Report())
    expected = list(model.answers(split, examples.Report()))

    electra_jax.export(f"{folder(places, kind)}/custom", out, "orbax")
    needed = [os.path.join(places[0], name) for name in ("checkpoints", "finetune")]
    for path in needed:
        os.rename(path, f"{path}.elsewhere")
    try:
        served = electra_jax.load_tuned(out)
        assert served.read(dev, examples.Report()) == split
        assert list(served.answers(split, examples.Report())) == expected
    finally:
        for path in needed:
            os.rename(f"{path}.elsewhere", path)


def assert_scores_of_labels_add_up(by_label, scores, kind):
    """To the score that all labels have together."""
    if kind == "multi_label":
        f1 = [label["f1"] for label in by_label.values()]
        assert np.mean(f1) == pytest.approx(scores["macro_f1"])
    elif kind == "tagging":
        true = np.array([label["count"] for label in by_label.values()])
        right = true * [label["recall"] for label in by_label.values()]
        said = right / [label["precision"] for label in by_label.values()]
        total = 2 * right.sum() / (said + true).sum()
        assert total == pytest.approx(scores["entity_f1"])
    else:
        assert by_label == {}


def assert_labelled_files_are_scored_as_dev_was(where, seed, path, capsys):
    """The dev set as a new file, answered in blocks of five, has the scores of the run."""
    capsys.readouterr()
    with mock.patch.object(tuned_model, "_BLOCK", 5):
        predict_files([path], **{"from": f"{where}/custom", "score": True, "json": True})
    lines = capsys.readouterr().out.splitlines()
    assert lines.index("") == 40  # after the answers
    found = json.loads(lines[-1])
    (one,) = found["files"]
    assert one == {"file": path, "examples": 40} | found["all"]
    near = pytest.approx(seed.scores["dev"], rel=1e-5)
    assert one["scores"] == (near if "mse" in one["scores"] else seed.scores["dev"])
    assert one["by_label"] == seed.by_label["dev"]


def assert_running_text_has_the_tags_of_its_words(places, model, dev, capsys):
    """And the entities that they make, with their places; one text between blanks, one empty."""
    sentences = [list(example.words) for example in model.read(dev, examples.Report()).examples]
    texts = [" ".join(words) for words in sentences] + [f" {sentences[0][0]}  is.", ""]
    tags = model(sentences)
    *found, spaced, empty = model(texts)
    for one, words, expected in zip(found, sentences, tags, strict=True):
        assert (one["words"], one["tags"]) == (words, expected)
        marked = [word for word, tag in zip(words, expected) if tag != "O"]
        assert [entity["text"] for entity in one["entities"]] == marked  # each is of one word

    assert spaced["words"] == [sentences[0][0], "is", "."]
    assert empty == {"words": [], "tags": [], "entities": []}
    (named,) = found[0]["entities"]
    assert named == {
        "label": tags[0][0].removeprefix("B-"), "text": sentences[0][0],
        "start": 0, "end": len(sentences[0][0]),
    }  # fmt: skip

    path = pathlib.Path(places[1], "running.txt")
    path.write_text("\n".join(texts))
    capsys.readouterr()
    where = os.path.join(folder(places, "tagging"), "custom")
    predict_files([str(path)], **{"from": where, "running_text": True})
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    answers = [*found, spaced]  # the empty line is none
    assert [line["prediction"] for line in lines] == [one["tags"] for one in answers]
    assert [line["entities"] for line in lines] == [one["entities"] for one in answers]
    assert lines[0]["words"] == sentences[0] and lines[0]["id"] == "0"
    assert [line["text"] for line in lines] == texts[:-1]

    for given, message in (
        (["Ann sleeps.", None], "sentence 1 is None; give running text or a list of words"),
        ([["Ann", None]], "number 1 of sentence 0 is None, no text"),
        (["Ann", "sleeps"], "2 texts of one word each .* a list within the list"),
    ):
        with pytest.raises(config_lib.ConfigError, match=message):
            model(given)
    with pytest.raises(config_lib.ConfigError, match="leave out one of --running_text and --score"):
        predict_files([str(path)], **{"from": where, "running_text": True, "score": True})


def predict_files(paths, **values):
    """Calls the command with these flags."""
    flags = predict.flags.FLAGS
    flags.mark_as_parsed()
    unset = {"from": None, "out": None, "score": False, "json": False, "running_text": False}
    with flagsaver.flagsaver(**unset | values):
        predict.main(paths)


def test_several_labelled_files_are_scored_apart_and_together(finished, places, tmp_path, capsys):
    """The answers go to --out, and only the scores are printed; two labels of five are wrong."""
    del finished
    texts = [f"{encoder_workdir.THINGS[0]} is {some[0]}" for some in (GOOD, BAD)]
    good, bad = ([f"{text},{label}" for label in "10"] for text in texts)
    (tmp_path / "right.csv").write_text("\n".join(["text,label", good[0], bad[1]]))
    (tmp_path / "mixed.csv").write_text("\n".join(["text,label", good[0], good[1], bad[0]]))
    paths = [str(tmp_path / name) for name in ("right.csv", "mixed.csv")]
    out = tmp_path / "answers.jsonl"
    task = os.path.join(folder(places, "finished"), "custom")
    predict_files(paths, **{"from": task, "out": str(out), "score": True})

    written, blank, *table = capsys.readouterr().out.splitlines()
    assert (written, blank) == (f"written: {out}", "")
    assert [line.split() for line in table] == [
        ["file", "examples", "accuracy", "macro_f1"],
        [paths[0], "2", "100.00", "100.00"],
        [paths[1], "3", "33.33", "25.00"],
        ["all", "files", "5", "60.00", "58.33"],
        [],
        ["file", "class", "F1", "precision", "recall", "examples"],
        [paths[0], "0", "100.00", "100.00", "100.00", "1"],
        ["1", "100.00", "100.00", "100.00", "1"],
        [paths[1], "0", "0.00", "0.00", "0.00", "1"],
        ["1", "50.00", "50.00", "50.00", "2"],
        ["all", "files", "0", "50.00", "50.00", "50.00", "2"],
        ["1", "66.67", "66.67", "66.67", "3"],
    ]
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["prediction"] for line in lines] == ["1", "0", "1", "1", "0"]


def test_a_class_has_a_probability_and_its_text_needs_no_file(finished, places, capsys):
    model = electra_jax.load_tuned(os.path.join(folder(places, "finished"), "custom"))
    good, bad = model([f"{encoder_workdir.THINGS[0]} is {some[0]}" for some in (GOOD, BAD)])
    assert (good["label"], bad["label"]) == ("1", "0")
    assert good["scores"]["1"] > 0.9 and sum(good["scores"].values()) == pytest.approx(1)
    assert model([]) == []
    tuned_answers.assert_new_texts_are_answered_as_dev_was(places, "finished")
    best = finished.tasks[0].seeds[model.tuned.about["seed"]]
    dev = os.path.join(places[1], "dev.csv")
    assert_labelled_files_are_scored_as_dev_was(folder(places, "finished"), best, dev, capsys)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("a text",), "texts is one string; give a list of texts"),
        ((["a text"], ["another"]), "task custom takes one list of texts"),
        ((["a text", None],), "number 1 of texts is None, no text; give ''"),
        (([float("nan")],), "number 0 of texts is nan, no text"),
    ],
)
def test_texts_of_another_kind_are_refused(finished, places, given, message):
    del finished
    model = electra_jax.load_tuned(os.path.join(folder(places, "finished"), "custom"))
    with pytest.raises(config_lib.ConfigError, match=message):
        model(*given)


def test_a_folder_without_a_tuned_task_is_refused(finished, places):
    del finished
    with pytest.raises(config_lib.ConfigError, match="is not the folder of a fine-tuned task"):
        electra_jax.load_tuned(places[0])
    with pytest.raises(
        config_lib.ConfigError, match="is a whole fine-tuning; name a task's folder"
    ):
        electra_jax.load_tuned(folder(places, "finished"))


def test_the_command_answers_a_file_of_texts_and_one_with_columns_alike(finished, places, tmp_path):
    del finished
    task, out = os.path.join(folder(places, "finished"), "custom"), tmp_path / "answers.jsonl"
    texts = pathlib.Path(places[1], "test.csv").read_text().splitlines()[1:]
    (tmp_path / "new=1.txt").write_text("".join(line.split(",")[0] + "\n" for line in texts))
    best = electra_jax.load_tuned(task).tuned.about["seed"]
    written = pathlib.Path(task, f"seed_{best}", "test.jsonl").read_text()

    one = command(f"--from={task}", f"{tmp_path}/new=1.txt", f"--out={out}", module=PREDICT)
    assert (one.returncode, one.stdout) == (0, f"written: {out}\n"), one.stderr
    two = command(f"--from={task}", os.path.join(places[1], "test.csv"), module=PREDICT)
    assert two.returncode == 0 and two.stdout == out.read_text()
    lines = [json.loads(line) for line in written.splitlines()]
    for number, (line, one) in enumerate(zip(lines, map(json.loads, two.stdout.splitlines()))):
        assert (one["id"], one["prediction"]) == (str(number), line["prediction"])
        chances = np.exp(line["scores"]) / np.exp(line["scores"]).sum()  # the run writes logits
        assert one["scores"] == pytest.approx({"0": chances[0], "1": chances[1]}, abs=1e-5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), "--from names no fine-tuned task; give it the folder WORKDIR/finetune/NAME/TASK"),
        (("--from={task}",), "no file is named; give one or several after the flags"),
        (("--from={task}", "none.tsv"), "there is no file none.tsv"),
        (("--from=gs://lab/task", "setup.py"), "--from='gs://lab/task' is an address of a kind"),
        (("--from={workdir}", "setup.py"), "is not the folder of a fine-tuned task"),
        (("--from={task}", "setup.py"), "setup.py: the ending does not tell the format"),
        (("--from={task}", "setup.py", "--out=no/file"), "--out=no/file: there is no folder no"),
        (("--from={task}", "setup.py", "--out=setup.py"), "is one of the files to answer; name"),
        (("--from={task}", "--out=docs", "setup.py"), "--out=docs is a folder; name another file"),
        (("--from={task}", "--json=1", "setup.py"), "--json prints the scores, which need --score"),
        (("--from={task}", "--score=1", "no.tsv=1"), "there is no file no.tsv=1"),
        (("--from={task}", "--score=1", "setup.py=1"), "setup.py=1: the ending does not tell"),
        (("--from={task}", "--score=1", "{pairs}"), "MNLI/test_matched.tsv:1: no column 'text'"),
        (("--from={task}", "--score=1", "--out=setup.py", "setup.py=1"), "is one of the files to"),
    ],
)
def test_files_that_cannot_be_answered_are_refused(finished, places, given, message):
    del finished
    names = {"task": os.path.join(folder(places, "finished"), "custom"), "workdir": places[0]}
    names["pairs"] = os.path.join(places[1], "MNLI", "test_matched.tsv")
    given = [one.format(**names) for one in given]
    set_ = dict(one[2:].split("=") for one in given if one.startswith("--"))
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        predict_files([one for one in given if not one.startswith("--")], **set_)
    assert "\n" not in str(refused.value)
