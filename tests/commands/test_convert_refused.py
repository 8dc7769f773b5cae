# SPDX-License-Identifier: Apache-2.0
"""Conversions that are refused or fail: one line that says why, and nothing is written."""

import shutil

import numpy as np
import pytest

from electra_jax import config as config_lib
from electra_jax import convert as convert_command
from electra_jax.data import vocabulary
from electra_jax.weights import exporting, importing, reading
from electra_jax.weights.formats import tensor_files
from support import workdirs
from support.changed_files import json_change, tensor_change
from support.commands import convert, convert_flags


def damaged(folder, tmp_path, name, change):
    """A copy of the folder with one file changed."""
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    change(copy / name)
    return copy


BIAS = "electra.embeddings.LayerNorm.bias"
DAMAGES = {
    "a tensor is missing": (
        "discriminator/model.safetensors",
        tensor_change(lambda t: t.pop(BIAS)),
        f"copy/discriminator: tensor {BIAS} is missing",
    ),
    "a tensor is too many": (
        "generator/model.safetensors",
        tensor_change(lambda t: t.update(extra=np.zeros(2, np.float32))),
        "copy/generator: tensor extra is not one of ElectraForMaskedLM's",
    ),
    "a tensor has another shape": (
        "discriminator/model.safetensors",
        tensor_change(lambda t: t.update({BIAS: np.zeros(15, np.float32)})),
        rf"copy/discriminator: tensor {BIAS} has shape \(15,\), but config.json makes it \(16,\)",
    ),
    "the file is cut off": (
        "generator/model.safetensors",
        lambda path: path.write_bytes(path.read_bytes()[:-9]),
        "generator/model.safetensors: damaged or cut off",
    ),
    "the file is a pickle that runs something": (
        "discriminator/model.safetensors",
        lambda path: (
            path.unlink(),
            (path.parent / "pytorch_model.bin").write_bytes(b"cposix\nmkdir\n(Vtrap\ntR."),
        ),
        "discriminator/pytorch_model.bin: no archive of tensors: it holds the instruction UNICODE",
    ),
    "another architecture": (
        "discriminator/config.json",
        json_change(architectures=["ElectraForMultipleChoice"]),
        "discriminator/config.json: architectures=.'ElectraForMultipleChoice'. is none of",
    ),
    "another vocabulary": (
        "discriminator/config.json",
        json_change(vocab_size=50),
        "has 50 rows for a vocabulary of 64",
    ),
    "the vocabulary of a larger one": (
        "discriminator/config.json",
        json_change(vocab_size=64 + 1025),
        "has 1089 rows for a vocabulary of 64; at most 1024 can be padding",
    ),
    "another tokenizer": (
        "generator/vocab/vocabulary.json",
        lambda path: vocabulary.Vocabulary(
            "wordpiece", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n", True, True
        ).save(str(path.parent)),
        "have different vocabularies; they are no pair",
    ),
    "no pair": (
        "generator/config.json",
        json_change(embedding_size=8),
        "differ in embedding_size: 16 and 8; they are no pair",
    ),
    "a damaged vocabulary": (
        "discriminator/vocab/vocabulary.json",
        lambda path: path.write_text("{"),
        "vocabulary.json is damaged",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_input_is_one_line_and_writes_nothing(folder, tmp_path, damage, monkeypatch):
    name, change, message = DAMAGES[damage]
    monkeypatch.chdir(tmp_path)
    copy = damaged(folder, tmp_path, name, change)
    with pytest.raises(config_lib.ConfigError, match=message) as error:
        importing.to_workdir(str(copy), workdirs.recipe(), str(tmp_path / "run"))
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


def test_what_fails_halfway_leaves_nothing(workdir, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(tensor_files, "write", fail)
    with pytest.raises(OSError, match="no space left"):
        exporting.to_hugging_face(reading.open(workdir), str(tmp_path / "hf"))
    assert not list(tmp_path.iterdir())


def test_what_is_there_is_not_written_over(workdir, tmp_path):
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "mine").write_text("kept")
    with pytest.raises(ValueError, match="hf is there already; choose another folder"):
        exporting.to_hugging_face(reading.open(workdir), str(tmp_path / "hf"))
    assert (tmp_path / "hf" / "mine").read_text() == "kept"


@pytest.mark.parametrize("dash", ["--", "-"])
def test_bad_input_is_one_line_and_exit_code_2(tmp_path, dash):
    flags = (f"from={tmp_path}", "to=orbax", f"out={tmp_path / 'x'}")
    done = convert(*(f"{dash}{flag}" for flag in flags))
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {tmp_path} is neither a workdir with checkpoints")
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"to": "hugging_face"}, "--out names no folder"),
        ({"to": "orbax", "out": "x"}, "weights come from --workdir or from --from"),
        ({"to": "orbax", "out": "x", "from": "y", "license": "mit"}, "--license is for the model"),
        ({"to": "orbax", "out": "x", "from": "y", "language": ["de"]}, "--language is for the"),
        (
            {"to": "hugging_face", "out": "x", "from": "y", "language": ["ger man"]},
            "--language: 'g",
        ),
        ({"from": "x", "language": ["de"]}, "--language goes with --to"),
        ({"to": "orbax", "out": "x", "from": "y", "step": 0}, "--step chooses a checkpoint of"),
        ({}, "give --to=hugging_face, orbax or stablehlo, or --from=FOLDER"),
        ({"from": "x", "out": "y"}, "--out goes with --to"),
        ({"from": "x", "step": 0}, "--step goes with --to"),
        ({"from": "x"}, "--workdir names no folder"),
    ],
)
def test_flags_that_do_not_go_together(given, message):
    with convert_flags(**given), pytest.raises(config_lib.ConfigError, match=message):
        convert_command.main(None, None)
