# SPDX-License-Identifier: Apache-2.0
"""Whole fine-tunings from files to results: seeds, what stopped and went on, task after task."""

import json
import math
import os
import pathlib
import re
import shutil
import zipfile
from unittest import mock

import jax
import pytest

import electra_jax
from electra_jax import config as config_lib
from electra_jax.finetuning import config as finetuning_config
from electra_jax.finetuning.results import page, results_file, results_table
from electra_jax.finetuning.tuning import live_page, loop, seeds, task_by_task, tuning_step
from electra_jax.workdir import metadata
from support import finetunings, tuned_answers
from support.finetunings import KINDS, folder, run, settings


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    return finetunings.make_places(tmp_path_factory.mktemp("finetune"))


@pytest.fixture(scope="module")
def finished(places):
    """An uninterrupted classification of two seeds."""
    return run(places, "finished", "classification")


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
    answered = tuned_answers.assert_new_texts_are_answered_as_dev_was(
        places, "inference", "mnli", "dev_matched"
    )
    dev = os.path.join(places[1], "MNLI", "dev_matched.tsv")
    tuned_answers.assert_files_are_answered_as_dev_was(*answered, dev)


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
