# SPDX-License-Identifier: Apache-2.0
"""On which devices a run is read, and that preparing its text opens none."""

import json
import os
import subprocess
import sys

import pytest

from support import corpus


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What a process with four devices finds."""
    base = tmp_path_factory.mktemp("opened")
    text = corpus.write_corpus(base / "corpus.txt")
    folders = [str(corpus.ROOT), str(corpus.ROOT / "tests")]
    done = subprocess.run(
        [sys.executable, str(corpus.ROOT / "tests/workers/opened_worker.py"), text, base],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(folders), "JAX_PLATFORMS": "cpu"},
        cwd=corpus.ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_preparing_text_opens_no_device(found):
    """Otherwise nothing else could use the chips of a machine for hours."""
    assert found["opened_to_prepare"] is False


@pytest.mark.slow
def test_a_run_of_several_devices_is_read_on_one_and_evaluated_on_all(found):
    """Kernels of accelerators cannot be divided without the mesh of a step."""
    assert found["devices"] == [1] and found["evaluated_on"] == [4]
    assert (found["shown"], found["scores"]) == (2, 1)
