# SPDX-License-Identifier: Apache-2.0
"""A command with a limit: what it had printed is kept, and nothing that it started lives on."""

import fcntl
import signal
import subprocess
import sys
import time

import pytest

from benchmarks import bounded

# Starts a process that holds a lock for ever, says so, and waits for ever. Arguments: the file.
HOLDS_A_LOCK = """
import subprocess, sys, time
child = "import fcntl, sys, time; file = open(sys.argv[1]); fcntl.flock(file, fcntl.LOCK_EX)\\n"
child += "print('locked', flush=True); time.sleep(600)"
process = subprocess.Popen([sys.executable, "-c", child, sys.argv[1]], stdout=subprocess.PIPE)
process.stdout.readline()
print("it is locked", flush=True)
time.sleep(600)
"""


def is_free(path) -> bool:
    """Whether the lock is free in the end: the system takes it from a killed process at once."""
    until = time.monotonic() + 10
    with open(path) as file:
        while time.monotonic() < until:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                time.sleep(0.05)
    return False


def test_both_outputs_are_kept_apart():
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    done = bounded.run([sys.executable, "-c", code], 60, 1)
    assert (done.code, done.stdout, done.stderr) == (3, "out\n", "err\n")
    assert 0 < done.seconds < 60


def test_a_variable_is_given_in_addition_to_those_there_are(monkeypatch):
    monkeypatch.setenv("THERE", "before")
    code = "import os; print(os.environ['THERE'], os.environ['GIVEN'])"
    done = bounded.run([sys.executable, "-c", code], 60, 1, {"GIVEN": "now"})
    assert done.stdout == "before now\n"


def test_past_its_limit_a_command_ends_with_all_that_it_started(tmp_path):
    """Without the group of its own, the process that holds the lock would outlive the command."""
    lock = tmp_path / "lock"
    lock.touch()
    command = [sys.executable, "-c", HOLDS_A_LOCK, str(lock)]
    process = bounded.start(command, stdout=subprocess.PIPE, text=True)
    with process.stdout:
        assert process.stdout.readline() == "it is locked\n"
        assert bounded.wait(process, 0.1, 5, signal.SIGINT) == bounded.OVERDUE
    assert is_free(lock)


def test_a_command_that_hears_no_signal_is_killed():
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    code += "print('deaf', flush=True); time.sleep(600)"
    process = bounded.start([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with process.stdout:
        assert process.stdout.readline() == "deaf\n"
        assert bounded.wait(process, 0.1, 0.5, signal.SIGTERM) == bounded.OVERDUE
    assert process.returncode == -signal.SIGKILL


def test_what_interrupts_the_caller_asks_the_command_to_end(monkeypatch):
    """No key of the terminal reaches the command, since its group is another one."""
    code = "import signal, sys, time\n"
    code += "signal.signal(signal.SIGTERM, lambda *_: sys.exit('saved'))\n"
    code += "print('ready', flush=True); time.sleep(600)"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = bounded.start([sys.executable, "-c", code], **pipes)
    wait, calls = process.wait, []

    def interrupted_at_first(seconds=None):
        calls.append(seconds)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return wait(seconds)

    monkeypatch.setattr(process, "wait", interrupted_at_first)
    with process.stdout, process.stderr:
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(KeyboardInterrupt):
            bounded.wait(process, 60, 30, signal.SIGTERM)
        assert process.stderr.read() == "saved\n"
