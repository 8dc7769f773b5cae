# SPDX-License-Identifier: Apache-2.0
"""Saves a checkpoint, two with files limited to 100 kB, one to 0 bytes, and one without a limit.

    python tests/workers/full_disk_worker.py FOLDER

The limit makes a write fail as a full disk does, and setting it needs no rights.
"""

import os
import resource
import signal
import sys

sys.path.insert(0, os.getcwd())

from jax import numpy as jnp  # noqa: E402 - run as a file

from electra_jax.host import logs, process_exit
from electra_jax.weights import checkpoint_series
from electra_jax.workdir import metadata  # noqa: E402

tree = {f"leaf{number}": jnp.arange(50_000.0) for number in range(5)}
logs.show()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
with checkpoint_series.Checkpoints(sys.argv[1], keep_last=9) as saved:
    saved.save(0, tree, {})  # the first is read back, and one that fails would end a run
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    saved.save(1, tree, {})
    saved.save(2, tree, {})
    saved.wait()
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # not even metadata can be written
    saved.save(3, tree, {})
    saved.wait()
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    saved.save(4, tree, {})
print(metadata.steps(sys.argv[1]))
process_exit.leave(0)  # as every command: threads of orbax may wait for the saves that failed
