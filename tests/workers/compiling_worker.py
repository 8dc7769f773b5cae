# SPDX-License-Identifier: Apache-2.0
"""A run that compiles for ever: so many programs are compiled as always, and the next never is.

    python tests/workers/compiling_worker.py COUNT FLAGS OF electra_jax.main

It prints "compiling for ever" to standard error then.
"""

import os
import sys
import threading

sys.path.insert(0, os.getcwd())

from electra_jax import main  # noqa: E402 - run as a file
from electra_jax.cli import command  # noqa: E402
from electra_jax.host import background_calls  # noqa: E402

left = int(sys.argv.pop(1))
begin = background_calls.begin


def call(work, name):
    global left
    left -= name == "compiling"
    return begin(work if left >= 0 or name != "compiling" else for_ever, name)


def for_ever():
    print("compiling for ever", file=sys.stderr, flush=True)
    threading.Event().wait()


background_calls.begin = call
command.run(main.main)
