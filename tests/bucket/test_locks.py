# SPDX-License-Identifier: Apache-2.0
"""The lock of a workdir in a bucket."""

import json
import os
import subprocess
import sys
import threading

import pytest

from electra_jax.host import bucket_lock, buckets, error_causes, lock_owner, staging
from support import bucket_runs

pytestmark = pytest.mark.bucket


def test_the_lock_of_a_machine_that_vanished_is_taken(here):
    address = "gs://lab/locks/vanished"
    gone = {"host": "another-machine", "pid": 1, "at": 0}
    buckets.write(address, json.dumps(gone).encode())
    with bucket_lock.hold(address, "it", timing=bucket_runs.QUICK) as held:
        assert not held.is_lost()
    assert buckets.read(address) == b"free\n"


def test_the_lock_of_a_process_that_died_here_is_taken_at_once(here):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    address = "gs://lab/locks/died"
    owner = json.loads(bucket_lock._me("a")) | {"pid": process.pid}
    buckets.write(address, json.dumps(owner).encode())
    forever = bucket_lock.Timing(sign_of_life=1000.0, silence=1000.0)
    with bucket_lock.hold(address, "it", timing=forever):
        pass


def test_an_owner_that_lives_keeps_its_lock(here, monkeypatch):
    """Signs of life come from a thread; who asks sees one and gives up."""
    address = "gs://lab/locks/kept"
    monkeypatch.setattr(lock_owner, "runs", lambda pid, began: True)
    with bucket_lock.hold(address, "it", timing=bucket_runs.QUICK) as held:
        with pytest.raises(error_causes.MayPass, match="it is in use by another run .process "):
            with bucket_lock.hold(address, "it", timing=bucket_lock.Timing(0.02, 1000.0)):
                pass
        assert not held.is_lost()


def test_who_lost_the_lock_writes_nothing_any_more(here, tmp_path):
    """Another process has taken the lock over: no file is sent, and the error says why."""
    address = "gs://lab/lost"
    noticed = threading.Event()

    with pytest.raises(bucket_lock.Lost, match="was taken over by another process"):
        with staging.open_workdir(address) as workdir:
            os.makedirs(workdir)
            with staging.locked(workdir, workdir, "the run"):
                held = staging._copies[workdir].held
                buckets.write(f"{address}/run.lock", b'{"host": "b", "pid": 1, "at": 1}')
                held._generation = buckets.replace(f"{address}/run.lock", b"mine", held._generation)
                assert held.is_lost()
                with open(os.path.join(workdir, "metrics.jsonl"), "w") as file:
                    file.write("{}\n")
                staging.push(workdir)
                noticed.set()
    assert not noticed.is_set()
    assert "metrics.jsonl" not in buckets.listing(address)
