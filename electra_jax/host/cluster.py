# SPDX-License-Identifier: Apache-2.0
"""What started this process, if it was started with others, and how it finds them.

| started by | told by | the others are found by |
|---|---|---|
| Open MPI | `OMPI_COMM_WORLD_SIZE` above 1 | jax, from the variables of mpirun |
| Slurm, with srun | `SLURM_NTASKS` above 1 | jax, from the variables of the job step |
| a TPU pod, also of GKE | chips and libtpu | jax, from its metadata or GKE's variables |
| an indexed Job of Kubernetes | `JOB_COMPLETION_INDEX` | jax, from the API server (extra `k8s`) |

A TPU without any of these, such as that of a notebook, is used by one process.

By itself jax gives a process only the GPU of its own number, even if it is alone on its machine.
`gpus` says which GPUs a process really has.
"""

import glob
import importlib.util
import itertools
import os
import re
import time
from collections.abc import Mapping

import jax
from absl import logging

from electra_jax.host import error_causes, extras, joining, peers

# A TPU's metadata are asked for so often, with as many seconds between.
_METADATA_TRIES, _METADATA_PAUSE = 3, 1.0
_GPU_NAME = re.compile(r"\d+|(?:GPU|MIG)-.+")  # in CUDA_VISIBLE_DEVICES


def find(seconds: float) -> peers.Address | None:
    """Returns how this process finds the others; None if it is alone.

    Args:
      seconds: how long a name of the network that is not known yet is waited for.

    Raises PeersError if something says that there are others and jax cannot find them.
    """
    kind = _kind(os.environ)
    if not kind:
        return None

    # jax has no public function for it.
    try:
        from jax._src import clusters  # noqa: PLC0415 - a newer jax may have it in another place

        ask = clusters.ClusterEnv.auto_detect_unset_distributed_params
    except (ImportError, AttributeError):
        _let_jax_start(kind)
        return None

    try:
        found = _answer(ask, int(seconds))
    except TypeError:  # a newer jax asks in another way
        _let_jax_start(kind)
        return None
    except Exception as error:  # noqa: BLE001 - networks, API servers and variables of any kind
        found = None
        why = f"{type(error).__name__}: {error}"
    else:
        why = "it knows no such surroundings"

    coordinator, count, me = found or (None, None, None)
    if None not in (coordinator, count, me):
        if count == 1:
            return None
        return peers.Address(coordinator, count, me, gpus(os.environ))

    if kind == "TPU" and not _is_one_of_several(os.environ):
        logging.info("one process: nothing says that this TPU has others (jax: %s)", why)
        return None

    raise joining.PeersError(
        f"{kind} started this process, and jax cannot find the others"
        f" ({' '.join(why.split())}){_REMEDIES.get(kind, '')}; give --coordinator_address,"
        " --num_processes and --process_id, or --num_processes=1 if it is alone"
    )


_REMEDIES = {
    "Open MPI": "; Open MPI 5 does not say where process 0 is: set JAX_COORDINATOR_ADDRESS to its"
    " HOST:PORT",
    "Kubernetes": "; jax needs its extra for it (pip install 'jax[k8s]') and a service account that"
    " may read pods and jobs",
}


def _kind(environ: Mapping[str, str]) -> str:
    """Returns what says that this process may be one of several; '' if nothing does."""
    if _processes(environ, "OMPI_COMM_WORLD_SIZE") > 1:
        return "Open MPI"

    if _processes(environ, "SLURM_NTASKS") > 1:
        if "SLURM_STEP_NODELIST" in environ:
            return "Slurm"
        # A batch script, or a shell of salloc.
        logging.info(
            "one process: Slurm has %s tasks, and this process was not started with srun",
            environ["SLURM_NTASKS"],
        )
        return ""

    if on_tpu():
        return "TPU"

    if "KUBERNETES_SERVICE_HOST" in environ and "JOB_COMPLETION_INDEX" in environ:
        return "Kubernetes"

    return ""


def _processes(environ, name):
    """Returns the number of processes that a variable says, 1 without it."""
    text = environ.get(name, "1")
    if not text.isdecimal():
        raise joining.PeersError(
            f"{name}={text!r} is no number of processes; unset it, or give --num_processes=1 if"
            " this process is alone"
        )
    return int(text)


def on_tpu() -> bool:
    """Returns whether jax is to use TPU chips of this machine, without opening a device.

    jax knows them by their numbers on the PCI bus: /dev/accel and /dev/vfio have others' as well.
    """
    if (jax.config.jax_platforms or "tpu").split(",")[0] != "tpu":
        return False

    # jax has no public function for it.
    try:
        from jax._src import cloud_tpu_init  # noqa: PLC0415 - a newer jax may have it elsewhere

        return cloud_tpu_init.running_in_cloud_tpu_vm
    except (ImportError, AttributeError):
        chips = glob.glob("/dev/accel[0-9]*") or glob.glob("/dev/vfio/[0-9]*")
        return bool(chips) and importlib.util.find_spec("libtpu") is not None


class BusyError(joining.PeersError, error_causes.MayPass):
    """Another process has the chips; when it has ended, the same command may succeed."""


def check_chips_are_free() -> None:
    """Raises BusyError if this machine has a TPU or NVIDIA GPU that cannot be opened.

    jax says so in an error of several lines, or computes on the CPU instead. A GPU for which jax
    has no plugin may be there for other things, so that is a warning.
    """
    kind = "TPU" if on_tpu() else "GPU" if _on_gpu() else ""
    if not kind:
        return

    why = ""
    try:
        platform = jax.default_backend()
    except RuntimeError as error:
        platform, why = "", f" ({' '.join(str(error).split())[:300]})"
    if platform not in ("", "cpu"):
        return

    if kind == "GPU" and not why and not any(map(importlib.util.find_spec, _CUDA_PLUGINS)):
        logging.warning(
            "this machine has a GPU, and everything is computed on the CPU, since jax has no plugin"
            " for CUDA: %s; JAX_PLATFORMS=cpu says that this is meant",
            extras.command("cuda"),
        )
        return

    remedy = "; nvidia-smi shows whether its driver works" if kind == "GPU" else ""
    raise BusyError(
        f"this machine has a {kind}, and jax could not open it{why}: another process may have it"
        f"{remedy}; end that one, or set JAX_PLATFORMS=cpu to compute on the CPU"
    )


_CUDA_PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin")


def _on_gpu():
    """Returns whether this process sees an NVIDIA GPU, and jax is not told to use other devices."""
    platforms = (jax.config.jax_platforms or "cuda").split(",")
    return platforms[0] in ("cuda", "gpu") and _seen(os.environ) > 0


def check_processes_are_joined() -> None:
    """Raises PeersError if the devices of jax are of several processes that were never joined.

    A TPU slice whose library was told of other hosts by itself is such a case; each process would
    take itself for the only one, and all would write.
    """
    if jax.process_count() > 1 and not jax.distributed.is_initialized():
        raise joining.PeersError(
            f"jax has devices of {jax.process_count()} processes that do not know each other; call"
            " jax.distributed.initialize() before anything else, or start the command of"
            " electra_jax, which does"
        )


def _answer(ask, seconds):
    """Returns (coordinator, count, me) as jax finds them; Nones for what it does not find.

    Raises whatever the detection raises.
    """
    given = os.environ.get("JAX_COORDINATOR_ADDRESS")
    if "OMPI_COMM_WORLD_RANK" in os.environ and given:  # Open MPI 5 says all but the address
        count, me = os.environ["OMPI_COMM_WORLD_SIZE"], os.environ["OMPI_COMM_WORLD_RANK"]
        return given, int(count), int(me)

    tries = 1
    while True:
        try:
            coordinator, count, me, *_ = ask(given, None, None, None, None, seconds)
            return coordinator, count, me
        except OSError:  # of the server of a TPU VM's metadata, which is asked through requests
            if tries == _METADATA_TRIES:
                raise
        tries += 1
        time.sleep(_METADATA_PAUSE)


def _is_one_of_several(environ):
    """Returns whether the variables of a TPU speak of other workers or other slices."""
    slices = environ.get("MEGASCALE_NUM_SLICES") or "1"
    return "," in environ.get("TPU_WORKER_HOSTNAMES", "") or slices != "1"


def _let_jax_start(kind):
    """Starts jax.distributed with nothing but what jax finds; nobody is told for whom it waits."""
    try:
        jax.distributed.initialize()
    except ValueError as error:
        if kind != "TPU" or "coordinator_address" not in str(error):
            raise
        logging.info("one process: jax finds no others (%s)", error)


# GPUs


def gpus(environ: Mapping[str, str]) -> list[int] | None:
    """Returns the numbers of the GPUs of this process, among those that it sees; None: all of them.

    A process that is alone on its machine has all. Several that see the same GPUs share them in the
    order of their numbers. Where each was given GPUs of its own, as with `srun --gpus-per-task`, it
    has what it sees.

    Raises PeersError if they cannot be shared evenly.
    """
    if "JAX_LOCAL_DEVICE_IDS" in environ:  # jax reads it
        return None

    here, number = _on_this_machine(environ)
    seen = _seen(environ)
    granted = int(environ.get("SLURM_GPUS_ON_NODE") or seen)  # to all processes of this machine
    if here == 1 or seen < granted or seen < here:
        return None

    if seen % here:
        raise joining.PeersError(
            f"{here} processes of this machine cannot share its {seen} GPUs evenly; start one"
            " process per machine, or one per GPU"
        )

    share = seen // here
    return list(range(number * share, (number + 1) * share))


def _on_this_machine(environ):
    """Returns how many processes of the run this machine has, and which of them this one is."""
    if "OMPI_COMM_WORLD_LOCAL_SIZE" in environ:
        here, number = (environ[f"OMPI_COMM_WORLD_LOCAL_{it}"] for it in ("SIZE", "RANK"))
        return int(here), int(number)

    if "SLURM_STEP_TASKS_PER_NODE" in environ:
        each: list[int] = []  # '2(x3),1': two on each of three machines, one on the next
        for part in environ["SLURM_STEP_TASKS_PER_NODE"].split(","):
            tasks, times = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part).groups()
            each += [int(tasks)] * int(times or 1)
        return each[int(environ["SLURM_NODEID"])], int(environ["SLURM_LOCALID"])

    return 1, 0


def _seen(environ):
    """Returns how many GPUs this process sees, without opening any."""
    if "CUDA_VISIBLE_DEVICES" in environ:
        named = (one.strip() for one in environ["CUDA_VISIBLE_DEVICES"].split(","))
        # The first that names no GPU ends the list, as CUDA reads it: -1 hides all.
        return len([*itertools.takewhile(_GPU_NAME.fullmatch, named)])
    return len(glob.glob("/dev/nvidia[0-9]*"))
