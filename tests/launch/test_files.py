# SPDX-License-Identifier: Apache-2.0
"""The files of launch/ that others read: shells, Kubernetes, SkyPilot, docker."""

import ast
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
import yaml

from electra_jax.host import buckets, code_version
from support.corpus import ROOT

LAUNCH = ROOT / "launch"
SCRIPTS = sorted(path for path in LAUNCH.iterdir() if path.suffix in (".sh", ".sbatch"))


def tool(name, *arguments, **more):
    """Runs a program of the extra test; what it prints, and its exit code."""
    beside = os.path.dirname(sys.executable)
    found = shutil.which(name, path=os.pathsep.join([beside, os.environ["PATH"]]))
    assert found, f"there is no {name}: pip install -e '.[test]'"
    return subprocess.run([found, *arguments], capture_output=True, text=True, **more)


def test_scripts_are_clean():
    fakes = (ROOT / "tests" / "launch" / "fakes").rglob("*")
    files = [*SCRIPTS, *(path for path in fakes if path.is_file())]
    assert len(SCRIPTS) == 3 and len(files) == 10
    assert all(os.access(path, os.X_OK) for path in files)
    done = tool("shellcheck", *files)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=[path.name for path in SCRIPTS])
def test_scripts_are_what_old_shells_read(script):
    """bash 3.2, of macOS, from where a TPU VM may be steered, has none of these."""
    newer = r"\bmapfile\b|\breadarray\b|declare -A|local -n|\$\{\w+[@^,]|wait -n|\|&|&>>"
    assert not re.findall(newer, script.read_text())


# Kubernetes

# The fields of JobSet v1alpha2 (https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/) that a
# file may have, down to the template of its jobs; a set lists the values of a field.
JOB_SET = {
    "apiVersion": {"jobset.x-k8s.io/v1alpha2"},
    "kind": {"JobSet"},
    "metadata": None,
    "spec": {
        "coordinator": None,
        "failurePolicy": {
            "maxRestarts": int,
            "restartStrategy": {"Recreate", "BlockingRecreate"},
            "rules": [
                {
                    "name": re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"),
                    "action": {
                        "FailJobSet",
                        "RestartJobSet",
                        "RestartJobSetAndIgnoreMaxRestarts",
                    },
                    "onJobFailureReasons": [
                        {"BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes"}
                        | {"MaxFailedIndexesExceeded", "PodFailurePolicy"}
                    ],
                    "targetReplicatedJobs": None,
                }
            ],
        },
        "network": None,
        "replicatedJobs": [
            {
                "name": re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"),
                "replicas": int,
                "template": {"metadata": None, "spec": None},
            }
        ],
        "startupPolicy": None,
        "successPolicy": None,
        "suspend": bool,
        "ttlSecondsAfterFinished": int,
    },
}


def wrong(found, wanted, where=""):
    """Yields what of a tree is not as JOB_SET has it."""
    if isinstance(wanted, dict):
        for name in found:
            if name not in wanted:
                yield f"{where}.{name} is no field"
            else:
                yield from wrong(found[name], wanted[name], f"{where}.{name}")
    elif isinstance(wanted, list):
        for one in found:
            yield from wrong(one, wanted[0], f"{where}[]")
    elif isinstance(wanted, set) and found not in wanted:
        yield f"{where}={found}"
    elif isinstance(wanted, type) and type(found) is not wanted:
        yield f"{where}={found!r}"
    elif isinstance(wanted, re.Pattern) and not wanted.fullmatch(found):
        yield f"{where}={found}"


@pytest.fixture
def job_set():
    return yaml.safe_load((LAUNCH / "gke_jobset.yaml").read_text())


def test_the_job_set_has_the_fields_of_job_sets(job_set):
    assert list(wrong(job_set, JOB_SET)) == []
    job_set["spec"]["failurePolicy"]["rules"][0]["name"] = "taken-away"
    job_set["spec"]["retries"] = 1
    assert list(wrong(job_set, JOB_SET)) == [
        ".spec.failurePolicy.rules[].name=taken-away",
        ".spec.retries is no field",
    ]


def test_the_jobs_of_the_job_set_are_jobs(job_set, tmp_path):
    (replicated,) = job_set["spec"]["replicatedJobs"]
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "electra"},
        "spec": replicated["template"]["spec"],
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    checked = ("kubernetes-validate", "--strict", tmp_path / "job.yaml")
    assert tool(*checked).returncode == 0, tool(*checked).stdout
    job["spec"]["template"]["spec"]["restart"] = "Never"
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    assert tool(*checked).returncode != 0


def test_the_pods_of_the_job_set_end_and_begin_again_together(job_set):
    (replicated,) = job_set["spec"]["replicatedJobs"]
    spec = replicated["template"]["spec"]
    pod = spec["template"]["spec"]
    assert spec["completionMode"] == "Indexed" and spec["backoffLimit"] == 0
    assert spec["parallelism"] == spec["completions"] == 4
    assert pod["restartPolicy"] == "Never"  # the policy for failed pods asks for it
    assert pod["terminationGracePeriodSeconds"] > 120  # --stop_timeout
    (container,) = pod["containers"]
    codes, _ = spec["podFailurePolicy"]["rules"]
    assert codes["onExitCodes"]["containerName"] == container["name"]
    assert "--stopped_code=75" in container["args"] and 75 in codes["onExitCodes"]["values"]
    (rule,) = job_set["spec"]["failurePolicy"]["rules"]
    assert rule["onJobFailureReasons"] == ["PodFailurePolicy"]
    # 4 x 4 chips are four VMs with four chips each.
    chips = pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"]
    each = container["resources"]["limits"]["google.com/tpu"]
    assert eval(chips.replace("x", "*")) == each * spec["parallelism"]


# SkyPilot

PYTHON = """#!/usr/bin/env bash
case "$*" in
*"uv venv"*) mkdir -p ~/electra_jax_venv/bin && cp "$0" ~/electra_jax_venv/bin/python ;;
esac
printf '%s\\n' "$*" >>~/calls
"""


@pytest.fixture
def sky():
    return yaml.safe_load((LAUNCH / "skypilot.yaml").read_text())


def on_a_node(sky, home, **given):
    """Runs setup and run as on a node; what the fake Python was asked for."""
    (home / "programs").mkdir()
    (home / "programs" / "python3").write_text(PYTHON)
    (home / "programs" / "python3").chmod(0o755)
    path = os.pathsep.join([str(home / "programs"), "/usr/bin", "/bin"])
    variables = {name: str(value) for name, value in (sky["envs"] | given).items()}
    variables |= {"HOME": str(home), "PATH": path}
    (home / "electra_jax").mkdir()
    for part in ("setup", "run"):
        subprocess.run(["bash", "-c", sky[part]], env=variables, check=True, cwd=home)
    return (home / "calls").read_text().splitlines()


@pytest.mark.parametrize(("extra", "nodes"), [("tpu", 4), ("cuda", 1), ("cuda", 4)])
def test_skypilot_installs_and_runs_on_every_node(sky, tmp_path, extra, nodes):
    *_, installed, begun = on_a_node(
        sky, tmp_path, EXTRA=extra, WORKDIR="gs://b/it's one", SKYPILOT_NUM_NODES=nodes,
        SKYPILOT_NODE_IPS="10.0.0.1\n10.0.0.2", SKYPILOT_NODE_RANK=3,
        **({"COMMIT": "0123456789ab"} if nodes == 4 else {}),
    )  # fmt: skip
    noted = tmp_path / "electra_jax" / code_version.COMMIT_FILE
    assert noted.exists() == (nodes == 4)
    assert nodes == 1 or noted.read_text() == "0123456789ab\n"
    assert installed == f"-m pip install --quiet -e .[{extra},gcs]"
    flags = "-m electra_jax.main --config=base --workdir=gs://b/it's one --stopped_code=75"
    if (extra, nodes) == ("cuda", 4):  # the workers of a TPU pod find each other by themselves
        flags += " --coordinator_address=10.0.0.1:8476 --num_processes=4 --process_id=3"
    assert begun == flags


def test_skypilot_begins_a_run_again_that_was_asked_to_end(sky):
    assert sky["resources"]["job_recovery"]["recover_on_exit_codes"] == [75, 143]
    assert sky["envs"]["WORKDIR"] is None  # SkyPilot refuses a task without one


# docker


def instructions():
    """(instruction, rest) of the Dockerfile, with lines joined."""
    text = re.sub(r"\\\n\s*", "", (LAUNCH / "Dockerfile").read_text())
    return [tuple(line.split(" ", 1)) for line in text.splitlines() if re.match("[A-Z]+ ", line)]


def test_the_dockerfile_is_clean():
    done = tool("hadolint", LAUNCH / "Dockerfile")
    assert done.returncode == 0, done.stdout


def test_what_the_image_copies_is_there_and_is_sent():
    sent = (LAUNCH / "Dockerfile.dockerignore").read_text().splitlines()
    copied = [name for do, rest in instructions() if do == "COPY" for name in rest.split()[:-1]]
    assert {"setup.py", "electra_jax", "configs"} <= set(copied)
    assert all((ROOT / name).exists() for name in copied)
    assert sorted(f"!{name}" for name in copied) == sorted(line for line in sent if line[0] == "!")


@pytest.mark.parametrize(
    ("extra", "commit", "installed"),
    [
        ("cpu", "", ".[gcs,s3]"),
        ("cuda", "0123456789ab+dirty", ".[cuda,gcs,s3]"),
        ("tpu", "", ".[tpu,gcs,s3]"),
        ("gpu", "", None),
    ],
)
def test_the_image_installs_what_its_arguments_say(extra, commit, installed, tmp_path):
    (script,) = (rest for do, rest in instructions() if do == "RUN")
    (tmp_path / "pip").write_text('#!/bin/sh\nprintf "%s\\n" "$@" >"$CALLS"\n')
    (tmp_path / "pip").chmod(0o755)
    more = {"PATH": f"{tmp_path}:/usr/bin:/bin", "CALLS": str(tmp_path / "calls")}
    (tmp_path / "electra_jax").mkdir()
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True,
        env={**more, "EXTRA": extra, "STORES": "gcs,s3", "COMMIT": commit},
    )  # fmt: skip
    noted = tmp_path / "electra_jax" / code_version.COMMIT_FILE
    assert (noted.read_text() if noted.exists() else "").strip() == commit
    if installed:
        assert (tmp_path / "calls").read_text().split() == ["install", "--no-cache-dir", installed]
    else:
        assert done.returncode == 1 and done.stderr == "EXTRA=gpu is not cpu, cuda or tpu\n"


def test_the_extras_that_the_image_may_have_are_extras_of_the_package():
    names = re.search(r"STORES are(.*)COMMIT", (LAUNCH / "Dockerfile").read_text(), re.DOTALL)[1]
    (known,) = (
        ast.literal_eval(node.value)
        for node in ast.parse((ROOT / "setup.py").read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EXTRAS"
    )
    said = set(re.findall(r"gcs|s3|k8s|wandb|trackio|mlflow", names))
    assert len(said) == 6 and said <= set(known)


def test_the_image_runs_commands_of_the_package(tmp_path):
    """What is copied makes a wheel, whose program the image starts."""
    copied = [name for do, rest in instructions() if do == "COPY" for name in rest.split()[:-1]]
    for name in copied:
        path = ROOT / name
        (shutil.copytree if path.is_dir() else shutil.copy)(path, tmp_path / name)
    (tmp_path / "electra_jax" / code_version.COMMIT_FILE).write_text("0123456789ab\n")  # the RUN
    wheel = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "."]
    done = subprocess.run(wheel, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (made,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(made) as wheel:
        assert "electra_jax/configs/base.py" in wheel.namelist()
        assert wheel.read("electra_jax/_commit") == b"0123456789ab\n"
    told = dict(instructions())
    assert json.loads(told["ENTRYPOINT"]) == ["electra-jax"]
    assert 'electra-jax = "electra_jax.__main__:main"' in (ROOT / "pyproject.toml").read_text()
    assert json.loads(told["CMD"])[0] == "main"


def test_examples_of_the_files_name_what_is_there():
    """Commands in their comments: files of launch/, arguments of the Dockerfile, workdirs."""
    names = {do for do in re.findall(r"^ARG (\w+)", (LAUNCH / "Dockerfile").read_text(), re.M)}
    for path in LAUNCH.iterdir():
        if path.is_dir():
            continue
        text = path.read_text()
        for name in re.findall(r"launch/([\w.]+\w)", text):
            assert pathlib.Path(LAUNCH / name).exists(), f"{path.name}: {name}"
        for name in re.findall(r"--build-arg (\w+)=", text):
            assert name in names, f"{path.name}: {name}"
        for address in re.findall(r"(?i)workdir=(\w+:/[^\s\"*.]*)", text):
            assert buckets.is_address(address), f"{path.name}: {address} is refused"
