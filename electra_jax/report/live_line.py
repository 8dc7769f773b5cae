# SPDX-License-Identifier: Apache-2.0
"""The last line of a terminal while a run trains: how far it is, how good, how fast, how long.

    ━━━╸━━━━  42%  gen_masked_loss 4.559  disc_auc 0.701  10.6k tokens/s  2m39s left

It is drawn again at most four times a second, and log lines go past above it. Where the output is
no terminal there is none, and nothing but log lines is written.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Mapping

from absl import logging
from rich import console as rich_console
from rich import live, progress_bar, table, text

from electra_jax.report import baselines, console_lines, style, writers

_INTERVAL = 0.25  # seconds
_LOSSES = (*console_lines.LOSSES, "loss")  # the first that a run has is shown
_BAR = 5  # columns that are left to the bar at least


class LiveLine:
    """A writer of metrics that keeps the newest ones in sight. Use `is_wanted` before making one.

    While it is open, what is written to standard output and standard error goes through it.
    """

    def __init__(
        self,
        steps: int,
        console: rich_console.Console | None = None,
        now: Callable[[], float] = time.monotonic,
    ):
        """Shows the line.

        Args:
          steps: the last step of the run.
          console: where to; standard error if None.
          now: a clock in seconds.
        """
        self._steps, self._step, self._now, self._drawn = steps, 0, now, float("-inf")
        self._metrics: dict[str, float | None] = {}  # the newest of each name
        self._doing = ""  # what it does instead of training
        self._gone = False  # the terminal was closed, and the run goes on without it

        self._console = console or rich_console.Console(stderr=True)
        self._live = live.Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()
        # A process that is killed could not bring the cursor back.
        self._console.show_cursor(True)

        # The handler has kept the stream that was standard error before.
        self._handler = logging.get_absl_handler().python_handler
        self._before = self._handler.stream
        if self._before is sys.__stderr__:
            self._handler.setStream(sys.stderr)

    def doing(self, what: str) -> None:
        """Shows what the run does now, such as `evaluating`, until the next step is done."""
        self._doing = what
        self._draw()

    def step_done(self, step: int) -> None:
        """Moves the bar on."""
        self._step, self._doing = step, ""
        if self._now() - self._drawn >= _INTERVAL:
            self._draw()

    def write(self, step: int, kind: str, metrics: Mapping[str, writers.Number]) -> None:
        """Takes over the values of a log line or of an evaluation."""
        names = (*_LOSSES, "tokens_per_second", "step_seconds", "seconds_left", "progress")
        kept = ("disc_auc",) if kind == "eval" else names
        self._metrics |= {name: metrics[name] for name in kept if name in metrics}
        self._step = step
        self._draw()

    def close(self) -> None:
        """Removes the line."""
        with contextlib.suppress(OSError):
            if self._handler.stream is not self._before:
                self._handler.setStream(self._before)
            self._live.stop()

    def _draw(self):
        if self._gone:
            return
        self._drawn = self._now()
        try:
            self._live.update(self._line(), refresh=True)
        except OSError:
            self._gone = True

    def _line(self):
        """A bar as wide as the numbers beside it leave room for."""
        share = self._metrics.get("progress")
        if share is None:
            share = self._step / self._steps if self._steps else 0.0
        words = f"{share:4.0%}  {self._doing or self._numbers()}"
        words = words[: max(0, self._console.width - _BAR - 3)]

        bar = progress_bar.ProgressBar(1.0, share, self._console.width - len(words) - 3)
        line = table.Table.grid(padding=(0, 1))
        line.add_row(bar, text.Text(words, no_wrap=True))
        return line

    def _numbers(self):
        found = self._metrics
        parts = [
            f"{name} {console_lines.loss(found[name])}"
            for name in _LOSSES
            if found.get(name) is not None
        ][:1]
        if found.get("disc_auc") is not None:
            parts.append(f"disc_auc {style.metric('disc_auc', found['disc_auc'])}")
        if found.get("tokens_per_second") is not None:
            speed = style.metric("tokens_per_second", found["tokens_per_second"])
            parts.append(f"{speed} tokens/s")

        left = baselines.seconds_left(self._step, self._steps, found)
        if left:
            parts.append(f"{style.duration(left)} left")
        return "  ".join(parts)


def is_wanted() -> bool:
    """Whether standard error is a terminal that can draw a line again."""
    # FORCE_COLOR makes rich take a file for a terminal, so the stream itself is asked. A dumb
    # terminal cannot move the cursor.
    return sys.stderr.isatty() and not rich_console.Console(stderr=True).is_dumb_terminal
