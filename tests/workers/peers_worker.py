# SPDX-License-Identifier: Apache-2.0
"""One of several processes that do nothing but compute together.

    python tests/workers/peers_worker.py PORT ID COUNT SECONDS walk|fail|ask|fail_asked|hang|counted

SECONDS is how long it waits for the others. With `walk` the processes compute together until they
are killed, with `fail` the second one fails alone. With `ask` they call processes.agree again and
again, and with `fail_asked` the second one fails while they do. With `hang` they train, and at its
fifth step the second one hangs where no signal reaches its main thread. With `counted` jax counts
them otherwise than their launcher, as on a TPU slice, and they say what they tell each other.
"""

import json
import os
import signal
import sys
import time

sys.path.insert(0, os.getcwd())
port, me, count, seconds, does = sys.argv[1:]
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402 - the platform must be set before
import numpy as np  # noqa: E402
from jax.experimental import multihost_utils  # noqa: E402

from electra_jax.cli import command  # noqa: E402
from electra_jax.host import peers, processes, signals  # noqa: E402


def work():
    if does == "counted":
        count_otherwise()
    peers.join(peers.Address(f"127.0.0.1:{port}", int(count), int(me)), float(seconds))
    if does == "hang":
        train()
    if does == "counted":
        print(json.dumps(told()))
        return
    said = False
    for step in range(10**9):
        if does in ("ask", "fail_asked"):
            processes.agree(lambda: None, OSError, doing="to count")
        else:
            multihost_utils.process_allgather(np.float32(step))
        if not said:
            print({"walk": "walking", "ask": "asking"}.get(does, ""), flush=True)
            said = True
        if does.startswith("fail") and me == "1" and step == 5:
            raise KeyError("no such thing")


def count_otherwise():
    """Lets jax give each process the number of the next one."""
    start = jax.distributed.initialize

    def initialize(coordinator, processes_n, number, *more, **named):
        start(f"127.0.0.1:{port}", processes_n, (number + 1) % processes_n, *more, **named)

    jax.distributed.initialize = initialize


def told():
    """What this process hears of the others."""
    return {
        "number": jax.process_index(),
        "gathered": processes.gather(me),
        "again": processes.gather(f"{me} again"),
        "of_first": processes.of_first(lambda: me),
        "number_of_first": processes.number_of_first(float(me)),
        "agreed": processes.agree(lambda: me, OSError),
    }


def train():
    if me == "1":  # its main thread hears of none; another thread does
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
    with signals.stop_on_signals() as stop:
        for step in range(10**9):
            multihost_utils.process_allgather(np.float32(step))
            if me == "1" and step == 5:
                print("hanging", flush=True)
                time.sleep(1000)
            if stop.requested(step):
                return


assert jax.config.jax_platforms == "cpu"
command.flags.FLAGS([*sys.argv[:1], "--stop_timeout=2"])
command._run(work, sys.argv)
