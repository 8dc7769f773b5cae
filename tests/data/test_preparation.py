# SPDX-License-Identifier: Apache-2.0
"""From text files to records: nothing is lost, nothing depends on who did it or how often."""

import collections
import dataclasses
import errno
import itertools
import os
import pathlib

import numpy as np
import pytest

from electra_jax.data import (
    background,
    planning,
    preparation,
    records,
    streaming,
    worker_pool,
)
from electra_jax.report import data_summary
from support.digests import digests
from support.prepared import PIECES, prepare, settings_for, texts, words_of


@pytest.mark.parametrize("rows", ["pairs", "packed"])
def test_every_word_is_in_exactly_one_row(corpus, vocab, rows):
    opened = prepare(settings_for(corpus, vocab, rows=rows), corpus / "data")
    found = collections.Counter(
        word for split in records.SPLITS for row in texts(opened, split) for word in row.split()
    )
    assert found == words_of(corpus)


def test_the_folder_holds_what_the_manifest_tells(corpus, vocab):
    opened = prepare(settings_for(corpus, vocab), corpus / "data")
    manifest = opened.manifest
    assert sorted(os.listdir(opened.directory)) == [
        "manifest.json",
        "prepare.lock",
        "records",
        "unigram.npy",
        "vocab",
    ]
    assert manifest.totals["documents"] == 120
    assert 3 <= manifest.totals["heldout_documents"] <= 25
    unigram_2V = opened.unigram()
    assert unigram_2V.sum() == sum(words_of(corpus).values())
    assert unigram_2V.sum(1).tolist() == [
        manifest.totals["tokens"],
        manifest.totals["heldout_tokens"],
    ]
    ids, marks = opened.read("train", 0, np.arange(opened.rows("train", 0)))
    assert manifest.totals["rows"] == len(ids)
    assert manifest.wasted_fraction == (ids == 0).mean()
    np.testing.assert_array_equal(marks == 0, ids == 0)
    assert (ids[:, 0] == 2).all() and (marks[:, 0] == 5).all()
    assert np.bincount(ids[ids > 4], minlength=len(unigram_2V[0])).tolist() == (
        unigram_2V[0].tolist()
    )
    assert records.verify(opened.directory) == 2 * sum(
        len(found) for found in manifest.sources[0].shards.values()
    )


def test_unigram_entropy_is_that_of_the_heldout_text(corpus, vocab):
    opened = prepare(settings_for(corpus, vocab), corpus / "data")
    counts = collections.Counter(" ".join(texts(opened, "heldout")).split())
    share = np.array(list(counts.values())) / sum(counts.values())
    assert opened.manifest.unigram_entropy == pytest.approx(-(share * np.log(share)).sum())


def test_any_number_of_workers_writes_the_same_bytes(corpus, vocab):
    for changes in ({}, {"rows": "packed", "deduplicate": True}):
        one = settings_for(corpus, vocab, **changes)
        folders = [
            prepare(dataclasses.replace(one, workers=workers), corpus / f"{workers}").directory
            for workers in (1, 3)
        ]
        assert digests(folders[0]) == digests(folders[1])


def test_a_finished_folder_is_taken_as_it_is(corpus, vocab, monkeypatch):
    settings = settings_for(corpus, vocab)
    folder = prepare(settings, corpus / "data").directory
    monkeypatch.setattr(preparation, "_build", None)
    assert preparation.prepare(settings, str(corpus / "data")) == folder


@pytest.mark.parametrize("damaged", ["unigram.npy", "vocab/vocab.txt", "records/train", "manifest"])
def test_a_damaged_folder_is_made_again(corpus, vocab, damaged):
    settings = settings_for(corpus, vocab)
    opened = prepare(settings, corpus / "data")
    before = digests(opened.directory)
    for name in before:
        if name.startswith(damaged):
            pathlib.Path(opened.directory, name).write_bytes(b"{")
            break
    if damaged == "unigram.npy":
        os.remove(os.path.join(opened.directory, damaged))
    lines = []
    preparation.prepare(settings, str(corpus / "data"), lines.append)
    assert any("is damaged and is made again" in line for line in lines)
    assert digests(opened.directory) == before


@pytest.mark.parametrize(
    "change",
    [
        {"sequence_length": 17},
        {"rows": "packed"},
        {"heldout_fraction": 0.2},
        {"deduplicate": True},
        {"lower_case": False},
        {"min_document_characters": 5},
        {"single_segment_rate": 0.2},
        {"short_row_rate": 0.2},
        {"mixture_alpha": 0.5},
        {"invalid_utf8": "refuse"},
        {"text_field": "body"},
        {"documents": "files"},
        {"seed": 1},
        {"vocab": "train:wordpiece:64"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_changed_settings_never_meet_old_records(corpus, vocab, change):
    settings = settings_for(corpus, vocab)
    before = planning.folder_of(settings, "data")
    assert planning.folder_of(dataclasses.replace(settings, **change), "data") != before


def test_without_duplicates_to_drop_their_similarity_makes_no_other_rows(corpus, vocab):
    plain = settings_for(corpus, vocab)
    drops = dataclasses.replace(plain, deduplicate=True)

    def folders(settings):
        changed = dataclasses.replace(settings, duplicate_similarity=0.8)
        return {planning.folder_of(one, "data") for one in (settings, changed)}

    assert len(folders(plain)) == 1
    assert len(folders(drops)) == 2


def test_the_folder_depends_on_what_is_in_the_files_not_on_who_works(corpus, vocab):
    settings = settings_for(corpus, vocab)
    before = planning.folder_of(settings, "data")
    assert planning.folder_of(dataclasses.replace(settings, workers=7), "data") == before
    other = corpus / "copy.vocab.txt"
    other.write_text(pathlib.Path(vocab).read_text())
    # The copy is the same vocabulary, but also one more file for the glob to find.
    assert planning.folder_of(dataclasses.replace(settings, vocab=str(other)), "data") != before
    other.rename(corpus / "vocab.copy")
    (corpus / "0.txt").write_text("the cat\n")
    assert planning.folder_of(settings, "data") != before


def test_equal_documents_fall_on_the_same_side(tmp_path, vocab):
    unique = [f"{a} {b} {c} ." for a in PIECES for b in PIECES for c in PIECES[:2]]
    (tmp_path / "1.txt").write_text("\n\n".join(unique))
    (tmp_path / "2.txt").write_text("\n\n".join(reversed(unique)))
    opened = prepare(settings_for(tmp_path, vocab, heldout_fraction=0.2), tmp_path / "data")
    sides = [collections.Counter(texts(opened, split)) for split in records.SPLITS]
    assert not sides[0].keys() & sides[1].keys()
    assert set(sides[0].values()) | set(sides[1].values()) == {2}
    assert 0.15 < sides[1].total() / 1024 < 0.25


def test_another_seed_holds_out_the_same_documents(corpus, vocab):
    heldout = [
        sorted(" ".join(texts(prepare(settings, corpus / "data"), "heldout")).split())
        for settings in (settings_for(corpus, vocab, seed=seed) for seed in (0, 1))
    ]
    assert heldout[0] == heldout[1]


@pytest.mark.parametrize("fraction", [1e-6, 0.5])
@pytest.mark.parametrize("name", ["then", "river", "house", "home"])
def test_two_documents_are_enough(tmp_path, vocab, fraction, name):
    (tmp_path / "1.txt").write_text(f"the cat {name}\n\nthe dog {name}\n")
    settings = settings_for(tmp_path, vocab, heldout_fraction=fraction)
    opened = prepare(settings, tmp_path / "data")
    both = [texts(opened, split) for split in records.SPLITS]
    assert sorted(both[0] + both[1]) == [f"the cat {name}", f"the dog {name}"]
    assert len(both[0]) == len(both[1]) == 1


def test_a_document_that_had_to_be_moved_takes_its_equals_with_it(tmp_path, vocab):
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text("the cat\n\nthe dog\n")
    opened = prepare(settings_for(tmp_path, vocab, heldout_fraction=1e-6), tmp_path / "data")
    both = [texts(opened, split) for split in records.SPLITS]
    assert sorted(map(len, both)) == [4, 4]
    assert len(set(both[0])) == len(set(both[1])) == 1
    assert opened.manifest.totals["documents"] == 8


def test_duplicates_are_dropped_and_the_first_stays(tmp_path, vocab):
    (tmp_path / "1.txt").write_text("the cat\n\na dog\n\nthe   cat\n")
    (tmp_path / "2.txt").write_text("a river\n\na dog\n\nthe cat\n\na house\n")
    source = f"text:{tmp_path}/1.txt; text:{tmp_path}/2.txt"
    settings = settings_for(tmp_path, vocab, source=source, deduplicate=True)
    opened = prepare(settings, tmp_path / "data")
    both = [texts(opened, "train", s) + texts(opened, "heldout", s) for s in (0, 1)]
    assert sorted(both[0]) == ["a dog", "the cat"]
    assert sorted(both[1]) == ["a house", "a river"]
    assert opened.manifest.duplicates_dropped == 3


def test_sources_get_their_weights(tmp_path, vocab):
    pairs = [" ".join(words) for words in itertools.product(PIECES[:14], PIECES[:14])]
    (tmp_path / "1.txt").write_text("\n\n".join(pairs))
    (tmp_path / "2.txt").write_text(
        "\n\n".join(f"the river {pair} then home" for pair in pairs[:60])
    )
    first, second = f"text:{tmp_path}/1.txt", f"text:{tmp_path}/2.txt"
    settings = settings_for(tmp_path, vocab, source=f"{first}@3; {second}@1")
    weighted = prepare(settings, tmp_path / "data").manifest
    assert [source.weight for source in weighted.sources] == [0.75, 0.25]
    settings = dataclasses.replace(settings, source=f"{first}; {second}", mixture_alpha=0.5)
    manifest = prepare(settings, tmp_path / "data").manifest
    rows = [source.counts["rows"] ** 0.5 for source in manifest.sources]
    assert [source.weight for source in manifest.sources] == pytest.approx(
        [rows[0] / sum(rows), rows[1] / sum(rows)]
    )

    # Without alpha each row of both is read equally often, however many tokens are in it.
    settings = dataclasses.replace(settings, mixture_alpha=1.0)
    opened = prepare(settings, tmp_path / "data")
    tokens, others = (source.counts["tokens"] for source in opened.manifest.sources)
    first, second = (source.counts["rows"] for source in opened.manifest.sources)
    assert tokens / others < 0.7 * first / second
    first, second = (source.weight / source.counts["rows"] for source in opened.manifest.sources)
    assert first == pytest.approx(second)
    said = data_summary.text(opened.directory)
    assert said.count("of the training rows; an epoch reads each of its rows 1 times") == 2


def test_rows_in_a_folder_that_cannot_be_written_are_not_streamed(tmp_path, vocab, monkeypatch):
    """What streaming adds to them has no place; reading them as they are needs none."""
    (tmp_path / "1.txt").write_text("the cat\n\na dog\n\na river\n" * 9)
    settings = settings_for(tmp_path, vocab)
    prepare(settings, tmp_path / "data")

    def write(*_):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(streaming, "write_plan", write)
    with pytest.raises(ValueError, match="cannot be written .Read-only file system.; set data.str"):
        background.open_rows(settings, str(tmp_path / "data"), lambda line: None)
    monkeypatch.undo()
    rows = background.open_rows(settings, str(tmp_path / "data"), lambda line: None)
    assert rows.rows("train", 0) > 0
    rows.close()


def test_each_worker_process_is_told_to_have_one_thread(monkeypatch):
    names = ["OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"]
    monkeypatch.setenv(names[0], "7")
    monkeypatch.delenv(names[1], raising=False)
    with worker_pool.Workers(2) as workers:
        assert dict(workers.each(os.getenv, names)) == dict.fromkeys(names, "1")
    assert [os.getenv(name) for name in names] == ["7", None]
