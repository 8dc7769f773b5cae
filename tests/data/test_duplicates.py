# SPDX-License-Identifier: Apache-2.0
"""Near copies: which documents are marked, and that preparation drops them."""

import dataclasses
import os
import resource

import numpy as np
import pytest

from electra_jax.data import duplicates, preparation, records, sketches
from support.corpus import text_settings
from support.similar_texts import jaccard, pair


def settings_for(folder, **changes):
    values = {"source": f"text:{folder}/*.txt", "heldout_fraction": 0.1, "workers": 1} | changes
    source, vocab = values.pop("source"), "train:wordpiece:60"
    return text_settings(source, vocab, 16, deduplicate=True, **values)


def prepare(settings, root):
    """Prepares without a word; returns the manifest."""
    return records.open(preparation.prepare(settings, str(root), lambda line: None)).manifest


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


def test_near_copies_are_dropped_where_it_is_asked_for(tmp_path):
    """Of forty sentences one is other, in capitals and in another source; one text is new."""
    text = [pair(8, 0)[0] for _ in range(40)]
    (tmp_path / "1.txt").write_text("\n".join(text) + "\n\na dog\n")
    near, new = [*text[:20], "a river", *text[21:]], [pair(8, 0)[0] for _ in range(40)]
    texts = "\n".join(near).upper(), "\n".join(new), "a cat"
    (tmp_path / "2.txt").write_text("\n\n".join(texts) + "\n")
    source = f"text:{tmp_path}/1.txt; text:{tmp_path}/2.txt"
    settings = settings_for(tmp_path, source=source)

    def documents(similarity):
        asked = dataclasses.replace(settings, duplicate_similarity=similarity)
        manifest = prepare(asked, tmp_path / "data")
        return [found.counts["documents"] for found in manifest.sources], manifest

    assert documents(1.0)[0] == [2, 3]
    found, manifest = documents(0.8)
    assert found == [2, 2] and manifest.duplicates_dropped == 1


def test_near_copies_of_many_units_are_found_with_few_open_files(tmp_path):
    """The sketches of each unit are a file, and those of one unit are an empty array."""
    for number in range(60):
        (tmp_path / f"{number:02}.txt").write_text("the cat sees a dog\n" * (number != 30))
    settings = settings_for(tmp_path, documents="files", duplicate_similarity=0.8)
    (tmp_path / "99.txt").write_text("a river follows the house\n")

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 40, hard))
    try:
        assert prepare(settings, tmp_path / "data").duplicates_dropped == 58
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("similarity", "message"),
    [
        (1.0, "2.txt: 2 of 3 documents are dropped as duplicates, .*, or set data.deduplicate=F"),
        (0.6, "2.txt: 3 of 3 documents are .* set a data.duplicate_similarity above 0.6, or data"),
    ],
)
def test_a_source_of_duplicates_is_refused_as_one(tmp_path, similarity, message):
    """Its second text is nearly that of the first source, and its others are equal to it."""
    text = "the cat sees a dog and a dog follows the cat and the old house home"
    (tmp_path / "1.txt").write_text(f"a river\n\n{text}\n")
    (tmp_path / "2.txt").write_text("\n\n".join([text, f"{text} .", text]))
    settings = settings_for(
        tmp_path, source=f"text:{tmp_path}/1.txt; text:{tmp_path}/2.txt",
        duplicate_similarity=similarity,
    )  # fmt: skip
    with pytest.raises(ValueError, match=message) as error:
        prepare(settings, tmp_path / "data")
    assert "\n" not in str(error.value)
