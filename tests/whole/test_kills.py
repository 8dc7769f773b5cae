# SPDX-License-Identifier: Apache-2.0
"""Killed at any point, run again, and it ends as if nothing had happened: bit for bit."""

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys

import pytest

import electra_jax
from electra_jax.report import writers
from electra_jax.workdir import metadata
from support.commands import command, complaint, read_until, start
from support.corpus import ROOT, small_run, write_corpus
from support.outcomes import digest, rows
from support.workdirs import begin

pytestmark = pytest.mark.slow

STEPS = 120
KILLS = 10


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(config, workdir) of a run that nobody disturbed."""
    base = tmp_path_factory.mktemp("kills")
    config = small_run(
        f"text:{write_corpus(base / 'corpus.txt')}",
        str(base / "data"),
        schedule__steps=STEPS,
        checkpoint__every=7,
        checkpoint__keep_last=2,
        evaluation__every=40,
        logging__every=1,
        logging__report_every=50,
    )
    electra_jax.train(config, base / "whole")
    return config, base / "whole"


def same(workdir, other):
    assert digest(workdir, STEPS) == digest(other, STEPS)
    assert rows(workdir) == rows(other)


def test_sigkill_at_random_moments(whole, tmp_path):
    """Ten kills as a step is logged; every 7th is followed at once by a save in the background."""
    config, undisturbed = whole
    workdir = tmp_path / "killed"
    begin(workdir, config)
    draw = random.Random(0)
    for kill in range(KILLS):
        saved = max(metadata.steps(workdir / "checkpoints"), default=0)
        ahead = draw.randint(1, 14) if kill % 2 else 7 * draw.randint(1, 2)  # odd: while saving
        process = start(workdir)
        read_until(process, f"step {min(saved + ahead, STEPS - 1):>3}/{STEPS}")
        process.kill()
        process.communicate()
    last = start(workdir)
    _, errors = last.communicate()
    assert last.returncode == 0, errors[-2000:]
    same(workdir, undisturbed)


def test_sigterm_saves_where_it_stands_and_exits_cleanly(whole, tmp_path):
    config, undisturbed = whole
    workdir = tmp_path / "terminated"
    begin(workdir, config)
    process = start(workdir, "--stopped_code=75")
    read_until(process, f"step   9/{STEPS}")
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()
    assert process.returncode == 75, errors[-2000:]
    stopped = max(metadata.steps(workdir / "checkpoints"))
    assert 9 <= stopped < STEPS
    assert f"stopped and saved at step {stopped}" in errors
    again = start(workdir, "--stopped_code=75")
    _, errors = again.communicate()
    assert again.returncode == 0, errors[-2000:]
    assert f"resuming from step {stopped}" in errors
    same(workdir, undisturbed)


def test_any_damage_to_the_newest_checkpoint_costs_at_most_that_one(whole, tmp_path):
    """Flips, cuts, other bytes, folders, in all of its files: harmless, or the one before is used;
    never an end, never other values."""
    _, undisturbed = whole
    worker = [sys.executable, "tests/workers/damage_worker.py", undisturbed, tmp_path, "150"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(worker, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes = json.loads(done.stdout)
    assert outcomes["lost"] == [], outcomes
    assert outcomes["set aside"] > 60 and outcomes["harmless"] > 10, outcomes


def test_a_damaged_config_json_is_one_line_in_every_command_and_costs_nothing(whole, tmp_path):
    """It names what to do, and after that the same command continues."""
    workdir = tmp_path / "run"
    shutil.copytree(whole[1], workdir)
    (tmp_path / "lines.txt").write_text("the cat sees the river.\n")
    own = (f"--workdir={workdir}",)
    commands = {
        "main": own,
        "show": own,
        "evaluate": own,
        "score": (*own, f"--input={tmp_path / 'lines.txt'}"),
        "prepare": own,
        "benchmark": own,
        "flops": own,
        "convert": (*own, "--to=orbax", f"--out={tmp_path / 'export'}"),
        "compare": (workdir, whole[1]),
    }
    damaged = (b"", b'{"name": "te', b"\xff\xfe", b"[]", None)
    for (name, arguments), content in zip(commands.items(), itertools.cycle(damaged)):
        path = workdir / "config.json"
        path.unlink() if path.is_file() else path.rmdir()
        path.mkdir() if content is None else path.write_bytes(content)
        line = complaint(*arguments, module=f"electra_jax.{name}")
        assert "config.json cannot be used (" in line, (name, line)
        assert f"delete it: the same settings are in checkpoint {STEPS}" in line, (name, line)
    assert not (tmp_path / "export").exists()
    path.unlink() if path.is_file() else path.rmdir()
    done = command(*own, module="electra_jax.main")
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"its settings are those of checkpoint {STEPS}" in done.stderr
    assert path.read_bytes() == (whole[1] / "config.json").read_bytes()


def test_all_checkpoints_bad_is_an_error_and_not_a_fresh_start(whole, tmp_path):
    config, _ = whole
    workdir = tmp_path / "bad"
    begin(workdir, config)
    for step in (7, 14):
        os.makedirs(workdir / "checkpoints" / str(step))
    process = start(workdir)
    _, errors = process.communicate()
    assert process.returncode == 2
    line = next(line for line in errors.splitlines() if line.startswith("error: "))
    assert "none of the 2 checkpoints" in line
    assert sorted(os.listdir(workdir / "checkpoints")) == ["14", "7"]


def test_a_second_run_on_a_workdir_is_refused_while_the_first_lives(whole, tmp_path):
    config, _ = whole
    workdir = tmp_path / "shared"
    begin(workdir, config)
    first = start(workdir)
    read_until(first, f"step   9/{STEPS}")
    second = start(workdir)
    _, errors = second.communicate()
    first.kill()
    first.communicate()
    assert second.returncode == 1  # a launcher begins it again: the first may end
    assert f"in use by another run (process {first.pid}" in errors
    third = start(workdir)  # the lock died with its owner
    _, errors = third.communicate()
    assert third.returncode == 0, errors[-2000:]


def test_a_full_disk_stops_no_training_that_can_go_on(whole, tmp_path):
    """A file system of 8 MB: saves fail, are logged, and the newest good checkpoint stays good."""
    config, _ = whole
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", small], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this machine may not mount a file system")
    try:
        begin(small / "run", config)
        filler = small / "filler"
        process = start(small / "run", "--config.logging.tensorboard=False")
        read_until(process, f"step  15/{STEPS}")  # the save of step 14 has waited for that of 7
        with open(filler, "wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                pass
        _, errors = process.communicate()
        assert process.returncode != 0
        assert "error: no space left" in errors
        assert "Traceback" not in errors
        filler.unlink()
        again = start(small / "run", "--config.logging.tensorboard=False")
        _, errors = again.communicate()
        assert again.returncode == 0, errors[-2000:]
        assert "resuming from step" in errors
        rows = writers.read(small / "run" / "metrics.jsonl")
        assert json.dumps(rows[-1]) and rows[-1]["step"] == STEPS
    finally:
        subprocess.run(["umount", small], check=True)
