# SPDX-License-Identifier: Apache-2.0
"""Starts jax.distributed if several processes train together.

The address of process 0, the number of processes and the number of this one come from flags, or on
TPU machines and under Slurm from what jax finds out by itself. `host.peers` then waits until all
processes have come.
"""

import glob
import importlib.util
import os

import jax
from absl import flags

from electra_jax import config as config_lib
from electra_jax.host import peers

_COORDINATOR = flags.DEFINE_string(
    "coordinator_address", None, "HOST:PORT of process 0; TPU pods and Slurm need no flag."
)
_PROCESSES = flags.DEFINE_integer("num_processes", None, "How many processes train together.")
_PROCESS = flags.DEFINE_integer("process_id", None, "This process's number, from 0.")
_START_TIMEOUT = flags.DEFINE_float(
    "start_timeout",
    peers.START_SECONDS,
    "Seconds that a process waits for the others at its start; after 10 it says for whom.",
    lower_bound=1,
)
FLAGS = (_COORDINATOR, _PROCESSES, _PROCESS, _START_TIMEOUT)  # shown by --help of every command


def start_processes() -> None:
    """Starts jax.distributed by the flags, on TPU machines and under Slurm; elsewhere does nothing.

    Raises ConfigError if only some of the flags are given, PeersError if the processes do not come
    together.
    """
    given = (_COORDINATOR.value, _PROCESSES.value, _PROCESS.value)
    if any(value is not None for value in given):
        if any(value is None for value in given):
            raise config_lib.ConfigError(
                "--coordinator_address, --num_processes and --process_id belong together"
            )
        peers.join(peers.Address(*given), _START_TIMEOUT.value)
    elif int(os.environ.get("SLURM_NTASKS", "1")) > 1 or _on_tpu():
        address = _found_by_jax()
        if address is None:
            # Nobody is told then for whom it waits, but the run can start.
            jax.distributed.initialize()
        else:
            peers.join(address, _START_TIMEOUT.value)


def _found_by_jax() -> peers.Address | None:
    """Returns what jax finds out by itself on TPU machines and under Slurm.

    jax has no public function for it. Returns None if a newer jax has it in another place.
    """
    try:
        from jax._src import clusters

        find = clusters.ClusterEnv.auto_detect_unset_distributed_params
        wait = int(_START_TIMEOUT.value)
        found = find(os.environ.get("JAX_COORDINATOR_ADDRESS"), None, None, None, None, wait)
        coordinator, count, me, devices = found
    except (ImportError, AttributeError, TypeError, ValueError):
        return None

    if None in (coordinator, count, me):
        return None
    return peers.Address(coordinator, count, me, devices)


def _on_tpu() -> bool:
    """Returns whether this machine has TPU chips and their library, without opening a device."""
    chips = glob.glob("/dev/accel*") or glob.glob("/dev/vfio/[0-9]*")
    if "tpu" not in (os.environ.get("JAX_PLATFORMS") or "tpu"):
        return False
    return bool(chips) and importlib.util.find_spec("libtpu") is not None
