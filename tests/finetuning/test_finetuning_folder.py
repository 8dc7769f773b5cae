# SPDX-License-Identifier: Apache-2.0
"""Of the weights in the folder of a task, those of the best seed at the reported point are read."""

import dataclasses
import json
import os

import pytest
from jax import numpy as jnp

from electra_jax import config as config_lib
from electra_jax.configs import finetune
from electra_jax.finetuning import config as finetuning_config
from electra_jax.finetuning.results import results_file, run_results, submission
from electra_jax.finetuning.tuning import choices, kept_weights, run_folder, task_by_task
from electra_jax.weights import starting_checks
from electra_jax.workdir import metadata
from support import corpus, made_results


def finish(point, seed, score):
    """Writes the record of a finished seed."""
    scores = {"dev": {"accuracy": score}, "test": {"accuracy": 1 - score}}
    run_folder.finish(str(point), {"seed": seed, "scores": scores})


def keep(point, seed, score, finished=range(10)):
    """Saves the weights of a seed as the best ones."""
    about = {"task": "rte", "seed": seed, "main": "accuracy", "score": score}
    where = os.path.join(point, "weights")
    kept_weights.save_if_better(where, {"x": jnp.ones(2)}, about, finished)


def report(run, seeds):
    """What a command with that many seeds of RTE leaves in settings.json."""
    config = {"seed": 0, "grid": {"learning_rates": (), "epochs": ()}}
    (run / "settings.json").write_text(json.dumps({"config": config, "seeds": {"rte": seeds}}))


def seed_of(task):
    return kept_weights.best_weights(str(task))[1]["seed"]


def test_each_folder_of_a_fine_tuning_belongs_to_it(tmp_path):
    run = tmp_path / "finetune" / "mine"
    deepest = run / "rte" / "rate_1e-4_epochs_3" / "seed_0" / "weights"
    deepest.mkdir(parents=True)
    report(run, seeds=1)
    for folder in (run, *(inside for inside in deepest.parents if run in inside.parents), deepest):
        assert run_folder.settings(str(folder))[0] == str(run)
    assert run_folder.settings(str(tmp_path)) is None


def test_earlier_results_and_their_submission_go_with_the_folder_of_a_task(tmp_path):
    results_file.write(str(tmp_path), made_results.three())
    finish(tmp_path / "cola", 0, 0.5)
    assert [task.task for task in run_folder.earlier(str(tmp_path))] == ["cola"]

    submission.glue(str(tmp_path / "glue.zip"), {"cola": [1, 0], "rte": ["entailment"]})
    (tmp_path / "sst2").mkdir()
    (tmp_path / "sst2" / "test.jsonl").write_text('{"id": "0", "prediction": "1"}\n')
    run_folder.write_glue(str(tmp_path), {"sst2": str(tmp_path / "sst2")})
    kept = submission.read_glue(str(tmp_path / "glue.zip"))
    assert kept == {"cola": ["1", "0"], "sst2": ["1"]}


def test_what_the_old_model_of_a_task_has_answered_is_not_submitted_beside_its_new_one(tmp_path):
    for task in ("mnli", "ax"):
        (tmp_path / task).mkdir()
    submission.glue(str(tmp_path / "glue.zip"), {"ax": ["neutral"], "mnli_matched": ["neutral"]})
    (tmp_path / "mnli" / "test_matched.jsonl").write_text('{"id": "0", "prediction": "neutral"}\n')
    run_folder.write_glue(str(tmp_path), {"mnli": str(tmp_path / "mnli")})
    assert submission.read_glue(str(tmp_path / "glue.zip")) == {"mnli_matched": ["neutral"]}


def test_a_damaged_submission_is_written_anew(tmp_path):
    path = tmp_path / "glue.zip"
    submission.glue(str(path), {"cola": list(range(2)) * 500})
    whole = path.read_bytes()
    for place in range(40, 60):  # in the compressed text
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        assert submission.read_glue(str(path)) == {}


def test_weights_of_a_worse_seed_are_not_taken_for_the_best(tmp_path):
    """Seed 1 was tuned while run.save was 'none', the others later."""
    for seed, score in ((0, 0.5), (1, 0.9), (2, 0.7)):
        finish(tmp_path, seed, score)
    keep(tmp_path, 2, 0.7)
    with pytest.raises(config_lib.ConfigError, match="seed_1 is the best seed on dev, and its w"):
        kept_weights.best_weights(str(tmp_path))

    keep(tmp_path, 1, 0.9)  # after the folder of seed 1 was deleted, and the command run again
    assert seed_of(tmp_path) == 1


def test_of_a_grid_the_weights_are_of_the_point_with_the_best_median(tmp_path):
    lucky, better = tmp_path / "rate_0.001_epochs_3", tmp_path / "rate_0.003_epochs_3"
    for point, scores in ((lucky, (0.2, 0.3, 0.95)), (better, (0.8, 0.7, 0.9))):
        for seed, score in enumerate(scores):
            finish(point, seed, score)
            keep(point, seed, score)
    path, about = kept_weights.best_weights(str(tmp_path))
    assert path.startswith(str(better)) and about["score"] == 0.9
    assert seed_of(lucky) == 2  # a point that is named


def test_of_equal_points_the_first_of_the_grid_counts(tmp_path):
    run = tmp_path / "finetune" / "run"
    names = ("rate_0.003_epochs_10", "rate_0.003_epochs_3", "rate_0.001_epochs_3")
    for seed, name in enumerate(names):
        finish(run / "rte" / name, seed, 0.5)
        keep(run / "rte" / name, seed, 0.5)
    for rates, epochs, first in (
        ((0.003, 0.001), (10, 3), 0),
        ((0.003, 0.001), (3, 10), 1),
        ((0.001, 0.003), (10, 3), 2),
    ):
        grid = {"learning_rates": rates, "epochs": epochs}
        (run / "settings.json").write_text(json.dumps({"config": {"grid": grid}}))
        assert seed_of(run / "rte") == first


def test_rates_that_are_equal_in_three_digits_have_folders_of_their_own(tmp_path):
    run, grid = tmp_path / "finetune" / "run", (0.0001234, 0.0001233)
    for seed, rate in enumerate(grid):
        point = run / "rte" / choices.GridPoint(rate, 3).name
        finish(point, seed, 0.5)
        keep(point, seed, 0.5)
    settings = {"learning_rates": grid, "epochs": (3,)}
    (run / "settings.json").write_text(json.dumps({"config": {"grid": settings}}))
    assert len(list((run / "rte").iterdir())) == 2
    assert seed_of(run / "rte") == 0  # of equals the first of the grid


def test_a_point_whose_weights_were_not_kept_is_said(tmp_path):
    for number, point in enumerate(("rate_0.001_epochs_3", "rate_0.003_epochs_3")):
        finish(tmp_path / point, 0, 0.9 - number / 10)
    keep(tmp_path / "rate_0.003_epochs_3", 0, 0.8)
    with pytest.raises(config_lib.ConfigError, match="rate_0.001_epochs_3/seed_0 is the best seed"):
        kept_weights.best_weights(str(tmp_path))


def test_the_folder_of_a_seed_has_its_own_weights(tmp_path):
    finish(tmp_path, 0, 0.5)
    keep(tmp_path / "seed_0", 0, 0.5)
    assert seed_of(tmp_path / "seed_0") == 0


def test_weights_of_a_seed_that_a_later_command_does_not_report_are_not_taken(tmp_path):
    """Seed 2 is the best of three, then a command has two seeds."""
    run = tmp_path / "finetune" / "run"
    for seed, score in enumerate((0.6, 0.5, 0.9)):
        finish(run / "rte", seed, score)
        keep(run / "rte", seed, score)
    report(run, 3)
    assert seed_of(run / "rte") == 2
    report(run, 2)
    message = (
        "seed_0 is the best seed on dev, and its weights were not kept; those of seed 2 were, which"
        " the results leave out: give --config.seeds=3, or delete that folder and run the same"
    )
    with pytest.raises(config_lib.ConfigError, match=message):
        seed_of(run / "rte")

    keep(run / "rte", 0, 0.6, finished=(1,))  # the folder was deleted, and seed 0 tuned anew
    assert seed_of(run / "rte") == 0
    report(run, 3)
    with pytest.raises(config_lib.ConfigError, match="seed_2 is the best .* not kept; delete that"):
        seed_of(run / "rte")


def test_where_all_weights_were_saved_those_of_the_best_reported_seed_are_taken(tmp_path):
    run = tmp_path / "finetune" / "run"
    for seed, score in enumerate((0.6, 0.5, 0.9)):
        finish(run / "rte", seed, score)
        keep(run / "rte" / f"seed_{seed}", seed, score)
        keep(run / "rte", seed, score)
    report(run, 2)
    path, about = kept_weights.best_weights(str(run / "rte"))
    assert about["seed"] == 0 and path == str(run / "rte" / "seed_0" / "weights" / "1")


def test_the_best_point_of_a_grid_is_that_of_the_reported_seeds(tmp_path):
    run = tmp_path / "finetune" / "run"
    points = {"rate_0.001_epochs_3": (0.6, 0.7, 0.1, 0.1, 0.1), "rate_0.003_epochs_3": (0.5,) * 5}
    for name, scores in points.items():
        for seed, score in enumerate(scores):
            finish(run / "rte" / name, seed, score)
            keep(run / "rte" / name, seed, score)
    for seeds, best in ((5, 0.5), (2, 0.7)):
        report(run, seeds)
        assert kept_weights.best_weights(str(run / "rte"))[1]["score"] == best


def test_kept_weights_of_a_seed_that_is_tuned_anew_give_way(tmp_path):
    """Otherwise they would be of a record that is no longer there."""
    keep(tmp_path, 1, 0.9)
    keep(tmp_path, 1, 0.8, finished=(0, 2))
    finish(tmp_path, 1, 0.8)
    path, about = kept_weights.best_weights(str(tmp_path))
    assert about["score"] == 0.8 and os.path.basename(path) == "2"


def test_each_task_reports_the_seeds_of_the_last_command_with_that_task(tmp_path):
    def begin(task, seeds):
        tree = corpus.load_config("finetune")
        tree.update(tasks="mnli,rte", seeds=seeds, seed=3)
        config = finetuning_config.parse(tree)
        run_folder.check_settings(str(run), config, "encoder", 1000)
        run_folder.write_settings(str(run), config, "encoder", 1000, task)

    run = tmp_path / "finetune" / "run"
    for task, folder in (("mnli", "mnli"), ("rte", "rte/rate_0.001_epochs_3")):
        begin(task, 5)
        for seed in range(3, 8):
            finish(run / folder, seed, 0.5)
    begin("rte", 2)
    for folder, numbers in (
        ("mnli", [3, 4, 5, 6, 7]), ("rte/rate_0.001_epochs_3", [3, 4]),
    ):  # fmt: skip
        found = [record["seed"] for record in run_folder.reported(str(run / folder))]
        assert found == list(run_folder.reported_seeds(str(run / folder))) == numbers
    assert run_folder.reported_seeds(str(run / "cola")) is None
    assert run_folder.reported_seeds(str(tmp_path)) is None


def test_results_go_on_with_the_same_weights_after_more_pre_training(tmp_path):
    def config(step):
        tree = corpus.load_config("finetune")
        tree.encoder.step = step
        return finetuning_config.parse(tree)

    def refused(asked):
        with pytest.raises(config_lib.ConfigError, match="of step 1000 then and 2000 now") as error:
            run_folder.check_settings(run, asked, "weights of step 2000", 2000)
        return str(error.value)

    run = str(tmp_path / "finetune" / "run")
    run_folder.write_settings(run, config(0), "weights of step 1000", 1000, "rte")
    finish(tmp_path / "finetune" / "run" / "rte", 0, 0.5)
    run_folder.check_settings(run, config(1000), "weights of step 1000", 1000)
    assert "encoder.step=" not in refused(config(0))  # that checkpoint is gone

    checkpoint = tmp_path / "checkpoints" / "1000"
    checkpoint.mkdir(parents=True)
    (checkpoint / metadata._COMPLETE).touch()
    assert "; --config.encoder.step=1000 continues with the weights of that step" in refused(
        config(0)
    )
    elsewhere = dataclasses.replace(config(0).encoder, from_=f"{tmp_path}/other")
    assert "encoder.step=" not in refused(dataclasses.replace(config(0), encoder=elsewhere))
    longer = dataclasses.replace(config(0).recipe, epochs=7)
    assert "encoder.step=" not in refused(dataclasses.replace(config(0), recipe=longer))

    with pytest.raises(config_lib.ConfigError, match="settings: the encoder's weights; choose"):
        run_folder.check_settings(run, config(0), "other weights", 1000)


class AskedError(Exception):
    """Carries the path of the encoder that was asked for."""


@pytest.mark.parametrize(
    ("given", "asked"), [("export", "{}/export"), ("", ""), ("hf:owner/name", "hf:owner/name")]
)
def test_an_encoder_of_this_machine_is_kept_with_its_whole_path(
    tmp_path, monkeypatch, given, asked
):
    """So a task that was tuned from it is found from any folder."""

    def read(config, workdir, mesh):
        raise AskedError(config.encoder.from_)

    monkeypatch.chdir(tmp_path)
    (tmp_path / "export").mkdir()
    monkeypatch.setattr(task_by_task.encoders, "read", read)
    tree = finetune.get_config()
    tree.encoder["from"] = given
    config = finetuning_config.parse(tree)
    with pytest.raises(AskedError, match=f"^{asked.format(tmp_path)}$"):
        task_by_task.run(config, str(tmp_path / "run"))
    # Results of before, whose settings have the path as it was typed, are still continued.
    assert finetuning_config.differences(config, choices.with_whole_path(config)) == []


@pytest.mark.parametrize(
    ("asked", "name"),
    [("random", "random"), ("{}/run/finetune/random", "random"), ("{}/of_b", "b")],
)
def test_a_control_is_another_fine_tuning_by_its_name_or_folder(tmp_path, asked, name):
    for folder, called in (("run/finetune/random", "random"), ("of_b", "b")):
        (tmp_path / folder).mkdir(parents=True)
        results = run_results.Results(called, [made_results.task("rte", [0.5])])
        results_file.write(str(tmp_path / folder), results)
    mine = str(tmp_path / "run" / "finetune" / "mine")
    found = run_folder.control(mine, asked.format(tmp_path), ["rte", "cola"])
    assert (found.name, [task.task for task in found.tasks]) == (name, ["rte"])


def test_a_control_of_the_same_name_is_called_by_its_folder(tmp_path):
    other = tmp_path / "other" / "finetune" / "mine"
    other.mkdir(parents=True)
    results_file.write(str(other), run_results.Results("mine", [made_results.task("rte", [0.5])]))
    assert run_folder.control("run/finetune/mine", str(other), ["rte"]).name == str(other)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("rndom", "no results of that name in .*finetune, which has mine, random, nor in a folder"),
        ("", "--control= is empty"),
        ("gs://bucket/run/finetune/a", "--control='gs://bucket/run/finetune/a' is an address"),
        ("mine", "is this fine-tuning itself"),
        ("random", "has results of rte, and not of cola; tune the same tasks with both"),
        ("broken", "broken.results.json is no results.json"),
    ],
)
def test_a_control_that_cannot_be_one_is_refused(tmp_path, asked, words):
    for name in ("mine", "random"):
        (tmp_path / "finetune" / name).mkdir(parents=True)
        results = run_results.Results(name, [made_results.task("rte", [0.5])])
        results_file.write(str(tmp_path / "finetune" / name), results)
    if asked == "broken":
        (tmp_path / "finetune" / "broken").mkdir()
        (tmp_path / "finetune" / "broken" / "results.json").write_text("{}")
    with pytest.raises(config_lib.ConfigError, match=words) as caught:
        run_folder.control(str(tmp_path / "finetune" / "mine"), asked, ["cola"])
    assert "\n" not in str(caught.value)


def test_a_run_does_not_begin_with_the_weights_of_a_task(tmp_path):
    keep(tmp_path / "rte", 0, 0.5)
    (number,) = (tmp_path / "rte" / "weights").iterdir()
    for path in (tmp_path / "rte", number):
        init = config_lib.parse(corpus.small_run("builtin", "", init__from=str(path))).init
        with pytest.raises(config_lib.ConfigError, match="fine-tuned for rte.* name the workdir"):
            starting_checks.check_paths(init)
