# SPDX-License-Identifier: Apache-2.0
"""A save that the disk refuses: one line each, and the next one is tried."""

import asyncio
import subprocess
import sys
import types

import pytest

from electra_jax.host import logs
from support.corpus import ROOT


def test_a_save_that_fails_is_one_line_and_no_traceback(tmp_path):
    worker = [sys.executable, "tests/workers/full_disk_worker.py", tmp_path / "checkpoints"]
    done = subprocess.run(worker, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[0, 4]\n"
    _, *lines = done.stderr.splitlines()  # absl's own word on logging before flags
    assert len(lines) == 3, done.stderr
    for line in lines:
        assert "checkpoint not saved (" in line
        assert "File too large" in line
        assert line.endswith("training continues and the next one is tried at its step")


def test_writes_that_end_after_their_save_has_failed_say_nothing_more(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    logs.show()
    logs.show()  # of which the second adds nothing
    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(RuntimeError) as late:
        loop.call_soon_threadsafe(print)

    sys.unraisablehook(types.SimpleNamespace(exc_value=late.value, object=None))
    assert not told
    another = types.SimpleNamespace(exc_value=RuntimeError("no such thing"), object=None)
    sys.unraisablehook(another)
    of_ours = types.SimpleNamespace(exc_value=late.value, object=print)
    sys.unraisablehook(of_ours)
    assert told == [another, of_ours]
