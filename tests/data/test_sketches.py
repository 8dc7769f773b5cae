# SPDX-License-Identifier: Apache-2.0
"""Sketches of documents: the share in which two agree, and the bands that find similar ones."""

import numpy as np
import pytest

from electra_jax.data import sketches
from support.similar_texts import jaccard, pair


def estimated(one, other):
    return float(sketches.agreement(sketches.of(one)[None], sketches.of(other)[None])[0])


@pytest.mark.parametrize(
    ("words", "changed"), [(20, 1), (20, 3), (300, 3), (300, 20), (300, 60), (5000, 200)]
)
def test_two_sketches_agree_in_the_share_that_the_texts_have_in_common(words, changed):
    """The mean over pairs to four standard errors of a mean, and no pair far off."""
    pairs = [pair(words, changed) for _ in range(40)]
    errors = np.array([estimated(*both) - jaccard(*both) for both in pairs])
    assert abs(errors.mean()) < 4 * 0.05 / 40**0.5
    assert abs(errors).max() < 0.2


def test_of_other_texts_they_agree_nowhere():
    assert estimated(pair(300, 0)[0], pair(300, 0)[0]) < 0.02
    assert estimated("a", "b") == 0
    assert estimated("日本語の文章です。", "中文的文章。") < 0.3


@pytest.mark.parametrize("text", ["", "a", "a dog", "The cat sees the dog. " * 50])
def test_case_and_white_space_make_no_difference(text):
    assert estimated(text, f" {text.upper()}\n".replace(" ", "\t  ")) == 1


def test_a_long_document_has_the_same_sketch_however_it_is_cut(monkeypatch):
    text = pair(400, 0)[0]
    whole = sketches.of(text)
    for chunk in (1, 7, 25, 1000, len(text) - 25, len(text) - 24, len(text)):
        monkeypatch.setattr(sketches, "_CHUNK", chunk)
        assert (sketches.of(text) == whole).all()


@pytest.mark.parametrize("similarity", [0.5, 0.7, 0.8, 0.9, 0.99])
def test_bands_find_the_similar_and_few_others(similarity):
    """By the sketches themselves: each bin agrees with the probability `similarity`."""
    draw, count = np.random.default_rng(0), 2000
    one = draw.integers(0, 2**32, (count, sketches.BINS), np.uint32)

    def shared(agrees):
        other = np.where(draw.random(one.shape) < agrees, one, one + np.uint32(1))
        found = [sketches.keys(x[:, band]) for band in bands for x in (one, other)]
        return np.any([a == b for a, b in zip(found[::2], found[1::2])], axis=0).mean()

    bands = sketches.bands(similarity)
    assert sorted(i for band in bands for i in range(sketches.BINS)[band]) == [*range(128)]
    assert shared(similarity) > 0.94
    assert shared(min(1, similarity + 0.1)) > 0.99
    assert shared(0.1) < 0.5
