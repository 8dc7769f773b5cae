# SPDX-License-Identifier: Apache-2.0
"""A server of buckets on loopback, and what the runs in its bucket have in common.

A machine is a folder of copies here. What another machine needs can only come from the bucket.
"""

import pytest

from electra_jax.host import buckets, staging
from support import bucket_runs
from support.corpus import small_run, write_corpus


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """A server with the bucket `lab`."""
    pytest.importorskip("gcsfs")
    from support.bucket_server import BucketServer  # noqa: PLC0415 - only in this tier

    found = BucketServer(tmp_path_factory.mktemp("server"))
    yield found
    found.stop()


@pytest.fixture
def here(server, tmp_path, monkeypatch):
    """This process as a machine of its own."""
    for name, value in server.environment(tmp_path / "this machine").items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TENSORSTORE_GCS_HTTP_URL", raising=False)
    staging._own_root.cache_clear()
    buckets._client.cache_clear()
    yield
    staging._own_root.cache_clear()
    buckets._client().close()


@pytest.fixture(scope="session")
def config(tmp_path_factory):
    """The settings of all runs here, as a file."""
    base = tmp_path_factory.mktemp("settings")
    source = f"text:{write_corpus(base / 'corpus.txt')}"
    tree = small_run(
        source,
        "",
        schedule__steps=bucket_runs.STEPS,
        checkpoint__every=7,
        checkpoint__keep_last=2,
        evaluation__every=20,
        logging__every=1,
        logging__report_every=30,
    )
    file = base / "settings.py"
    file.write_text(
        "import ml_collections\n\n\ndef get_config():\n"
        f"    return ml_collections.ConfigDict({tree.to_dict()!r})\n"
    )
    return file


@pytest.fixture(scope="session")
def undisturbed(config, tmp_path_factory):
    """The workdir of a run on this machine's own disk."""
    workdir = tmp_path_factory.mktemp("undisturbed") / "run"
    result = bucket_runs.command("main", f"--config={config}", f"--workdir={workdir}")
    assert result.returncode == 0, result.stderr[-2000:]
    return workdir


@pytest.fixture(scope="session")
def finished(server, config, tmp_path_factory):
    """The address of a finished run; the machine that made it is gone."""
    machine = server.environment(tmp_path_factory.mktemp("first machine"))
    result = bucket_runs.command(
        "main", f"--config={config}", "--workdir=gs://lab/finished", **machine
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return "gs://lab/finished"
