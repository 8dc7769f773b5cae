# SPDX-License-Identifier: Apache-2.0
"""Addresses in a bucket and the paths of their copies; a folder stands in for the bucket."""

import importlib.util
import os
import subprocess
import sys

import pytest

from electra_jax.host import buckets, staging
from support.folder_bucket import FolderBucket


@pytest.fixture(autouse=True)
def a_cache_of_its_own(tmp_path, monkeypatch):
    """The copies of this process lie in a folder of the test."""
    monkeypatch.setenv("ELECTRA_JAX_CACHE", str(tmp_path / "cache"))
    staging._own_root.cache_clear()
    yield
    staging._own_root.cache_clear()


def test_an_address_and_the_path_of_its_copy_lead_to_each_other(tmp_path):
    here = staging.local("gs://lab/runs/base/")
    assert here == f"{tmp_path}/cache/buckets/0/lab/runs/base"
    assert staging.address(here) == "gs://lab/runs/base"
    assert staging.place(os.path.join(here, "checkpoints")) == "gs://lab/runs/base/checkpoints"


@pytest.mark.parametrize("path", ["runs/base", "/data/lab/runs", "."])
def test_other_paths_stay_as_they_are(path):
    assert staging.local(path) == path
    assert staging.address(path) == ""
    assert staging.place(path) == path


def test_the_folder_of_copies_itself_has_no_address(tmp_path):
    for path in ("cache", "cache/buckets", "cache/buckets/0", "cache/text/1"):
        assert staging.address(str(tmp_path / path)) == ""


def test_users_read_addresses(tmp_path):
    here = staging.local("gs://lab/runs/base")
    line = f"no checkpoint in {here}/checkpoints; look at file://{here}/report.html"
    assert staging.named(line) == (
        "no checkpoint in gs://lab/runs/base/checkpoints; look at gs://lab/runs/base/report.html"
    )
    assert staging.named(f"nothing in {tmp_path}/runs") == f"nothing in {tmp_path}/runs"


def test_a_second_process_has_copies_of_its_own(tmp_path):
    mine = staging.local("gs://lab/run")
    code = "from electra_jax.host import staging; print(staging.local('gs://lab/run'))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    theirs = result.stdout.strip()
    assert theirs == f"{tmp_path}/cache/buckets/1/lab/run" != mine
    assert staging.address(theirs) == "gs://lab/run"


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("gs://", "names no folder of a bucket; write gs://BUCKET/FOLDER"),
        ("gs://lab", "names no folder of a bucket"),
        ("gs://lab/", "names no folder of a bucket"),
        ("gs:///runs", "names no folder of a bucket"),
        ("gs://lab/a//b", "names no folder of a bucket"),
        ("gs://lab/../b", "names no folder of a bucket"),
        ("gs://lab/lr=1e-3,bs=[8]", "has [ ] in it, which libraries take for patterns"),
        ("gs://lab/a\\b", "has \\ in it"),
    ],
)
def test_addresses_that_cannot_be_used(address, says):
    with pytest.raises(ValueError, match="^--workdir=") as refusal:
        buckets.check(address, "--workdir")
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_without_the_extra_one_line_names_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="needs gcsfs.*: pip install 'gcsfs' 'google-cloud-stor"):
        buckets.check("gs://lab/run", "--workdir")


def test_what_a_run_sends_while_a_reader_fetches_stays(tmp_path, monkeypatch):
    """The reader lists version 1 and fetches version 2, and changes neither."""
    bucket = FolderBucket(tmp_path, monkeypatch)
    file = tmp_path / "run" / "metrics.jsonl"
    file.parent.mkdir()
    file.write_text("step 1\n")
    sent = []
    monkeypatch.setattr(buckets, "upload", lambda path, address: sent.append(address))

    def download(address, path):
        file.write_text("step 1\nstep 2\n")
        bucket.download(address, path)

    monkeypatch.setattr(buckets, "download", download)
    with staging.open_workdir("gs://lab/run") as workdir:
        file.write_text("step 1\nstep 2\nstep 3\n")
        with open(os.path.join(workdir, "page.html"), "w") as made:
            made.write("what the reader makes")
    assert sent == ["gs://lab/run/page.html"]


def test_a_link_to_nothing_ends_no_run(tmp_path, monkeypatch):
    FolderBucket(tmp_path, monkeypatch)
    (tmp_path / "run").mkdir()
    sent = []
    monkeypatch.setattr(buckets, "upload", lambda path, address: sent.append(address))
    with staging.open_workdir("gs://lab/run") as workdir:
        os.makedirs(workdir)
        os.symlink("nothing", os.path.join(workdir, "latest"))
        with open(os.path.join(workdir, "metrics.jsonl"), "w") as made:
            made.write("{}\n")
    assert sent == ["gs://lab/run/metrics.jsonl"]
