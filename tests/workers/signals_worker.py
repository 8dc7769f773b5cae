# SPDX-License-Identifier: Apache-2.0
"""A command whose main thread receives no signals, as during a long computation.

    python tests/workers/signals_worker.py PHASE SECONDS

PHASE is before, training, evaluating, saving, stopping, ending, reporting, saved or closing: where
it is when the signal comes; or library: it trains, and a library has taken SIGTERM before that.
`saving` is a save that was due and takes longer than a step may. For `stopping` a signal leads to a
save that takes longer than a step may, for `saved` to one that is done, and for `closing` the main
thread has left the loop after that, and hears signals again. SECONDS is what a step may take after
a signal (--stop_timeout); the exit code of a run that was stopped is 75.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time

sys.path.insert(0, os.getcwd())

from electra_jax.cli import command  # noqa: E402 - run as a file
from electra_jax.host import process_exit, signals  # noqa: E402

phase, seconds = sys.argv[1:]


def work():
    # The main thread blocks them: the system hands them to another one, and Python's own handler,
    # which runs in the main thread alone, has no turn before the call into the system comes back.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    if phase == "library":  # as libtpu does when it opens its devices: Python hears nothing of it
        ctypes.CDLL(None).signal(int(signal.SIGTERM), ctypes.c_void_p(int(signal.SIG_DFL)))
    if phase != "before":
        with signals.stop_on_signals() as stop:
            stop.doing, stop.goes_on = "taking step 7", process_exit.BEGINS_AGAIN
            stop.saved = phase == "reporting"
            if phase in ("ending", "reporting"):
                stop.no_more_steps()
                stop.doing, stop.goes_on = "saving step 9", process_exit.CONTINUES
            print("ready", flush=True)
            if phase == "saving":
                with stop.during_a_save():
                    time.sleep(4)
            if phase in ("evaluating", "saving", "stopping"):  # for longer than a step may take
                for _ in range(40):
                    time.sleep(0.1)
                    if phase != "stopping":
                        stop.moves_on()
                    elif signals._guard._first is not None:
                        stop.ends_early()
                print("to the end", flush=True)
                os._exit(0)
            if phase in ("saved", "closing", "library"):
                while signals._guard._first is None:
                    time.sleep(0.01)
                stop.ends_early()
                stop.saved = True
            if phase == "library":
                print("heard", flush=True)
                os._exit(0)
            if phase != "closing":
                time.sleep(1000)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))
        print("closing", flush=True)
        time.sleep(1000)
    is_ready = False
    while True:
        # A signal that comes before the call that cannot hear it is not heard either.
        with contextlib.suppress(signals.Interrupted):
            if not is_ready:
                is_ready = True
                print("ready", flush=True)
            time.sleep(1000)


command.flags.FLAGS([*sys.argv[:1], f"--stop_timeout={seconds}", "--stopped_code=75"])
command._run(work, sys.argv)
