# SPDX-License-Identifier: Apache-2.0
"""Each seed of a fine-tuning is a run at the services that logging.writers names."""

import importlib.util
import os

import pytest

from electra_jax import config as config_lib
from electra_jax.finetuning.tuning import service_runs, task_by_task
from support import finetunings, stand_in_service


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    return finetunings.make_places(tmp_path_factory.mktemp("finetune"))


def test_the_curve_of_each_seed_is_a_run_of_its_own(places, tmp_path):
    with stand_in_service.trackio(tmp_path) as got:
        results = finetunings.run(
            places, "sent", "classification", logging__writers="trackio", run__vmapped_seeds="on"
        )
    (task,) = results.tasks
    begun = [line["init"] for line in got() if "init" in line]
    workdir = os.path.basename(places[0])
    for seed, about in enumerate(begun):
        assert about["name"].startswith(f"{workdir}/sent/custom/seed_{seed}-")
        assert about["config"]["seed"] == seed and about["config"]["task"] == "custom"
        assert about["config"]["learning_rate"] == about["config"]["recipe.learning_rate"] > 0

        own = [line for line in got() if line["run"] == about["name"]]
        assert own[-1]["finish"]
        rows = {
            (line["step"], name): x for line in own if "step" in line for name, x in line.items()
        }
        for point in task.seeds[seed].curve:
            assert rows[point.step, "train/loss"] == pytest.approx(point.loss)
            assert rows[point.step, "eval/accuracy"] == pytest.approx(point.scores["accuracy"])
    assert len(begun) == len(task.seeds) == 2


def test_a_second_dev_set_is_told_apart():
    scores = {"dev": {"accuracy": 0.8, "f1": 0.7}, "dev_mismatched": {"accuracy": 0.6}}
    assert service_runs.metrics(scores, "dev") == {
        "accuracy": 0.8,
        "f1": 0.7,
        "accuracy/dev_mismatched": 0.6,
    }


def test_without_the_package_no_task_is_read(places, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(task_by_task.reading, "read", None)
    with pytest.raises(config_lib.ConfigError, match="the package wandb is not installed"):
        finetunings.run(places, "none", "classification", logging__writers="wandb")


def test_what_is_no_service_is_refused(places):
    with pytest.raises(
        config_lib.ConfigError, match="'wandbb' is no service; did you mean 'wandb'"
    ):
        finetunings.run(places, "none", "classification", logging__writers="wandbb")
