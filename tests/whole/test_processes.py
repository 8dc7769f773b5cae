# SPDX-License-Identifier: Apache-2.0
"""Two and four real processes over loopback: the real command over the border of two stages, and
copies of checkpoints that only one of them finds damaged."""

import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

import electra_jax
from electra_jax.report import writers
from electra_jax.workdir import metadata
from support.commands import free_port, read_until
from support.corpus import ROOT, small_run, write_corpus
from support.workdirs import begin

pytestmark = pytest.mark.slow

STEPS = 60
# None of the files of what follows may grow beyond 20 KiB.
SMALL_FILES = ("bash", "-c", 'ulimit -f 20; exec "$@"', "bash")


def start_two(workdir, *flags, everywhere=False, stay_small=None):
    """Both processes of a run; the flags go to the first alone, or `everywhere`."""
    return start(2, workdir, *flags, everywhere=everywhere, stay_small=stay_small)


def start(count, workdir, *flags, everywhere=True, stay_small=None, compiles=None):
    """So many processes of a run; the second never compiles more than `compiles` programs."""
    worker = ("tests/workers/compiling_worker.py", str(compiles))
    port = free_port()
    return [
        subprocess.Popen(
            [
                *(SMALL_FILES if number == stay_small else ()),
                sys.executable,
                *(("-m", "electra_jax.main") if compiles is None or not number else worker),
                f"--workdir={workdir}",
                f"--coordinator_address=127.0.0.1:{port}",
                f"--num_processes={count}",
                f"--process_id={number}",
                *(flags if number == 0 or everywhere else ()),
            ],
            cwd=ROOT,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """(config, workdir) of a run of one process."""
    base = tmp_path_factory.mktemp("processes")
    config = small_run(
        f"text:{write_corpus(base / 'corpus.txt')}",
        str(base / "data"),
        schedule__steps=STEPS,
        checkpoint__every=10,
        checkpoint__keep_last=10,
        evaluation__every=STEPS,
        schedule__stages=((0.05, 16, 16),),  # from the fourth step on
        logging__every=1,
    )
    electra_jax.train(config, base / "alone")
    return config, base / "alone"


def test_sigterm_to_one_stops_both_at_one_step_and_one_process_goes_on(alone, tmp_path):
    config, undisturbed = alone
    workdir = tmp_path / "two"
    begin(workdir, config)
    first, second = start_two(workdir, "--stopped_code=75")  # the second ends with 0, as always
    for line in first.stderr:
        if f"step  9/{STEPS}" in line:
            break
    second.send_signal(signal.SIGTERM)
    said = [process.communicate()[1] for process in (first, second)]
    assert [process.returncode for process in (first, second)] == [75, 0], said
    stopped = max(metadata.steps(workdir / "checkpoints"))
    assert 9 <= stopped < STEPS
    assert all(f"stopped and saved at step {stopped}" in text for text in said)
    log = (workdir / "log.txt").read_text()
    assert "stage 2 of 2 from step 4 on: 16 rows of 16 tokens per step" in log

    electra_jax.train(config, workdir)  # one process continues where two stopped
    assert_same_losses(workdir, undisturbed, range(1, STEPS + 1))


def assert_same_losses(workdir, undisturbed, steps):
    """At each of these steps: other rows, or another order of them, would change the losses."""
    mine, expected = (
        {row["step"]: row["loss"] for row in writers.read(where / "metrics.jsonl")}
        for where in (workdir, undisturbed)
    )
    np.testing.assert_allclose(
        [mine[step] for step in steps], [expected[step] for step in steps], rtol=1e-3
    )


def test_minutes_are_those_of_the_first_on_both(alone, tmp_path):
    """By a clock of its own each would end, and lower its rate, at another step."""
    config = alone[0].copy_and_resolve_references()
    config.schedule.update(budget="minutes", minutes=0.05, steps=100_000, stages=())
    config.evaluation.every = 100_000  # at the end only
    begin(tmp_path / "two", config)
    both = start_two(tmp_path / "two")
    said = [process.communicate(timeout=100)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said

    rows = writers.read(tmp_path / "two" / "metrics.jsonl")
    (last,) = (row["step"] for row in rows if row["kind"] == "eval")
    assert max(metadata.steps(tmp_path / "two" / "checkpoints")) == last


@pytest.mark.parametrize(
    ("flags", "step"),
    [((), 3), (("--config.evaluation.every=2",), 2)],  # of the second stage; an evaluation
)
def test_sigterm_while_one_of_them_compiles_saves_the_step_before(alone, tmp_path, flags, step):
    """The second compiles for ever, and the first, which is told, has compiled and waits for it."""
    config, _ = alone
    workdir = tmp_path / "compiling"
    begin(workdir, config)
    both = start(2, workdir, "--stopped_code=75", *flags, compiles=1)
    read_until(both[1], "compiling for ever")
    both[0].send_signal(signal.SIGTERM)
    said = [process.communicate(timeout=100)[1] for process in both]
    assert [process.returncode for process in both] == [75, 75], said
    assert max(metadata.steps(workdir / "checkpoints")) == step
    assert all(f"stopped and saved at step {step};" in text for text in said), said
    assert "SIGTERM: saving and stopping" in said[0]


def test_four_lose_one_and_two_finish(alone, tmp_path):
    """With fsdp and tensor across processes: the third of four is killed, and all end. Two, with
    another mesh, continue from what four have saved."""
    config, undisturbed = alone
    workdir = tmp_path / "four"
    begin(workdir, config)
    flags = "--config.checkpoint.every=5", "--config.mesh.tensor=2"
    four = start(4, workdir, *flags, "--config.mesh.fsdp=2")
    read_until(four[0], f"step 19/{STEPS}")
    four[2].kill()
    said = [process.communicate(timeout=60)[1] for process in four]
    for number, process in enumerate(four):
        if number != 2:
            assert process.returncode == 1, said[number]
            last = said[number].splitlines()[-1]
            assert last.startswith(f"error: process 2 (pid {four[2].pid} on ")

    two = start(2, workdir, *flags, "--config.mesh.fsdp=1")
    said = [process.communicate()[1] for process in two]
    assert [process.returncode for process in two] == [0, 0], said
    assert "resuming from step 15" in said[0]
    assert_same_losses(workdir, undisturbed, range(1, STEPS + 1))


def test_processes_with_other_settings_are_refused(alone, tmp_path):
    config, _ = alone
    workdir = tmp_path / "unequal"
    begin(workdir, config)
    both = start_two(workdir, "--config.logging.every=3", "--config.optimizer.weight_decay=0.5")
    said = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [2, 2], said
    for text in said:
        assert text.splitlines()[-1] == (
            "error: the processes were started with different settings: optimizer.weight_decay is"
            " 0.5 on process 0 and 0.01 on process 1; logging.every is 3 on process 0 and 1 on"
            " process 1; start all with the same command but for --process_id"
        )
    assert not metadata.steps(workdir / "checkpoints")


def test_the_death_of_one_ends_the_other_and_the_same_command_goes_on(alone, tmp_path):
    """Two continue where one process was after step 10. The second is killed while it trains, then
    the first before its first step."""
    _, undisturbed = alone
    workdir = tmp_path / "killed"
    shutil.copytree(undisturbed, workdir)
    for step in metadata.steps(workdir / "checkpoints"):
        if step > 10:
            shutil.rmtree(workdir / "checkpoints" / str(step))

    for victim, words in ((1, "step 19/"), (0, "resuming from step 15")):
        both = start_two(workdir, "--config.checkpoint.every=5", everywhere=True)
        line = next(line for line in both[0].stderr if words in line or "error:" in line)
        assert words in line
        both[victim].kill()
        said = [process.communicate(timeout=60)[1] for process in both]
        assert both[1 - victim].returncode == 1, said
        last = said[1 - victim].splitlines()[-1]
        assert last.startswith(f"error: process {victim} (pid {both[victim].pid} on ")
        assert last.endswith(") died; the same command continues from the newest checkpoint")
        assert "Traceback" not in said[1 - victim] and "Check failure" not in said[1 - victim]

    assert_same_losses(workdir, undisturbed, range(1, 16))


def test_text_that_the_first_cannot_prepare_stops_both(tmp_path):
    workdir = tmp_path / "no_text"
    begin(workdir, small_run("text:nowhere/*.txt", str(tmp_path / "data")))
    both = start_two(workdir)
    said = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [2, 2], said
    assert all(text.startswith("error: text:nowhere/*.txt matches no file") for text in said), said


def test_a_data_folder_that_the_first_cannot_make_stops_both(tmp_path):
    """Where the folder should be there is a file: an error of the disk, not of the settings."""
    (tmp_path / "data").write_text("")
    workdir = tmp_path / "no_folder"
    begin(
        workdir, small_run(f"text:{write_corpus(tmp_path / 'corpus.txt')}", str(tmp_path / "data"))
    )
    both = start_two(workdir)
    said = [process.communicate(timeout=200)[1] for process in both]
    assert all(process.returncode not in (0, -signal.SIGKILL) for process in both), said
    assert all(str(tmp_path / "data") in text for text in said), said
    assert "(found by process 0)" in said[1]


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """What each of two processes found in its copies of the steps 1 and 2, and what it said."""
    folder, port = tmp_path_factory.mktemp("copies"), free_port()
    worker = str(ROOT / "tests" / "workers" / "restore_worker.py")
    both = [
        subprocess.Popen(
            [sys.executable, worker, str(folder), str(port), str(number)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    try:
        said = [process.communicate(timeout=200) for process in both]
    except subprocess.TimeoutExpired:
        pytest.fail("one process waits for the other for ever")
    finally:
        for process in both:
            process.kill()
    assert [process.returncode for process in both] == [0, 0], said
    return folder, [json.loads(out.splitlines()[-1]) for out, _ in said], [text for _, text in said]


def test_what_one_process_cannot_read_is_used_by_none(copies):
    _, (first, second), _ = copies
    none = "none of the 2 checkpoints in FOLDER can be read; all are left as they are"
    assert first == second
    assert first.pop("none good").startswith(none)
    assert first == {
        "good": 2,
        "no folder": 1,
        "no arrays": 1,
        "no manifest": 1,
        "metadata": 1,
        "other numbers": 1,
        "other numbers in what each has": 1,
        "first process": 1,
        "saved again": 3,
    }


def test_both_say_why_and_nothing_is_lost(copies):
    folder, _, said = copies
    for text, so in zip(said, (" (found by process 1)", ""), strict=True):
        assert f"1/2 does not exist{so}\n" in text
        assert "1/2 cannot be read: JSONDecodeError: " in text
        assert f"1/2: copied is not what was saved (digest differs){so}\n" in text
        assert "0/2 cannot be read: ValueError: NOT_FOUND" in text
    kept = {path.name for path in (folder / "none good" / "0").iterdir()}
    assert kept == {"1", "2"}


def test_a_save_that_only_one_cannot_write_ends_both(alone, tmp_path):
    """No file of the second may grow: to it that is an error of the disk, like a full one."""
    config, _ = alone
    workdir = tmp_path / "one_disk"
    begin(workdir, config)
    flags = ("--config.checkpoint.every=5", "--config.checkpoint.keep_last=2")
    first, second = start_two(workdir, *flags, everywhere=True, stay_small=1)
    said = [process.communicate(timeout=300)[1] for process in (first, second)]
    assert [process.returncode for process in (first, second)] == [1, 1], said
    assert "error: checkpoint not saved (" in said[1]
    line = said[0].splitlines()[-1]
    assert line.startswith(f"error: process 1 (pid {second.pid} on ")
    assert ") ended with an error: checkpoint not saved (" in line
    assert all("Traceback" not in text for text in said), said
