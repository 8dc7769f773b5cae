# SPDX-License-Identifier: Apache-2.0
"""One of several processes that do nothing but compute together.

    python tests/workers/peers_worker.py PORT ID COUNT SECONDS walk|fail|ask|fail_asked

SECONDS is how long it waits for the others. With `walk` the processes compute together until they
are killed, with `fail` the second one fails alone. With `ask` they call processes.agree again and
again, and with `fail_asked` the second one fails while they do.
"""

import os
import sys

sys.path.insert(0, os.getcwd())
port, me, count, seconds, does = sys.argv[1:]
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402 - the platform must be set before
import numpy as np  # noqa: E402
from jax.experimental import multihost_utils  # noqa: E402

from electra_jax.cli import command  # noqa: E402
from electra_jax.host import peers, processes  # noqa: E402


def work():
    peers.join(peers.Address(f"127.0.0.1:{port}", int(count), int(me)), float(seconds))
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


assert jax.config.jax_platforms == "cpu"
command.flags.FLAGS(sys.argv[:1])
command._run(work, sys.argv)
