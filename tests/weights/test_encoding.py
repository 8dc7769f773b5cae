# SPDX-License-Identifier: Apache-2.0
"""Texts for an encoder: any list of them, what is no text, and rows longer than training had."""

import numpy as np
import pytest

import electra_jax
from electra_jax import config as config_lib
from electra_jax.host import cluster
from electra_jax.weights import encoding
from support.many_scripts import made


@pytest.fixture(scope="module")
def words():
    return made("wordpiece")


def test_what_is_no_text_is_named(words):
    tokenizer = encoding.Tokenizer(words, 64)
    with pytest.raises(ValueError, match="^number 1 of texts is None, no text; give '' or"):
        tokenizer(["the fox", None])
    with pytest.raises(ValueError, match="^number 0 of pairs is nan, no text"):
        tokenizer(["the fox"], [float("nan")])


def test_texts_that_can_be_read_only_once_make_the_rows_of_a_list(words):
    """They were empty behind the check, and so were the rows."""
    tokenizer = encoding.Tokenizer(words, 64)
    texts, pairs = ["the fox", "a dog, twice"], ["jumps", "over it"]
    wanted = tokenizer(texts, pairs)
    for found in (
        tokenizer(iter(texts), (text for text in pairs)),
        tokenizer(np.array(texts), np.array(pairs, object)),
    ):
        for name, rows_BL in wanted.items():
            np.testing.assert_array_equal(found[name], rows_BL)


def test_what_is_no_list_of_texts_is_named(words):
    tokenizer = encoding.Tokenizer(words, 64)
    with pytest.raises(ValueError, match="^texts is None; give a list of texts$"):
        tokenizer(None)
    with pytest.raises(ValueError, match="^pairs is 3; give a list with the second text of each"):
        tokenizer(["the fox"], 3)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "int8", "x"])
def test_a_dtype_that_cannot_be_computed_in_is_refused_before_weights_are_read(tmp_path, dtype):
    with pytest.raises(config_lib.ConfigError, match=f"^dtype='{dtype}' cannot be computed in; "):
        electra_jax.load_encoder(tmp_path / "nowhere", dtype=dtype)


def test_an_accelerator_that_another_process_has_is_said_before_weights_are_read(
    tmp_path, monkeypatch
):
    def busy():
        raise cluster.BusyError("the chips are taken")

    monkeypatch.setattr(cluster, "check_chips_are_free", busy)
    with pytest.raises(cluster.BusyError, match="the chips are taken"):
        electra_jax.load_encoder(tmp_path / "nowhere")


@pytest.mark.parametrize(("trained", "told"), [(0, []), (64, []), (8, [(12, 8)])])
def test_rows_longer_than_those_of_training_are_told(words, monkeypatch, trained, told):
    said = []
    monkeypatch.setattr(
        encoding.logging, "log_first_n", lambda level, text, n, *sizes: said.append(sizes)
    )
    tokenizer = encoding.Tokenizer(words, 64, trained)
    tokenizer(["the fox", "the " * 10])
    assert said == told
