# SPDX-License-Identifier: Apache-2.0
""".ci/run with programs that do nothing: every tier begins, whatever the machine lacks."""

import os
import re
import subprocess

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
    # Before and after the search for a second Python and a 3.11, and the last of all.
    assert "exports in a stranger's hands" in begun
    assert "a run moves to it, and the wheel runs on it" in begun
    assert "the wheel runs on them" in begun
    assert "learning: the paper's method, the leak control" in begun
    assert not [line for line in begun if line.startswith("no ")]  # such as: no second Python here
