# SPDX-License-Identifier: Apache-2.0
"""How a run is asked to end: SIGTERM, Ctrl-C, and the preemption notice of a pod."""

import contextlib
import signal
from collections.abc import Iterator

import jax
from absl import logging
from jax.experimental import multihost_utils


class Stop:
    """Whether a signal asked the run to save and end."""

    def __init__(self):
        self.asked = False

    def requested(self, step: int) -> bool:
        """True on every process at the same step."""
        if jax.process_count() > 1:
            return multihost_utils.reached_preemption_sync_point(step)
        return self.asked


@contextlib.contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """SIGTERM and the first Ctrl-C ask for an orderly end; the second Ctrl-C is an interrupt.

    With several processes SIGTERM is left to jax, which lets all of them stop at one step.
    """
    stop = Stop()
    if jax.process_count() > 1:
        yield stop
        return

    def ask(number, _):
        if stop.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.asked = True
        logging.info("%s: saving and stopping", signal.Signals(number).name)

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    except ValueError:  # not the main thread, as in some notebooks: signals are not ours there
        yield stop
        return
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
