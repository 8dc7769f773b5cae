# SPDX-License-Identifier: Apache-2.0
"""How often a page is drawn while the work that it shows continues."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator


class Pace:
    """Says when a drawing is due, so that all of them take a small share of the time."""

    def __init__(self, seconds: float, share: float, now: Callable[[], float] = time.monotonic):
        """At least `seconds` pass between two drawings, which take at most `share` of the time."""
        self._seconds, self._share, self._now = seconds, share, now
        self._ended, self._took = -math.inf, 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is time for the next drawing."""
        return self._now() - self._ended > max(self._seconds, self._took / self._share)

    @contextlib.contextmanager
    def drawing(self) -> Iterator[None]:
        """Measures the drawing within the block."""
        begun = self._now()
        try:
            yield
        finally:
            self._ended = self._now()
            self._took = self._ended - begun
