# SPDX-License-Identifier: Apache-2.0
"""From text files to records: nothing is lost, nothing depends on who did it or how often."""

import collections
import dataclasses
import errno
import gzip
import itertools
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from electra_jax.data import (
    background,
    folder_vocabulary,
    planning,
    preparation,
    progress_lines,
    records,
    streaming,
    text,
    tokenising,
    totals,
    unit_files,
    unit_rows,
    units,
    vocabulary,
    worker_pool,
)
from electra_jax.host import error_causes, lock
from electra_jax.report import data_summary
from support.corpus import text_settings
from support.digests import digests

PIECES = "the cat a dog sees follows river house old young and then home ##s . ,".split()
LENGTH = 16


@pytest.fixture(scope="session")
def vocab(tmp_path_factory):
    """A vocab.txt that knows every word of the corpus."""
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    path.write_text("\n".join([*special, *PIECES]) + "\n")
    (path.parent / "other.txt").write_text("\n".join([*special, *reversed(PIECES)]) + "\n")
    return str(path)


@pytest.fixture
def corpus(tmp_path):
    """Six files of twenty documents, so that there are six units."""
    draw = random.Random(3)
    for number in range(6):
        documents = []
        for _ in range(20):
            lines = [" ".join(draw.choices(PIECES[:13], k=draw.randint(1, 9))) for _ in range(4)]
            documents.append("\n".join(lines))
        (tmp_path / f"{number}.txt").write_text("\n\n".join(documents) + "\n")
    return tmp_path


def settings_for(folder, vocab, **changes):
    values = {"source": f"text:{folder}/*.txt", "heldout_fraction": 0.1, "workers": 1} | changes
    return text_settings(values.pop("source"), vocab, LENGTH, **values)


def prepare(settings, root):
    """Prepares without a word and opens the result."""
    return records.open(preparation.prepare(settings, str(root), lambda line: None))


def texts(opened, split, source=0):
    """The rows of a split as texts, A and B joined."""
    words = vocabulary.load(os.path.join(opened.directory, "vocab"))
    ids, _ = opened.read(split, source, np.arange(opened.rows(split, source)))
    return [words.decode(row.tolist()) for row in ids]


def words_of(folder):
    """How often each word occurs in the files."""
    text = " ".join(path.read_text() for path in pathlib.Path(folder).glob("*.txt"))
    return collections.Counter(text.split())


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


# Kills itself when the N-th unit reports, as a machine would at the worst moment.
KILLED = """
import json, os, signal, sys
from electra_jax.data import planning, preparation, worker_pool
from electra_jax.host import safe_files
settings, root, units = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
each, whole, done = worker_pool.Workers.each, safe_files.write, []
def die():
    done.append(1)
    if len(done) == units:
        os.kill(os.getpid(), signal.SIGKILL)
def dying_each(*args):
    for found in each(*args):
        die()
        yield found
def dying_write(path, data):
    # The shards are there, the unit's own file is not.
    if "/units/" in path and path.endswith(".json"):
        die()
    whole(path, data)
if settings["workers"] > 1:
    worker_pool.Workers.each = dying_each
else:
    safe_files.write = dying_write
preparation.prepare(planning.DataSettings(**settings), root)
"""


@pytest.mark.parametrize(("workers", "units"), [(1, 1), (1, 4), (2, 2)])
def test_killed_and_run_again_gives_the_same_bytes(corpus, vocab, workers, units):
    settings = settings_for(corpus, vocab, workers=workers)
    whole = prepare(settings, corpus / "whole").directory
    arguments = [json.dumps(dataclasses.asdict(settings)), str(corpus / "killed"), str(units)]
    # Ends only when the workers, who hold its output open, have ended too.
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments],
        capture_output=True,
        timeout=120,
        check=False,
        cwd=pathlib.Path(__file__).parents[2],
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    folder = planning.folder_of(settings, str(corpus / "killed"))
    assert not os.path.exists(os.path.join(folder, "manifest.json"))
    lines = []
    assert preparation.prepare(settings, str(corpus / "killed"), lines.append) == folder
    assert (f"{units - 1} of 6 units are there already" in lines) == (workers == 1 and units > 1)
    assert digests(folder) == digests(whole)


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


def test_another_vocabulary_in_a_finished_folder_is_not_taken_for_its_own(corpus, vocab):
    opened = prepare(settings_for(corpus, vocab), corpus / "data")
    before = digests(opened.directory)
    other = vocabulary.load(vocab.replace("vocab.txt", "other.txt"), True, True)
    other.save(os.path.join(opened.directory, "vocab"))
    lines = []
    preparation.prepare(settings_for(corpus, vocab), str(corpus / "data"), lines.append)
    assert any("is not the one that the records were made with" in line for line in lines)
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


def test_the_same_vocabulary_elsewhere_is_the_same_folder(corpus, vocab, tmp_path_factory):
    copy = tmp_path_factory.mktemp("elsewhere") / "vocab.txt"
    copy.write_text(pathlib.Path(vocab).read_text())
    before = planning.folder_of(settings_for(corpus, vocab), "data")
    assert planning.folder_of(settings_for(corpus, str(copy)), "data") == before


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


def test_a_unit_that_was_built_with_its_moved_bound_is_not_built_again(corpus, vocab, monkeypatch):
    """The run is interrupted after both passes; only the manifest is missing."""
    settings, root = settings_for(corpus, vocab, heldout_fraction=1e-6), str(corpus / "data")

    def interrupted(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(totals, "make_manifest", interrupted)
        with pytest.raises(KeyboardInterrupt):
            preparation.prepare(settings, root, lambda line: None)

    with monkeypatch.context() as patch:
        patch.setattr(unit_rows, "build", None)  # nothing is left to build
        folder = preparation.prepare(settings, root, lambda line: None)
    assert digests(folder) == digests(prepare(settings, corpus / "whole").directory)


ONE = "has only one document, and one must be held out; "


@pytest.mark.parametrize(
    ("content", "documents", "message"),
    [
        ("", "blank_lines", "has no text"),
        ("\n\n \n\n", "blank_lines", "has no text"),
        ("the cat\n", "blank_lines", ONE + "put blank lines between documents, .* or add some"),
        ("the cat\n\nthe dog\n", "files", ONE + "set data.documents=blank_lines .*, or add some"),
        ("the cat\n\nthe  cat\n", "blank_lines", "holds 2 documents that are all equal"),
    ],
)
def test_too_little_text_is_refused_in_one_line(tmp_path, vocab, content, documents, message):
    (tmp_path / "1.txt").write_text(content)
    with pytest.raises(ValueError, match=message) as error:
        prepare(settings_for(tmp_path, vocab, documents=documents), tmp_path / "data")
    assert "\n" not in str(error.value)
    assert f"{tmp_path}/*.txt" in str(error.value)


def test_a_broken_file_is_named_though_the_vocabulary_is_already_in_training(tmp_path):
    """SentencePiece has taken the lines of a.txt when b.txt.gz turns out to be cut off."""
    (tmp_path / "a.txt").write_text("the cat sees a dog\n\n" * 20)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"the dog sees a cat\n\n" * 20)[:-9])
    source = f"text:{tmp_path}/a.txt; text:{tmp_path}/b.txt.gz"
    with pytest.raises(ValueError, match=r"^/.*/b\.txt\.gz cannot be read: .*whole\?$") as error:
        prepare(settings_for(tmp_path, "train:sentencepiece:32", source=source), tmp_path / "data")
    assert isinstance(error.value.__cause__, EOFError)


def test_a_long_line_is_cut_in_time_that_grows_with_it():
    """One character at a time: copying the rest for each part took four minutes for 50 MB."""

    class Line(str):
        copied = 0

        def __getitem__(self, key):
            part = super().__getitem__(key)
            Line.copied += len(part)
            return Line(part)

    line = Line("word " * 100_000)
    parts = list(tokenising.line_parts(line))
    assert "".join(parts) == line
    assert max(map(len, parts)) <= tokenising._LINE_CHARACTERS
    assert Line.copied <= 2 * len(line)
    assert list(tokenising.line_parts("x" * 40_000)) == ["x" * 16_384, "x" * 16_384, "x" * 7_232]


def test_one_enormous_line_gives_signs_of_life(tmp_path, vocab, monkeypatch):
    """While its unit is under way, by characters; another process does the work."""
    words = " ".join(random.Random(0).choices(PIECES[:13], k=200_000))
    (tmp_path / "1.txt").write_text(f"{words}\n\nthe cat\n")
    (tmp_path / "2.txt").write_text("the cat\n\nthe dog\n")
    monkeypatch.setattr(progress_lines, "_PROGRESS_SECONDS", 0.01)
    for workers in (1, 2):
        lines = []
        settings = settings_for(tmp_path, vocab, workers=workers)
        preparation.prepare(settings, str(tmp_path / f"data{workers}"), lines.append)
        told = [re.search(r"([\d,]+) characters tokenised", line) for line in lines]
        counts = {int(match[1].replace(",", "")) for match in told if match}
        assert any(400_000 <= count < len(words) for count in counts), lines

        # Of all text, by all workers together: it never falls, and is 100% of nothing unfinished.
        cutting = r"cutting rows: (\d+)%.* ([\d,]+) characters tokenised"
        shares = [
            (int(match[1]), int(match[2].replace(",", "")))
            for match in (re.match(cutting, line) for line in lines)
            if match
        ]
        assert shares == sorted(shares), lines
        assert any(30 < share < 100 for share, _ in shares), lines
        assert {count for share, count in shares if share == 100} <= {max(counts)}, lines


def test_the_sample_for_a_vocabulary_stops_within_an_enormous_document(tmp_path, vocab):
    (tmp_path / "1.txt").write_text("the cat sees\n" * 200_000 + "\nthe dog\n")
    settings = settings_for(tmp_path, vocab, vocab_sample_characters=1_000, heldout_fraction=1e-6)
    sampled = sum(map(len, sample(settings)))
    assert 1_000 <= sampled < 1_100_000


@pytest.mark.parametrize(("unknown", "verdict"), [(0, ""), (1, "warned"), (12, "refused")])
def test_text_that_the_vocabulary_does_not_know(tmp_path, vocab, unknown, verdict):
    line = " ".join(["дом"] * unknown + ["cat"] * (10 if unknown < 10 else 8))
    (tmp_path / "1.txt").write_text(f"{line}\n\n{line} dog\n\n{line} river\n")
    settings, lines = settings_for(tmp_path, vocab), []
    if verdict == "refused":
        with pytest.raises(ValueError, match="5.... of the tokens of .*became .UNK.; look at data"):
            preparation.prepare(settings, str(tmp_path / "data"), lines.append)
        assert not list((tmp_path / "data").glob("*/manifest.json"))
        return
    for _ in range(2):  # each run that takes the folder is told
        lines.clear()
        preparation.prepare(settings, str(tmp_path / "data"), lines.append)
        assert any(line.startswith("warning: ") for line in lines) == (verdict == "warned"), lines


@pytest.mark.parametrize("break_", [" ", "\n"], ids=["a line each", "a line a sentence"])
def test_documents_of_one_line_have_no_second_segments_and_that_is_said(tmp_path, vocab, break_):
    text = break_.join(["the cat sees the dog"] * 30)
    (tmp_path / "1.txt").write_text("".join(f"{text} {n}\n\n" for n in range(120)))
    lines = []
    preparation.prepare(settings_for(tmp_path, vocab), str(tmp_path / "data"), lines.append)
    (about,) = [line for line in lines if "second segment" in line] or [""]
    assert about.startswith("warning: 0.0% of the rows have") == (break_ == " "), lines


@pytest.mark.parametrize("size", ["15", "2000001", "99999999999", "abc", "", "-5", "1.5", "3:4"])
def test_sizes_of_a_vocabulary_are_bounded(size):
    with pytest.raises(ValueError, match="the size .* is not a whole number from 16 to 2,000,000"):
        planning.trained_kind(f"train:wordpiece:{size}")
    assert planning.trained_kind("train:wordpiece:16") == ("wordpiece", 16)


def test_documents_without_tokens_are_counted_and_left_out(tmp_path, vocab):
    (tmp_path / "1.txt").write_text("the cat\n\n\u0301\u200b\n\nthe dog\n\n\u200b\n")
    opened = prepare(settings_for(tmp_path, vocab), tmp_path / "data")
    assert opened.manifest.totals["documents"] == 2
    assert opened.manifest.totals["empty"] == 2
    assert opened.manifest.totals["rows"] == opened.manifest.totals["heldout_rows"] == 1


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


def test_the_summary_says_of_each_source_how_well_the_vocabulary_fits_it(tmp_path, vocab):
    (tmp_path / "1.txt").write_text("\n\n".join(["the cat", "a dog sees", "the old house"] * 5))
    (tmp_path / "2.txt").write_text("\n\n".join(["the kat", "a dog sees", "the old huus"] * 5))
    source = f"text:{tmp_path}/1.txt; text:{tmp_path}/2.txt"
    opened = prepare(settings_for(tmp_path, vocab, source=source), tmp_path / "data")
    # 8 tokens for 30 and 29 characters with their blanks; of 24 without them 7 are unknown.
    assert re.findall("characters per token +(.*)", data_summary.text(opened.directory)) == [
        "3.75; 0.000% of the characters are unknown",
        "3.62; 29.167% of the characters are unknown",
    ]


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


def test_a_document_of_a_million_tokens(tmp_path, vocab):
    (tmp_path / "1.txt").write_text("the cat follows a dog " * 200_000 + "\n\nthe cat\n\na dog\n")
    opened = prepare(settings_for(tmp_path, vocab, sequence_length=128), tmp_path / "data")
    totals = opened.manifest.totals
    assert totals["tokens"] + totals["heldout_tokens"] == 1_000_004
    assert totals["rows"] + totals["heldout_rows"] >= 1_000_000 // 126
    assert opened.manifest.wasted_fraction < 0.05


def test_each_worker_process_is_told_to_have_one_thread(monkeypatch):
    names = ["OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"]
    monkeypatch.setenv(names[0], "7")
    monkeypatch.delenv(names[1], raising=False)
    with worker_pool.Workers(2) as workers:
        assert dict(workers.each(os.getenv, names)) == dict.fromkeys(names, "1")
    assert [os.getenv(name) for name in names] == ["7", None]


def test_large_vocabularies_get_wider_ids(tmp_path):
    vocab = tmp_path / "vocab.txt"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(69_995))]
    vocab.write_text("\n".join(pieces) + "\n")
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "1.txt").write_text("w69994\n\nw69993\n")
    opened = prepare(settings_for(tmp_path / "text", str(vocab)), tmp_path / "data")
    assert opened.manifest.lanes == {"ids": "<u4", "marks": "|u1"}
    assert sorted(texts(opened, "train") + texts(opened, "heldout")) == ["w69993", "w69994"]


@pytest.mark.parametrize(("kind", "size"), [("sentencepiece", 36), ("wordpiece", 44)])
def test_a_vocabulary_is_trained_and_repeatable(corpus, kind, size):
    settings = settings_for(corpus, f"train:{kind}:{size}")
    folders = [prepare(settings, corpus / name).directory for name in ("one", "two")]
    words = vocabulary.load(os.path.join(folders[0], "vocab"))
    assert (words.kind, words.size) == (kind, size)
    assert digests(folders[0]).keys() == digests(folders[1]).keys()
    if kind == "sentencepiece":
        assert records.open(folders[0]).manifest.hash == records.open(folders[1]).manifest.hash


def sample(settings):
    """The lines that a vocabulary would be trained on."""
    plan = planning.make_plan(settings, settings.source[5:-6] + "/data")
    os.makedirs(os.path.join(plan.folder, "units"), exist_ok=True)
    with worker_pool.Workers(1) as workers:
        return list(folder_vocabulary.sample(plan, planning.make_tasks(plan), workers))


def test_the_vocabulary_is_trained_on_training_text_of_the_size_asked_for(corpus, vocab):
    settings = settings_for(corpus, vocab, vocab_sample_characters=2000)
    lines = sample(settings)
    assert 1900 < sum(map(len, lines)) < 2000 + 6 * 200
    everything = dataclasses.replace(settings, vocab_sample_characters=10**9)
    tokens = " ".join(sample(everything)).split()
    opened = prepare(settings, corpus / "data")
    assert len(tokens) == opened.manifest.totals["tokens"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab": "no/such/vocab.txt"}, "data.vocab='no/such/vocab.txt' does not exist"),
        (
            {"vocab": "train:bpe:100"},
            "data.vocab='train:bpe:100': 'bpe' is not one of sentencepiece, wordpiece",
        ),
        ({"vocab": "train:sentencepiece"}, "the size '' is not a whole number from 16"),
        ({"rows": "pair"}, "data.rows='pair' is not one of pairs, packed"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(corpus, vocab, change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        prepare(settings_for(corpus, **({"vocab": vocab} | change)), corpus / "data")


def test_a_full_disk_is_one_line_and_the_next_run_goes_on(corpus, vocab, monkeypatch):
    settings, root = settings_for(corpus, vocab), str(corpus / "data")
    write, units = records.ShardWriter._finish, []

    def full(writer):
        units.append(writer)
        if len(units) == 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(writer)

    monkeypatch.setattr(records.ShardWriter, "_finish", full)
    with pytest.raises(
        error_causes.MayPass, match="no space left for .*; free some or set data.dir"
    ) as error:
        preparation.prepare(settings, root, lambda line: None)
    assert "\n" not in str(error.value)
    folder = pathlib.Path(planning.folder_of(settings, root))
    assert not list(folder.rglob("*.partial"))
    assert not (folder / "manifest.json").exists()
    lines = []
    preparation.prepare(settings, root, lines.append)
    assert "2 of 6 units are there already" in lines
    assert digests(folder) == digests(prepare(settings, corpus / "whole").directory)


def test_a_shard_that_no_unit_claims_is_removed(corpus, vocab):
    settings, root = settings_for(corpus, vocab), str(corpus / "data")
    left = pathlib.Path(planning.folder_of(settings, root), "records", "train")
    left.mkdir(parents=True)
    (left / "0-00099-000.ids").write_bytes(b"left by an interruption")
    folder = preparation.prepare(settings, root, lambda line: None)
    assert digests(folder) == digests(prepare(settings, corpus / "whole").directory)


class Dying:
    """A unit of text at which its process is killed."""

    bytes = 1

    def documents(self, options, counts):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_worker_is_one_line_and_the_next_run_goes_on(corpus, vocab, monkeypatch):
    settings, root = settings_for(corpus, vocab, workers=2), str(corpus / "data")
    units = text.units
    with monkeypatch.context() as patch:
        patch.setattr(text, "units", lambda source: [*units(source)[:5], Dying()])
        with pytest.raises(ValueError, match="was killed.*run again with data.workers=1"):
            preparation.prepare(settings, root, lambda line: None)
    folder = preparation.prepare(settings, root, lambda line: None)
    assert digests(folder) == digests(prepare(settings, corpus / "whole").directory)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_s_refusal_is_the_user_s_one_line(corpus, vocab, workers):
    (corpus / "3.txt").write_bytes(b"the cat\n\na d\xffog\n")
    settings = settings_for(corpus, vocab, invalid_utf8="refuse", workers=workers)
    with pytest.raises(ValueError, match="3.txt: invalid UTF-8 near byte") as error:
        prepare(settings, corpus / "data")
    # The command line tells a refusal from a bug by where it was raised.
    assert str(error.traceback[-1].path).startswith(os.path.dirname(preparation.__file__))


def test_two_runs_do_not_write_together(corpus, vocab):
    settings, root = settings_for(corpus, vocab), str(corpus / "data")
    folder = planning.folder_of(settings, root)
    with lock.hold(os.path.join(folder, "prepare.lock"), "it"):
        with pytest.raises(error_causes.MayPass, match=f"by another run .process {os.getpid()} on"):
            preparation.prepare(settings, root, lambda line: None)
    prepare(settings, root)


def test_progress_tells_the_beginning_and_the_end(corpus, vocab):
    lines = []
    path = preparation.prepare(settings_for(corpus, vocab), str(corpus / "data"), lines.append)
    assert lines[0].startswith(f"preparing text:{corpus}/*.txt in {corpus}/data/")
    opened = records.open(path)
    tokens, rows, heldout = (
        opened.manifest.totals[name] for name in ("tokens", "rows", "heldout_rows")
    )
    said = f"prepared 120 documents, {tokens:,} tokens, {rows} rows, and {heldout} held out\n"
    assert heldout > 0 and lines[-1].startswith(said)


class Clock:
    time = 0.0

    def __call__(self):
        return self.time


def test_each_phase_says_its_share_and_its_seconds():
    lines, clock, share = [], Clock(), [0.0]
    phases = progress_lines.Phases(lines.append, clock)
    assert phases.line() == ""

    phases.begin("reading", "reading text", share=lambda: share[-1])
    assert phases.line() == "reading: 0%, 0 s"
    share.append(0.25)
    clock.time = 10.0
    assert phases.line() == "reading: 25%, 10 s, 30 s left"

    phases.begin("training the vocabulary")  # which cannot say how far it is
    clock.time = 40.0
    assert phases.line() == "training the vocabulary: 30 s"

    phases.begin("cutting rows", share=lambda: 0.999, more=lambda: "1,234 characters tokenised")
    clock.time = 1240.0
    assert phases.line() == "cutting rows: 99%, 1,200 s, 1 s left; 1,234 characters tokenised"
    phases.begin("reading", share=lambda: 0.5)
    clock.time = 1250.0

    assert lines == ["reading text", "training the vocabulary", "cutting rows", "reading"]
    assert phases.table() == (
        "  reading                      20.0 s    2%\n"
        "  training the vocabulary      30.0 s    2%\n"
        "  cutting rows              1,200.0 s   96%"
    )


def test_all_phases_are_told_in_their_order_and_summed_up_at_the_end(corpus):
    lines = []
    settings = settings_for(corpus, "train:wordpiece:40", deduplicate=True, workers=2)
    preparation.prepare(settings, str(corpus / "data"), lines.append)
    begun = [
        "reading text to train a vocabulary on", "training a wordpiece vocabulary of 40 pieces",
        "looking for duplicates", "cutting rows", "writing the manifest",
    ]  # fmt: skip
    assert [line for line in lines if line in begun] == begun
    (told,) = (line for line in lines if line.startswith("prepared "))
    names = [line[2:27].strip() for line in told.splitlines()[1:]]
    assert names == [
        "reading", "training the vocabulary", "looking for duplicates", "cutting rows", "writing",
    ]  # fmt: skip


def test_the_share_that_was_read_is_of_all_sources_by_their_weights(tmp_path):
    """The first source is at its end before its half is full, the second one fills its own."""
    (tmp_path / "short.txt").write_text("the cat\n\nthe dog\n")
    for number in range(20):
        (tmp_path / f"long{number}.txt").write_text("the cat sees the dog\n\n" * 40)
    short, long = f"text:{tmp_path}/short.txt@1", f"text:{tmp_path}/long*.txt@3"
    settings = text_settings(
        f"{short}; {long}", "train:wordpiece:40", 16, workers=1,
        vocab_sample_characters=16_000, heldout_fraction=1e-6, min_document_characters=0,
    )  # fmt: skip
    plan, shares = planning.make_plan(settings, str(tmp_path / "data")), []
    os.makedirs(os.path.join(plan.folder, unit_files.UNITS))
    with worker_pool.Workers(1) as workers:
        list(folder_vocabulary.sample(plan, planning.make_tasks(plan), workers, shares.append))
    assert shares[0] == 0.25 and shares[-1] == 1.0
    assert shares == sorted(shares) and len(set(shares)) > 10


def test_every_character_that_is_tokenised_is_counted(vocab):
    with worker_pool.Workers(1) as workers:
        words = vocabulary.load(vocab)
        list(tokenising.encode(["the cat\nsees", "a dog"], words))
        assert workers.characters == 7 + 4 + 5


class Counted:
    """Workers that have tokenised so many characters."""

    characters = 500  # before this


def test_the_share_of_cut_rows_is_of_all_text_and_of_all_workers():
    workers = Counted()
    cut = units._Cut({"a": 1000, "b": 3000}, workers)
    assert cut.share() == 0 and cut.characters() == "0 characters tokenised"

    workers.characters = 500 + 800  # in both units, a byte each
    assert cut.share() == 0.2
    cut.add("a", 500)  # a character has two bytes here; the other 300 are of b
    assert cut.share() == (1000 + 2 * 300) / 4000
    workers.characters = 500 + 500 + 2000  # more than b should have: nothing unfinished is whole
    assert cut.share() == (1000 + 0.99 * 3000) / 4000
    cut.add("b", 2000)
    assert cut.share() == 1


def test_the_speed_of_each_core_is_told(corpus, vocab):
    lines = []
    settings = settings_for(corpus, vocab)
    folder = preparation.prepare(settings, str(corpus / "data"), lines.append)
    (told,) = (line for line in lines if "per core on" in line)
    tokens = records.open(folder).manifest.totals["tokens"]
    found = re.fullmatch(
        r"([\d,]+) tokens cut into rows at ([\d,]+) tokens/s, ([\d,]+) per core on (\d+)", told
    )
    numbers = [int(number.replace(",", "")) for number in found.groups()]
    assert numbers[0] == tokens
    assert numbers[2] == pytest.approx(numbers[1] / numbers[3], abs=1)
