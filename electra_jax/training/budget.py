# SPDX-License-Identifier: Apache-2.0
"""What a run may spend (steps, tokens or minutes), its stages, and the clock of its training.

The learning rate inside the step follows the same figures: the state's own count of tokens, or its
`seconds`, which this module writes into the state after each step, for the next one. A budget of
minutes depends on the speed of the machine, so two runs with it are never bitwise equal; runs with
a budget of steps or tokens are.
"""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping

import jax
import numpy as np

from electra_jax import config as config_lib
from electra_jax.config import stages
from electra_jax.core import counters, trees
from electra_jax.host import processes
from electra_jax.report import style
from electra_jax.step import train_step


class Clock:
    """Counts seconds of training, over all continuations of a run; pauses are not counted."""

    def __init__(self, spent: float = 0.0, now: Callable[[], float] = time.monotonic):
        self._spent, self._now, self._begun = spent, now, None

    def begin(self) -> None:
        """Starts the clock, once the first step is compiled; later calls do nothing."""
        if self._begun is None:
            self._begun = self._now()

    @property
    def seconds(self) -> float:
        """The time spent so far."""
        return self._spent + (0.0 if self._begun is None else self._now() - self._begun)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """A context whose duration is not counted."""
        begun = self._now()
        yield
        self._spent -= self._now() - begun if self._begun is not None else 0.0


class Budget:
    """Follows what a run spends. `after` is called for every step.

    `over` says whether the budget is spent, and `stage` is the number of the next step's stage.
    """

    def __init__(self, schedule: config_lib.Schedule, first_tokens_per_step: int, state):
        """Starts counting from a state.

        Args:
          schedule: the section `schedule` of the configuration.
          first_tokens_per_step: the most tokens that a step of the first stage can see.
          state: the state that the next step begins with.
        """
        self._schedule = schedule
        self._tokens_per_step = [
            first_tokens_per_step,
            *(n * rows for _, n, rows in schedule.stages),
        ]
        # The counts of tokens at which a stage or the run ends.
        self._marks = [*stages.begins(schedule), schedule.tokens]
        self.clock = Clock(0.0 if state.seconds is None else float(state.seconds))
        self.turn_to(state)

    def turn_to(self, state: train_step.TrainState) -> None:
        """Counts from this state on. It may be an earlier one; the clock is never turned back."""
        self._tokens = counters.to_int(jax.device_get(state.tokens_seen))
        self._unread = None  # tokens of the last step, still on the device
        # The clocks of processes differ, the seconds in the state are the same on all of them.
        kept = state.seconds is not None
        self._count(int(state.step), float(state.seconds) if kept else self.clock.seconds)

    def after(self, step: int, state: train_step.TrainState, measured: train_step.Measured):
        """Counts a step that was dispatched; returns the state that the next step begins with."""
        seconds = self.clock.seconds
        if self._schedule.budget == "minutes":
            # That of process 0 on all: the learning rate follows it and must be equal.
            seconds = processes.number_of_first(seconds)
            state = with_seconds(state, seconds)

        if self._schedule.budget == "tokens":
            # While this step runs, the tokens of the step before are read, so that the device does
            # not wait. This step's own are waited for only if a stage or the run may end with it.
            self._read()
            self._unread = measured.tokens
            most = self._tokens + self._tokens_per_step[self.stage]
            if any(self._tokens < mark <= most for mark in self._marks):
                self._read()

        self._count(step, seconds)
        return state

    def _count(self, step, seconds):
        # Rounded as in the state, so that a run restored from it finds the same stage and end.
        seconds = float(np.float32(seconds))
        self.over = step >= self._schedule.steps or self._spent(seconds)
        self.stage = stages.number(self._schedule, step, self._tokens, seconds)

    def metrics(self, step: int, row: Mapping[str, float | None]) -> dict[str, float]:
        """`progress` and `seconds_left` for the log; empty if steps are the budget.

        Args:
          step: the last step.
          row: the other metrics of the log line; `step_seconds` is None if no speed is known yet.
        """
        c, step_seconds, speed = self._schedule, row["step_seconds"], row["tokens_per_second"]
        if c.budget == "steps":
            return {}

        by_steps = math.inf if step_seconds is None else step_seconds * (c.steps - step)
        if c.budget == "tokens":
            progress = row["tokens_seen"] / c.tokens
            left = (c.tokens - row["tokens_seen"]) / speed if speed else math.inf
        else:
            progress = self.clock.seconds / (60 * c.minutes)
            left = 60 * c.minutes - self.clock.seconds

        # `schedule.steps` remains the limit of a run with another budget.
        left = max(0.0, min(left, by_steps))
        known = {"seconds_left": left} if math.isfinite(left) else {}
        return {"progress": min(1.0, progress)} | known

    def _read(self):
        if self._unread is not None:
            self._tokens += int(self._unread)
            self._unread = None

    def _spent(self, seconds):
        c = self._schedule
        if c.budget == "minutes":
            return seconds >= 60 * c.minutes
        return c.budget == "tokens" and self._tokens >= c.tokens


def stage_of(schedule: config_lib.Schedule, state: train_step.TrainState) -> int:
    """The stage of the step that begins with this state."""
    tokens = counters.to_int(jax.device_get(state.tokens_seen))
    seconds = 0.0 if state.seconds is None else float(state.seconds)
    return stages.number(schedule, int(state.step), tokens, seconds)


def with_seconds(state: train_step.TrainState, seconds: float) -> train_step.TrainState:
    """The state with its count of seconds replaced; for a budget of minutes."""
    return dataclasses.replace(state, seconds=trees.placed_like(state.seconds, seconds))


def describe(schedule: config_lib.Schedule) -> str:
    """The whole budget as text: `1,000 steps`, `2.50B tokens` or `1h30m of training`."""
    if schedule.budget == "tokens":
        return f"{style.count(schedule.tokens)} tokens"
    if schedule.budget == "minutes":
        return f"{style.duration(60 * schedule.minutes)} of training"
    return f"{schedule.steps:,} steps"
