# SPDX-License-Identifier: Apache-2.0
"""A short pass of the torture program: one trial of some kinds, from a fixed seed.

Kills, signals, damaged files and a full disk are tests of their own (test_kills.py).
"""

import os
import subprocess
import sys

import pytest

from support.corpus import ROOT

pytestmark = pytest.mark.slow

KINDS = "flip look odd_path move two_processes".split()


def test_one_trial_of_these_kinds_loses_nothing():
    program = [sys.executable, "-m", "tests.torture", "--seed=12", f"--kinds={','.join(KINDS)}"]
    done = subprocess.run(
        [*program, f"--trials={len(KINDS)}"],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    heads, _, *rows, total = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert heads.split("|")[1].strip() == "disturbed by"
    assert [row.split("|")[1].strip() for row in rows] == KINDS
    assert [int(row.split("|")[2]) for row in rows] == [1] * len(KINDS)
    assert int(total.split("|")[6]) == 0  # lost
