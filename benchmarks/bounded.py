# SPDX-License-Identifier: Apache-2.0
"""Runs a command for so many seconds at most, and leaves nothing of it running.

    command, seconds -> a group of processes of its own -> Done(code, stdout, stderr, seconds)

When its time is over a command gets a signal and some seconds to save and to say what it has. Then
all processes of its group are killed: workers of pytest-xdist or torch.compile that outlive it
would keep the device. What is printed goes to files, so all that came before the end is kept, and
nothing waits for a process that holds a pipe open.
"""

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[1]
STOPPED = 75  # exit code of a training that was stopped and saved, as it is told to
OVERDUE = 124  # exit code of a command whose time was over, as coreutils' timeout has it


@dataclasses.dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int  # OVERDUE if its time was over; below 0: the signal that ended it
    stdout: str
    stderr: str
    seconds: float


def run(
    command: Sequence[str],
    seconds: float,
    grace: float,
    environment: Mapping[str, str] | None = None,
) -> Done:
    """Runs a command at the root of the repository and returns what it printed.

    Args:
      command: the program and its arguments.
      seconds: until it gets SIGINT, upon which pytest says what has failed so far.
      grace: seconds from then until it is killed.
      environment: variables in addition to those of this process.
    """
    begun = time.monotonic()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = start(
            command,
            env=os.environ | dict(environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
        )
        code = wait(process, seconds, grace, signal.SIGINT)
        return Done(code, _text(output), _text(errors), time.monotonic() - begun)


def start(command: Sequence[str], **options) -> subprocess.Popen:
    """Starts a command at the root of the repository, in a group of its own."""
    return subprocess.Popen(command, cwd=ROOT, start_new_session=True, **options)


def wait(process: subprocess.Popen, seconds: float, grace: float, request: signal.Signals) -> int:
    """Returns the exit code of a process from `start`, or OVERDUE; its group is gone afterwards.

    An exception such as KeyboardInterrupt asks it to end, too: no key of the terminal reaches a
    group of its own.
    """
    try:
        return process.wait(seconds)
    except BaseException as reason:
        process.send_signal(request)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
        if not isinstance(reason, subprocess.TimeoutExpired):
            raise
        return OVERDUE
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def end_on_sigterm() -> None:
    """Makes SIGTERM an exception of this process, so that `wait` ends what it waits for."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def _text(file) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")
