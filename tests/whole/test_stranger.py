# SPDX-License-Identifier: Apache-2.0
"""Exports in a stranger's hands: a Python of its own, with what their READMEs name and none of us.

It runs the lines of the READMEs and of docs/weights.md as they stand there, in the folder that was
written, and says what it has got.
"""

import hashlib
import json
import os
import re
import subprocess

import jax
import numpy as np
import pytest

import electra_jax
from electra_jax.core import trees
from electra_jax.data import vocabulary_training
from electra_jax.weights import exporting, reading
from support import workdirs
from support.corpus import ROOT, write_corpus

pytestmark = pytest.mark.stranger

ALONE = """
import importlib.util
for name in ("electra_jax", "flax", "optax"):
    assert importlib.util.find_spec(name) is None, name
"""
WHAT_IT_READ = """
import hashlib, json

def leaves(tree, path=""):
    if not isinstance(tree, dict):
        digest = hashlib.sha256(tree.tobytes()).hexdigest()
        yield path[1:], [list(tree.shape), tree.dtype.name, digest]
        return
    for name in tree:
        yield from leaves(tree[name], f"{path}/{name}")

print(json.dumps(dict(leaves(params))))
"""


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    base = tmp_path_factory.mktemp("run")
    lines = write_corpus(base / "corpus.txt").read_text().splitlines()
    workdirs.made(base, vocabulary_training.train("sentencepiece", 64, iter(lines)))
    return base


def blocks(text):
    """The Python in a page of Markdown."""
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def ask(python, folder, code):
    """What these lines print, without our environment, and with warnings as errors."""
    done = subprocess.run(
        [python, "-I", "-W", "error", "-c", ALONE + code],
        cwd=folder,
        env={name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("only", [None, "discriminator"])
def test_five_lines_of_orbax_read_every_parameter(workdir, tmp_path, stranger_python, only):
    exporting.to_orbax(reading.open(workdir), str(tmp_path / "params"), only)
    page = (ROOT / "docs" / "weights.md").read_text(encoding="utf-8")
    lines = blocks(page.partition("\n## Parameters for others\n")[2])[0]
    assert lines == blocks((tmp_path / "params" / "README.md").read_text())[0]
    assert len(lines.strip().splitlines()) <= 5
    read = json.loads(ask(stranger_python, tmp_path / "params", lines + WHAT_IT_READ))
    found = reading.open(workdir)
    trained = jax.device_get((found.alone(only) if only else found).params)
    assert read == {
        path: [list(x.shape), "float32", hashlib.sha256(x.tobytes()).hexdigest()]
        for path, x in trees.flat(trained).items()
    }


def test_the_checksum_of_the_readme_is_compared_there(workdir, tmp_path, stranger_python):
    exporting.to_orbax(reading.open(workdir), str(tmp_path / "params"))
    check = blocks((tmp_path / "params" / "README.md").read_text())[1]
    ask(stranger_python, tmp_path / "params", check)
    about = json.loads((tmp_path / "params" / "metadata.json").read_text())
    (tmp_path / "params" / "metadata.json").write_text(json.dumps(about | {"sha256": "0" * 64}))
    with pytest.raises(AssertionError, match="AssertionError"):
        ask(stranger_python, tmp_path / "params", check)


def test_the_tokenizer_gives_our_ids(workdir, tmp_path, stranger_python):
    found = reading.open(workdir)
    exporting.to_orbax(found, str(tmp_path / "params"))
    lines = blocks((tmp_path / "params" / "README.md").read_text())[2]
    ids = json.loads(ask(stranger_python, tmp_path / "params", f"{lines}\nprint(ids)"))
    words = found.vocabulary
    assert ids == [words.cls_id, *words.encode(["A sentence."])[0].tolist(), words.sep_id]


def test_the_program_gives_our_states(workdir, tmp_path, stranger_python):
    exporting.to_stablehlo(reading.open(workdir), str(tmp_path / "program"))
    lines = blocks((tmp_path / "program" / "README.md").read_text())[0]
    ids_BL = np.arange(15).reshape(3, 5)
    mask_BL = np.where(np.arange(5) < [[5], [3], [1]], 1, 0)
    types_BL = ids_BL % 2
    np.save(tmp_path / "program" / "lanes.npy", np.array([ids_BL, mask_BL, types_BL], np.int32))
    more = """
found = encoder.call(load_file("params.safetensors"), *np.load("lanes.npy"))
np.savez("found.npz", **found)
"""
    ask(stranger_python, tmp_path / "program", lines + more)
    apply, params, _ = electra_jax.load_encoder(workdir)
    ours = apply(params, ids_BL, mask_BL, types_BL)
    with np.load(tmp_path / "program" / "found.npz") as theirs:
        np.testing.assert_allclose(theirs["tokens"], ours.tokens_BLD, atol=1e-5)
        np.testing.assert_allclose(theirs["pooled"], ours.pooled_BD, atol=1e-5)
