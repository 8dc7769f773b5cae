# SPDX-License-Identifier: Apache-2.0
"""A vocabulary that does not fit the weights of a beginning is refused before text is prepared."""

import dataclasses
import json

import numpy as np
import pytest

from electra_jax import config as config_lib
from electra_jax.speed import dry_run
from electra_jax.training import before_the_run
from electra_jax.weights import reading_foreign, starting_checks
from electra_jax.weights.formats import hugging_face, tensor_files
from electra_jax.workdir import prepared_data
from support.corpus import small_run

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIAL, "Aspirin", "cat", "##s", "dog", "the", "a", *(f"[unused{n}]" for n in range(9))]
SHAPE = hugging_face.HuggingFaceShape("judges", len(PIECES), 32, 32, 1, 64, 2, 32)


def network(folder, role="judges"):
    """A folder as transformers leaves it, with one number as weights: nothing here reads them."""
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    shape = dataclasses.replace(SHAPE, role=role)
    made = hugging_face.to_config(
        shape, dropout=0.1, attention_dropout=0.1, initial_scale=0.02, pad_id=0
    )
    (folder / "config.json").write_text(json.dumps(made))
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    tensor_files.write(str(folder / "model.safetensors"), {"x": np.zeros(1, np.float32)})
    return folder


@pytest.fixture
def cased(tmp_path):
    return network(tmp_path / "cased")


def check(weights, vocab, **changes):
    tree = small_run("builtin", "", data__vocab=str(vocab), **changes)
    tree.init["from"] = str(weights)
    starting_checks.check_vocabularies(config_lib.parse(tree))


def test_the_file_of_the_weights_is_taken_as_they_were_trained(cased):
    check(cased, cased / "vocab.txt", data__lower_case=False, data__strip_accents=False)


def test_a_cased_vocabulary_of_a_folder_without_settings_is_read_as_cased(cased):
    """It was called uncased, and as an uncased one it was refused."""
    (cased / "tokenizer_config.json").unlink()
    check(cased, cased / "vocab.txt", data__lower_case=False, data__strip_accents=False)


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({}, "it has lower_case=False; set data.lower_case=False"),
        ({"data__lower_case": False}, "it has strip_accents=False; set data.strip_accents=False"),
    ],
)
def test_equal_pieces_that_are_cut_otherwise_name_the_setting(cased, changes, remedy):
    with pytest.raises(config_lib.ConfigError, match=f"have the same pieces, but {remedy}$"):
        check(cased, cased / "vocab.txt", **changes)


def test_another_file_is_refused_and_tokens_can_be_taken_along(cased, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("\n".join([*PIECES, "more"]) + "\n")
    with pytest.raises(
        config_lib.ConfigError, match="give data.vocab the file .*new_tokens='mean'$"
    ):
        check(cased, other)
    check(cased, other, init__new_tokens="mean")


def test_a_vocabulary_that_is_trained_is_not_that_of_others(cased):
    for vocab in ("train:sentencepiece:64", "train:wordpiece:19"):
        with pytest.raises(
            config_lib.ConfigError, match="of its own, of 20 pieces, .* .vocab.txt."
        ):
            check(cased, vocab)
    check(cased, "train:wordpiece:64")  # on the text of these weights it may be the same


@pytest.mark.parametrize("command", ["main", "main --dry_run"])
def test_it_is_asked_before_text_is_prepared(cased, tmp_path, monkeypatch, command):
    monkeypatch.setattr(
        starting_checks, "check_shapes", lambda config: None
    )  # of another shape here
    tree = small_run("builtin", "", data__vocab="train:sentencepiece:64")
    tree.init["from"] = str(cased)
    config, workdir = config_lib.parse(tree), str(tmp_path / "run")
    with pytest.raises(config_lib.ConfigError, match="has a vocabulary of its own"):
        if command == "main":
            before_the_run.check_starting_weights(config, workdir)
        else:
            dry_run._check(config, prepared_data.RunData.of(config, workdir))


def test_what_a_trainer_leaves_beside_its_network_is_none_of_a_pair(tmp_path):
    whole = network(tmp_path / "whole", "predicts")
    network(whole / "checkpoint-10", "predicts")
    assert reading_foreign.hugging_face_folders(whole) == [str(whole)]
    pair = [network(tmp_path / "pair" / name) for name in ("discriminator", "generator")]
    assert reading_foreign.hugging_face_folders(tmp_path / "pair") == [str(one) for one in pair]
    beside = network(whole / "generator", "predicts")
    assert reading_foreign.hugging_face_folders(whole) == [str(whole), str(beside)]
