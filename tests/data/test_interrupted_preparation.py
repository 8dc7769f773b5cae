# SPDX-License-Identifier: Apache-2.0
"""A preparation that is killed, refused or out of space is one line, and the next one continues."""

import dataclasses
import errno
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from electra_jax.data import planning, preparation, shard_writer, text, totals, unit_rows
from electra_jax.host import error_causes, lock
from support.digests import digests
from support.prepared import prepare, settings_for

# Kills itself when the N-th unit reports, as a machine would at the worst moment.
KILLED = """
import json, os, signal, sys
from electra_jax.data import planning, preparation, worker_pool
from electra_jax.host import safe_files
settings, root, units = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
each, whole, done = worker_pool.Workers.each, safe_files.write, []
def die():
    done.append(1)
    if len(done) == units:
        os.kill(os.getpid(), signal.SIGKILL)
def dying_each(*args):
    for found in each(*args):
        die()
        yield found
def dying_write(path, data):
    # The shards are there, the unit's own file is not.
    if "/units/" in path and path.endswith(".json"):
        die()
    whole(path, data)
if settings["workers"] > 1:
    worker_pool.Workers.each = dying_each
else:
    safe_files.write = dying_write
preparation.prepare(planning.DataSettings(**settings), root)
"""


@pytest.mark.parametrize(("workers", "units"), [(1, 1), (1, 4), (2, 2)])
def test_killed_and_run_again_gives_the_same_bytes(corpus, vocab, workers, units):
    settings = settings_for(corpus, vocab, workers=workers)
    whole = prepare(settings, corpus / "whole").directory
    arguments = [json.dumps(dataclasses.asdict(settings)), str(corpus / "killed"), str(units)]
    # Ends only when the workers, who hold its output open, have ended too.
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments],
        capture_output=True,
        timeout=120,
        check=False,
        cwd=pathlib.Path(__file__).parents[2],
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    folder = planning.folder_of(settings, str(corpus / "killed"))
    assert not os.path.exists(os.path.join(folder, "manifest.json"))
    lines = []
    assert preparation.prepare(settings, str(corpus / "killed"), lines.append) == folder
    assert (f"{units - 1} of 6 units are there already" in lines) == (workers == 1 and units > 1)
    assert digests(folder) == digests(whole)


def test_a_unit_that_was_built_with_its_moved_bound_is_not_built_again(corpus, vocab, monkeypatch):
    """The run is interrupted after both passes; only the manifest is missing."""
    settings, root = settings_for(corpus, vocab, heldout_fraction=1e-6), str(corpus / "data")

    def interrupted(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(totals, "make_manifest", interrupted)
        with pytest.raises(KeyboardInterrupt):
            preparation.prepare(settings, root, lambda line: None)

    with monkeypatch.context() as patch:
        patch.setattr(unit_rows, "build", None)  # nothing is left to build
        folder = preparation.prepare(settings, root, lambda line: None)
    assert digests(folder) == digests(prepare(settings, corpus / "whole").directory)


def test_a_full_disk_is_one_line_and_the_next_run_goes_on(corpus, vocab, monkeypatch):
    settings, root = settings_for(corpus, vocab), str(corpus / "data")
    write, units = shard_writer.ShardWriter._finish, []

    def full(writer):
        units.append(writer)
        if len(units) == 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(writer)

    monkeypatch.setattr(shard_writer.ShardWriter, "_finish", full)
    with pytest.raises(
        error_causes.MayPass, match="no space left for .*; free some or set data.dir"
    ) as error:
        preparation.prepare(settings, root, lambda line: None)
    assert "\n" not in str(error.value)
    folder = pathlib.Path(planning.folder_of(settings, root))
    assert not list(folder.rglob("*.partial"))
    assert not (folder / "manifest.json").exists()
    lines = []
    preparation.prepare(settings, root, lines.append)
    assert "2 of 6 units are there already" in lines
    assert digests(folder) == digests(prepare(settings, corpus / "whole").directory)


def test_a_shard_that_no_unit_claims_is_removed(corpus, vocab):
    settings, root = settings_for(corpus, vocab), str(corpus / "data")
    left = pathlib.Path(planning.folder_of(settings, root), "records", "train")
    left.mkdir(parents=True)
    (left / "0-00099-000.ids").write_bytes(b"left by an interruption")
    folder = preparation.prepare(settings, root, lambda line: None)
    assert digests(folder) == digests(prepare(settings, corpus / "whole").directory)


class Dying:
    """A unit of text at which its process is killed."""

    bytes = 1

    def documents(self, options, counts):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_worker_is_one_line_and_the_next_run_goes_on(corpus, vocab, monkeypatch):
    settings, root = settings_for(corpus, vocab, workers=2), str(corpus / "data")
    units = text.units
    with monkeypatch.context() as patch:
        patch.setattr(text, "units", lambda source: [*units(source)[:5], Dying()])
        with pytest.raises(ValueError, match="was killed.*run again with data.workers=1"):
            preparation.prepare(settings, root, lambda line: None)
    folder = preparation.prepare(settings, root, lambda line: None)
    assert digests(folder) == digests(prepare(settings, corpus / "whole").directory)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_s_refusal_is_the_user_s_one_line(corpus, vocab, workers):
    (corpus / "3.txt").write_bytes(b"the cat\n\na d\xffog\n")
    settings = settings_for(corpus, vocab, invalid_utf8="refuse", workers=workers)
    with pytest.raises(ValueError, match="3.txt: invalid UTF-8 near byte") as error:
        prepare(settings, corpus / "data")
    # The command line tells a refusal from a bug by where it was raised.
    assert str(error.traceback[-1].path).startswith(os.path.dirname(preparation.__file__))


def test_two_runs_do_not_write_together(corpus, vocab):
    settings, root = settings_for(corpus, vocab), str(corpus / "data")
    folder = planning.folder_of(settings, root)
    with lock.hold(os.path.join(folder, "prepare.lock"), "it"):
        with pytest.raises(error_causes.MayPass, match=f"by another run .process {os.getpid()} on"):
            preparation.prepare(settings, root, lambda line: None)
    prepare(settings, root)
