# SPDX-License-Identifier: Apache-2.0
"""The commands of the package as processes of their own, as a user starts them."""

import os
import socket
import subprocess
import sys

from absl import flags
from absl.testing import flagsaver

from . import command_server
from .corpus import ROOT


def free_port():
    """A port of this machine that nobody listens to."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def command(*arguments, module="electra_jax.main"):
    """Runs a command to its end; returns the exit code and the output as subprocess.run does."""
    return command_server.run(module, arguments, os.environ | {"JAX_PLATFORMS": "cpu"})


def complaint(*arguments, module="electra_jax.main", code=2):
    """The one line that a refused command prints, or one that fails with another exit code."""
    result = command(*arguments, module=module)
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, result.stderr
    return lines[0]


def convert(*arguments):
    """`command` for `electra_jax.convert`."""
    return command(*arguments, module="electra_jax.convert")


def convert_flags(**given):
    """The flags of `electra_jax.convert` with these values, for a while; import it before.

    Tests of other commands in this process may have given flags of the same name other defaults.
    """
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    return flagsaver.flagsaver(**{"out": None, "only": None, "step": None, "json": False} | given)


def start(workdir, *flags):
    """The real training command on a workdir that holds a config.json, in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "electra_jax.main", f"--workdir={workdir}", *flags],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_until(process, text):
    """Follows what a run says until a line has `text`; what was read."""
    said = ""
    for line in process.stderr:
        said += line
        if text in line:
            return said
    raise AssertionError(f"ended without {text!r}:\n{said[-2000:]}")
