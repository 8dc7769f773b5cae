# SPDX-License-Identifier: Apache-2.0
"""What several tests of commands share: a made-up workdir that is read, and a second process."""

import pytest

from electra_jax.host import processes
from electra_jax.training import trained_run
from electra_jax.weights import exporting, reading
from support import workdirs


@pytest.fixture(scope="session")
def words(tmp_path_factory):
    return workdirs.small_vocabulary(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="session")
def workdir(words, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "made"
    workdirs.made(path, words)
    return path


@pytest.fixture(scope="session")
def folder(workdir, tmp_path_factory):
    """The Hugging Face folder of that workdir."""
    out = tmp_path_factory.mktemp("out") / "folder"
    exporting.to_hugging_face(reading.open(workdir), str(out))
    return out


@pytest.fixture
def second_process(monkeypatch):
    """Who has opened a workdir, together with the first process, is not the first from then on."""
    whole = trained_run.open

    def by_the_second(*given, **more):
        found = whole(*given, **more)
        monkeypatch.setattr(processes, "is_first", lambda: False)
        return found

    monkeypatch.setattr(trained_run, "open", by_the_second)
