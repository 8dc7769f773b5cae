# SPDX-License-Identifier: Apache-2.0
"""Services get what TensorBoard gets, each step once, and a service that fails ends no run.

The stand-in for a service's package is a file with the two calls that the adapter makes;
tests/report/test_real_services.py has the packages themselves.
"""

import importlib.util
import math
import shutil

import numpy as np
import pytest

import electra_jax
from electra_jax import config as config_lib
from electra_jax.report import services, writers
from support import stand_in_service
from support.corpus import small_run
from support.tensorboard import events_of


class Recorder:
    """An open run that keeps what it gets; it fails while `broken`."""

    id = "run-1"

    def __init__(self):
        self.rows, self.ended, self.broken = [], None, False

    def log(self, step, values):
        if self.broken:
            raise ConnectionError("no route\nto host")
        self.rows.append((step, values))

    def finish(self, failed):
        self.ended = failed


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def warned(caplog):
    """The warnings of a test, as lines."""
    return lambda: [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]


def begun(workdir, run, continues=False, clock=None):
    notes = services.Notes(str(workdir), continues)
    sender = services.Sender("wandb", lambda known: run, notes, clock or Clock())
    sender.begin()
    return sender


def test_names_and_numbers_are_those_of_tensorboard(tmp_path):
    run, board = Recorder(), writers.TensorBoard(tmp_path / "board")
    sender = begun(tmp_path, run)
    metrics = {"loss": np.float32(0.5), "mfu": None, "gen_loss": math.nan, "tokens_seen": 2**40}
    for writer in (sender, board):
        writer.write(10, "train", metrics)
        writer.write(10, "eval", {"disc_auc": 0.75})
        writer.close()
    assert run.rows == [
        (10, {"train/loss": 0.5, "train/tokens_seen": 2**40}),
        (10, {"eval/disc_auc": 0.75}),
    ]
    shown = {value.tag for event in events_of(tmp_path / "board") for value in event.summary.value}
    assert shown == {name for _, values in run.rows for name in values}


def test_a_run_that_goes_on_has_the_same_id_and_sends_no_step_twice(tmp_path):
    before, after = Recorder(), Recorder()
    first = begun(tmp_path, before)
    for step in (10, 20, 30):
        first.write(step, "train", {"loss": 1.0})
    first.write(20, "eval", {"loss": 1.0})
    first.finish(failed=True)
    assert before.ended is True

    asked = []
    notes = services.Notes(str(tmp_path), continues=True)
    second = services.Sender("wandb", lambda known: asked.append(known) or after, notes)
    second.begin()
    for step, kind in ((30, "train"), (30, "eval"), (40, "train")):
        second.write(step, kind, {"loss": 2.0})
    second.finish(failed=False)
    assert asked == ["run-1"] and after.ended is False
    assert [(step, *values) for step, values in after.rows] == [
        (30, "eval/loss"),
        (40, "train/loss"),
    ]


def test_a_run_that_begins_again_is_a_new_one(tmp_path):
    begun(tmp_path, Recorder()).write(10, "train", {"loss": 1.0})
    asked = []
    notes = services.Notes(str(tmp_path), continues=False)
    services.Sender("wandb", lambda known: asked.append(known) or Recorder(), notes).begin()
    assert asked == [""]


def test_what_a_service_did_not_take_is_sent_later_and_one_line_says_so(tmp_path, warned):
    run, clock = Recorder(), Clock()
    sender = begun(tmp_path, run, clock=clock)
    run.broken = True
    for clock.now, step in ((0, 10), (30, 20)):  # pauses of 30 and of 60 seconds
        sender.write(step, "train", {"loss": float(step)})
    assert len(warned()) == 1 and "ConnectionError: no route to host" in warned()[0]

    run.broken = False
    for clock.now, step in ((89, 30), (90, 40)):
        assert run.rows == [], "a pause was cut short"
        sender.write(step, "train", {"loss": float(step)})
    assert [step for step, _ in run.rows] == [10, 20, 30, 40]


def test_a_run_that_goes_on_waits_for_a_service_that_cannot_be_opened(tmp_path, warned):
    begun(tmp_path, Recorder()).write(10, "train", {"loss": 1.0})
    run, attempts = Recorder(), []

    def opens(known):
        attempts.append(known)
        if len(attempts) == 1:
            raise ConnectionError("away")
        return run

    clock = Clock()
    sender = services.Sender("wandb", opens, services.Notes(str(tmp_path), True), clock)
    sender.begin()
    clock.now += 30
    sender.write(20, "train", {"loss": 1.0})
    assert attempts == ["run-1", "run-1"] and [step for step, _ in run.rows] == [20]
    assert len(warned()) == 1


def test_rows_that_never_got_there_are_counted_at_the_end(tmp_path, warned):
    run = Recorder()
    sender = begun(tmp_path, run)
    run.broken = True
    for step in (10, 20):
        sender.write(step, "train", {"loss": 1.0})
    sender.finish(failed=False)
    assert "did not get the last 2 rows; they are in metrics.jsonl" in warned()[-1]


def test_damaged_notes_are_named_and_begin_new_runs(tmp_path, warned):
    (tmp_path / services.NOTES).write_text('{"wandb": {"id": 7}}')
    assert services.Notes(str(tmp_path), continues=True).of("wandb") == {}
    assert "writers.json cannot be used" in warned()[0]


# Whole runs


@pytest.fixture
def stand_in(tmp_path):
    """What reads the lines that a stand-in for `trackio` has written."""
    with stand_in_service.trackio(tmp_path) as got:
        yield got


def test_a_whole_run_is_sent_once_although_its_end_is_trained_twice(text, tmp_path, stand_in):
    config = small_run(*text, logging__writers="trackio")
    workdir = tmp_path / "run"
    electra_jax.train(config, workdir)
    shutil.rmtree(workdir / "checkpoints" / "6")
    electra_jax.train(config, workdir)

    lines = stand_in()
    first, second = [line["init"] for line in lines if "init" in line]
    assert first["name"].startswith("run-") and second["name"] == first["name"]
    assert (first["resume"], second["resume"]) == ("never", "allow")
    assert first["config"]["schedule.steps"] == 6
    assert [line["finish"] for line in lines if "finish" in line] == [True, True]

    sent = {(line["step"], name): x for line in lines if "step" in line for name, x in line.items()}
    rows = writers.read(workdir / "metrics.jsonl")
    assert [line["step"] for line in lines if "step" in line] == [row["step"] for row in rows]
    for row in rows:
        value = sent[row["step"], f"{row['kind']}/loss"]
        assert float(f"{value:.7g}") == row["loss"]


def test_without_the_package_nothing_begins(text, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(config_lib.ConfigError) as raised:
        electra_jax.train(small_run(*text, logging__writers="wandb"), tmp_path / "run")
    assert "package wandb is not installed" in str(raised.value)
    assert "pip install 'wandb>=0." in str(raised.value)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_new_run_that_cannot_be_opened_is_refused_with_a_remedy(text, tmp_path, stand_in):
    package = tmp_path / "packages" / "trackio.py"
    package.write_text("def init(**about):\n    raise ValueError('no such\\nSpace')\n")
    with pytest.raises(config_lib.ConfigError) as raised:
        electra_jax.train(small_run(*text, logging__writers="trackio"), tmp_path / "run")
    assert "trackio cannot be opened (ValueError: no such Space); look at" in str(raised.value)
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [("wandbb", "did you mean 'wandb'"), ("wandb,wandb", "names wandb twice"), (",", "no service")],
)
def test_a_service_that_does_not_exist_is_refused(given, words):
    with pytest.raises(config_lib.ConfigError, match=words):
        config_lib.parse(small_run("builtin", "", logging__writers=given))
