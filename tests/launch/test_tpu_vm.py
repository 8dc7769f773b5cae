# SPDX-License-Identifier: Apache-2.0
"""launch/tpu_vm.sh against a gcloud whose workers are folders of this machine."""

import os
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import zipfile

import pytest

import electra_jax
from electra_jax.host import code_version
from electra_jax.report import writers
from support.corpus import ROOT, small_run, write_corpus
from support.workdirs import begin

SCRIPT = ROOT / "launch" / "tpu_vm.sh"
FAKES = ROOT / "tests" / "launch" / "fakes"
WHERE = ("--name=mine", "--zone=here", "--every=0.02")
RUN = ("--config=configs/base.py", "--workdir=gs://bucket/runs/it's one")
MADE = ["tpu-vm create"]
INSTALLED = ["tpu-vm scp", "tpu-vm ssh"]
BEGUN = ["tpu-vm ssh"]


class Cloud:
    """What the fake gcloud keeps, and launch/tpu_vm.sh with it."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        self.plan(plan="end 0")

    def plan(self, **files):
        for name, text in files.items():
            (self.folder / name).write_text(f"{text}\n")

    def __call__(self, command, *arguments, flags=(), timeout=120):
        """Runs the script; returns what it printed, and its exit code."""
        path = os.pathsep.join([str(FAKES), os.environ["PATH"]])
        given = ["--", *flags] if flags else []
        return subprocess.run(
            ["bash", str(SCRIPT), command, *WHERE, *arguments, *given],
            env=os.environ | {"PATH": path, "CLOUD": str(self.folder)},
            capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip

    def lines(self, name):
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []

    def changes(self):
        """What gcloud was asked to do, without questions and with each worker's script once."""
        return [call for call in self.lines("calls") if call.split()[1] in ("create", "delete")]


@pytest.fixture
def cloud(tmp_path):
    found = Cloud(tmp_path / "cloud")
    yield found
    found.plan(kill="KILL")
    subprocess.run(
        [str(FAKES / "gcloud"), *"compute tpus tpu-vm delete mine --zone=here --quiet".split()],
        env=os.environ | {"CLOUD": str(found.folder)}, capture_output=True,
    )  # fmt: skip


@pytest.mark.parametrize("kill", ["TERM", "KILL"])
def test_keep_makes_installs_begins_and_comes_back_after_a_preemption(cloud, kill):
    """Two workers; the machine vanishes while they train, and again before it is installed."""
    cloud.plan(plan="wait\nend 0", workers=2, preempt_at="4 5", kill=kill)
    done = cloud("keep", "--type=v4-16", "--spot", "--delete_when_done", flags=RUN)
    assert done.returncode == 0, done.stderr
    assert cloud.changes() == ["tpu-vm create", "tpu-vm delete"] * 3
    assert "mine was taken away (PREEMPTED)" in done.stderr
    first = next(call for call in cloud.lines("whole_calls") if " create " in call)
    assert {"--spot", "--accelerator-type=v4-16", "--version=tpu-ubuntu2204-base"} <= set(
        shlex.split(first)
    )
    for worker in "01":
        assert cloud.lines(f"starts.{worker}") == [" ".join((*RUN, "--stopped_code=75"))] * 2
    assert "warning" not in done.stderr
    assert "step 1 of 0" in done.stdout  # the log of the first worker
    assert "the run: runs" in done.stderr and done.stderr.rstrip().endswith("done")


def test_a_run_that_was_asked_to_end_is_begun_again_and_one_that_is_done_is_not(cloud):
    cloud.plan(plan="end 75\nend 143\nend 0", workers=2)  # 143: before it had anything to save
    assert cloud("keep", "--type=v6e-8", "--tries=1", flags=RUN).returncode == 0
    assert len(cloud.lines("starts.1")) == 3
    # Called once more, on the TPU VM as it is.
    again = cloud("keep", "--type=v6e-8", flags=RUN)
    assert again.returncode == 0 and len(cloud.lines("starts.1")) == 3
    assert cloud.changes() == MADE


@pytest.mark.parametrize("code", [75, 143])
def test_a_worker_that_was_ended_by_the_signals_of_another_is_no_error_of_the_run(cloud, code):
    cloud.plan(plan="end 1\nend 0", workers=2)
    cloud.plan(**{"plan.1": f"end {code}\nend 0"})
    done = cloud("keep", "--type=v6e-8", "--tries=1", flags=RUN)
    assert done.returncode == 0, done.stderr
    assert f"the run: ended 1, ended {code}" in done.stderr


@pytest.mark.parametrize(
    ("plan", "starts", "words"),
    [
        ("end 2", 1, "error: the run was refused (above); correct its flags"),
        (
            "end 1\nend 75\nend 1\nend 0",
            3,
            "error: the run ended with an error 2 times (--tries",
        ),
    ],
)
def test_errors_of_the_run_end_the_watch_and_leave_the_machine(cloud, plan, starts, words):
    cloud.plan(plan=plan)
    done = cloud("keep", "--type=v4-8", "--tries=2", flags=RUN)
    assert done.returncode == 2 and words in done.stderr
    assert len(cloud.lines("starts.0")) == starts
    assert cloud.changes() == MADE


def test_a_run_with_other_flags_is_another_run(cloud):
    """One that was refused, and then one that is done, say nothing of it."""
    cloud.plan(plan="end 2\nend 0\nend 0")
    assert cloud("keep", "--type=v4-8", flags=["--config=typo", *RUN]).returncode == 2
    again = cloud("keep", "--type=v4-8", flags=["--config=typo", *RUN])
    assert again.returncode == 2 and "or with the same flags call run first" in again.stderr
    assert len(cloud.lines("starts.0")) == 1
    assert cloud("keep", "--type=v4-8", flags=RUN).returncode == 0
    other = ("--config=configs/base.py", "--workdir=gs://bucket/runs/two")
    assert cloud("keep", "--type=v4-8", flags=other).returncode == 0
    assert cloud("keep", "--type=v4-8", flags=other).returncode == 0  # done
    assert len(cloud.lines("starts.0")) == 3
    assert "the run: ended 0" in cloud("status").stderr


def test_the_loss_of_a_machine_is_no_error_of_the_run(cloud):
    """Where a host started anew the others end with an error, since they miss it."""
    cloud.plan(plan="end 1\nend 0", workers=2)
    cloud("create", "--type=v4-16")
    cloud("install")
    cloud("run", flags=RUN)
    assert cloud("watch").returncode == 0  # until it has ended
    (cloud.folder / "homes" / "1" / "electra_jax_run" / "code").unlink()
    done = cloud("keep", "--type=v4-16", "--tries=1", flags=RUN)
    assert done.returncode == 0 and "the run: ended 1, lost" in done.stderr


def test_why_no_worker_is_reached_is_shown(cloud):
    cloud("create", "--type=v4-8")
    cloud.plan(ssh_error="Permission denied (publickey).\nERROR: (gcloud) exited with code [255].")
    said = cloud("status").stderr
    assert "Permission denied (publickey).\n" in said and "the run: unreachable" in said


def test_chips_are_waited_for_and_a_network_that_fails_makes_no_second_machine(cloud):
    cloud.plan(no_capacity=2, offline=3)
    done = cloud("keep", "--type=v4-8", flags=RUN)
    assert done.returncode == 0, done.stderr
    assert cloud.changes() == MADE * 3
    assert done.stderr.count("There is no more capacity") == 2
    assert done.stderr.count("mine: UNREACHABLE") == 3


# What gcloud says without a project, and for a zone that it does not know.
NO_PROJECT = """\
ERROR: (gcloud.compute.tpus.tpu-vm.describe) Error parsing [tpu].
The [tpu] resource is not properly specified.
Failed to find attribute [project]. The attribute can be set in the following ways:
- provide the argument `--project` on the command line"""
PROJECT_NOT_SET = "ERROR: (gcloud) The required property [project] is not currently set."
NO_ZONE = "ERROR: (gcloud) INVALID_ARGUMENT: Location a is not found or access is unauthorized."


@pytest.mark.parametrize("error", [NO_PROJECT, PROJECT_NOT_SET, NO_ZONE])
@pytest.mark.parametrize("command", ["status", "watch", "keep"])
def test_what_gcloud_will_never_answer_ends_at_once_with_its_words(cloud, command, error):
    cloud.plan(error=error)
    more = {"flags": RUN} if command == "keep" else {}
    done = cloud(command, *(["--type=v4-8"] if more else []), **more)
    assert done.returncode == 2 and error in done.stderr
    assert done.stderr.endswith(
        "mine: REFUSED\nerror: gcloud may not look at mine, or does not know where (above)\n"
    )
    assert cloud.lines("calls") == ["tpu-vm describe"]


def test_an_unknown_error_is_shown_whole_and_does_not_say_that_there_is_no_machine(cloud):
    cloud.plan(error="/usr/bin/gcloud: line 9: python3: command not found\nset CLOUDSDK_PYTHON")
    said = cloud("status").stderr
    assert "command not found\nset CLOUDSDK_PYTHON\n" in said and "mine: UNREACHABLE" in said


@pytest.mark.parametrize("command", ["status", "watch", "install", "stop"])
def test_without_gcloud_it_is_one_line(tmp_path, command):
    (tmp_path / "dirname").symlink_to(shutil.which("dirname"))  # all that is called before
    done = subprocess.run(
        [shutil.which("bash"), str(SCRIPT), command, *WHERE],
        env={"PATH": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: there is no gcloud here; install it (https://")
    assert done.stderr.count("\n") == 1


def test_a_queued_resource_is_waited_for_and_asked_for_again(cloud):
    cloud.plan(plan="wait\nend 0", queue="ACCEPTED\nWAITING_FOR_RESOURCES", preempt_at=4)
    done = cloud("keep", "--type=v5litepod-8", "--queued", "--delete_when_done", flags=RUN)
    assert done.returncode == 0, done.stderr
    assert cloud.changes() == ["queued-resources create", "queued-resources delete"] * 2
    assert "mine: QUEUED_WAITING_FOR_RESOURCES" in done.stderr
    made, deleted = (
        [shlex.split(call) for call in cloud.lines("whole_calls") if f" {verb} " in call]
        for verb in ("create", "delete")
    )
    assert {"--node-id=mine", "--runtime-version=v2-alpha-tpuv5-lite"} <= set(made[0])
    assert all("--force" in call for call in deleted)


def test_several_slices_are_one_queued_resource_with_one_run_on_all_of_them(cloud):
    """Two slices of two workers; they vanish while they train."""
    cloud.plan(plan="wait\nend 0", workers=2, queue="PROVISIONING", preempt_when="step 1")
    asked = ("--type=v5litepod-16", "--slices=2", "--spot", "--delete_when_done")
    done = cloud("keep", *asked, flags=RUN)
    assert done.returncode == 0, done.stderr
    assert cloud.changes() == ["queued-resources create", "queued-resources delete"] * 2
    made = next(shlex.split(call) for call in cloud.lines("whole_calls") if " create " in call)
    assert {"--node-count=2", "--node-prefix=mine", "--accelerator-type=v5litepod-16"} <= set(made)
    assert not any(word.startswith("--node-id") for word in made)
    for worker in "0123":
        assert cloud.lines(f"starts.{worker}") == [" ".join((*RUN, "--stopped_code=75"))] * 2
    assert "step 2 of 0" in done.stdout and "of 2" not in done.stdout  # the log of mine-0

    shown = cloud("keep", "--type=v5litepod-16", "--slices=2", "--dry-run", flags=RUN).stdout
    for vm in ("mine-0", "mine-1"):
        assert f"tpu-vm describe {vm} " in shown and f"tpu-vm ssh {vm} --worker=all" in shown
        assert f"electra_jax.tar.gz {vm}:electra_jax.tar.gz --worker=all" in shown


def test_a_slice_that_is_gone_and_one_that_does_not_answer(cloud):
    """The first is made again with the others; after the second the run is not begun twice."""
    cloud.plan(plan="wait", workers=1)
    assert cloud("create", "--type=v4-8", "--slices=2").returncode == 0
    assert cloud("install", "--slices=2").returncode == 0
    assert cloud("run", "--slices=2", flags=RUN).returncode == 0
    assert "the run: runs" in cloud("status", "--slices=2").stderr

    (cloud.folder / "homes" / "1").rename(cloud.folder / "away")
    assert "the run: unreachable" in cloud("status", "--slices=2").stderr
    (cloud.folder / "away").rename(cloud.folder / "homes" / "1")
    assert "the run: runs" in cloud("status", "--slices=2").stderr
    assert cloud("stop", "--slices=2").returncode == 0
    assert "the run: ended 75" in cloud("watch", "--slices=2").stderr

    # What the queued resource has made are two TPU VMs, of which nobody knows a third.
    cloud.plan(plan="end 75\nend 0")
    assert "mine: QUEUED_WITHOUT_IT" in cloud("status", "--slices=3").stderr
    assert len(cloud.lines("starts.0")) == len(cloud.lines("starts.1")) == 1


def test_each_command_by_itself(cloud):
    cloud.plan(plan="wait", workers=2)
    assert cloud("create", "--type=v4-16", "--create=--network=mine").returncode == 0
    assert "--network=mine" in shlex.split(cloud.lines("whole_calls")[0])
    assert "the run: not installed" in cloud("status").stderr
    assert cloud("install").returncode == 0
    assert "the run: not begun" in cloud("status").stderr
    assert cloud("run", flags=RUN).returncode == 0
    assert cloud("run", flags=RUN).returncode == 0  # runs already
    looked = cloud("status", "--lines=1")
    assert "the run: runs" in looked.stderr and looked.stdout == "step 1 of 0\n"
    assert cloud("stop").returncode == 0
    watched = cloud("watch")
    assert watched.returncode == 0 and "the run: ended 75" in watched.stderr
    assert len(cloud.lines("starts.0")) == len(cloud.lines("starts.1")) == 1
    assert cloud("delete").returncode == 0
    assert "mine: NONE" in cloud("status").stderr


def test_watching_goes_on_while_gcloud_does_not_answer_and_fails_without_a_machine(cloud):
    cloud.plan(plan="end 0")
    cloud("create", "--type=v4-8")
    cloud("install")
    assert cloud("run", flags=RUN).returncode == 0
    cloud.plan(offline=2)
    watched = cloud("watch")
    assert watched.returncode == 0 and watched.stderr.count("mine: UNREACHABLE") == 2
    assert "the run: ended 0" in watched.stderr

    assert cloud("delete").returncode == 0
    gone = cloud("watch")
    assert gone.returncode == 2
    assert gone.stderr.endswith("error: no run can be watched: mine is NONE\n")


def test_a_run_is_lost_only_when_nobody_is_left_to_write_its_exit_code(cloud):
    """Between its end and that word a run would be begun a second time, beside its own lock."""
    cloud.plan(plan="wait\nend 0")
    cloud("create", "--type=v4-8")
    cloud("install")
    assert cloud("run", flags=RUN).returncode == 0
    files = cloud.folder / "homes" / "0" / "electra_jax_run"
    shell, run = (int((files / name).read_text()) for name in ("waits", "pid"))
    os.kill(shell, signal.SIGSTOP)
    os.kill(run, signal.SIGKILL)
    assert "the run: runs" in cloud("status").stderr
    os.kill(shell, signal.SIGKILL)
    assert "the run: lost" in cloud("status").stderr
    assert cloud("keep", "--type=v4-8", flags=RUN).returncode == 0
    assert len(cloud.lines("starts.0")) == 2


def test_the_checkout_is_copied_as_it_stands(cloud):
    cloud.plan(workers=2)
    cloud("create", "--type=v4-16")
    assert cloud("install").returncode == 0
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wanted = {name for name in files.split("\0") if name and (ROOT / name).exists()}
    for worker in "01":
        code = cloud.folder / "homes" / worker / "electra_jax"
        found = {str(file.relative_to(code)) for file in code.rglob("*") if not file.is_dir()}
        assert found == wanted | {"electra_jax/_commit"}
        # Without git the copy says of itself what the checkout says.
        copied = runpy.run_path(str(code / "electra_jax" / "host" / "code_version.py"))
        assert copied["commit"]() == code_version.commit()
        assert copied["digest"]() == code_version.digest()
        for name in ("setup.py", "launch/tpu_vm.sh"):
            assert (code / name).read_bytes() == (ROOT / name).read_bytes()
    homes = [cloud.folder / "homes" / worker for worker in "01"]
    assert cloud.lines("installed") == [f"{home}/electra_jax[tpu,gcs]" for home in homes]


def test_text_and_runs_in_the_folder_of_the_checkout_outlive_another_installation(cloud, tmp_path):
    cloud("create", "--type=v4-8")
    assert cloud("install").returncode == 0
    code, run = (cloud.folder / "homes" / "0" / name for name in ("electra_jax", "electra_jax_run"))
    for name in ("corpus/mine.txt", "runs/small/metrics.jsonl", "electra_jax/gone.py"):
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text("mine")
    with (run / "files").open("a") as files:
        files.write("electra_jax/gone.py\n")  # a file of the checkout that a newer one lacks

    assert cloud("install").returncode == 0
    assert (code / "corpus" / "mine.txt").read_text() == "mine"
    assert (code / "runs" / "small" / "metrics.jsonl").read_text() == "mine"
    assert not (code / "electra_jax" / "gone.py").exists()
    assert (code / "setup.py").read_bytes() == (ROOT / "setup.py").read_bytes()

    # A wheel takes the place of the checkout, which Python would find first.
    wheel = tmp_path / "electra_jax-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"")
    assert cloud("install", f"--wheel={wheel}").returncode == 0
    assert not [*code.rglob("*.py")] and (code / "corpus" / "mine.txt").exists()


def test_a_wheel_is_installed_instead(cloud, tmp_path):
    wheel = tmp_path / "electra_jax-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w"):
        pass
    cloud("create", "--type=v4-8")
    assert cloud("install", f"--wheel={wheel}").returncode == 0
    home = cloud.folder / "homes" / "0"
    assert cloud.lines("installed") == [f"{home / wheel.name}[tpu,gcs]", f"{home / wheel.name}"]
    again = next(call for call in cloud.lines("whole_calls") if "force-reinstall" in call)
    assert "--no-deps" in again  # pip keeps what has the version of the wheel
    assert cloud("run", f"--wheel={wheel}", flags=RUN).returncode == 0
    assert len(cloud.lines("starts.0")) == 1


def test_extras_and_variables_reach_all_workers_also_after_a_preemption(cloud):
    cloud.plan(plan="wait\nend 0", workers=2, preempt_at=4)
    given = ("--extras=wandb,s3", "--env=WANDB_MODE=offline", "--env=NOTE=it's one; two = three")
    done = cloud("keep", "--type=v4-16", *given, flags=RUN)
    assert done.returncode == 0, done.stderr
    assert len(cloud.lines("installed")) == 4
    assert all(what.endswith("[tpu,gcs,wandb,s3]") for what in cloud.lines("installed"))
    for worker in "01":
        assert len(cloud.lines(f"starts.{worker}")) == 2
        there = cloud.lines(f"variables.{worker}")  # of the second start
        assert {"WANDB_MODE=offline", "NOTE=it's one; two = three"} <= set(there)


def test_a_dry_run_prints_what_would_be_called_and_calls_nothing(cloud):
    shown = cloud("keep", "--type=v4-8", "--spot", "--dry-run", flags=RUN)
    assert shown.returncode == 0 and not cloud.lines("calls")
    lines = [line for line in shown.stdout.splitlines() if line.startswith("gcloud ")]
    verbs = [line.split()[4] for line in lines]
    assert verbs == ["describe", "ssh", "ssh", "create", "scp", "ssh", "ssh", "delete"]
    # As a shell reads it, it does what the real thing does.
    begins = shown.stdout[shown.stdout.index(lines[6]) : shown.stdout.index("# if the TPU VM was")]
    assert "gs://bucket/runs/it" in begins
    cloud("create", "--type=v4-8")
    cloud("install")
    env = os.environ | {"CLOUD": str(cloud.folder), "PATH": f"{FAKES}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", begins], env=env, check=True)
    assert cloud.lines("starts.0") == [" ".join((*RUN, "--stopped_code=75"))]


def test_a_workdir_in_no_bucket_is_warned_about(cloud):
    done = cloud("keep", "--type=v4-8", flags=("--config=tiny", "--workdir=runs/tiny"))
    assert done.returncode == 0
    assert "warning: the workdir is in no bucket" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["make"], "make is no command of tpu_vm.sh"),
        (["status", "--zone=a"], "give --name=NAME"),
        (["status", "--name=a"], "give --zone=ZONE"),
        (["create", "--name=a", "--zone=b"], "give --type=TYPE"),
        (["create", "--name=a", "--zone=b", "--type=v9-8"], "give --version=VERSION"),
        (["run", "--name=a", "--zone=b"], "give the flags of electra_jax.main after --"),
        (["run", "--config=a"], "--config=a is no option of tpu_vm.sh; flags of electra_jax.main"),
        (["delete", "--name=a", "--zone=b", "--", "--config=a"], "delete takes no flags"),
        (["watch", "--name=a", "--zone=b", "--every=soon"], "--every=soon is no number of seconds"),
        (["install", "--name=a", "--zone=b", "--wheel=no.whl"], "--wheel=no.whl is no file"),
        (["status", "--name=a", "--zone=b", "--slices=0"], "--slices=0 is no number from 1"),
        (["install", "--name=a", "--zone=b", "--extras=s3 wandb"], "--extras=s3 wandb is no list"),
        (["install", "--name=a", "--zone=b", "--extras="], "--extras= is no list of extras"),
        (["run", "--name=a", "--zone=b", "--env=1X=2", "--", "-"], "--env=1X=2 is no NAME=VALUE"),
        (["run", "--name=a", "--zone=b", "--env=HOME", "--", "-"], "--env=HOME is no NAME=VALUE"),
    ],
)
def test_bad_options_are_one_line(arguments, words):
    done = subprocess.run(["bash", str(SCRIPT), *arguments], capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"error: {words}") and done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_real_run_goes_on_after_a_preemption_as_if_there_had_been_none(cloud, tmp_path):
    """It is killed; the workdir stays, the worker's own disk with the checkout is gone."""
    config = small_run(
        f"text:{write_corpus(tmp_path / 'corpus.txt')}", str(tmp_path / "data"),
        schedule__steps=30, checkpoint__every=4, evaluation__every=30, logging__every=1,
    )  # fmt: skip
    electra_jax.train(config, tmp_path / "undisturbed")
    begin(tmp_path / "run", config)

    cloud.plan(plan=f"exec {sys.executable}\n" * 2, preempt_when="step 10/30", kill="KILL")
    flags = [f"--workdir={tmp_path / 'run'}"]
    done = cloud("keep", "--type=v6e-8", "--delete_when_done", flags=flags, timeout=300)
    assert done.returncode == 0, done.stderr
    assert cloud.changes() == ["tpu-vm create", "tpu-vm delete"] * 2
    assert len(cloud.lines("starts.0")) == 2
    assert "resuming from step" in (tmp_path / "run" / "log.txt").read_text()
    rows = [
        {row["step"]: row.get("loss") for row in writers.read(tmp_path / name / "metrics.jsonl")}
        for name in ("undisturbed", "run")
    ]
    assert rows[0] == rows[1] and len(rows[0]) == 30
