# SPDX-License-Identifier: Apache-2.0
"""SIGTERM and Ctrl-C at any moment: clean words, the right exit code, no process left over."""

import os
import signal
import subprocess
import sys
import time

import pytest

from electra_jax import config as config_lib
from support.corpus import ROOT, small_run, write_corpus

GOES_ON = "the same command goes on from the newest checkpoint"


def start(*arguments, **more):
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


def read_until(stream, words):
    for line in stream:
        if words in line:
            return
    raise AssertionError(f"ended without {words!r}")


def hanging(phase, seconds):
    process = start("tests/workers/signals_worker.py", phase, str(seconds))
    read_until(process.stdout, "ready")
    return process


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "SIGINT")]
)
def test_a_signal_ends_what_hangs_before_the_loop(number, name):
    process = hanging("before", 100)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert said == f"error: {name}: ended; nothing is lost, the same command goes on\n"


def test_a_step_that_hangs_ends_in_the_stated_time():
    process, began = hanging("training", 2), time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert time.monotonic() - began > 2
    assert process.returncode == 128 + signal.SIGTERM
    *_, asked, ended = said.splitlines()
    assert asked.endswith("SIGTERM: saving and stopping; without a step's end in 2 s it gives up")
    assert ended == (
        "error: SIGTERM: no step ended within 2 s, so it ends without saving (--stop_timeout);"
        f" {GOES_ON}"
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once_but_not_the_echo_of_the_first(number):
    process = hanging("training", 100)
    for _ in range(2):  # as `timeout` and launchers do
        process.send_signal(signal.SIGTERM)
    read_until(process.stderr, "SIGTERM: saving and stopping")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=1.5)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    name = signal.Signals(number).name
    assert said == f"error: {name} again: ended without saving; {GOES_ON}\n"


def test_a_second_signal_after_the_last_save_does_not_say_that_nothing_was_saved():
    process = hanging("saved", 100)
    process.send_signal(signal.SIGTERM)
    read_until(process.stderr, "SIGTERM: saving and stopping")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=1.5)  # within a second two count as one
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert said == "error: SIGTERM: ended; nothing is lost, the same command goes on\n"


def test_ctrl_c_while_text_is_prepared_leaves_no_process_and_no_traceback(tmp_path):
    """The terminal sends it to the workers as well; what they finished is not done again."""
    for number in range(8):
        write_corpus(tmp_path / f"{number}.txt", seed=number)
    pipe, text = tmp_path / "pipe", tmp_path / "0.txt"
    os.mkfifo(pipe)
    config = small_run(f"text:{tmp_path}/*.txt", str(tmp_path / "data"), data__workers=2)
    config.data.vocab = "train:wordpiece:200"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(config_lib.to_json(config_lib.parse(config)))
    command = ("-m", "electra_jax.prepare", f"--workdir={tmp_path / 'run'}")
    interrupted = start(*command, start_new_session=True)
    read_until(interrupted.stderr, "training a wordpiece vocabulary")
    # The files are known, and no worker has begun: the one that takes the first will wait there.
    os.rename(text, tmp_path / "kept")
    os.rename(pipe, text)
    writer = open(text, "w")  # goes on as soon as a worker reads
    os.killpg(interrupted.pid, signal.SIGINT)
    # Its end is that of the last process that could still write there.
    _, said = interrupted.communicate(timeout=60)
    assert interrupted.returncode == 130, said
    assert said.splitlines()[-1] == (
        "error: SIGINT: ended; nothing is lost, the same command goes on"
    ), said
    assert "Traceback" not in said and "leaked" not in said, said
    writer.close()
    os.rename(tmp_path / "kept", text)
    again = start(*command)
    _, said = again.communicate(timeout=100)
    assert again.returncode == 0, said
    assert "prepared 2,400 documents" in said
