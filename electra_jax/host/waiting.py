# SPDX-License-Identifier: Apache-2.0
"""How a process says for whom it waits."""

from absl import logging

FIRST_WORD = 10.0  # seconds of waiting after which it is said for whom


class Patience:
    """When to say that one waits: after 10 s, and then ever more seldom."""

    def __init__(self, since):
        self._since, self._next = since, FIRST_WORD

    def is_over(self, now):
        if now - self._since < self._next:
            return False
        self._next += min(self._next, 300.0)
        return True


def say_waiting(names, seconds, doing=""):
    logging.info("waiting for %s%s for %.0f s", listed(names), doing and f" {doing}", seconds)


def listed(names):
    if len(names) > 5:
        names = [*names[:4], f"{len(names) - 4} others"]
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
