# SPDX-License-Identifier: Apache-2.0
""".ci/run with programs that do nothing: every tier begins, whatever the machine lacks."""

import os
import re
import subprocess
import tomllib

from support.corpus import ROOT

# A Python with a version of its own, and all the programs of its environments.
DOES_NOTHING = """\
#!/usr/bin/env bash
case "$*" in
"-m venv "*)
  mkdir -p "${@: -1}/bin"
  for name in python pip ruff mypy mkdocs; do cp "$0" "${@: -1}/bin/$name"; done
  ;;
*version_info*) if [[ $0 == *3.11 ]]; then echo 3.11; else echo 3.12; fi ;;
esac
"""


def test_every_tier_begins_where_there_is_no_pyenv(tmp_path):
    for name in ("python3", "python3.13", "python3.12", "python3.11", "chromium", "pyenv"):
        (tmp_path / name).write_text(DOES_NOTHING)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "pyenv").write_text("#!/bin/sh\nexit 127\n")
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", str(ROOT / ".ci" / "run")],
        env=os.environ | {"PATH": path, "PYTHON": "python3", "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    begun = re.findall("^== (.*)", done.stdout, re.MULTILINE)
    # After the search for a second Python, a 3.11 and a browser, and the last of all.
    (long,) = [name for name in begun if name.startswith("all that takes longer")]
    tiers = set(long.partition(": ")[2].split(" or "))
    assert tiers == {
        "slow", "parity", "tensorflow", "stranger", "another_python", "lowest", "browser"
    }  # fmt: skip
    assert "learning: the paper's method, the leak control" in begun
    assert not [line for line in begun if line.startswith("no ")]  # such as: no second Python here


def test_every_marker_is_a_tier_of_ci_or_said_to_be_none():
    """A new tier that CI does not call would never run."""
    script = (ROOT / ".ci" / "run").read_text()
    with open(ROOT / "pyproject.toml", "rb") as file:
        markers = tomllib.load(file)["tool"]["pytest"]["ini_options"]["markers"]
    called = set(re.findall(r"\w+", " ".join(re.findall(r'(?:-m|more\+?=)\s*"?(.*)', script))))
    assert {line.partition(":")[0] for line in markers} - called == {"exhaustive"}
