# SPDX-License-Identifier: Apache-2.0
"""Texts for an encoder: what is no text is named, and rows longer than those of training."""

import pytest

from electra_jax.weights import encoding
from support.many_scripts import made


@pytest.fixture(scope="module")
def words():
    return made("wordpiece")


def test_what_is_no_text_is_named(words):
    tokenizer = encoding.Tokenizer(words, 64)
    with pytest.raises(ValueError, match=r"^texts\[1\] is None, no text; give '' instead$"):
        tokenizer(["the fox", None])
    with pytest.raises(ValueError, match=r"^pairs\[0\] is nan, no text"):
        tokenizer(["the fox"], [float("nan")])


@pytest.mark.parametrize(("trained", "told"), [(0, []), (64, []), (8, [(12, 8)])])
def test_rows_longer_than_those_of_training_are_told(words, monkeypatch, trained, told):
    said = []
    monkeypatch.setattr(
        encoding.logging, "log_first_n", lambda level, text, n, *sizes: said.append(sizes)
    )
    tokenizer = encoding.Tokenizer(words, 64, trained)
    tokenizer(["the fox", "the " * 10])
    assert said == told
