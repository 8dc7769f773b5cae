# SPDX-License-Identifier: Apache-2.0
"""Two real processes over loopback, through the real command, over the border of two stages."""

import os
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest
from corpus import ROOT, small_run, write_corpus

import electra_jax
from electra_jax import checkpoint, writers
from electra_jax import config as config_lib

pytestmark = pytest.mark.slow

STEPS = 60


def start_two(workdir, *flags):
    """Both processes of a run; the flags go to the first alone."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "electra_jax.main",
                f"--workdir={workdir}",
                f"--coordinator_address=127.0.0.1:{port}",
                "--num_processes=2",
                f"--process_id={number}",
                *(flags if number == 0 else ()),
            ],
            cwd=ROOT,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """(config, workdir) of a run of one process."""
    base = tmp_path_factory.mktemp("processes")
    config = small_run(
        f"text:{write_corpus(base / 'corpus.txt')}",
        str(base / "data"),
        schedule__steps=STEPS,
        checkpoint__every=50,
        evaluation__every=STEPS,
        schedule__stages=((0.05, 16, 16),),  # from the fourth step on
        logging__every=1,
    )
    electra_jax.train(config, base / "alone")
    return config, base / "alone"


def begin(workdir, config):
    os.makedirs(workdir)
    (workdir / "config.json").write_text(config_lib.to_json(config_lib.parse(config)))


def test_sigterm_to_one_stops_both_at_one_step_and_one_process_goes_on(alone, tmp_path):
    config, undisturbed = alone
    workdir = tmp_path / "two"
    begin(workdir, config)
    first, second = start_two(workdir)
    for line in first.stderr:
        if f"step  9/{STEPS}" in line:
            break
    second.send_signal(signal.SIGTERM)
    said = [process.communicate()[1] for process in (first, second)]
    assert [process.returncode for process in (first, second)] == [0, 0], said
    (stopped,) = checkpoint.steps(workdir / "checkpoints")
    assert 9 <= stopped < STEPS
    assert all(f"stopped and saved at step {stopped}" in text for text in said)
    log = (workdir / "log.txt").read_text()
    assert "stage 2 of 2 from step 4 on: 16 rows of 16 tokens a step" in log

    electra_jax.train(config, workdir)  # one process goes on where two stopped
    loss = {
        where: {r["step"]: r["loss"] for r in writers.read(where / "metrics.jsonl")}
        for where in (workdir, undisturbed)
    }
    assert list(loss[workdir]) == list(loss[undisturbed])
    np.testing.assert_allclose(
        list(loss[workdir].values()), list(loss[undisturbed].values()), rtol=1e-3
    )


def test_processes_with_other_settings_are_refused(alone, tmp_path):
    config, _ = alone
    workdir = tmp_path / "unequal"
    begin(workdir, config)
    both = start_two(workdir, "--config.logging.every=3")
    said = [process.communicate()[1] for process in both]
    assert all(process.returncode != 0 for process in both)
    assert any("processes were started with different settings" in text for text in said), said
    assert not checkpoint.steps(workdir / "checkpoints")
