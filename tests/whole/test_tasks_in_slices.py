# SPDX-License-Identifier: Apache-2.0
"""Tasks in slices of time: which begins when, and that every slice gets something done.

A made-up slice stands for the time, and a made-up command trains in it.
"""

import dataclasses
import json
import pathlib
import types

import pytest

from benchmarks import tasks_in_slices
from electra_jax.finetuning.results import results_file
from support import made_results

SEEDS = 3
ROWS = {"cola": 10, "qqp": 100, "rte": 5}


class MadeUp:
    """A slice in which one seed takes as many seconds as its task has rows, and three take twice.

    Seeds that train together are done at once; one by one, each is done by itself.
    """

    def __init__(self, workdir: pathlib.Path, seconds: float, slower: dict[str, float]):
        self.whole = self.left = seconds
        self.fresh, self.begun = True, []
        self._folder, self._slower = workdir / "finetune" / "finetune", slower

    def run(self, *command: str) -> bool:
        flags = dict(word.split("=", 1) for word in command[1:])
        task, one_by_one = flags["--config.tasks"], flags["--config.run.vmapped_seeds"] == "off"
        assert command[0] == "electra_jax.finetune" and flags["--config.seeds"] == str(SEEDS)
        self.fresh = False
        self.begun.append(f"{task} one by one" if one_by_one else task)

        missing = [number for number in range(SEEDS) if not self._record(task, number).exists()]
        for group in [[number] for number in missing] if one_by_one else [missing]:
            seconds = ROWS[task] * self._slower.get(task, 1) * (1 + len(group)) / 2
            if seconds > self.left:
                self.left = 0
                return False
            self.left -= seconds
            for number in group:
                path = self._record(task, number)
                path.parent.mkdir(parents=True)
                about = {"minutes": seconds / 60 / len(group), "compile_seconds": 0.0}
                path.write_text(json.dumps(about))

        path = self._folder / "results.json"
        before = results_file.load(str(path)).tasks if path.exists() else []
        done = made_results.task(task, [ROWS[task] / 100] * SEEDS)
        tasks = [*(one for one in before if one.task != task), done]
        made = dataclasses.replace(made_results.three(), tasks=tasks)
        results_file.write(str(self._folder), made)
        return True

    def _record(self, task, number):
        return self._folder / task / f"seed_{number}" / "seed.json"


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Makes a call with so many seconds; (whether all is done, what has begun)."""
    slices = []
    clock = types.SimpleNamespace(monotonic=lambda: -slices[-1].left)  # only training takes time
    monkeypatch.setattr(tasks_in_slices, "time", clock)
    monkeypatch.setattr(tasks_in_slices, "work_of", lambda _, task: ROWS[task])

    def made(seconds, *tasks, slower=None):
        slices.append(MadeUp(tmp_path, seconds, slower or {}))
        done = tasks_in_slices.tune(slices[-1], tmp_path, tmp_path, tasks, SEEDS)
        return done, slices[-1].begun

    return made


def test_the_least_work_comes_first_and_what_is_done_is_not_done_again(call, tmp_path):
    tasks = ("qqp", "cola", "rte")
    assert call(1000, *tasks) == (True, ["rte", "cola", "qqp"])
    assert call(1000, *tasks) == (True, [])
    found = tasks_in_slices.scores(tmp_path)
    assert {task: one.values("dev", "mcc") for task, one in found.items()} == {
        task: [ROWS[task] / 100] * SEEDS for task in tasks
    }


def test_a_task_that_should_not_fit_into_what_is_left_waits_for_the_next_slice(call):
    """10 and 20 of the 210 seconds are gone, and 200 are needed."""
    assert call(210, "rte", "cola", "qqp") == (False, ["rte", "cola"])
    assert call(210, "rte", "cola", "qqp") == (True, ["qqp"])


def test_a_task_that_should_not_fit_into_any_slice_trains_its_seeds_one_by_one(call):
    """Together they would take 200 seconds and never be done; one after the other each stays."""
    call(1000, "rte")
    assert call(150, "rte", "qqp") == (False, ["qqp one by one"])
    assert call(150, "rte", "qqp") == (False, ["qqp one by one"])
    assert call(150, "rte", "qqp") == (True, ["qqp one by one"])


def test_a_task_that_was_cut_in_a_slice_of_its_own_trains_its_seeds_one_by_one(call):
    """The first task has no forecast."""
    assert call(15, "cola") == (False, ["cola"])
    assert call(15, "cola") == (False, ["cola one by one"])
    assert call(25, "cola") == (True, ["cola one by one"])


def test_a_task_that_was_cut_behind_another_one_begins_together_again(call):
    """It takes 30 seconds and not the 20 of its forecast; a slice of its own is enough."""
    slower = {"cola": 1.5}
    assert call(35, "rte", "cola", slower=slower) == (False, ["rte", "cola"])
    assert call(35, "rte", "cola", slower=slower) == (True, ["cola"])


def test_a_seed_that_does_not_fit_into_a_slice_is_an_error_with_its_remedy(call):
    assert call(9, "cola") == (False, ["cola"])
    with pytest.raises(SystemExit, match=r"^a seed of cola did not fit .* more --seconds, or name"):
        call(9, "cola")


def test_no_command_begins_when_the_time_is_over(call):
    assert call(0, "cola") == (False, [])


def test_the_forecast_scales_training_alone():
    took = {"work": 100, "seconds": 70.0, "training": 30.0}
    assert tasks_in_slices.forecast(took, 300) == 40 + 3 * 30
    assert tasks_in_slices.forecast(None, 300) is None
    assert tasks_in_slices.forecast(took | {"work": 0}, 300) is None


def test_the_work_of_a_task_is_its_rows_as_often_as_they_are_trained_on(tmp_path):
    for task, folder in tasks_in_slices.FOLDERS.items():
        assert tasks_in_slices.work_of(tmp_path, task) == 0
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.tsv").write_text("a\tb\n" * 10)
    found = {task: tasks_in_slices.work_of(tmp_path, task) for task in tasks_in_slices.FOLDERS}
    assert found == {
        "cola": 30, "sst2": 30, "mrpc": 60, "stsb": 200, "qqp": 30, "mnli": 30, "qnli": 30,
        "rte": 100,
    }  # fmt: skip
