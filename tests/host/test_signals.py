# SPDX-License-Identifier: Apache-2.0
"""SIGTERM and Ctrl-C at any moment: clean words, the right exit code, no process left over."""

import errno
import os
import select
import signal
import subprocess
import sys
import time

import pytest

from electra_jax import config as config_lib
from support.corpus import ROOT, small_run, write_corpus

GOES_ON = "the same command continues from the newest checkpoint"
BEGINS_AGAIN = "there is no checkpoint yet, so the same command begins again"


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
    assert (
        said == f"error: {name}: ended; what is finished is kept, and the same command continues\n"
    )


def test_a_library_that_takes_the_signal_as_it_opens_devices_does_not_keep_it():
    process = hanging("library", 60)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=30)
    assert (process.returncode, said) == (0, "heard\n")


def test_a_step_that_hangs_ends_in_the_stated_time():
    process, began = hanging("training", 2), time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert time.monotonic() - began > 2
    assert process.returncode == 128 + signal.SIGTERM
    *_, asked, ended = said.splitlines()
    assert asked.endswith("SIGTERM: saving and stopping; without a step's end in 2 s it gives up")
    assert ended == (
        "error: SIGTERM: no step ended within 2 s (--stop_timeout), in which it was taking step 7,"
        f" so it ends without saving; {BEGINS_AGAIN}"
    )


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("evaluating", "SIGTERM: saving and stopping; without a step's end in 1 s it gives up"),
        ("saving", "SIGTERM: saving and stopping; without a step's end in 1 s it gives up"),
        ("stopping", "SIGTERM: saving and stopping; without a step's end in 1 s it gives up"),
    ],
)
def test_an_evaluation_and_a_save_around_a_signal_may_take_longer_than_a_step(phase, words):
    process = hanging(phase, 1)
    process.send_signal(signal.SIGTERM)
    done, said = process.communicate(timeout=60)
    assert (process.returncode, done) == (0, "to the end\n"), said
    *_, line = said.splitlines()
    assert line.endswith(words)


@pytest.mark.parametrize(
    ("phase", "last"),
    [
        (
            "ending",
            "SIGTERM: the run was not saved within 1 s (--stop_timeout), in which it was saving"
            f" step 9, so it ends without saving; {GOES_ON}",
        ),
        ("reporting", "SIGTERM: ended; what is finished is kept, and the same command continues"),
    ],
)
def test_a_run_that_was_ending_by_itself_does_not_hang_after_a_signal(phase, last):
    process = hanging(phase, 1)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    *_, told, ended = said.splitlines()
    assert told.endswith(
        "SIGTERM: the run is ending already, and has 1 s for that; a second one ends it at once"
    )
    assert ended == f"error: {last}"


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
    assert said == f"error: {name} again: ended without saving; {BEGINS_AGAIN}\n"


@pytest.mark.parametrize("phase", ["saved", "closing"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_after_the_save_that_the_first_asked_for_says_that_nothing_is_lost(
    phase, number
):
    """In the loop, where a report is drawn, or behind it, where a log goes to a bucket."""
    process = hanging(phase, 100)
    process.send_signal(signal.SIGTERM)
    read_until(process.stderr, "SIGTERM: saving and stopping")
    if phase == "closing":
        read_until(process.stdout, "closing")
    process.send_signal(signal.SIGTERM)  # the echo of the first
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=1.5)  # within a second two count as one
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 75  # --stopped_code
    name = signal.Signals(number).name
    assert (
        said == f"error: {name}: ended; what is finished is kept, and the same command continues\n"
    )


def opened_once_read(pipe, process):
    """A pipe, opened for writing as soon as another process reads it; fails if this one ends."""
    while True:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            assert error.errno == errno.ENXIO  # nobody reads yet
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)


# What each Python of a preparation runs first; a worker waits until the test has opened MAY_BEGIN.
WAITS = """
import os, sys
if "--multiprocessing-fork" in sys.orig_argv:
    open(os.environ["MAY_BEGIN"]).close()
"""


@pytest.mark.parametrize(
    ("number", "send"), [(signal.SIGINT, os.killpg), (signal.SIGTERM, os.kill)]
)
def test_a_signal_while_text_is_prepared_leaves_no_process_and_no_traceback(tmp_path, number, send):
    """A terminal sends Ctrl-C to the workers as well; SIGTERM may come to the command alone.

    What the workers finished is not done again.
    """
    for file in range(8):
        write_corpus(tmp_path / f"{file}.txt", seed=file)
    pipe, text = tmp_path / "pipe", tmp_path / "0.txt"
    os.mkfifo(pipe)
    config = small_run(f"text:{tmp_path}/*.txt", str(tmp_path / "data"), data__workers=2)
    config.data.vocab = "train:wordpiece:200"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(config_lib.to_json(config_lib.parse(config)))
    (tmp_path / "sitecustomize.py").write_text(WAITS)
    os.mkfifo(tmp_path / "may_begin")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path, "MAY_BEGIN": str(tmp_path / "may_begin")}
    command = ("-m", "electra_jax.prepare", f"--workdir={tmp_path / 'run'}")
    interrupted = start(*command, start_new_session=True, env=environment)
    read_until(interrupted.stderr, "reading text to train a vocabulary on")
    # The files are known, and no worker has begun: the one that takes the first will wait there.
    # The command may look at its files at any time, so there is one of this name all along.
    os.link(text, tmp_path / "kept")
    os.rename(pipe, text)
    may_begin = os.open(tmp_path / "may_begin", os.O_RDWR)
    writer = opened_once_read(text, interrupted)
    send(interrupted.pid, number)
    # Its end is that of the last process that could still write there.
    _, said = interrupted.communicate(timeout=60)
    assert interrupted.returncode == 128 + number, said
    name = signal.Signals(number).name
    assert said.splitlines()[-1] == (
        f"error: {name}: ended; what is finished is kept, and the same command continues"
    ), said
    assert "Traceback" not in said and "leaked" not in said, said
    os.close(writer)
    os.close(may_begin)
    os.rename(tmp_path / "kept", text)
    again = start(*command)
    _, said = again.communicate(timeout=100)
    assert again.returncode == 0, said
    assert "prepared 2,400 documents" in said


# What each Python of a preparation runs first; a worker tells that it exists, and never begins.
NEVER_BEGINS = """
import os, signal, sys
if "--multiprocessing-fork" in sys.orig_argv:
    with open(os.environ["STARTED"], "w") as started:
        started.write("1")
    signal.pause()
"""


def test_workers_that_have_not_begun_are_ended_too(tmp_path):
    """Otherwise the command waits for them until its time is over."""
    for file in range(8):
        write_corpus(tmp_path / f"{file}.txt", seed=file)
    config = small_run(f"text:{tmp_path}/*.txt", str(tmp_path / "data"), data__workers=2)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(config_lib.to_json(config_lib.parse(config)))
    (tmp_path / "sitecustomize.py").write_text(NEVER_BEGINS)
    os.mkfifo(tmp_path / "started")
    started = os.open(tmp_path / "started", os.O_RDWR)
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path, "STARTED": str(tmp_path / "started")}
    process = start("-m", "electra_jax.prepare", f"--workdir={tmp_path / 'run'}", env=environment)
    assert select.select([started], [], [], 60)[0], "no worker exists"
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert said.splitlines()[-1].endswith(
        "what is finished is kept, and the same command continues"
    ), said
    os.close(started)
