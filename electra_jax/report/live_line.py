# SPDX-License-Identifier: Apache-2.0
"""The last line of a terminal while a run trains: how far it is, how good, how fast, how long.

    ━━━╸━━━━  42%  gen loss 4.559  disc loss 0.480  AUC 0.701  10.6k/s  ETA 2m39s

The losses and the speed are those of the newest line of training (`console_lines.py`), with short
names, so that the bar has room in 80 columns; the AUC is that of the newest evaluation. The line is
drawn again at most four times per second, and log lines scroll past above it. It is shown only in a
terminal.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping

from absl import logging
from rich import console as rich_console
from rich import live, progress_bar, table, text

from electra_jax.report import console_lines, metric_values, style, writers

_INTERVAL = 0.25  # seconds
_LOSSES = {  # of console_lines.LOSSES, in short
    "gen_masked_loss": "gen loss",
    "mlm_masked_loss": "mlm loss",
    "disc_loss": "disc loss",
}
_BAR = 5  # columns that are left to the bar at least
_WORDS = 69  # columns that the longest numbers take; the bar leaves them, so it keeps its width


class LiveLine:
    """A writer of metrics that keeps the newest ones in sight. Use `is_wanted` before making one.

    While it is open, what is written to standard output and standard error goes through it.
    """

    def __init__(
        self,
        steps: int,
        console: rich_console.Console | None = None,
        now: Callable[[], float] = time.monotonic,
        step: int = 0,
        progress: float | None = None,
    ):
        """Shows the line.

        Args:
          steps: the last step of the run.
          console: where to; standard error if None.
          now: a clock in seconds.
          step: the last step that was taken before this start.
          progress: the share of another budget than steps that was spent by then.
        """
        self._steps, self._step, self._now, self._drawn = steps, step, now, float("-inf")
        # The newest of each name.
        self._metrics: dict[str, float | None] = {} if progress is None else {"progress": progress}
        self._doing = ""  # what it does instead of training
        self._gone = False  # the terminal was closed, and the run continues without it
        self._on_standard_error = console is None

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
        names = (*_LOSSES, "loss", "tokens_per_second", "step_seconds", "seconds_left", "progress")
        kept = ("disc_auc",) if kind == "eval" else names
        self._metrics |= {name: metrics[name] for name in kept if name in metrics}
        self._step = step
        self._draw()

    def close(self) -> None:
        """Removes the line."""
        try:
            if self._handler.stream is not self._before:
                self._handler.setStream(self._before)
            self._live.stop()
        except OSError:
            self._terminal_is_gone()

    def _draw(self):
        if self._gone:
            return
        self._drawn = self._now()
        try:
            self._live.update(self._line(), refresh=True)
        except OSError:
            self._terminal_is_gone()

    def _terminal_is_gone(self):
        """Stops drawing, and discards what is still written to the terminal.

        Python would otherwise flush its streams at exit, fail, and exit with 120.
        """
        if self._on_standard_error and not self._gone:
            output, errors = 1, 2
            terminal, nowhere = os.fstat(errors).st_rdev, os.open(os.devnull, os.O_WRONLY)
            for descriptor in (output, errors):
                if os.fstat(descriptor).st_rdev == terminal:
                    os.dup2(nowhere, descriptor)
            os.close(nowhere)
        self._gone = True

    def _line(self):
        """A bar as wide as the longest numbers leave room for, and the numbers."""
        share = self._metrics.get("progress")
        if share is None:
            share = self._step / self._steps if self._steps else 0.0
        words = f"{share:4.0%}  {self._doing or self._numbers()}"
        words = words[: max(0, self._console.width - _BAR - 3)]

        bar = progress_bar.ProgressBar(
            1.0, share, self._console.width - max(_WORDS, len(words)) - 3
        )
        line = table.Table.grid(padding=(0, 1))
        line.add_row(bar, text.Text(words, no_wrap=True))
        return line

    def _numbers(self):
        found = self._metrics
        names = [name for name in _LOSSES if found.get(name) is not None]
        parts = [f"{_LOSSES[name]} {console_lines.loss(found[name])}" for name in names]
        if not names and found.get("loss") is not None:
            parts.append(f"loss {console_lines.loss(found['loss'])}")
        if found.get("disc_auc") is not None:
            parts.append(f"AUC {style.metric('disc_auc', found['disc_auc'])}")
        if found.get("tokens_per_second") is not None:
            parts.append(f"{style.count(found['tokens_per_second'])}/s")

        left = metric_values.seconds_left(self._step, self._steps, found)
        if left:
            parts.append(f"ETA {style.duration(left)}")
        return "  ".join(parts)


def is_wanted() -> bool:
    """Whether standard error is a terminal that can draw a line again."""
    # FORCE_COLOR makes rich take a file for a terminal, so the stream itself is asked. A dumb
    # terminal cannot move the cursor.
    return sys.stderr.isatty() and not rich_console.Console(stderr=True).is_dumb_terminal
