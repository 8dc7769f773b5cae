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
from electra_jax.core import batch as batch_lib
from electra_jax.core import trees
from electra_jax.data import vocabulary_training
from electra_jax.model import networks
from electra_jax.weights import exporting, reading
from support import odd, workdirs
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


# What a run may have that changes the lines of a forward pass.
ONE_SHAPE = {
    f"model__generator__{name}": size
    for name, size in dict(layers=2, width=32, heads=2, feed_forward=64).items()
}
KINDS = {
    "as published": {},
    "gdes": {"model__sharing": "gdes"},
    "nothing shared": {"model__sharing": "none"},
    "all shared": {"model__sharing": "all"} | ONE_SHAPE,
    "all shared, no projection": {"model__sharing": "all", "model__embedding_size": 32} | ONE_SHAPE,
    "modern": {"model__discriminator_head": "cls_context"}
    | {f"model__{name}": value for name, value in odd.MODERN.items()},
    "predicts": {"objective__name": "masked_lm"},
    "energies": {"objective__name": "electric"},
    "corrects": {"objective__name": "corrective_lm"},
    "corrects with differences": {"objective__name": "corrective_lm", "model__sharing": "gdes"},
    "a layer for detection alone": workdirs.TEAMS,
    "all shared but a layer for detection alone": workdirs.TEAMS
    | {"model__sharing": "all", "model__shared_layers": 0}
    | ONE_SHAPE,
    "a modern layer for detection alone": workdirs.TEAMS
    | {f"model__{name}": value for name, value in odd.MODERN.items()},
}


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    lines = write_corpus(tmp_path_factory.mktemp("text") / "corpus.txt").read_text().splitlines()
    return vocabulary_training.train("sentencepiece", 64, iter(lines))


@pytest.fixture(scope="module")
def workdir(tmp_path_factory, words):
    base = tmp_path_factory.mktemp("run")
    workdirs.made(base, words)
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


def lanes():
    """Ids, mask and types of three rows [3, L], two of them padded."""
    ids_BL = np.arange(15, dtype=np.int32).reshape(3, 5)
    mask_BL = np.where(np.arange(5) < [[5], [3], [1]], 1, 0).astype(np.int32)
    return ids_BL, mask_BL, ids_BL % 2


def computed(found):
    """What our own functions give for `lanes`: states, and the outputs of each head."""
    ids_BL, mask_BL, types_BL = lanes()
    places_BL = np.broadcast_to(np.arange(ids_BL.shape[1]), ids_BL.shape)
    batch = batch_lib.Batch(
        ids_BL=ids_BL,
        types_BL=types_BL,
        positions_BL=places_BL,
        documents_BL=mask_BL,
        row_B=np.zeros(3, np.uint32),
        word_starts_BL=np.zeros(ids_BL.shape, bool),
    )
    config, params = found.networks, found.params
    if "generator" not in params:
        vectors_BLE = networks.predictor_vectors(config, params, batch, places_BL)
        table_VE, bias_V = networks.predictor_table(config, params)
        return {
            "states": networks.hidden(config, params, batch),
            "scores": vectors_BLE @ table_VE.T + bias_V,
        }
    states_BLD, logits_BL = networks.discriminator_outputs(config, params, batch)
    if "left" in params["generator"]:  # two towers, which the README does not compute
        return {"states": states_BLD, "energies": logits_BL}
    scores_BLV = networks.generator_logits(config, params, batch, places_BL)
    outputs = {"states": states_BLD, "logits": logits_BL, "scores": scores_BLV}
    if "correction" in params["discriminator"]:
        vectors_BLE = networks.correction_vectors(config, params, states_BLD)
        table_VE, bias_V = networks.correction_table(config, params)
        outputs["corrections"] = vectors_BLE @ table_VE.T + bias_V
    return outputs


def test_the_older_interface_of_orbax_reads_the_same(workdir, tmp_path, stranger_python):
    exporting.to_orbax(reading.open(workdir), str(tmp_path / "params"))
    new, old, *_ = blocks((tmp_path / "params" / "README.md").read_text(encoding="utf-8"))
    found = [ask(stranger_python, tmp_path / "params", read + WHAT_IT_READ) for read in (new, old)]
    assert len(json.loads(found[0])) > 20
    assert json.loads(found[1]) == json.loads(found[0])


@pytest.mark.parametrize("kind", KINDS)
def test_the_forward_pass_of_the_readme_gives_our_outputs(words, tmp_path, stranger_python, kind):
    made, folder = tmp_path / "run", tmp_path / "params"
    made.mkdir()
    workdirs.made(made, words, **KINDS[kind])
    found = reading.open(made)
    exporting.to_orbax(found, str(folder))
    np.save(folder / "lanes.npy", np.array(lanes()))

    page = (folder / "README.md").read_text(encoding="utf-8")
    part = page.partition("## The forward pass\n")[2].partition("## With electra_jax")[0]
    forward, *heads = blocks(part)
    ours = """
import numpy as np
ids, mask, types = np.load("lanes.npy")
states = encode(tables, network, ids, mask, types)
read = {"states": states}
"""
    save = """
heads = ("logits", "energies", "scores", "corrections")
read |= {name: globals()[name] for name in heads if name in globals()}
np.savez("read.npz", **read)
"""
    ask(stranger_python, folder, "".join([blocks(page)[0], forward, ours, *heads, save]))

    real_BL = lanes()[1] == 1  # states of padding have no meaning
    with np.load(folder / "read.npz") as read:
        expected = computed(found)
        assert set(read) == set(expected)
        for name, outputs in expected.items():
            # Scores from the size of the vocabulary on belong to no token.
            theirs, own = (np.asarray(x)[real_BL][..., :64] for x in (read[name], outputs))
            np.testing.assert_allclose(theirs, own, rtol=1e-5, atol=1e-5, err_msg=name)


def test_the_guide_reads_parameters_and_program(workdir, tmp_path, stranger_python):
    """docs/guides/exports.md gives the states of a sentence, from either folder."""
    guide = (ROOT / "docs" / "guides" / "exports.md").read_text(encoding="utf-8")
    of_program = blocks(guide.partition("## A program\n")[2])[0]
    v1, v0, of_text = blocks(guide.partition("## Parameters\n")[2].partition("## A program\n")[0])
    params, program = tmp_path / "params", tmp_path / "program"
    exporting.to_orbax(reading.open(workdir), str(params))
    exporting.to_stablehlo(reading.open(workdir), str(program))
    forward = blocks((params / "README.md").read_text().partition("## The forward pass\n")[2])[0]

    save = 'np.savez("read.npz", ids=ids, states={})\n'
    ask(stranger_python, params, v1 + v0 + forward + of_text + save.format("states"))
    ask(stranger_python, program, of_program + save.format('found["tokens"]'))

    apply, ours, tokenizer = electra_jax.load_encoder(workdir)
    rows = tokenizer(["A sentence."])
    length = int(rows["mask_BL"].sum())
    expected_BLD = np.asarray(apply(ours, **rows).tokens_BLD)[:, :length]
    for folder in (params, program):
        with np.load(folder / "read.npz") as read:
            np.testing.assert_array_equal(read["ids"], rows["ids_BL"][:, :length])
            np.testing.assert_allclose(read["states"], expected_BLD, rtol=1e-5, atol=1e-5)


def test_the_checksum_of_the_readme_is_compared_there(workdir, tmp_path, stranger_python):
    exporting.to_orbax(reading.open(workdir), str(tmp_path / "params"))
    check = blocks((tmp_path / "params" / "README.md").read_text())[2]
    ask(stranger_python, tmp_path / "params", check)
    about = json.loads((tmp_path / "params" / "metadata.json").read_text())
    (tmp_path / "params" / "metadata.json").write_text(json.dumps(about | {"sha256": "0" * 64}))
    with pytest.raises(AssertionError, match="AssertionError"):
        ask(stranger_python, tmp_path / "params", check)


def test_the_tokenizer_gives_our_ids(workdir, tmp_path, stranger_python):
    found = reading.open(workdir)
    exporting.to_orbax(found, str(tmp_path / "params"))
    lines = blocks((tmp_path / "params" / "README.md").read_text())[3]
    ids = json.loads(ask(stranger_python, tmp_path / "params", f"{lines}\nprint(ids)"))
    words = found.vocabulary
    assert ids == [words.cls_id, *words.encode(["A sentence."])[0].tolist(), words.sep_id]


def test_the_program_gives_our_states(workdir, tmp_path, stranger_python):
    exporting.to_stablehlo(reading.open(workdir), str(tmp_path / "program"))
    lines = blocks((tmp_path / "program" / "README.md").read_text())[0]
    np.save(tmp_path / "program" / "lanes.npy", np.array(lanes()))
    more = """
found = encoder.call(load_file("params.safetensors"), *np.load("lanes.npy"))
np.savez("found.npz", **found)
"""
    ask(stranger_python, tmp_path / "program", lines + more)
    apply, params, _ = electra_jax.load_encoder(workdir)
    ours = apply(params, *lanes())
    with np.load(tmp_path / "program" / "found.npz") as theirs:
        np.testing.assert_allclose(theirs["tokens"], ours.tokens_BLD, atol=1e-5)
        np.testing.assert_allclose(theirs["pooled"], ours.pooled_BD, atol=1e-5)
