# SPDX-License-Identifier: Apache-2.0
"""What a run is made with: code, versions, command, hosts, devices.

this start, on all processes  ->  runs.Run  ->  starts.jsonl, the report, each checkpoint
a checkpoint                  ->  the exports of its weights (`card_facts.public`)
"""

import importlib.metadata
import os
import platform
import shlex
import socket
import sys
from typing import Any

import jax

import electra_jax
from electra_jax.host import code_version, processes

# The numbers of a run may depend on the versions of these packages.
_PACKAGES = (
    "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "tensorstore", "numpy", "sentencepiece",
)  # fmt: skip
# The compilers of accelerators, of which a machine has one or none.
_PLUGINS = ("libtpu", "jax-cuda12-plugin", "jax-cuda13-plugin")


def of_this_start() -> dict[str, Any]:
    """Returns what this start is made with, as JSON data. All processes must call it together."""
    hosts = sorted(set(processes.gather(socket.gethostname())))
    found = {
        "electra_jax": electra_jax.__version__,
        "commit": code_version.commit(),
        "code": code_version.digest(),  # also where no commit is known
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in _PACKAGES},
        **{name: _version(name) for name in _PLUGINS},
        "command": _command(),
        "hosts": ", ".join(hosts),
        "devices": devices(),
        "processes": jax.process_count(),
    }
    return {name: value for name, value in found.items() if value is not None}


def devices() -> str:
    """Returns number and kind of the devices: '8 x TPU v5e'."""
    return f"{jax.device_count()} x {jax.devices()[0].device_kind}"


def _version(package: str) -> str | None:
    """Returns the version of a package; None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _command() -> str:
    """The command line of this process, without the folder of its Python."""
    # Not sys.argv: flags are taken out of it when they are parsed.
    program, *arguments = sys.orig_argv
    return shlex.join([os.path.basename(program), *arguments])
