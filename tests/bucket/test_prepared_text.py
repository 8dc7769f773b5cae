# SPDX-License-Identifier: Apache-2.0
"""Text and rows in a bucket, prepared by one process and by two."""

import json
import os
import signal
import socket

import pytest

from electra_jax.host import bucket_lock, buckets
from support import bucket_runs
from support.commands import free_port, read_until
from support.corpus import write_corpus
from support.digests import digests

pytestmark = pytest.mark.bucket


def test_two_processes_prepare_together_and_another_machine_goes_on(server, tmp_path):
    """The second is killed in the middle of its share. What is finished is in the bucket."""
    for number in range(12):
        write_corpus(tmp_path / f"{number:02d}.txt", 1000, seed=max(1, number))
    settings = [
        "--config=configs/tiny.py",
        f"--config.data.source=text:{tmp_path}/*.txt",
        "--config.data.vocab=train:wordpiece:100",
        "--config.data.deduplicate=True",
        "--config.data.workers=1",  # the process does its share itself, and can be halted
        "--config.data.heldout_fraction=0.000001",  # one unit is built twice
    ]
    result = bucket_runs.command("prepare", *settings, f"--workdir={tmp_path / 'alone'}")
    assert result.returncode == 0, result.stderr[-2000:]
    alone = digests(tmp_path / "alone" / "data")

    def start(address):
        port = free_port()
        return [
            bucket_runs.start(
                "prepare", *settings, f"--workdir={address}", "--num_processes=2",
                f"--coordinator_address=127.0.0.1:{port}", f"--process_id={number}",
                **server.environment(tmp_path / f"host {number}"),
            )
            for number in range(2)
        ]  # fmt: skip

    both = start("gs://lab/together")
    said = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert "cutting rows: 6 of 12 units in this process" in said[1]
    assert server.digests("together/data") == alone

    both = start("gs://lab/halted")
    read_until(both[1], "cutting rows: 6 of 12 units in this process")
    both[1].send_signal(signal.SIGSTOP)
    read_until(both[0], "waiting for process 1")  # its own six units are done
    both[1].kill()
    for process in both:
        process.communicate()
    machine = server.environment(tmp_path / "third")
    result = bucket_runs.command("prepare", *settings, "--workdir=gs://lab/halted", **machine)
    assert result.returncode == 0, result.stderr[-2000:]
    there = next(line for line in result.stderr.splitlines() if "are there already" in line)
    assert 6 <= int(there.split()[1]) < 12
    assert server.digests("halted/data") == alone


def test_text_and_prepared_data_in_a_bucket(server, config, here, undisturbed, tmp_path):
    """Text and vocabulary are read from the bucket; the rows go there and are those of a disk."""
    tree = json.loads((undisturbed / "config.json").read_text())
    buckets.upload(tree["data"]["source"].removeprefix("text:"), "gs://lab/text/corpus.txt")
    (own,) = (undisturbed / "data").iterdir()
    (words,) = (path for path in (own / "vocab").iterdir() if path.suffix in (".model", ".txt"))
    buckets.upload(str(words), f"gs://lab/text/{words.name}")

    def prepare(name):
        return bucket_runs.command(
            "prepare", f"--config={config}", f"--workdir={tmp_path / name}",
            "--config.data.source=text:gs://lab/text/corpus.txt",
            "--config.data.dir=gs://lab/rows", f"--config.data.vocab=gs://lab/text/{words.name}",
            **server.environment(tmp_path / f"machine of {name}"),
        )  # fmt: skip

    result = prepare("run")
    assert result.returncode == 0, result.stderr[-2000:]
    (manifest,) = (name for name in server.names("rows") if name.endswith("manifest.json"))
    rows = server._folder / "lab" / "rows" / os.path.dirname(manifest) / "records"
    for path in sorted(rows.rglob("*.*")):
        assert path.read_bytes() == (own / "records" / path.relative_to(rows)).read_bytes()

    # As long as one prepares them, another machine is refused.
    buckets.remove(f"gs://lab/rows/{manifest}")
    folder = f"gs://lab/rows/{os.path.dirname(manifest)}"
    with bucket_lock.hold(f"{folder}/prepare.lock", "it", timing=bucket_runs.QUICK):
        result = prepare("other")
    assert result.returncode == 1, result.stderr[-2000:]
    refusal = result.stderr.splitlines()[-1]
    owner = f"process {os.getpid()} on {socket.gethostname()}, last sign of life 20"
    assert refusal.startswith(f"error: the data folder {folder} is in use by another run ({owner}")
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["run.lock"]
