# SPDX-License-Identifier: Apache-2.0
"""Real processes over loopback prepare the text of one run together, with the real command."""

import os
import signal
import subprocess
import sys

import pytest

from support.commands import command, free_port, read_until
from support.corpus import ROOT, write_corpus
from support.digests import digests

pytestmark = pytest.mark.slow

UNITS = 12


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """Flags; twelve units, of which the second has documents of the first."""
    base = tmp_path_factory.mktemp("corpus")
    for number in range(UNITS):
        write_corpus(base / f"{number:02d}.txt", 1000, seed=max(1, number))
    return [
        "--config=configs/tiny.py",
        f"--config.data.source=text:{base}/*",
        "--config.data.vocab=train:wordpiece:100",
        "--config.data.deduplicate=True",
        # No document is held out at first, so that the unit with the smallest hash is built twice.
        "--config.data.heldout_fraction=0.000001",
    ]


@pytest.fixture(scope="module")
def alone(settings, tmp_path_factory):
    """The digests of the folder that one process makes."""
    workdir = tmp_path_factory.mktemp("alone")
    done = command(*settings, f"--workdir={workdir}", module="electra_jax.prepare")
    assert done.returncode == 0, done.stderr
    assert "cutting rows again" in done.stderr
    return digests(_folder(workdir / "data"))


def _folder(root):
    (found,) = root.iterdir()
    return found


def start(settings, count, **of_each):
    """The processes of one run; `of_each` are flags with a value for each process."""
    port = free_port()
    return [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "electra_jax.prepare", *settings),
                *(f"--{name.replace('__', '.')}={of[number]}" for name, of in of_each.items()),
                *(f"--coordinator_address=127.0.0.1:{port}", f"--num_processes={count}"),
                f"--process_id={number}",
            ],
            cwd=ROOT,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]


def complaint(said):
    """The one line that says why a process ended."""
    (line,) = [line for line in said.splitlines() if line.startswith("error: ")]
    return line


def ended(processes):
    """What each has said, at the end."""
    return [process.communicate(timeout=120)[1] for process in processes]


@pytest.mark.parametrize("count", [2, 3])
def test_each_process_builds_its_share_and_the_bytes_are_those_of_one(
    settings, alone, tmp_path, count
):
    processes = start(settings, count, workdir=[tmp_path] * count)
    said = ended(processes)
    assert [process.returncode for process in processes] == [0] * count, said
    for text in said[1:]:
        assert f"cutting rows: {UNITS // count} of {UNITS} units in this process" in text
    assert digests(_folder(tmp_path / "data")) == alone


def test_the_death_of_one_ends_all_and_one_process_goes_on_with_what_is_missing(
    settings, alone, tmp_path
):
    # With one worker the process does its share itself, and none of its own continues meanwhile.
    first, second = start(settings, 2, workdir=[tmp_path] * 2, config__data__workers=[1] * 2)
    read_until(second, "cutting rows: 6 of 12 units")
    second.send_signal(signal.SIGSTOP)  # in the middle of its share
    read_until(first, f"waiting for process 1 (pid {second.pid}")  # its own share is done
    second.kill()
    why = complaint(ended([first, second])[0])
    assert first.returncode == 1
    assert why.startswith(f"error: process 1 (pid {second.pid}")
    assert "died; the same command continues" in why

    again = command(*settings, f"--workdir={tmp_path}", module="electra_jax.prepare")
    there = next(line for line in again.stderr.splitlines() if "are there already" in line)
    assert 6 <= int(there.split()[1]) < UNITS
    assert digests(_folder(tmp_path / "data")) == alone


def test_processes_that_see_no_common_folder_prepare_each_for_itself(settings, alone, tmp_path):
    roots = [tmp_path / "disk0", tmp_path / "disk1"]
    processes = start(settings, 2, workdir=[tmp_path] * 2, config__data__dir=roots)
    said = ended(processes)
    assert [process.returncode for process in processes] == [0, 0], said
    assert not any("units in this process" in text for text in said)
    assert [digests(_folder(root)) for root in roots] == [alone, alone]


def test_a_file_that_only_the_second_reads_and_that_is_damaged_ends_both(settings, tmp_path):
    for number in range(4):
        lines = '{"text": "one two three"}\n' * 2000 + '{"text": "four five"}\n'
        (tmp_path / f"{number}.jsonl").write_text(lines + "{\n" * (number == 3))
    processes = start(
        settings,
        2,
        workdir=[tmp_path / "run"] * 2,
        config__data__source=[f"text:{tmp_path}/*.jsonl"] * 2,
        config__data__deduplicate=[False] * 2,
        config__data__vocab_sample_characters=[1000] * 2,
    )
    said = ended(processes)
    assert [process.returncode for process in processes] == [1, 1], said
    assert all("3.jsonl" in complaint(text) for text in said), said
    assert not any("Traceback" in text for text in said), said
