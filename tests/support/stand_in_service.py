# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the package of a service: a file with the two calls that the adapter makes."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator

import pytest

PACKAGE = """
import json, os

class Run:
    def __init__(self, about):
        self.path, self.name = os.environ["TRACKIO_STAND_IN"], about["name"]
        self.add({"init": about})
    def add(self, line):
        with open(self.path, "a") as file:
            file.write(json.dumps(line | {"run": self.name}, default=str) + "\\n")
    def log(self, values, step):
        self.add({"step": step} | values)
    def finish(self):
        self.add({"finish": True})

def init(**about):
    return Run(about)
"""


@contextlib.contextmanager
def trackio(folder) -> Iterator[Callable[[], list[dict]]]:
    """A package `trackio` in `folder`/packages that writes what it gets to a file.

    Yields what reads the file's lines.
    """
    (folder / "packages").mkdir()
    (folder / "packages" / "trackio.py").write_text(PACKAGE)
    got = folder / "got.jsonl"
    real = sys.modules.pop("trackio", None)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder / "packages"))
        patch.setenv("TRACKIO_STAND_IN", str(got))
        yield lambda: [json.loads(line) for line in got.read_text().splitlines()]
    sys.modules.pop("trackio", None)
    if real is not None:
        sys.modules["trackio"] = real
