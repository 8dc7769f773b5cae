# SPDX-License-Identifier: Apache-2.0
"""A command whose main thread receives no signals, as during a long computation.

    python tests/workers/signals_worker.py before|training|saved SECONDS

SECONDS is what a step may take after a signal (--stop_timeout).
"""

import contextlib
import os
import signal
import sys
import time

sys.path.insert(0, os.getcwd())

from electra_jax.host import logs, signals  # noqa: E402 - run as a file

phase, seconds = sys.argv[1:]
logs.show()
signals.guard(float(seconds))
# The main thread blocks them: the system hands them to another one, and Python's own handler, which
# runs in the main thread alone, has no turn before the call into the system comes back.
signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
if phase in ("training", "saved"):
    with signals.stop_on_signals() as stop:
        stop.saved = phase == "saved"
        print("ready", flush=True)
        time.sleep(1000)
is_ready = False
while True:
    # A signal that comes before the call that cannot hear it is not heard either.
    with contextlib.suppress(signals.Interrupted):
        if not is_ready:
            is_ready = True
            print("ready", flush=True)
        time.sleep(1000)
