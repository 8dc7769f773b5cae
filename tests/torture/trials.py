# SPDX-License-Identifier: Apache-2.0
"""A trial, what all trials share, and what the run of a trial must have come to at its end."""

import dataclasses
import pathlib
import random
import shutil
import signal
import threading

from tests.support import corpus, outcomes

from .runs import CONFIGURATION, STEPS, Lost, train


@dataclasses.dataclass
class Trial:
    """One trial: its number, its draws, its folder, and what was done to the run."""

    number: int
    kind: str
    draw: random.Random
    folder: pathlib.Path
    world: "World"
    done: list[str] = dataclasses.field(default_factory=list)
    refused: bool = False

    @property
    def workdir(self) -> pathlib.Path:
        """Of the run that is disturbed."""
        return self.folder / "run"

    def did(self, what: str) -> None:
        """Notes one disturbance."""
        self.done.append(what)


@dataclasses.dataclass
class World:
    """What all trials share."""

    folder: pathlib.Path
    digest: dict = dataclasses.field(default_factory=dict)  # of the undisturbed run's last weights
    rows: list = dataclasses.field(default_factory=list)  # its metrics
    digest_of_two: dict = dataclasses.field(default_factory=dict)  # of one with two processes
    seconds: float = 0.0  # that it took
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)


def prepare(folder: pathlib.Path) -> World:
    """Trains the undisturbed runs, and one that is stopped halfway, for damage to begin with."""
    world = World(folder)
    (folder / "torture_run.py").write_text(CONFIGURATION)
    corpus.write_corpus(folder / "corpus.txt")
    whole = folder / "whole"
    whole.mkdir()
    shutil.copy(folder / "corpus.txt", whole)
    command = train(whole)
    if command.wait():
        raise SystemExit("the undisturbed run failed:\n" + "\n".join(command.lines[-20:]))
    world.seconds = command.seconds
    world.digest, world.rows = outcomes.digest(whole / "run", STEPS), outcomes.rows(whole / "run")

    begun = folder / "begun"
    begun.mkdir()
    shutil.copy(folder / "corpus.txt", begun)
    command = train(begun)
    command.wait_for(rf"step +{STEPS // 2 + 2}/{STEPS}")
    command.signal(signal.SIGTERM)
    command.wait()
    return world


def end(trial):
    """The same command once more, to the end of the run."""
    command = train(trial.folder)
    code = command.wait()
    if code:
        raise Lost(f"the same command does not continue (exit code {code}): {command.lines[-1:]}")


def same(trial):
    """Raises Lost unless the run ended as the undisturbed one did."""
    two = trial.kind == "two_processes"
    expected = trial.world.digest_of_two if two else trial.world.digest
    if outcomes.digest(trial.workdir, STEPS) != expected:
        raise Lost("other weights than without disturbance")
    if two:
        return
    there = outcomes.rows(trial.workdir)
    hurt = any("metrics.jsonl" in what for what in trial.done)
    missing = [row for row in trial.world.rows if row not in there]
    if there != trial.world.rows and not hurt:
        raise Lost(f"other metrics: {len(there)} rows, {len(missing)} of the undisturbed missing")
    steps = [(row["step"], row["kind"]) for row in there]
    if len(set(steps)) != len(steps):
        raise Lost("a step stands twice in metrics.jsonl")
