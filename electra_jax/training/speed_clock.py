# SPDX-License-Identifier: Apache-2.0
"""How long steps take: those between two log lines, and the first one of a start or a stage.

It reads the clock of the budget, which stands still while a run compiles, evaluates or saves.
"""

import time
from typing import NamedTuple

from electra_jax.training import budget


class Lap(NamedTuple):
    """What was done since the last log line, and how long it took."""

    steps: int
    seconds: float
    tokens: int  # that the main network has read, without padding


class SpeedClock:
    """Measures laps, and separately the first step, because its compilation belongs to no lap."""

    def __init__(self, clock: budget.Clock, step: int, tokens: int):
        """Begins to measure at this step, after which so many tokens were seen."""
        self._clock = clock
        self._compile_begun = self._compile_seconds = 0.0
        self.stage_begins()
        self.restart(step, tokens)

    def stage_begins(self) -> None:
        """Measures the first step from now on."""
        self._stage_begun = time.monotonic()

    def compiling(self) -> None:
        """The step is compiled from now on."""
        self._compile_begun = time.monotonic()

    def compiled(self) -> None:
        """The step was compiled and is running for the first time."""
        self._compile_seconds = time.monotonic() - self._compile_begun

    def first_step(self) -> tuple[float, float]:
        """Returns (seconds until the first step was done, those of them spent compiling)."""
        return time.monotonic() - self._stage_begun, self._compile_seconds

    def restart(self, step: int, tokens: int) -> None:
        """Begins a lap, without regard to what was done since the last one."""
        self._step, self._tokens, self._seconds = step, tokens, self._clock.seconds

    def lap(self, step: int, tokens: int) -> Lap:
        """Returns the lap that ends with this step, and begins the next."""
        seconds = self._clock.seconds
        done = Lap(step - self._step, seconds - self._seconds, tokens - self._tokens)
        self.restart(step, tokens)
        return done
