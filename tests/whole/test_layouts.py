# SPDX-License-Identifier: Apache-2.0
"""Design C.13: one device, eight devices in three meshes, and two and four real processes agree.

Rows, slots, keep/mask decisions and uniforms bit for bit, sampled ids at the first step, losses to
rounding; accumulation of two halves equals one whole batch. Whole runs over the borders of stages.
"""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from electra_jax import config as config_lib
from electra_jax.report import writers
from support.commands import free_port
from support.corpus import ROOT, small_run, write_corpus

pytestmark = pytest.mark.slow

STEPS = 3
LAYOUTS = {  # name -> devices a process, mesh, accumulation, processes
    "one": (1, "1,1,1", 1, 1),
    "accumulated": (1, "1,1,1", 2, 1),
    "data 8": (8, "8,1,1", 1, 1),
    "fsdp 8": (8, "1,8,1", 1, 1),
    "2 x 2 x 2": (8, "2,2,2", 1, 1),
    "2 x 2 x 2 accumulated": (8, "2,2,2", 2, 1),
    "2 x 2 x 2 in two slices": (8, "2,2,2,2", 1, 1),
    "two processes": (2, "2,2,1", 1, 2),
    "tensor over two processes": (1, "1,1,2", 1, 2),
    "fsdp and tensor over four processes": (1, "1,2,2", 1, 4),
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """What each layout found: {layout: {name: array}}."""
    base = tmp_path_factory.mktemp("layouts")
    corpus = write_corpus(base / "corpus.txt")
    found = {}
    for name, (devices, mesh, accumulation, processes) in LAYOUTS.items():
        out, workdir = base / f"{name}.npz", base / name
        arguments = [out, corpus, base / "data", workdir, STEPS, devices, mesh, accumulation]
        port = free_port()
        started = [
            subprocess.Popen(
                [
                    sys.executable,
                    str(ROOT / "tests" / "workers" / "layout_worker.py"),
                    *map(str, arguments),
                    *([str(port), str(processes), str(number)] if processes > 1 else []),
                ],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
                stderr=subprocess.PIPE,
                text=True,
            )
            for number in range(processes)
        ]
        for process in started:
            _, errors = process.communicate(timeout=600)
            assert process.returncode == 0, errors[-3000:]
        found[name] = dict(np.load(out))
    return found


OTHERS = [name for name in LAYOUTS if name != "one"]


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("what", ["ids", "slots", "used", "masked", "uniforms"])
def test_decisions_are_equal_bit_for_bit(ran, name, what):
    for step in range(STEPS):
        np.testing.assert_array_equal(ran[name][f"{what}/{step}"], ran["one"][f"{what}/{step}"])


@pytest.mark.parametrize("name", OTHERS)
def test_sampled_ids_are_equal(ran, name):
    """Promised at the first step, and at most one flip in 10,000 later; there are 64 per step."""
    for step in range(STEPS):
        np.testing.assert_array_equal(ran[name][f"sampled/{step}"], ran["one"][f"sampled/{step}"])


@pytest.mark.parametrize("name", OTHERS)
def test_losses_are_equal_to_rounding(ran, name):
    for step in range(STEPS):
        for metric in ("loss", "gen_loss", "disc_loss", "grad_norm", "masked_rate"):
            key = f"sums/{metric}/{step}"
            np.testing.assert_allclose(ran[name][key], ran["one"][key], rtol=2e-5, err_msg=key)


@pytest.mark.parametrize("name", OTHERS)
def test_parameters_stay_together(ran, name):
    """Adam turns the rounding of a gradient near zero into a step of the learning rate's size."""
    rate = 1e-3
    for key, value in ran["one"].items():
        if key.startswith("params/"):
            np.testing.assert_allclose(ran[name][key], value, atol=2 * rate, err_msg=key)
            assert np.abs(ran[name][key] - value).mean() < rate / 20, key


def test_slices_change_no_bit(ran):
    """On CPU devices: two slices of four have the same mesh as eight devices of one."""
    one, two = ran["2 x 2 x 2"], ran["2 x 2 x 2 in two slices"]
    assert one.keys() == two.keys()
    for key, value in one.items():
        np.testing.assert_array_equal(two[key], value, err_msg=key)


def test_the_table_really_splits_parameters(ran):
    assert "('tensor', 'fsdp')" in ran["2 x 2 x 2"]["specs"]
    assert "(None, 'fsdp', 'tensor')" in ran["fsdp 8"]["specs"]


def test_rows_are_shown_by_one_device(ran):
    """Kernels of accelerators cannot be split over several without the step's mesh."""
    assert ran["2 x 2 x 2"]["shown_on"] == ran["fsdp 8"]["shown_on"] == 1


@pytest.fixture(scope="module")
def objectives():
    """{objective: [sums on one device, sums on 2 x 2 x 2, what goes along the data axis there]},
    two micro-batches each."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8"
        " --xla_backend_optimization_level=0",  # compiling is what costs
    }
    command = [sys.executable, str(ROOT / "tests" / "workers" / "objectives_worker.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "name",
    [
        "decoupled_detection",
        "adversarial_generator",
        "electric",
        "multi_word_selection",
        "corrective_lm",
    ],
)
def test_other_objectives_are_the_same_on_one_device_and_on_eight(objectives, name):
    one, eight, _ = objectives[name]
    assert set(one) == set(eight)
    for metric, expected in one.items():
        np.testing.assert_allclose(eight[metric], expected, rtol=1e-4, atol=1e-5, err_msg=metric)


def test_along_the_data_axis_go_the_gradients_once_and_nothing_else(objectives):
    """Of two micro-batches: a device sends as many bytes as its parameters have, and the sums."""
    for name, (_, _, (sent, parameters)) in objectives.items():
        assert set(sent) == {"all-reduce"}, name
        assert 0 <= sent["all-reduce"] - parameters < 1000, name


MESHES = {"one": (1, 1, 1), "2 x 2 x 2": (2, 2, 2)}


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    """{mesh: (rows of metrics.jsonl, log)} of whole runs: steps 1 and 2 take 8 rows of 16 tokens,
    steps 3 and 4 take 16 rows of 32."""
    base, found = tmp_path_factory.mktemp("staged"), {}
    text = f"text:{write_corpus(base / 'corpus.txt')}"
    for name, (data, fsdp, tensor) in MESHES.items():
        workdir = base / name
        workdir.mkdir()
        config = small_run(
            text, str(base / "data"), data__sequence_length=16,
            schedule__steps=4, schedule__stages=((0.5, 32, 16),), logging__every=1,
            evaluation__every=4, checkpoint__every=4, model__discriminator__layers=1,
            mesh__data=data, mesh__fsdp=fsdp, mesh__tensor=tensor,
        )  # fmt: skip
        (workdir / "config.json").write_text(config_lib.to_json(config_lib.parse(config)))
        environment = os.environ | {
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={data * fsdp * tensor}"
            " --xla_backend_optimization_level=0",  # compiling is what costs
        }
        command = [sys.executable, "-m", "electra_jax.main", f"--workdir={workdir}"]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        found[name] = (
            writers.read(str(workdir / "metrics.jsonl")),
            (workdir / "log.txt").read_text(),
        )
    return found


@pytest.mark.parametrize("name", ["2 x 2 x 2"])
def test_stages_are_the_same_on_one_device_and_on_eight(staged, name):
    (one, _), (eight, log) = staged["one"], staged[name]
    assert "stage 2 of 2 from step 3 on: 16 rows of 32 tokens per step" in log
    assert [(row["step"], row["kind"]) for row in eight] == [
        (1, "train"), (2, "train"), (3, "train"), (4, "train"), (4, "eval"),
    ]  # fmt: skip
    for ours, expected in zip(eight, one, strict=True):
        for metric in ("tokens_seen", "epoch", "learning_rate", "masked_rate"):
            assert ours.get(metric) == expected.get(metric), (ours["step"], metric)
        for metric in ("loss", "gen_loss", "disc_loss", "grad_norm", "gen_masked_loss"):
            if metric in expected:
                what = f"{metric} at step {ours['step']}, {ours['kind']}"
                np.testing.assert_allclose(ours[metric], expected[metric], rtol=2e-5, err_msg=what)
