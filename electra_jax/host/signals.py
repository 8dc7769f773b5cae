# SPDX-License-Identifier: Apache-2.0
"""How a run is asked to end: SIGTERM, Ctrl-C, and the preemption notice of a TPU pod.

| a signal comes | what happens | exit code |
|---|---|---|
| while the run trains | it ends the present step, does what is due after it, saves and ends | 0 |
| while it compiles a step | it does not wait for that, saves the step before and ends | 0 |
| while it compiles an evaluation | the same; the next start evaluates before it trains | 0 |
| while it evaluates | it evaluates to the end, takes one more step, saves and ends | 0 |
| while a save holds it up | that save ends, then as while it trains | 0 |
| and no step or batch of it ends in time | it says so and ends unsaved | 143, 130 for Ctrl-C |
| a second time, more than a second later | it ends at once without saving | the same |
| a second time, once that save is on disk | it ends at once; what was asked for is done | 0 |
| after the last step, while it saves and reports | it ends when that is done | 0 |
| and that is not done in time | it says what is saved and ends | 143, 130 for Ctrl-C |
| before the loop, or when all is done | it ends at once; nothing is to save | the same |

In time is within --stop_timeout. With several processes a signal to any of them stops all of them
after the same step. Where a run saved and ended with something left to do, `ended_early` says so,
and the exit code is --stopped_code instead of 0: a launcher has to start the run again then.
"""

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Iterator

import jax
from absl import logging
from jax.experimental import multihost_utils

from electra_jax.host import peers, process_exit

STOP_SECONDS = 120  # from a signal to the end of the present step, or of the last save
_UNWINDING = 3.0  # seconds after which code that cannot be interrupted is left as it is
_SAME = 1.0  # seconds in which two signals are one request: `timeout` and launchers send two

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupted(KeyboardInterrupt):
    """A signal came while there was nothing to save."""

    def __init__(self, number: int):
        name = signal.Signals(number).name
        super().__init__(f"{name}: ended; what is finished is kept, and the same command continues")
        self.code = 128 + number
        self.why = f"was ended by {name}"


class Stop:
    """Whether a signal has asked the run to save and end."""

    def __init__(self):
        self.asked = False
        self.saving = False  # the last step is done, and its state is being saved
        self.saved = False  # the save is on disk
        self.in_a_save = False  # within one that was due, and that ends in a time of its own
        self.moved = float("-inf")  # when a batch of an evaluation last ended
        self.doing = "training"  # what the run does now, and ...
        self.goes_on = process_exit.CONTINUES  # ... where the next start begins, for the last line

    def is_asked(self) -> bool:
        """Whether this process has heard of a request to stop, the others perhaps not yet.

        Where processes were not brought together by `peers.join`, it is False: they agree in
        `requested` alone.
        """
        group = peers.group()
        if group is not None:
            return group.is_stopping()
        return self.asked and jax.process_count() == 1

    def requested(self, step: int) -> bool:
        """Returns whether to stop at `step`; it is true on every process at the same step."""
        group = peers.group()
        if group is not None:
            stops = group.reached(step)
        elif jax.process_count() > 1:
            stops = multihost_utils.reached_preemption_sync_point(step)
        else:
            stops = self.asked

        if stops:
            self.ends_early()
        return stops

    def goes_back(self, step: int) -> None:
        """Says that the run goes back to this step, on all processes."""
        group = peers.group()
        if group is not None:
            group.goes_back(step)

    def ends_early(self) -> None:
        """Says that all processes now save and end, and that the run has more to do."""
        self.no_more_steps()
        if _guard is not None:
            _guard.ended_early = True

    def moves_on(self) -> None:
        """Says that an evaluation, which may last longer than any step, has not got stuck."""
        self.moved = time.monotonic()

    @contextlib.contextmanager
    def during_a_save(self) -> Iterator[None]:
        """Says that what is done within is a save, which ends in a time of its own.

        A signal that comes meanwhile does not cut it off; the time of a step begins after it.
        """
        self.in_a_save = True
        try:
            yield
        finally:
            self.in_a_save = False
            self.moves_on()

    def no_more_steps(self) -> None:
        """Switches the time limit off: what is left to do, such as a save, may take long."""
        self.saving = True


@contextlib.contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Makes SIGTERM and the first Ctrl-C ask for an orderly end while the block runs.

    If `guard` was called, it handles them. In a user's own program, where it was not, the second
    Ctrl-C is a KeyboardInterrupt; if that program started several processes by itself, SIGTERM is
    left to jax.
    """
    stop = Stop()
    if _guard is not None:
        with _guard.training(stop):
            yield stop
        return

    if jax.process_count() > 1:
        yield stop
        return

    def ask(number, _):
        if stop.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.asked = True
        logging.info("%s: saving and stopping", signal.Signals(number).name)

    try:
        before = {number: signal.signal(number, ask) for number in _SIGNALS}
    except ValueError:
        # Only the main thread may set handlers; some notebooks run their cells in another one.
        yield stop
        return

    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def guard(stop_seconds: float = STOP_SECONDS, stopped_code: int = 0) -> None:
    """Makes signals end this command as the table above says, whatever it is doing.

    Python runs a signal handler only between two instructions of the main thread, and a computation
    that waits for another process never gets there. So a second thread is told of signals too.

    Args:
      stop_seconds: from a signal to the end of the present step, or of the last save if that has
        begun; after that the process ends unsaved.
      stopped_code: the exit code where a run that was asked to end has saved, and a second signal
        ends its process before all writers are closed.
    """
    global _guard
    # ValueError: this is not the main thread, and only that one may set handlers.
    with contextlib.suppress(ValueError):
        _guard = _Guard(stop_seconds, stopped_code)


def ended_early() -> bool:
    """Returns whether a run of this command was asked to end before its last step, and did."""
    return _guard is not None and _guard.ended_early


_guard: "_Guard | None" = None


class _Guard:
    """Handles the signals of a whole command.

    The handler `_on_signal` runs in the main thread when that one comes to it; `_listen` runs in a
    thread of its own and reads the numbers of the signals from a pipe that Python writes at once.
    """

    def __init__(self, stop_seconds, stopped_code):
        self._stop_seconds, self._stopped_code = stop_seconds, stopped_code
        self.ended_early = False
        self._stop: Stop | None = None  # of the run that trains, or else of the last one
        self._trains = False
        self._first: tuple[int, float] | None = None  # the first signal, and when it came
        self._ends_at: float | None = None  # when the process ends even if it has not saved
        self._came_late = False  # the first signal came while the run saved and ended by itself

        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

        self._handle()
        threading.Thread(target=self._listen, name="signals", daemon=True).start()

    @contextlib.contextmanager
    def training(self, stop):
        """Passes signals to `stop` while the block runs."""
        # Once more, since a library that opens devices may have set handlers of its own without
        # Python's knowledge. libtpu has one for SIGTERM; while it compiles it leaves ours alone.
        with contextlib.suppress(ValueError):  # not the main thread
            self._handle()
        self._stop, self._trains = stop, True
        try:
            yield
        finally:
            self._trains, self._ends_at = False, None

    def _handle(self):
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)

    def _is_closing(self):
        """Whether a run that was asked to end has done so, and only its writers are closed."""
        if self._trains or self._stop is None:
            return False
        return self._stop.asked or self.ended_early

    def _on_signal(self, number, _):
        """Runs in the main thread, as soon as that one executes Python instructions again."""
        if self._trains:
            self._stop.asked = True
        elif not self._is_closing():  # otherwise `_hear` knows whether this is a second one
            raise Interrupted(number)

    def _listen(self):
        while True:
            # This thread sleeps until the first signal; after that it looks at the clock.
            look = 0.1 if self._ends_at is not None else None
            ready, _, _ = select.select([self._reader], [], [], look)
            for number in os.read(self._reader, 64) if ready else b"":
                if number in _SIGNALS:
                    self._hear(number)

            if self._is_overdue(time.monotonic()):
                self._give_up()

    def _is_overdue(self, now):
        if self._ends_at is None:
            return False
        if not self._trains:
            return now > self._ends_at
        if self._stop.in_a_save:
            return False  # it has its own limit (`Checkpoints`)
        if self._stop.saving:
            # So has one that a signal has led to.
            return self._came_late and now > self._ends_at
        return now > max(self._ends_at, self._stop.moved + self._stop_seconds)

    def _hear(self, number):
        """Handles a signal as the table at the top says, in the thread that listens."""
        name, now = signal.Signals(number).name, time.monotonic()

        if self._first is None:
            self._first = (number, now)
            if self._is_closing():
                logging.info("%s: the run is ending already; a second one ends it at once", name)
                return
            if not self._trains:
                self._ends_at = now + _UNWINDING
                return

            self._ends_at = now + self._stop_seconds
            if self._stop.saving:
                # Where a signal to another process has led to the save, this is the same request.
                self._came_late = not self.ended_early
                limit = f", and has {self._stop_seconds:g} s for that" if self._came_late else ""
                logging.info(
                    "%s: the run is ending already%s; a second one ends it at once", name, limit
                )
                return

            if peers.group() is not None:
                peers.group().ask_stop(name)
            logging.info(
                "%s: saving and stopping; without a step's end in %g s it gives up",
                name,
                self._stop_seconds,
            )
        elif now - self._first[1] <= _SAME:
            return
        elif self._stop is not None and self._stop.saved:
            code = self._stopped_code if self.ended_early else 128 + number
            _end(str(Interrupted(number)), number, code)
        else:
            goes_on = process_exit.CONTINUES if self._stop is None else self._stop.goes_on
            _end(f"{name} again: ended without saving; {goes_on}", number)

    def _give_up(self):
        """Ends the process because its time is over: it hangs, or cleaning up takes too long."""
        number, since = self._first
        stop, name = self._stop, signal.Signals(number).name
        if not self._trains or stop.saved:
            _end(str(Interrupted(number)), number)

        waiting = peers.group() is not None and peers.group().waits_for()
        what = "the run was not saved" if stop.saving else "no step ended"
        _end(
            f"{name}: {what} within {time.monotonic() - since:.0f} s (--stop_timeout), in which it"
            f" was {waiting or stop.doing}, so it ends without saving; {stop.goes_on}",
            number,
        )


def _end(text, number, code=None):
    """Ends this process at once, and tells the others why if there are any."""
    code = 128 + number if code is None else code
    if peers.group() is not None:
        peers.group().end(text, code, Interrupted(number).why)
    process_exit.exit_now(text, code)
