# SPDX-License-Identifier: Apache-2.0
"""What a run is made with stands in its workdir, in its checkpoints, and in what is exported."""

import importlib.metadata
import json
import platform
import re
import socket
import sys
import types

import jax
import numpy as np
import pytest

from electra_jax import config as config_lib
from electra_jax.host import code_version
from electra_jax.training import provenance, run_facts
from electra_jax.weights import exporting, reading
from electra_jax.workdir import metadata, starts
from support.corpus import small_run


@pytest.fixture(scope="module")
def checkpoint(finished):
    """The metadata of the last checkpoint of a finished run."""
    directory = metadata.directory(str(finished[0]))
    return metadata.read(f"{directory}/{metadata.steps(directory)[-1]}")


def test_a_run_says_what_it_trains_and_on_what(finished, monkeypatch):
    log = (finished[0] / "log.txt").read_text()
    assert re.search(r"training [\d,]{6,} parameters in float32 on \d+ x cpu", log)

    monkeypatch.setattr(provenance, "devices", lambda: "8 x TPU v5e")
    split = types.SimpleNamespace(
        state=types.SimpleNamespace(params={"generator": np.ones((2, 600)), "head": np.ones(34)}),
        plan=types.SimpleNamespace(networks=types.SimpleNamespace(dtype="bfloat16")),
        mesh=types.SimpleNamespace(shape={"data": 4, "fsdp": 1, "tensor": 2}),
    )
    said = "training 1,234 parameters in bfloat16 on 8 x TPU v5e (data 4, tensor 2)"
    assert run_facts.describe_start(split) == said


@pytest.mark.parametrize(
    ("seconds", "schedule", "said"),
    [
        (0.5, {"steps": 1000}, ""),  # the next line comes in 49 s
        (
            35.0,
            {"steps": 1000},
            "about 35 s per step: the next log line (step 100) comes in 57m10s, step 1,000 in"
            " 9h42m",
        ),
        (35.0, {"steps": 50}, "about 35 s per step: the next log line (step 50) comes in 28m00s;"),
        (
            35.0,
            {"budget": "minutes", "minutes": 60.0},
            "about 35 s per step: the next log line (step 100) comes in 57m10s;",
        ),
    ],
)
def test_slow_steps_say_early_how_long_they_take(seconds, schedule, said):
    changes = {f"schedule__{name}": value for name, value in schedule.items()}
    config = config_lib.parse(small_run("builtin", "", logging__every=100, **changes))
    line = run_facts.describe_wait(config, 2, seconds)
    assert line.startswith(said) and bool(line) == bool(said)


def test_versions_command_host_and_devices_are_those_of_this_process():
    found = provenance.of_this_start()
    assert found["python"] == platform.python_version()
    for name in ("jax", "flax", "optax", "orbax-checkpoint", "tensorstore", "numpy"):
        assert found[name] == importlib.metadata.version(name)
    assert found["hosts"] == socket.gethostname()
    assert found["devices"] == f"{jax.device_count()} x cpu"
    assert found["processes"] == 1
    assert (found.get("commit"), found["code"]) == (code_version.commit(), code_version.digest())


def test_the_compiler_of_an_accelerator_is_named_where_it_is_installed(monkeypatch):
    installed = {"libtpu": "0.0.42"}
    known = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: installed.get(name) or known(name)
    )
    found = provenance.of_this_start()
    assert found["libtpu"] == "0.0.42" and "jax-cuda13-plugin" not in found


def test_the_command_is_as_it_was_typed(monkeypatch):
    typed = ["/somewhere/bin/python3", "-m", "electra_jax.main", "--config=tiny", "--workdir=a b"]
    monkeypatch.setattr(sys, "orig_argv", typed)
    found = provenance.of_this_start()["command"]
    assert found == "python3 -m electra_jax.main --config=tiny '--workdir=a b'"


def test_start_checkpoint_and_report_say_the_same(finished, checkpoint):
    workdir, _ = finished
    (start,) = starts.read(str(workdir))
    assert checkpoint["environment"].items() <= start.items()
    page = (workdir / "report.html").read_text()
    for name in ("orbax-checkpoint", "optax", "hosts", "command"):
        assert name in page
    assert socket.gethostname() in page


def test_an_export_says_it_without_the_names_of_hosts(finished, checkpoint, tmp_path):
    exporting.to_orbax(reading.open(finished[0]), str(tmp_path / "orbax"))
    said = json.loads((tmp_path / "orbax" / "metadata.json").read_text())["environment"]
    expected = dict(checkpoint["environment"])
    del expected["hosts"]
    assert said == expected

    # An export of an export keeps it.
    exporting.to_orbax(reading.open(tmp_path / "orbax"), str(tmp_path / "again"))
    assert json.loads((tmp_path / "again" / "metadata.json").read_text())["environment"] == said


def test_a_model_card_says_it(finished, tmp_path):
    exporting.to_hugging_face(reading.open(finished[0]), str(tmp_path / "export"))
    card = (tmp_path / "export" / "discriminator" / "README.md").read_text()
    assert f"jax {jax.__version__}" in card
    assert f"| trained on | {jax.device_count()} x cpu, processes: 1 |" in card
    assert "| command | `" in card
    assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", card)
