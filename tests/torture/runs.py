# SPDX-License-Identifier: Apache-2.0
"""The run that every trial disturbs, and its command as a process that can be listened to."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

from tests.support import corpus

STEPS = 60
SAVED_EVERY = 5
LIMIT = 300  # seconds after which a command counts as hanging, even beside other work
CONFIGURATION = f"""
from tests.support import corpus

def get_config():
    return corpus.small_run(
        "text:corpus.txt",
        "",
        schedule__steps={STEPS},
        checkpoint__every={SAVED_EVERY},
        checkpoint__keep_last=3,
        evaluation__every=20,
        logging__every=1,
        logging__report_every=25,
    )
"""


class Lost(Exception):
    """What was promised and did not hold."""


class Command:
    """A real command in a process group of its own; what it says is kept line by line."""

    def __init__(self, folder: pathlib.Path, *flags: str, module: str = "electra_jax.main"):
        environment = os.environ | {"PYTHONPATH": str(corpus.ROOT), "PYTHONUNBUFFERED": "1"}
        self.lines: list[str] = []
        self._began = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *flags],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._heard = threading.Condition()
        self._ended = False
        threading.Thread(target=self._listen, daemon=True).start()
        self.hung = False
        self.is_early = False  # a signal came while Python was still importing
        self._timer = threading.Timer(LIMIT, self._end_hanging)
        self._timer.daemon = True
        self._timer.start()

    def wait_for(self, pattern: str, seconds: float = LIMIT) -> bool:
        """Until a line matches or the process ends; whether one matched."""
        expression = re.compile(pattern)
        with self._heard:
            self._heard.wait_for(lambda: self._ended or self._has(expression), seconds)
            return self._has(expression)

    def wait(self) -> int:
        """Until it ends: the exit code. Raises Lost for one that hangs or speaks in tracebacks."""
        code = self.process.wait()
        self._timer.cancel()
        with self._heard:
            self._heard.wait_for(lambda: self._ended)
        if self.hung:
            raise Lost(f"no end after {LIMIT} s: {self.lines[-3:]}")
        told = [n for n, line in enumerate(self.lines) if "Traceback (most recent" in line]
        if told and code != -signal.SIGKILL and not self.is_early:
            raise Lost("a traceback:\n" + "\n".join(self.lines[max(0, told[0] - 2) :]))
        return code

    def signal(self, number: int) -> None:
        """To the process alone; one that has ended already is left in peace."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began

    @property
    def resumed_from(self) -> int | None:
        """The step that it said it continues from."""
        found = [re.search(r"resuming from step (\d+)", line) for line in self.lines]
        return next((int(match[1]) for match in found if match), None)

    def _has(self, expression):
        return any(expression.search(line) for line in self.lines)

    def _listen(self):
        for line in self.process.stdout:
            with self._heard:
                self.lines.append(line.rstrip("\n"))
                self._heard.notify_all()
        with self._heard:
            self._ended = True
            self._heard.notify_all()

    def _end_hanging(self):
        if self.process.poll() is None:
            self.hung = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)


def train(folder: pathlib.Path, *flags: str, workdir: str = "run") -> Command:
    """The command that every trial repeats."""
    return Command(folder, "--config=../torture_run.py", f"--workdir={workdir}", *flags)


def progress(command):
    steps = [re.search(rf"step +(\d+)/{STEPS}", line) for line in list(command.lines)]
    last = [int(match[1]) for match in steps if match][-1:]
    return f"at step {last[0]}" if last else "before step 1"


def one_line(command):
    """The one line of error that a command ends with. Raises Lost if there are none or several."""
    errors = [line for line in command.lines if line.startswith("error: ")]
    if len(errors) != 1:
        raise Lost(f"{len(errors)} lines of error: {errors or command.lines[-3:]}")
    return errors[0]
