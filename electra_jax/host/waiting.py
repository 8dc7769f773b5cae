# SPDX-License-Identifier: Apache-2.0
"""How a process logs for whom it waits: after 10 seconds, and then less and less often."""

from absl import logging

FIRST_WORD = 10.0  # seconds of waiting before the first log line


class Patience:
    """Says when the next log line about one waiting is due: first after 10 s, later less often."""

    def __init__(self, since):
        self._since, self._next = since, FIRST_WORD

    def is_over(self, now):
        """Returns whether a line is due at the time `now`; each line is due once."""
        if now - self._since < self._next:
            return False

        # The pause doubles until it is five minutes long.
        self._next += min(self._next, 300.0)
        return True


def say_waiting(names, seconds, doing=""):
    """Logs for which processes this one waits, and what they should do."""
    logging.info("%s for %.0f s", describe(names, doing), seconds)


def describe(names, doing=""):
    """Says for which processes one waits, and what they should do: "waiting for a to compile"."""
    return f"waiting for {listed(names)}{doing and f' {doing}'}"


def listed(names):
    """Joins names for a sentence: "a, b and c"; only the first four of more than five."""
    if len(names) > 5:
        names = [*names[:4], f"{len(names) - 4} others"]
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
