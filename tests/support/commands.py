# SPDX-License-Identifier: Apache-2.0
"""The commands of the package in processes of their own, as a user starts them."""

import os
import subprocess
import sys

from .corpus import ROOT


def command(*arguments, module="electra_jax.main"):
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
