# SPDX-License-Identifier: Apache-2.0
"""Commands of the package in processes that have imported jax already.

    run(module, argv)  ->  one server a test process  ->  a fork that runs the command

A process of its own takes two seconds of imports for each command, more than most commands of the
tests take. What a user starts stays the same but for that: arguments, folder, environment, two
files to print to, an exit code. `workers/command_server.py` is the other end.
"""

import atexit
import functools
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

from .corpus import ROOT

# Variables that are read when Python starts or jax is imported, which the server has behind it.
_AT_START = ("JAX_", "XLA_", "PYTHON", "LD_", "MPL")
# Or the program would begin anew, as a process of its own (host/huge_pages.py).
_NO_HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}


class CommandServer:
    """One server process, from its beginning until `close`."""

    def __init__(self, environment: Mapping[str, str]):
        path = [str(ROOT), environment.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests" / "workers" / "command_server.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**environment, **_NO_HUGE_PAGES, "PYTHONPATH": os.pathsep.join(path)},
        )

    def run(
        self,
        module: str,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: pathlib.Path | str = ROOT,
        parse_only: bool = False,
    ) -> subprocess.CompletedProcess:
        """Runs `python -m MODULE ARGV...`; `parse_only` ends it where the work would begin."""
        with tempfile.TemporaryDirectory() as output:
            task = {
                "module": module,
                "argv": [os.fspath(word) for word in argv],
                "cwd": str(folder),
                "env": {**environment, **_NO_HUGE_PAGES},
                "output": output,
                "parse_only": parse_only,
            }
            self._process.stdin.write(json.dumps(task) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
            assert answer, f"the command server has died: {module} {shlex.join(task['argv'])}"
            printed = [
                pathlib.Path(output, name).read_text(errors="replace")
                for name in ("stdout", "stderr")
            ]

        return subprocess.CompletedProcess([module, *task["argv"]], int(answer), *printed)

    def close(self) -> None:
        """Ends the server, which must have waited for its last command."""
        self._process.stdin.close()
        assert self._process.wait() == 0
        self._process.stdout.close()


def run(
    module: str, argv: Sequence[str], environment: Mapping[str, str]
) -> subprocess.CompletedProcess:
    """Runs `python -m MODULE ARGV...` in the repository, by a server that this process keeps."""
    at_start = {name: value for name, value in environment.items() if name.startswith(_AT_START)}
    return _kept(tuple(sorted(at_start.items()))).run(module, argv, environment)


@functools.cache
def _kept(at_start):
    """The server for these variables of those that are read at start; it ends with this process."""
    others = {name: value for name, value in os.environ.items() if not name.startswith(_AT_START)}
    found = CommandServer({**others, **dict(at_start)})
    atexit.register(found.close)
    return found
