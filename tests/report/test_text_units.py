# SPDX-License-Identifier: Apache-2.0
"""A loss per token as one per word and character: arithmetic that a reader can do."""

import math

import pytest

from electra_jax.report import text_units

# the cat slept .        4 words, 15 characters
# the cat sle ##pt .     5 tokens, at 2.4 nats each 12 nats
FOUND = text_units.figures(2.4, tokens=5, words=4, characters=15)


def test_the_example_of_the_page():
    assert FOUND == pytest.approx(
        {
            "perplexity": math.exp(2.4),
            "nats_per_word": 3.0,
            "bits_per_word": 3.0 / math.log(2),
            "perplexity_per_word": math.exp(3.0),
            "nats_per_character": 0.8,
            "bits_per_character": 0.8 / math.log(2),
            "perplexity_per_character": math.exp(0.8),
        }
    )
    assert tuple(FOUND) == text_units.FIGURES
    assert FOUND["bits_per_character"] == pytest.approx(1.154, abs=5e-4)


def test_a_fair_coin_for_each_character_is_one_bit_whatever_the_pieces():
    """Pieces of n characters, each of 2^n equally likely: the loss per token grows, the figure
    does not."""
    for size in (1, 2, 5):
        found = text_units.figures(size * math.log(2), 120 // size, words=1, characters=120)
        assert found["bits_per_character"] == pytest.approx(1)
        assert found["perplexity_per_character"] == pytest.approx(2)


def test_no_loss_gives_no_figure_and_no_number_is_infinite():
    assert set(text_units.figures(None, 5, 4, 15).values()) == {None}
    found = text_units.figures(900.0, 5, 4, 15)
    assert found["perplexity"] is None
    assert found["nats_per_word"] == 1125
    assert text_units.figures(2.4, 5, words=0, characters=15)["bits_per_word"] is None


def test_each_figure_stands_beside_the_unigram_line_in_its_unit():
    line = {f"unigram_{name}": x for name, x in text_units.figures(6.0, 5, 4, 15).items()}
    values = line | {f"gen_masked_{name}": x for name, x in FOUND.items()}
    values |= {"gen_masked_loss": 2.4, "unigram_entropy": 6.0}
    for name in text_units.FIGURES:
        beside = text_units.baseline(f"gen_masked_{name}", values)
        assert (beside.name, beside.value) == ("unigram_entropy", line[f"unigram_{name}"])
        assert beside.margin(FOUND[name]) > 0
    assert text_units.baseline("gen_masked_loss", values).value == 6.0
    assert text_units.baseline("gen_masked_accuracy", values) is None
