# SPDX-License-Identifier: Apache-2.0
"""launch/slurm.sbatch against a Slurm that runs its two tasks on this machine."""

import os
import re
import shlex
import subprocess

import pytest

from support.corpus import ROOT

SCRIPT = ROOT / "launch" / "slurm.sbatch"
FAKES = ROOT / "tests" / "launch" / "fakes"
RUN = ("--config=configs/base.py", "--workdir=gs://bucket/runs/it's one")
AGAIN = ["srun --kill-on-bad-exit=0", "scontrol show job 7", "scontrol requeue 7"]


def submit(folder, plan, limits=0, cancelled=False, **env):
    """Runs a job to its end; returns it and the lines of what Slurm was asked for."""
    (folder / "plan").write_text(plan)
    (folder / "limits").write_text(f"{limits}\n")
    if cancelled:
        (folder / "cancel").touch()
    path = os.pathsep.join([str(FAKES), os.environ["PATH"]])
    more = {"PATH": path, "SLURM": str(folder), "PYTHON": str(FAKES / "task")}
    done = subprocess.run(
        ["sbatch", str(SCRIPT), *RUN],
        env=os.environ | more | env, capture_output=True, text=True, timeout=20,
    )  # fmt: skip
    return done, (folder / "calls").read_text().splitlines()


def test_a_job_that_meets_its_time_limit_is_queued_again_until_the_run_is_done(tmp_path):
    done, calls = submit(tmp_path, "wait 75\nwait 143\nend 0\n", limits=2)
    assert done.returncode == 0, done.stderr
    assert calls == [*AGAIN, *AGAIN, "srun --kill-on-bad-exit=0"]
    for number in "01":
        started = (tmp_path / f"starts.{number}").read_text().splitlines()
        assert started == [" ".join((*RUN, "--stopped_code=75"))] * 3


@pytest.mark.parametrize(
    ("nodes", "tasks", "cores"),
    [("64", "", "64"), ("64(x2)", "4", "16"), ("112,64(x2)", "", "64"), ("64,112", "4", "16")],
)
def test_the_tasks_of_a_node_share_the_cores_of_the_smallest(nodes, tasks, cores, tmp_path):
    more = {"SLURM_NTASKS_PER_NODE": tasks} if tasks else {}
    _, calls = submit(tmp_path, "end 0\n", SLURM_JOB_CPUS_PER_NODE=nodes, **more)
    assert calls == [f"srun --kill-on-bad-exit=0 --cpus-per-task={cores}"]


@pytest.mark.parametrize("code", [0, 1, 2, 137])
def test_a_run_that_ended_by_itself_is_not_queued_again(tmp_path, code):
    done, calls = submit(tmp_path, f"end {code}\n")
    assert done.returncode == code and calls == AGAIN[:1]


def test_a_job_that_was_cancelled_does_not_come_back(tmp_path):
    done, calls = submit(tmp_path, "wait 75\n", limits=1, cancelled=True)
    assert done.returncode == 75 and calls == AGAIN[:2]


def test_a_job_is_queued_again_so_often_and_no_more(tmp_path):
    done, calls = submit(tmp_path, "wait 75\n" * 3, limits=3, MAX_RESTARTS="2")
    assert done.returncode == 75 and calls.count(AGAIN[2]) == 2
    assert "error: queued again 2 times (MAX_RESTARTS): the job ends" in done.stderr


def test_a_dry_run_prints_the_command_and_asks_nobody():
    done = subprocess.run(
        ["bash", str(SCRIPT), "--dry-run", *RUN], env={"PATH": "/usr/bin:/bin"},
        capture_output=True, text=True,
    )  # fmt: skip
    line = ["srun", "--kill-on-bad-exit=0", "python3", "-m", "electra_jax.main"]
    assert shlex.split(done.stdout) == [*line, *RUN, "--stopped_code=75"]


def test_the_notice_comes_to_all_processes_and_before_they_give_up():
    """Without B: in front the signal goes to the tasks; a hanging step has its 120 s first."""
    options = dict(re.findall(r"^#SBATCH --([\w-]+)=?(\S*)$", SCRIPT.read_text(), re.MULTILINE))
    name, seconds = options["signal"].split("@")
    assert name == "TERM" and int(seconds) > 120
    assert options["ntasks-per-node"] == "1" and "requeue" in options
    assert "exclusive" in options and options["mem"] == "0"  # else perhaps one core feeds 8 GPUs
    assert options["open-mode"] == "append"  # otherwise the log of the first start is lost
