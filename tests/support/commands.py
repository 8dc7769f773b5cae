# SPDX-License-Identifier: Apache-2.0
"""The commands of the package as processes of their own, as a user starts them."""

import os
import socket
import subprocess
import sys

from .corpus import ROOT


def free_port():
    """A port of this machine that nobody listens to."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def command(*arguments, module="electra_jax.main"):
    """Runs a command to its end; returns the exit code and the output as subprocess.run does."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )


def complaint(*arguments, module="electra_jax.main"):
    """The one line that a refused command prints."""
    result = command(*arguments, module=module)
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, result.stderr
    return lines[0]
