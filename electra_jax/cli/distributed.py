# SPDX-License-Identifier: Apache-2.0
"""Starts jax.distributed if several processes train together.

The address of process 0, the number of processes and the number of this one come from flags, or on
TPU pods, GKE, Slurm and Open MPI from what `host.cluster` finds. `host.peers` then waits until all
processes have come.
"""

from absl import flags

from electra_jax import config as config_lib
from electra_jax.host import cluster, joining, peers

_COORDINATOR = flags.DEFINE_string(
    "coordinator_address",
    None,
    "HOST:PORT of process 0; TPU pods, GKE, Slurm and Open MPI need no flag.",
)
_PROCESSES = flags.DEFINE_integer(
    "num_processes",
    None,
    "How many processes train together. --num_processes=1 without the other two flags: this process"
    " trains alone, whatever has started it.",
    lower_bound=1,
)
_PROCESS = flags.DEFINE_integer("process_id", None, "This process's number, from 0.")
_START_TIMEOUT = flags.DEFINE_float(
    "start_timeout",
    peers.START_SECONDS,
    "Seconds that a process waits for the others at its start; after 10 it says for whom.",
    lower_bound=1,
)
_NOT_GIVEN = (None, None, None)
FLAGS = (_COORDINATOR, _PROCESSES, _PROCESS, _START_TIMEOUT)  # shown by --help of every command


def start_processes() -> None:
    """Starts jax.distributed by the flags, or where something else started several processes.

    Raises ConfigError if only some of the flags are given, PeersError if the processes do not come
    together.
    """
    given = (_COORDINATOR.value, _PROCESSES.value, _PROCESS.value)
    if given == (None, 1, None):
        return

    if any(value is not None for value in given):
        if any(value is None for value in given):
            raise config_lib.ConfigError(
                "--coordinator_address, --num_processes and --process_id belong together"
            )
        address: peers.Address | None = peers.Address(*given)
    else:
        address = cluster.find(_START_TIMEOUT.value)

    if address is None:
        return

    try:
        peers.join(address, _START_TIMEOUT.value)
    except joining.LateError as late:
        if given == _NOT_GIVEN and cluster.on_tpu():
            raise joining.LateError(
                f"{late}; a command for this worker alone needs JAX_PLATFORMS=cpu"
            ) from late
        raise
