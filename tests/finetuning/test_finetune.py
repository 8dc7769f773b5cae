# SPDX-License-Identifier: Apache-2.0
"""Whole fine-tunings from a workdir and files to results: every kind, stopped and gone on."""

import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import types
import zipfile
from unittest import mock

import jax
import numpy as np
import pytest
from absl.testing import flagsaver

import electra_jax
from electra_jax import config as config_lib
from electra_jax import predict
from electra_jax.core import meshes
from electra_jax.data import vocabulary
from electra_jax.finetuning import config as finetuning_config
from electra_jax.finetuning.results import page, results_file, results_table
from electra_jax.finetuning.tasks import built_in, examples, reading
from electra_jax.finetuning.tuning import (
    choices,
    datasets,
    encoders,
    forecast,
    live_page,
    loop,
    seeds,
    task_by_task,
    tuned_model,
    tuning_step,
)
from electra_jax.host import cluster, error_causes
from electra_jax.workdir import metadata
from support import corpus, encoder_workdir, odd
from support.commands import command
from support.encoder_workdir import BAD, GOOD
from support.finetunings import KINDS, run, settings

PREDICT = "electra_jax.predict"


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """(workdir of an encoder that never trained, folder with the tasks' files)."""
    base = tmp_path_factory.mktemp("finetune")
    return encoder_workdir.make(base), str(encoder_workdir.write_tasks(base / "tasks"))


@pytest.fixture(scope="module")
def finished(places):
    """An uninterrupted classification of two seeds."""
    return run(places, "finished", "classification")


def folder(places, name):
    return os.path.join(places[0], "finetune", name)


def leaves(path):
    (step,) = metadata.steps(path)
    return metadata.read(os.path.join(path, str(step)))["digest"]


def test_the_loss_falls_and_the_task_is_learnt(finished):
    (task,) = finished.tasks
    for seed in task.seeds:
        losses = [point.loss for point in seed.curve]
        assert [point.step for point in seed.curve] == [12, 24, 36]  # 96 rows in 6 batches, 6 times
        assert losses[0] > losses[-1] and losses[-1] < 0.3
        assert seed.scores["dev"]["accuracy"] > 0.95
    assert task.seeds[0].curve != task.seeds[1].curve
    assert task.tokens_per_second > 0 and task.choice == "last"
    assert 0 < task.padding_rate < 0.9


def test_what_a_run_leaves_behind(finished, places):
    where = folder(places, "finished")
    kept = results_file.to_json(results_file.load(f"{where}/results.json"))
    assert kept == json.loads(json.dumps(results_file.to_json(finished)))
    assert {"results.md", "results.html", "log.txt", "settings.json", "custom"} <= set(
        os.listdir(where)
    )
    assert set(os.listdir(f"{where}/custom")) == {"seed_0", "seed_1", "weights"}
    for split, rows in (("dev", 40), ("test", 12)):
        with open(f"{where}/custom/seed_1/{split}.jsonl") as file:
            lines = [json.loads(line) for line in file]
        assert len(lines) == rows and {"id", "prediction", "scores"} <= set(lines[0])
    names = set(leaves(f"{where}/custom/weights"))
    assert {"head/output/kernel", "embeddings/token"} <= names
    assert any(name.startswith("discriminator/encoder/") for name in names)
    assert not any("generator" in name or "discriminator/head" in name for name in names)


def test_a_notebook_gets_the_same_from_the_settings_alone(finished, places):
    tree = settings(places, "finished")
    tree.custom.update(**KINDS["classification"])
    again = electra_jax.fine_tune(tree, pathlib.Path(places[0]))
    assert [task.seeds for task in again.tasks] == [task.seeds for task in finished.tasks]
    assert "Fine-tuning: finished" in again._repr_html_()
    tree.seeds = 0
    with pytest.raises(config_lib.ConfigError, match="^seeds"):
        electra_jax.fine_tune(tree, places[0])


class Interrupted(Exception):
    pass


def test_an_interrupted_run_goes_on_to_the_same_numbers(finished, places, monkeypatch):
    train, trained = loop.train, []

    def stop_at_the_second(*arguments, **named):
        if trained:
            raise Interrupted("no power")
        trained.append(1)
        return train(*arguments, **named)

    where = pathlib.Path(folder(places, "interrupted"), "results.html")
    seen, write = [], page.write

    def kept_too(*arguments, **named):
        write(*arguments, **named)
        seen.append(" ".join(re.sub("<[^>]*>", " ", where.read_text()).split()))

    monkeypatch.setattr(loop, "train", stop_at_the_second)
    with monkeypatch.context() as patch, pytest.raises(Interrupted, match="no power"):
        patch.setattr(live_page, "SECONDS", 0.0)
        patch.setattr(live_page, "SHARE", math.inf)
        patch.setattr(page, "write", kept_too)
        run(places, "interrupted", "classification")
    _follows(seen)
    assert "data-refresh=" not in where.read_text()
    kept = os.path.join(folder(places, "interrupted"), "custom", "seed_0", "seed.json")
    before = os.stat(kept).st_mtime_ns
    trained.clear()  # one more seed may train, and only one is missing
    gone_on = run(places, "interrupted", "classification")
    assert os.stat(kept).st_mtime_ns == before
    assert gone_on.tasks[0].seeds == finished.tasks[0].seeds
    assert leaves(f"{folder(places, 'interrupted')}/custom/weights") == leaves(
        f"{folder(places, 'finished')}/custom/weights"
    )


def _follows(pages):
    """The page was there from the start, followed the first seed, and says why it stopped."""
    first, *others, last = pages
    assert (
        "running reading the tasks 0 of 2 seeds finished · still to come: custom: 2 seeds" in first
    )
    for what in ("seed 0: compiling 0 of 2", "seed 0: step 12 of 36 0 of 2", "seed 1: compiling 1"):
        (page,) = (page for page in others if f"running custom, {what}" in page)
    assert "custom dev accuracy" in page and "recipe.learning_rate 0 0.003" in page
    assert "stopped custom, seed 1: compiling no power." in last
    assert "Environment electra_jax " in last and "Cost last command " in last
    assert "device-hours" in last


def test_seeds_side_by_side_become_what_they_become_alone(finished, places):
    together = run(places, "together", "classification", run__vmapped_seeds="on")
    for alone, beside in zip(finished.tasks[0].seeds, together.tasks[0].seeds):
        for one, other in zip(alone.curve, beside.curve):
            assert other.loss == pytest.approx(one.loss, rel=2e-3)
        assert beside.scores["dev"] == pytest.approx(alone.scores["dev"], abs=0.03)


def test_seeds_that_do_not_fit_into_the_memory_together_are_trained_by_fewer(
    finished, places, monkeypatch, caplog
):
    train, groups = seeds._train, []

    def on_a_small_device(*arguments):
        group = arguments[-2]
        groups.append(group)
        if len(group) > 1:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes")
        return train(*arguments)

    monkeypatch.setattr(seeds, "_train", on_a_small_device)
    found = run(places, "halved", "classification", run__vmapped_seeds="on")
    assert groups == [[0, 1], [0], [1]]
    for one, alone in zip(found.tasks[0].seeds, finished.tasks[0].seeds, strict=True):
        assert (one.scores, one.curve) == (alone.scores, alone.curve)
    assert "2 seeds in one program do not fit into the device's memory; 1 at a time" in caplog.text


def test_a_seed_that_does_not_fit_alone_is_told_what_needs_less(places, monkeypatch):
    def on_a_small_device(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes")

    monkeypatch.setattr(seeds, "_train", on_a_small_device)
    message = "16 rows at a time do not fit into the device's memory; raise run.accumulation=1"
    with pytest.raises(config_lib.ConfigError, match=message) as refused:
        run(places, "too_large", "classification")
    assert "\n" not in str(refused.value)


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
def test_every_kind_of_task_learns(places, kind, metric, least, capsys):
    more = dict(recipe__epochs=15) if kind in ("joint", "plain", "tagging") else {}
    found = run(places, kind, kind, seeds=1, **more)
    (task,) = found.tasks
    (seed,) = task.seeds
    assert seed.curve[0].loss > seed.curve[-1].loss
    assert seed.scores["dev"][metric] > least
    assert seed.scores["dev"][metric] > task.baselines["dev"][metric]
    assert_scores_of_labels_add_up(seed.by_label["dev"], seed.scores["dev"], kind)
    model, written = assert_new_texts_are_answered_as_dev_was(places, kind)
    dev = os.path.join(places[1], KINDS[kind]["dev"])
    assert_files_are_answered_as_dev_was(model, written, dev)
    assert_labelled_files_are_scored_as_dev_was(folder(places, kind), seed, dev, capsys)
    if kind == "tagging":
        assert_running_text_has_the_tags_of_its_words(places, model, dev, capsys)


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


def assert_new_texts_are_answered_as_dev_was(places, name, task="custom", split="dev"):
    """`load_tuned` on the texts of a dev set, against the predictions that the run has written."""
    where = pathlib.Path(folder(places, name), task)
    model = electra_jax.load_tuned(where)
    seed = where / f"seed_{model.tuned.about['seed']}"
    written = [json.loads(line) for line in (seed / f"{split}.jsonl").read_text().splitlines()]

    texts = reading.read(model.task, places[1]).splits[split].examples
    lanes = {
        "tagging": lambda example: (list(example.words),),
        "span": lambda example: (example.question, example.context),
    }.get(model.task.kind, lambda example: (example.a, example.b)[: 1 + model.task.pairs])
    found = model(*map(list, zip(*map(lanes, texts))))

    said = [one.get("label", one.get("labels")) if isinstance(one, dict) else one for one in found]
    expected = [line["prediction"] for line in written]
    assert said == (pytest.approx(expected) if model.task.kind == "regression" else expected)
    if model.task.kind == "multi_label":
        scores = [list(one["scores"].values()) for one in found]
        np.testing.assert_allclose(scores, [line["scores"] for line in written], atol=1e-4)
    return model, written


def assert_files_are_answered_as_dev_was(model, written, path):
    """A file that the run has read as its dev set, in blocks of five: the same ids and predictions,
    no labels."""
    report = examples.Report()
    split = model.read(path, report)
    with mock.patch.object(tuned_model, "_BLOCK", 5):
        answers = list(model.answers(split, report))

    found = [predict.row(*one) for one in zip(split.examples, answers, strict=True)]
    assert [one["id"] for one in found] == [line["id"] for line in written]
    said, expected = ([line["prediction"] for line in lines] for lines in (found, written))
    assert said == (pytest.approx(expected) if model.task.kind == "regression" else expected)
    has_classes = model.task.kind in ("classification", "multi_label")
    assert {*found[0]} == {"id", "prediction"} | ({"scores"} if has_classes else set())


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
    assert_new_texts_are_answered_as_dev_was(places, "finished")
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


def test_a_busy_tpu_is_said_before_anything_asks_for_devices(places, monkeypatch):
    def busy():
        raise cluster.BusyError("the chips are taken")

    monkeypatch.setattr(cluster, "check_chips_are_free", busy)
    monkeypatch.setattr(jax, "process_count", lambda: pytest.fail("it opens the devices"))
    for begin in (electra_jax.fine_tune, forecast.text):
        with pytest.raises(error_causes.MayPass, match="the chips are taken"):
            begin(finetuning_config.parse(settings(places, "x")), places[0])


def test_a_folder_without_a_tuned_task_is_refused(finished, places):
    del finished
    with pytest.raises(config_lib.ConfigError, match="is not the folder of a fine-tuned task"):
        electra_jax.load_tuned(places[0])
    with pytest.raises(
        config_lib.ConfigError, match="is a whole fine-tuning; name a task's folder"
    ):
        electra_jax.load_tuned(folder(places, "finished"))


def test_settings_of_other_results_are_refused(finished, places):
    del finished
    with pytest.raises(config_lib.ConfigError, match=r"learning_rate: 0.003 -> 0.01; choose"):
        run(places, "finished", "classification", recipe__learning_rate=0.01)


def test_results_go_on_with_less_memory(finished, places):
    """Micro-batches and what is computed again change no number; frozen layers do."""
    less = dict(run__accumulation=2, run__remat="full")
    again = run(places, "finished", "classification", **less)
    assert again.tasks[0].seeds == finished.tasks[0].seeds
    with pytest.raises(config_lib.ConfigError, match=r"frozen_layers: 0 -> 1; choose"):
        run(places, "finished", "classification", recipe__frozen_layers=1, **less)


def test_a_seed_becomes_by_fewer_rows_at_a_time_what_it_becomes_by_all(places):
    short = dict(seeds=1, recipe__epochs=2, evaluation__times=1)
    whole = run(places, "whole", "classification", **short)
    with (
        mock.patch.object(tuning_step, "programs", wraps=tuning_step.programs) as programs,
        mock.patch.object(loop, "predict", wraps=loop.predict) as predict,
    ):
        less = dict(run__accumulation=4, run__remat="full", **short)
        found = run(places, "less", "classification", **less)

    setup, _ = programs.call_args.args
    assert (setup.accumulation, setup.networks.discriminator.remat) == (4, "full")
    assert {call.args[4] for call in predict.call_args_list} == {4}  # of 16 rows per step
    (one,), (other,) = found.tasks[0].seeds[0].curve, whole.tasks[0].seeds[0].curve
    assert one.loss == pytest.approx(other.loss, rel=1e-3)


def test_other_files_under_the_same_names_are_noticed(places, tmp_path):
    """A label far down in train is another one; nothing is trained on top of the old seeds."""
    shutil.copytree(places[1], tmp_path / "tasks")
    moved = (places[0], str(tmp_path / "tasks"))
    run(places, "files", "classification", seeds=1, recipe__epochs=1, evaluation__times=1)
    lines = (tmp_path / "tasks" / "train.csv").read_text().splitlines()
    text, label, rest = lines[90].split(",", 2)
    lines[90] = f"{text},{1 - int(label)},{rest}"
    (tmp_path / "tasks" / "train.csv").write_text("\n".join(lines))
    kept = pathlib.Path(folder(places, "files"), "settings.json")
    before = kept.read_text()
    with pytest.raises(config_lib.ConfigError, match="the files of the task changed since"):
        run(moved, "files", "classification", seeds=2, recipe__epochs=1, evaluation__times=1)
    assert kept.read_text() == before, "what was refused changes nothing that readers go by"


def test_files_of_a_later_task_are_missed_before_the_first_is_trained(places):
    config = settings(places, "later")
    config.custom.update(**KINDS["classification"])
    config.tasks = "custom,wnli"
    with pytest.raises(ValueError, match="task wnli: "):
        electra_jax.fine_tune(config, places[0])
    assert not os.path.exists(os.path.join(folder(places, "later"), "custom"))


def test_an_answer_that_moves_to_another_place_is_another_label(places, tmp_path):
    """`is` stands twice in the text, which stays the same, as does the answer's text."""
    shutil.copytree(places[1], tmp_path / "tasks")
    tree = settings((places[0], str(tmp_path / "tasks")), "x")
    tree.custom.update(**KINDS["joint"])
    config = finetuning_config.parse(tree)
    encoder = encoders.read(config, places[0], choices.mesh(config))

    def fingerprint(find):
        path = tmp_path / "tasks" / "train.json"
        content = json.loads(path.read_text())
        for paragraph in content["data"][0]["paragraphs"]:
            for question in paragraph["qas"]:
                place = find(paragraph["context"], "is")
                question["answers"] = [{"text": "is", "answer_start": place}]
                question["is_impossible"] = False
        path.write_text(json.dumps(content))
        task = datasets.task_named(config, "custom")
        return datasets.prepare(config, task, encoder.vocabulary, 48).fingerprint

    assert fingerprint(str.index) == fingerprint(str.index) != fingerprint(str.rindex)


def test_more_seeds_may_be_asked_for(finished, places):
    found = run(places, "finished", "classification", seeds=3)
    assert [seed.seed for seed in found.tasks[0].seeds] == [0, 1, 2]
    assert found.tasks[0].seeds[:2] == finished.tasks[0].seeds


def test_the_best_of_the_looks_at_dev_is_kept_where_that_is_asked_for(places):
    found = run(places, "best", "classification", seeds=1, evaluation__keep="best",
                evaluation__times=9)  # fmt: skip
    (task,) = found.tasks
    (seed,) = task.seeds
    values = [point.scores["accuracy"] for point in seed.curve]
    best = values.index(max(values))
    assert seed.chosen_step == seed.curve[best].step
    assert seed.scores["dev"] == seed.curve[best].scores
    assert task.choice == "best" and "is optimistic" in results_table.text(found)


def test_a_grid_takes_the_best_median_on_dev_and_says_so(places):
    found = run(places, "grid", "classification", grid__learning_rates=(1e-7, 3e-3))
    (task,) = found.tasks
    assert task.settings["learning_rate"] == 3e-3
    assert any(
        note.startswith("chosen on dev, which is optimistic: rate_0.003_epochs_6")
        for note in task.notes
    )
    where = os.path.join(folder(places, "grid"), "custom")
    assert sorted(os.listdir(where)) == ["rate_0.003_epochs_6", "rate_1e-07_epochs_6"]
    assert len(task.seeds) == 2


@pytest.fixture(scope="module")
def inference(places):
    """MNLI, then RTE from MNLI's encoder, and the diagnostic set by MNLI's model."""
    config = settings(places, "inference", tasks="rte,ax,mnli", seeds=1)
    config.encoder.start_from = "rte:mnli"
    config.recipe.update(epochs=1)
    config.evaluation.times = 1
    return task_by_task.run(finetuning_config.parse(config), places[0])


def test_a_task_starts_from_the_encoder_of_another(inference, places):
    mnli, rte = inference.tasks
    assert (mnli.task, rte.task) == ("mnli", "rte")
    assert "rte starts from the encoder tuned on mnli (seed 0)" in rte.notes
    assert list(mnli.seeds[0].scores) == ["dev_matched", "dev_mismatched"]
    where = pathlib.Path(folder(places, "inference"))
    texts = [(where / task / "seed_0" / "seed.json").read_text() for task in ("mnli", "rte")]
    records = [json.loads(text) for text in texts]
    assert records[0]["encoder"] != records[1]["encoder"]
    answered = assert_new_texts_are_answered_as_dev_was(places, "inference", "mnli", "dev_matched")
    dev = os.path.join(places[1], "MNLI", "dev_matched.tsv")
    assert_files_are_answered_as_dev_was(*answered, dev)


def test_the_submission_has_a_file_for_every_task_that_ran(inference, places):
    del inference
    with zipfile.ZipFile(os.path.join(folder(places, "inference"), "glue.zip")) as archive:
        files = {name: archive.read(name).decode().splitlines() for name in archive.namelist()}
    assert set(files) == {"MNLI-m.tsv", "MNLI-mm.tsv", "RTE.tsv", "AX.tsv"}
    assert all(lines[0] == "index\tprediction" for lines in files.values())
    assert {len(lines) for lines in files.values()} == {9}  # eight test rows each
    assert {line.split("\t")[1] for line in files["RTE.tsv"][1:]} <= {
        "entailment", "not_entailment",
    }  # fmt: skip


def test_a_command_with_other_tasks_keeps_the_results_of_those_before(inference, places):
    where = pathlib.Path(folder(places, "inference"))
    submission = (where / "glue.zip").read_bytes()
    config = settings(places, "inference", tasks="rte", seeds=1)
    config.encoder.start_from = "rte:mnli"
    config.recipe.update(epochs=1)
    config.evaluation.times = 1

    found = task_by_task.run(finetuning_config.parse(config), places[0])
    assert found.tasks == inference.tasks
    assert (where / "glue.zip").read_bytes() == submission
    assert [task["task"] for task in json.loads((where / "results.json").read_text())["tasks"]] == [
        "mnli", "rte",
    ]  # fmt: skip
    assert "mnli" in (where / "results.html").read_text()


@pytest.mark.parametrize(("setting", "rows"), [("published", 80), ("off", 40)])
def test_pairs_of_stsb_train_in_both_orders(places, setting, rows):
    config = finetuning_config.parse(settings(places, "x", recipe__both_orders=setting))
    words = vocabulary.load(os.path.join(places[0], "data", "made", "vocab"))
    prepared = datasets.prepare(config, built_in.named("stsb"), words)
    assert prepared.counts["train"] == rows == len(prepared.train.rows)
    assert prepared.scale == (0.0, 5.0)  # the head learns a fifth of the score
    assert max(prepared.train.rows.labels["label"]) == 1


@pytest.mark.parametrize(
    ("task", "setting", "kind"),
    [
        ("stsb", "mean", "matched_means"),
        ("custom", "mean", "mean"),
        ("stsb", "linear", "linear"),
    ],
)
def test_pairs_are_judged_by_the_means_of_both_texts(places, task, setting, kind):
    tree = settings(places, "x", recipe__head=setting)
    tree.custom.update(KINDS["classification"])
    config = finetuning_config.parse(tree)
    words = vocabulary.load(os.path.join(places[0], "data", "made", "vocab"))
    prepared = datasets.prepare(config, datasets.task_named(config, task), words)
    encoder = types.SimpleNamespace(networks=odd.NETWORKS, vocabulary=words)
    setup = choices.setup(config, encoder, prepared, seeds=1)
    assert setup.head.kind == kind


def test_texts_longer_than_the_encoder_reads_are_cut_and_said(places):
    config = finetuning_config.parse(settings(places, "x"))
    words = vocabulary.load(os.path.join(places[0], "data", "made", "vocab"))
    prepared = datasets.prepare(config, built_in.named("stsb"), words, max_tokens=12)
    assert prepared.length == 12 == prepared.buckets[-1]
    assert max(prepared.train.rows.lengths) == 12
    lines = "\n".join(prepared.report.lines())
    assert "rows of 12 tokens instead of 128: the encoder has no more positions" in lines
    assert "texts cut to 12 tokens" in lines


@pytest.mark.parametrize(
    ("max_tokens", "said"),
    [
        (64, "the 12 tokens of pre-training; positions beyond have their initial values"),
        (0, "the 12 tokens of pre-training; tokens so far from each other are new to it"),  # rotary
    ],
)
def test_rows_longer_than_those_of_pre_training_are_said(places, max_tokens, said):
    config = finetuning_config.parse(settings(places, "x"))
    words = vocabulary.load(os.path.join(places[0], "data", "made", "vocab"))
    prepared = datasets.prepare(config, built_in.named("stsb"), words, max_tokens, 12)
    assert max(prepared.train.rows.lengths) > 12
    (line,) = (line for line in prepared.report.lines() if "of pre-training" in line)
    assert line.endswith(said)


def test_questions_of_which_none_can_be_trained_on_are_refused(places, tmp_path):
    qas = [{"id": "1", "question": "who ?", "answers": [{"text": "Eve", "answer_start": 0}]}]
    content = {"data": [{"paragraphs": [{"context": "Ann sleeps", "qas": qas}]}]}
    (tmp_path / "a.json").write_text(json.dumps(content))
    tree = settings((places[0], str(tmp_path)), "x")
    tree.custom.update(kind="span", train="a.json", dev="a.json")
    config = finetuning_config.parse(tree)
    words = vocabulary.load(os.path.join(places[0], "data", "made", "vocab"))
    with pytest.raises(config_lib.ConfigError, match="none of 1 questions in .*a.json has an answ"):
        datasets.prepare(config, datasets.task_named(config, "custom"), words)


@pytest.mark.parametrize(
    ("label", "columns"),
    [('"a, b",c', ("a, b", "c")), ('"a, b"', "a, b"), ("a", "a"), ("2, 3", (2, 3))],
)
def test_columns_of_several_labels_may_have_commas_in_their_names(places, label, columns):
    tree = settings(places, "x")
    tree.custom.update(kind="multi_label", train="a.csv", label=label)
    task = datasets.task_named(finetuning_config.parse(tree), "custom")
    assert task.files["train"].label == columns


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(tasks="colla"), "task 'colla' is none of cola"),
        (dict(tasks=""), "tasks is empty"),
        (dict(recipe__head="three_layer"), "recipe.head='three_layer' is not one of"),
        (dict(encoder__start_from="rte"), "is not TASK:OTHER; try rte:mnli"),
        (dict(recipe__batch_size=0), r"recipe.batch_size=0 is outside \[1"),
        (
            dict(run__accumulation=3),
            "recipe.batch_size=16 is not divisible by run.accumulation=3; try 4",
        ),
        (dict(run__accumulation=17), "not divisible by run.accumulation=17; try 16"),
        (dict(run__remat="some"), "run.remat='some' is not one of"),
        (
            dict(recipe__frozen_layers=3, tasks="rte"),
            "recipe.frozen_layers=3, but the encoder has 2 layers; give at most as many",
        ),
        (dict(encoder__step=7, tasks="rte"), "no checkpoint of step 7 in .*; there are 2"),
        (dict(run__devices=64, tasks="rte"), "run.devices=64, but there are 1"),
        (dict(encoder__start_from="rte:mnli,mnli:rte", tasks="rte,mnli"), "goes in a circle"),
        (dict(encoder__start_from="rte:"), "is not TASK:OTHER; try rte:mnli"),
        (
            dict(encoder__start_from="ret:mnli", tasks="rte,mnli"),
            "'ret:mnli': no task that is trained is called 'ret'; did you mean 'rte'?",
        ),
        (dict(encoder__start_from="ax:mnli", tasks="ax,mnli"), "trained is called 'ax'"),
        (dict(encoder__start_from="rte:mnli, rte:qnli"), "names rte twice; give it one encoder"),
        (
            dict(encoder__start_from="rte:mnil", tasks="mnli,rte"),
            "rte starts from 'mnil', which is none of the tasks of this command: no tuned weights",
        ),
        (dict(tasks="ax"), "ax is answered by mnli, which is none of the tasks of this command"),
    ],
)
def test_bad_settings_are_refused_in_one_line(places, change, message):
    with pytest.raises(ValueError, match=message) as refused:
        task_by_task.run(finetuning_config.parse(settings(places, "bad", **change)), places[0])
    assert "\n" not in str(refused.value)


def test_a_later_command_may_add_the_task_that_starts_from_another(places):
    config = finetuning_config.parse(
        settings(places, "later", tasks="mnli", encoder__start_from="rte: mnli,custom:a:b")
    )
    assert config.starts == {"rte": "mnli", "custom": "a:b"}


@pytest.mark.parametrize(("init", "tokens"), [("pretrained", 32), ("fresh", 0)])
def test_only_a_trained_encoder_has_places_that_it_never_saw(places, init, tokens):
    config = finetuning_config.parse(settings(places, "x", encoder__init=init))
    assert encoders.read(config, places[0], choices.mesh(config)).pretrained_tokens == tokens


@pytest.mark.parametrize(
    ("platform", "scan", "expected"),
    [
        ("cpu", "auto", ("cpu", False, True, False)),
        ("gpu", "auto", ("default", False, False, True)),
        ("tpu", "auto", ("default", True, False, True)),
        ("tpu", "off", ("default", False, False, True)),
    ],
)
def test_the_encoder_has_the_forms_of_its_devices(places, monkeypatch, platform, scan, expected):
    """Exports have plain products, with which bfloat16 is slower than float32 on a CPU."""
    monkeypatch.setattr(meshes, "platform", lambda mesh: platform)
    config = finetuning_config.parse(settings(places, "x", run__scan=scan))
    found = encoders.read(config, places[0], choices.mesh(config)).networks.discriminator
    joined = found.joined_gradients, found.joined_projections
    assert (found.products, found.scan, *joined) == expected


def test_a_dry_run_says_what_would_be_done(places):
    config = finetuning_config.parse(settings(places, "dry", tasks="stsb", recipe__epochs=2))
    text = forecast.text(config, places[0])
    assert "stsb" in text and "layer 1 0.8, layer 0 0.64" in text
    assert " 10 " in text  # 80 rows in batches of 16, twice
    assert not os.path.exists(folder(places, "dry"))


def test_the_command_refuses_a_misspelt_field_in_one_line(places):
    arguments = [f"--workdir={places[0]}", "--config.recipe.epoch=3"]
    done = subprocess.run(
        [sys.executable, "-m", "electra_jax.finetune", *arguments],
        cwd=corpus.ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "error: unknown field config.recipe.epoch; did you mean 'epochs'?"
    )


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


def test_the_command_needs_no_config(places):
    """configs/finetune.py is its own; the workdir's config.json is of pre-training."""
    arguments = [f"--workdir={places[0]}", f"--config.data.dir={places[1]}", "--config.tasks=rte"]
    done = subprocess.run(
        [sys.executable, "-m", "electra_jax.finetune", "--dry_run", *arguments],
        cwd=corpus.ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("task  train  dev")
