# SPDX-License-Identifier: Apache-2.0
"""A save that the disk refuses: one line each, and the next one is tried."""

import subprocess
import sys

from corpus import ROOT


def test_a_save_that_fails_is_one_line_and_no_traceback(tmp_path):
    worker = [sys.executable, "tests/full_disk_worker.py", tmp_path / "checkpoints"]
    done = subprocess.run(worker, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[0, 3]\n"
    _, *lines = done.stderr.splitlines()  # absl's own word on logging before flags
    assert len(lines) == 2, done.stderr
    for line in lines:
        assert "checkpoint not saved (" in line
        assert "File too large" in line
        assert line.endswith("training goes on and the next one is tried at its step")
