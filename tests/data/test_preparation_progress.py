# SPDX-License-Identifier: Apache-2.0
"""A preparation tells what it does, how much of it is done, and how long it takes."""

import os
import random
import re

import pytest

from electra_jax.data import (
    folder_vocabulary,
    planning,
    preparation,
    progress_lines,
    records,
    tokenising,
    unit_files,
    units,
    vocabulary,
    worker_pool,
)
from support.corpus import text_settings
from support.prepared import PIECES, settings_for


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
