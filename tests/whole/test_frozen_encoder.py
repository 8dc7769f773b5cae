# SPDX-License-Identifier: Apache-2.0
"""What a finished encoder is asked: minimal pairs and linear probes."""

import dataclasses
import types

import jax
import numpy as np
import pytest

from benchmarks import frozen_encoder
from electra_jax.model import networks
from electra_jax.objectives import electric, masked_lm, replaced_token_detection
from support import odd


def test_pairs_hold_each_word_in_both_roles():
    for kind, group in frozen_encoder.pairs().items():
        assert len(set(group)) == len(group), kind
        swaps = [set(good.split()) ^ set(bad.split()) for good, bad in group]
        assert all(len(swap) == 2 for swap in swaps), kind
        for words in map(frozenset, swaps):
            right = [good for good, bad in group if set(good.split()) ^ set(bad.split()) == words]
            first = sorted(words)[0]
            assert sum(first in good.split() for good in right) * 2 == len(right), (kind, words)


def test_a_probe_finds_what_is_linear_and_misses_what_was_never_shown():
    draw = np.random.default_rng(0)
    x = draw.standard_normal((400, 3))
    classes = np.where(x[:, 0] > 0, "right", "left")
    assert frozen_encoder.accuracy(x[:300], classes[:300], x[300:], classes[300:]) > 0.95
    assert frozen_encoder.accuracy(x[:300], classes[:300], x[300:], ["up"] * 100) == 0


@pytest.mark.parametrize("sharing", ["none", "embeddings", "gdes", "all"])
def test_what_is_asked_are_the_hidden_states_below_the_discriminator(sharing):
    shapes = dataclasses.replace(odd.NETWORKS, sharing=sharing)
    if sharing == "all":
        shapes = dataclasses.replace(shapes, generator=shapes.discriminator)
    params = networks.init(shapes, jax.random.key(3))
    batch = odd.batch([[odd.CLS, 9, 8, 7, odd.SEP]], [[odd.D, 0, 0, 0, 0]])
    marks_BL = np.array([[odd.D, 0, 0, 0, 0]], np.uint8)
    found_BLD = frozen_encoder._encode(shapes, odd.PAD, params, batch.ids_BL, marks_BL)
    expected_BLD, _ = networks.discriminator_outputs(shapes, params, batch)
    np.testing.assert_allclose(found_BLD, expected_BLD, atol=1e-6)


class Lengths:
    """A vocabulary whose words are told by their length."""

    pad_id, cls_id, sep_id = odd.PAD, odd.CLS, odd.SEP

    def encode(self, lines):
        return [np.array([odd.MASK + len(word) for word in line.split()]) for line in lines]


@pytest.mark.parametrize(
    ("kind", "in_turn"),
    [
        (masked_lm.MaskedLM, None),
        (replaced_token_detection.ReplacedTokenDetection, "both"),
        (electric.Electric, "never"),
    ],
)
def test_pairs_are_asked_word_by_word_of_a_masked_model_and_of_two_networks(
    kind, in_turn, monkeypatch
):
    few = {"lengths": [("a" * long + " town", "a" * (long + 1) + " town") for long in range(1, 20)]}
    monkeypatch.setattr(frozen_encoder, "pairs", lambda: few)
    objective = odd.objective(kind)
    params = odd.random_like(jax.eval_shape(objective.init, jax.random.key(0)))
    config = types.SimpleNamespace(data=types.SimpleNamespace(sequence_length=12))
    trained = types.SimpleNamespace(vocabulary=Lengths())
    run = types.SimpleNamespace(config=config, objective=objective, trained=trained)

    found = frozen_encoder.measure(run, params, None)
    if in_turn == "never":
        assert "pair_accuracy_in_turn" not in found
        return
    expected = frozen_encoder.pair_accuracies(run, params, by=in_turn)["pair_accuracy"]
    assert found["pair_accuracy_in_turn"] == expected
    if in_turn == "both":
        assert found["pair_accuracy"] != expected, "or this test could not tell them apart"


class Letters:
    """A vocabulary of letters, a piece each."""

    unk_id = 99

    def encode(self, lines):
        return [np.array([ord(letter) - ord("a") for letter in line]) for line in lines]


def test_a_sentence_longer_than_a_row_is_read_in_parts_and_each_word_is_asked_once():
    config = types.SimpleNamespace(data=types.SimpleNamespace(sequence_length=7))
    run = types.SimpleNamespace(trained=types.SimpleNamespace(vocabulary=Letters()), config=config)
    words = ["ab", "cde", "f", "", "abcdefgh"]  # five pieces fit a row
    parts = [
        (row.tolist(), places.tolist(), tags)
        for row, places, tags in frozen_encoder.rows_of(run, words, "VWXYZ")
    ]
    assert parts == [
        ([0, 1, 2, 3, 4], [1, 3], ["V", "W"]),
        ([5, 99], [1, 2], ["X", "Y"]),
        ([0, 1, 2, 3, 4], [1], ["Z"]),
    ]
