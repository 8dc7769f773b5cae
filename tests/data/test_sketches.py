# SPDX-License-Identifier: Apache-2.0
"""Sketches of documents, and the near copies that they find."""

import random

import numpy as np
import pytest

from electra_jax.data import duplicates, sketches

DRAW = random.Random(0)
WORDS = ["".join(DRAW.choices("abcdefghij", k=DRAW.randint(2, 9))) for _ in range(3000)]


def pair(words, changed):
    """Two texts of so many words, of which at most `changed` differ."""
    one = DRAW.choices(WORDS, k=words)
    other = list(one)
    for _ in range(changed):
        other[DRAW.randrange(words)] = DRAW.choice(WORDS)
    return " ".join(one), " ".join(other)


def jaccard(one, other):
    """The share of sequences of 25 bytes that both have, of those that either has."""
    data = (text.lower().encode() for text in (one, other))
    a, b = ({found[i : i + 25] for i in range(len(found) - 24)} for found in data)
    return len(a & b) / len(a | b)


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


def test_a_document_is_marked_if_an_earlier_one_is_as_similar(monkeypatch):
    """Whatever unit either is in, and however few pairs are compared at a time."""
    monkeypatch.setattr(duplicates, "_PAIRS", 3)
    near, nearer, far = (pair(300, changed) for changed in (7, 1, 60))
    assert jaccard(*far) < 0.5 < 0.8 < jaccard(*near) < 0.9 < 0.96 < jaccard(*nearer)
    texts = [near[0], far[0], nearer[0], near[1], far[1], nearer[1], near[0], nearer[1], "new"]
    whole = np.array([sketches.of(text) for text in texts])

    for cuts in ([], [4], [1, 4, 4, 8]):
        units = np.split(whole, cuts)
        assert [*np.flatnonzero(duplicates.similar(units, 0.75))] == [3, 5, 6, 7]
        assert [*np.flatnonzero(duplicates.similar(units, 0.93))] == [5, 6, 7]
    assert [*duplicates.similar([whole[:0]], 0.8)] == []


def test_what_shares_a_key_and_not_the_rest_is_not_similar():
    one = np.arange(sketches.BINS, dtype=np.uint32)
    same_band, band = one + np.uint32(1000), sketches.bands(0.8)[3]
    same_band[band] = one[band]
    assert not duplicates.similar([np.stack([one, same_band])], 0.8).any()


def test_each_is_compared_with_the_first_and_with_the_one_before():
    """Of those that share a key, 7 or 3; as (later, earlier)."""
    first, before = duplicates._neighbours(np.array([7, 3, 7, 5, 7, 3]))
    assert [*zip(*first)] == [(5, 1), (2, 0), (4, 0)]
    assert [*zip(*before)] == [(5, 1), (2, 0), (4, 2)]


def test_each_copy_of_a_text_that_is_everywhere_is_marked():
    """Each is compared with two others alone."""
    menu = pair(60, 0)[0]
    texts = [f"{pair(40, 0)[0]} {n}" if n % 2 else f"{menu} {n}" for n in range(400)]
    found = duplicates.similar([np.array([sketches.of(text) for text in texts])], 0.8)
    assert [*np.flatnonzero(found)] == [*range(2, 400, 2)]


def test_an_equal_text_is_marked_though_it_shares_each_key_with_others():
    """Each band of it has others of the same key first, and just before it."""
    text, new = np.arange(256, dtype=np.uint32).reshape(2, sketches.BINS)
    halves = [np.where(new < 192, text, new + n) for n in range(2)]
    others = [np.where(new < 192, new + n, text) for n in range(2, 4)]
    whole = np.stack([halves[0], others[0], text, halves[1], others[1], text])
    assert [*np.flatnonzero(duplicates.similar([whole], 0.8))] == [5]
