# SPDX-License-Identifier: Apache-2.0
"""The line at the bottom of a terminal: what it says, and that it never gets into a file."""

import errno
import io
import os
import pty
import re
import subprocess
import sys

import pytest
from rich import console as rich_console

from electra_jax import config as config_lib
from electra_jax.report import live_line
from electra_jax.workdir import metadata
from support.corpus import ROOT, finished_config

TRAIN = {"gen_masked_loss": 4.559, "gen_loss": 4.2, "disc_loss": 0.48, "loss": 7.0,
         "tokens_per_second": 10_600.0, "step_seconds": 0.5}  # fmt: skip
EVAL = {"gen_masked_loss": 9.9, "disc_auc": 0.701, "disc_loss": 0.4}


class Clock:
    time = 0.0

    def __call__(self):
        return self.time


@pytest.fixture
def drawn():
    """(a line of 100 steps, what it has written so far, a clock that stands still)."""
    file, clock = io.StringIO(), Clock()
    console = rich_console.Console(file=file, force_terminal=True, width=80, color_system=None)
    line = live_line.LiveLine(100, console, clock)
    yield line, file, clock
    line.close()


def last(file):
    """The line as a reader sees it."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue()).replace("\r", "\n")
    return [line for line in plain.split("\n") if line.strip()][-1].rstrip()


def test_losses_are_of_training_and_the_auc_is_held_out(drawn):
    line, file, _ = drawn
    line.write(42, "train", TRAIN)
    line.write(42, "eval", EVAL)
    assert last(file).endswith(
        "  42%  gen loss 4.559  disc loss 0.480  AUC 0.701  10.6k/s  ETA 29s"
    )
    assert len(last(file)) <= 80
    assert last(file).startswith("━━━")


def test_the_bar_has_room_beside_the_longest_numbers(drawn):
    line, file, _ = drawn
    line.write(100, "train", {"gen_masked_loss": 12.34, "disc_loss": 12.34,
                              "tokens_per_second": 1.23e6, "seconds_left": 86_340.0})  # fmt: skip
    line.write(100, "eval", EVAL)
    words = " 100%  gen loss 12.34  disc loss 12.34  AUC 0.701  1.23M/s  ETA 23h59m"
    assert re.fullmatch(f"━{{5,}}{words}", last(file)), last(file)
    assert len(last(file)) <= 80


def columns_of_bar(file):
    """How many there are before the share, full and empty, with the space after them."""
    return last(file).index("%") - 3


def test_the_bar_keeps_its_width_whatever_stands_beside_it(drawn):
    line, file, clock = drawn
    line.doing("compiling the step")
    widths = [columns_of_bar(file)]
    for clock.time, write in (
        (1.0, lambda: line.step_done(1)),
        (2.0, lambda: line.write(42, "train", TRAIN)),
        (3.0, lambda: line.write(42, "eval", EVAL)),
        (4.0, lambda: line.doing("saving")),
    ):
        write()
        widths.append(columns_of_bar(file))
    assert set(widths) == {9}


@pytest.mark.parametrize(("progress", "shown"), [(None, "  33%"), (0.5, "  50%")])
def test_a_run_that_goes_on_begins_where_it_stopped(progress, shown):
    """The share of another budget than steps is that of its last line."""
    file = io.StringIO()
    console = rich_console.Console(file=file, force_terminal=True, width=80, color_system=None)
    line = live_line.LiveLine(60, console, step=20, progress=progress)
    line.doing("compiling the step")
    assert last(file).endswith(f"{shown}  compiling the step")
    line.close()


def test_what_it_does_is_shown_until_the_next_step(drawn):
    line, file, clock = drawn
    line.write(42, "train", TRAIN)
    line.doing("evaluating")
    assert last(file).endswith("  42%  evaluating")
    clock.time = 1.0
    line.step_done(43)
    assert last(file).endswith("  43%  gen loss 4.559  disc loss 0.480  10.6k/s  ETA 28s")


def test_a_step_is_drawn_at_most_four_times_a_second(drawn):
    line, file, clock = drawn
    clock.time = 1.0
    line.step_done(1)
    before = file.getvalue()
    clock.time = 1.2
    line.step_done(2)
    assert file.getvalue() == before
    clock.time = 1.3
    line.step_done(3)
    assert "   3%" in last(file)


def test_another_budget_than_steps_moves_the_bar(drawn):
    line, file, _ = drawn
    line.write(5, "train", {"mlm_masked_loss": 6.0, "progress": 0.5, "seconds_left": 60.0})
    assert last(file).endswith("  50%  mlm loss 6.000  ETA 1m00s")


def test_a_terminal_that_was_closed_ends_nothing(drawn):
    line, file, clock = drawn

    def write(_):
        raise OSError(errno.EIO, "the terminal is gone")

    file.write = write
    line.write(42, "train", TRAIN)
    for clock.time in (1.0, 2.0):
        line.step_done(43)
    line.doing("saving")
    line.close()


STEP_LINE = r"step 4/6  gen_masked_loss \d\.\d{3}  disc_loss 0\.\d{3}  .{5}/s ETA +\ds"
RUN = """
import sys
import electra_jax
from electra_jax.host import logs
from electra_jax.workdir import saved_config
logs.show()
electra_jax.train(saved_config.read(sys.argv[1]), sys.argv[2])
"""


@pytest.fixture
def at_a_terminal(text, tmp_path):
    """Starts a run of six steps at a terminal; returns (process, the other side of it)."""
    config = finished_config(text)
    (tmp_path / "config.json").write_text(config_lib.to_json(config_lib.parse(config)))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, tmp_path, tmp_path / "run"],
        cwd=ROOT,
        stdout=theirs,
        stderr=theirs,
        # Streams that hold what they could not write, as they do by default.
        env=os.environ | {"COLUMNS": "80", "TERM": "xterm", "PYTHONUNBUFFERED": ""},
    )
    os.close(theirs)
    return process, ours


def read(terminal, until=None):
    """What is written there up to these words, or to the end."""
    seen = b""
    while until is None or until not in seen:
        try:
            seen += os.read(terminal, 4096)
        except OSError:  # the other end was closed
            break
    return seen.decode()


def test_log_lines_go_past_above_it_and_it_is_gone_at_the_end(at_a_terminal, tmp_path):
    process, terminal = at_a_terminal
    screen = read(terminal)
    os.close(terminal)
    assert process.wait(60) == 0, screen

    for words in ("compiling the step", "evaluating", "saving"):
        assert words in screen, screen
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen).replace("\r", "\n").split("\n")
    assert any(line.startswith("first step after") for line in lines), screen
    assert any(re.fullmatch(STEP_LINE, line) for line in lines), screen
    assert screen.rindex("\x1b[?25h") > screen.rindex("\x1b[?25l"), "the cursor is hidden"
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "\x1b" not in log and "evaluating" not in log

    # No line of training is wrapped in 80 columns: each is on the screen as it is in the file.
    # A warning may be longer.
    on_screen = [line.rstrip() for line in lines]
    training = [
        re.sub(r"^[-\d]+ [:,\d]+ INFO ", "", line)
        for line in log[log.index("compiling the step") :].splitlines()
        if " WARNING " not in line
    ]
    assert len(training) > 10 and not set(training) - set(on_screen), screen
    assert re.search(r"disc_auc .*  \x1b\[3[12]m(better|worse) ", screen), "no colours"


def test_a_run_goes_on_without_the_terminal_that_it_began_at(at_a_terminal, tmp_path):
    process, terminal = at_a_terminal
    read(terminal, until=b"compiling the step")
    os.close(terminal)
    assert process.wait(60) == 0
    assert metadata.steps(str(tmp_path / "run" / "checkpoints"))[-1] == 6
    assert "finished" in (tmp_path / "run" / "report.html").read_text()
