# SPDX-License-Identifier: Apache-2.0
"""launch/local.sh: which processes it starts, with which GPUs, and how they end."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys

import pytest

from support.corpus import ROOT

SCRIPT = ROOT / "launch" / "local.sh"
# Says that it runs, and ends with the code of its number: at once, or at SIGTERM.
PROCESS = """#!/usr/bin/env bash
trap 'kill $!; exit {code}' TERM
[[ "$1 $2" == "-m electra_jax.main" ]] || exit 99
all="$*"
number=${{all##*--process_id=}}
number=${{number%% *}}
echo "$number $JAX_LOCAL_DEVICE_IDS ${{*: -1}}"
{does}
exit {code}
"""


def local(*arguments, programs=None, **env):
    """Starts the script, with the programs of a folder before all others."""
    path = os.pathsep.join([*([str(programs)] if programs else []), os.environ["PATH"]])
    return subprocess.Popen(
        ["bash", str(SCRIPT), *arguments], env=os.environ | {"PATH": path} | env,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.fixture
def programs(tmp_path):
    """Makes programs for the PATH: {name: text of a script}."""

    def make(**texts):
        for name, text in texts.items():
            (tmp_path / name.replace("_", "-")).write_text(text)
            (tmp_path / name.replace("_", "-")).chmod(0o755)
        return tmp_path

    return make


def shown(*arguments, **more):
    out, err = local("--dry-run", *arguments, **more).communicate(timeout=20)
    assert err == ""
    return out.splitlines()


def test_one_process_is_the_plain_command():
    assert shown("--config=tiny") == ["python3 -m electra_jax.main --config=tiny "]
    assert shown("--", "--config=tiny") == shown("--config=tiny")


def test_several_share_the_gpus_of_the_machine(programs):
    smi = programs(nvidia_smi="#!/bin/sh\n[ $1 = --list-gpus ] && printf 'GPU 0\\nGPU 1\\n'\n")
    lines = shown("--processes=2", "--port=99", "--", "--config=tiny", programs=smi)
    for number, line in enumerate(lines):
        assert line == (
            f"env JAX_LOCAL_DEVICE_IDS={number} python3 -m electra_jax.main"
            " --coordinator_address=127.0.0.1:99 --num_processes=2"
            f" --process_id={number} --config=tiny "
        )
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("visible", "shares"),
    [("4,5,6,7", [r"0\,1", r"2\,3"]), ("4,5", ["0", "1"]), ("", [None, None])],
)
def test_only_visible_gpus_are_shared(visible, shares):
    lines = shown("--processes=2", "--", "--config=tiny", CUDA_VISIBLE_DEVICES=visible)
    found = [re.findall(r"JAX_LOCAL_DEVICE_IDS=(\S+)", line) for line in lines]
    assert found == [[share] if share else [] for share in shares]


def test_the_port_is_one_that_is_free(programs):
    """Python is asked for it, which gives none that is taken."""
    asks = f'#!/bin/sh\nexec {sys.executable} "$@" | tee -a {{0}}\n'
    folder = programs(python3=asks.format(programs() / "said"))
    ports = []
    with contextlib.ExitStack() as taken:
        for _ in range(2):
            flags = ("--processes=2", "--gpus=0", "--", "--config=tiny")
            lines = shown(*flags, programs=folder)
            (port,) = {re.search(r"=127\.0\.0\.1:(\d+) ", line)[1] for line in lines}
            taken.enter_context(socket.create_server(("127.0.0.1", int(port))))
            ports.append(port)
    assert (folder / "said").read_text().split() == ports and len(set(ports)) == 2


def test_a_signal_goes_on_to_all_and_the_first_code_is_returned(programs):
    waits = PROCESS.format(code="$((number))", does="sleep 1000 & wait")
    flags = ("--processes=3", "--gpus=6", "--port=99", "--", "--config=tiny")
    process = local(*flags, programs=programs(python3=waits))
    said = sorted(process.stdout.readline() for _ in range(3))
    assert said == [f"{n} {2 * n},{2 * n + 1} --config=tiny\n" for n in range(3)]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 1  # of the second


def test_where_all_end_well_it_ends_well(programs):
    process = local("--config=tiny", programs=programs(python3=PROCESS.format(code=0, does=":")))
    process.communicate(timeout=20)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give the flags of electra_jax.main"),
        (["--processes=2"], "give the flags of electra_jax.main"),
        (["--processes=0", "--", "--config=a"], "--processes=0 is not 1 or more"),
        (["--gpus=all", "--", "--config=a"], "--gpus=all is no number"),
        (["--port=x", "--", "--config=a"], "--port=x is no number of 1 to 65535"),
        (["--port=99999", "--", "--config=a"], "--port=99999 is no number of 1 to 65535"),
        (["--processes=3", "--gpus=8", "--", "--config=a"], "3 processes cannot share 8 GPUs"),
    ],
)
def test_bad_options_are_one_line(arguments, words):
    process = local(*arguments)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 2 and out == ""
    assert err.startswith(f"error: {words}") and err.count("\n") == 1
