# SPDX-License-Identifier: Apache-2.0
"""Clocks that a test sets."""


class Ticking:
    """A clock that advances by `tick` seconds whenever it is read; `now` may be set."""

    def __init__(self, tick):
        self.now, self.tick = 0.0, tick

    def __call__(self):
        self.now += self.tick
        return self.now
