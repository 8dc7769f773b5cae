# SPDX-License-Identifier: Apache-2.0
"""The phases of a preparation, or of other long work: how far each is, how many seconds it took.

    reading: 43%, 10 s; 4 of 41 files, 1.2 of 11.6 GB downloaded
    cutting rows: 62%, 20 s, 12 s left; 31,457,280 characters tokenised

The characters are counted in shared memory. Each process of a preparation adds those that it has
sent through the tokenizer, and the parent prints the sum. This shows progress even while one unit
takes minutes.
"""

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any

_PROGRESS_SECONDS = 10
_counted: Any = None  # multiprocessing.Value shared by all processes of a preparation, or None


def count_in(characters: Any) -> None:
    """Sets the shared value to which this process adds the characters that it tokenises."""
    global _counted  # noqa: PLW0603 - a shared value reaches a worker only as it starts
    _counted = characters


def count_characters(number: int) -> None:
    """Adds to the shared count; does nothing outside of a preparation."""
    if _counted is not None:
        with _counted.get_lock():
            _counted.value += number


@dataclasses.dataclass(frozen=True)
class _Phase:
    name: str
    began: float
    share: Callable[[], float] | None
    more: Callable[[], str]


class Phases:
    """One phase after another, each from its `begin` to the next one's or to the end of the block.

    While the block runs, a thread tells every 10 seconds how far the present phase is, so the lines
    come even if the block only waits.
    """

    def __init__(
        self, progress: Callable[[str], Any], now: Callable[[], float] = time.monotonic
    ) -> None:
        """Takes what is called with each line, and a clock in seconds."""
        self.tell, self._now = progress, now
        self._phase: _Phase | None = None
        self._seconds: dict[str, float] = {}
        self._changed, self._over = threading.Event(), False
        # A daemon: it must not keep the process alive.
        self._thread = threading.Thread(target=self._repeat, daemon=True)

    def __enter__(self) -> "Phases":
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._over = True
        self._changed.set()
        self._thread.join()

    def begin(
        self,
        name: str,
        words: str = "",
        share: Callable[[], float] | None = None,
        more: Callable[[], str] = str,
    ) -> None:
        """Ends the phase before, begins this one and says so.

        Args:
          name: of the phase. The seconds of phases with the same name add up.
          words: what is said now, instead of the name.
          share: how much of the phase is done, from 0 to 1; None if nobody knows.
          more: what else is said every 10 seconds; '' for nothing.
        """
        self._end()
        self._phase = _Phase(name, self._now(), share, more)
        self._changed.set()
        self.tell(words or name)

    def line(self) -> str:
        """How far the present phase is; '' before the first one."""
        phase = self._phase
        if phase is None:
            return ""

        seconds = self._now() - phase.began
        parts = [f"{seconds:,.0f} s"]
        share = phase.share() if phase.share else 0.0
        if phase.share:
            parts.insert(0, f"{int(100 * share)}%")  # rounded down: 100% means that it is done
        if share:
            parts.append(f"{seconds / share - seconds:,.0f} s left")

        more = phase.more()
        return f"{phase.name}: {', '.join(parts)}" + (f"; {more}" if more else "")

    def table(self) -> str:
        """Ends the last phase; a line per phase, with its seconds and its share of them all."""
        self._end()
        whole, width = sum(self._seconds.values()), max(map(len, self._seconds))
        return "\n".join(
            f"  {name:<{width}}  {seconds:8,.1f} s  {seconds / whole if whole else 0:4.0%}"
            for name, seconds in self._seconds.items()
        )

    def _end(self):
        phase, self._phase = self._phase, None
        if phase is not None:
            before = self._seconds.get(phase.name, 0.0)
            self._seconds[phase.name] = before + self._now() - phase.began

    def _repeat(self):
        while not self._over:
            # A phase that began meanwhile speaks 10 seconds after its own beginning.
            if self._changed.wait(_PROGRESS_SECONDS):
                self._changed.clear()
            elif line := self.line():
                self.tell(line)
