# SPDX-License-Identifier: Apache-2.0
"""A large compressed file is read once for all its stripes, and the rows are the same."""

import collections
import gzip
import json
import lzma
import os
import random
import shutil

import pytest

from electra_jax.data import (
    planning,
    preparation,
    records,
    stripes,
    text,
    text_files,
    unit_files,
)
from support.corpus import text_settings
from support.digests import digests

PIECES = "the cat a dog sees follows river house".split()
DOCUMENTS = 1500  # six blocks


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A vocabulary and two compressed files of four stripes each."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (tmp_path / "vocab.txt").write_text("\n".join([*special, *PIECES]) + "\n")

    draw = random.Random(1)
    found = [" ".join(draw.choices(PIECES, k=draw.randint(2, 9))) for _ in range(DOCUMENTS)]
    odd = ["", None, "a\0dog \0", "\ud800 the cat", "a\ndog\n\nsees", found[0]]
    lines = [json.dumps({"text": one}) for one in odd + found]
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    found[7] += " \xff"
    data = "\n\n".join(found).encode("latin-1")
    (tmp_path / "b.txt.xz").write_bytes(lzma.compress(data))

    monkeypatch.setattr(text, "_STRIPE_BYTES", 1)
    monkeypatch.setattr(text, "_STRIPES", 4)
    return tmp_path


@pytest.fixture
def opened(monkeypatch):
    """Counts how often each file is opened."""
    counts, real = collections.Counter(), text_files._opened

    def count(path):
        counts[os.path.basename(path)] += 1
        return real(path)

    monkeypatch.setattr(text_files, "_opened", count)
    return counts


def settings(folder, **changes):
    source = f"text:{folder}/*.?z*"
    return text_settings(source, str(folder / "vocab.txt"), 16, workers=1, **changes)


@pytest.mark.parametrize("changes", [{}, {"deduplicate": True}], ids=["all", "deduplicated"])
def test_a_compressed_file_is_read_once_and_the_rows_are_the_same(
    folder, opened, monkeypatch, changes
):
    one = preparation.prepare(settings(folder, **changes), str(folder / "once"), lambda line: None)
    assert opened == {"a.jsonl.gz": 2, "b.txt.xz": 2}  # once to look at its beginning
    assert not os.path.exists(os.path.join(one, "units"))

    monkeypatch.setattr(stripes, "offer", lambda tasks, units: None)
    opened.clear()
    other = preparation.prepare(settings(folder, **changes), str(folder / "each"), str)
    assert opened["b.txt.xz"] == 1 + 4 * (1 + bool(changes))
    assert digests(one) == digests(other)
    totals = records.open(one).manifest.totals
    assert (totals["invalid_utf8"], totals["empty"]) == (1, 2)


def test_a_sample_for_a_vocabulary_does_not_read_a_file_to_its_end(folder):
    """The beginning of a stripe is read off the file itself, unless its own file is there."""
    plan = planning.make_plan(settings(folder), str(folder / "data"))
    task, *_ = tasks = planning.make_tasks(plan)
    units = os.path.join(plan.folder, unit_files.UNITS)
    stripes.offer(tasks, units)

    def asked(**how):
        return stripes.documents(task, units, text.Options(), collections.Counter(), **how)

    assert asked(write=False) is None and not list(folder.rglob("*.zst"))
    whole = list(asked())
    assert list(asked(write=False)) == whole
    sampled = unit_files.read_documents(task, collections.Counter(), whole=False)
    assert list(sampled) == whole


def test_a_share_reads_a_file_once_if_it_has_several_of_its_stripes(folder):
    """Who has one stripe of a file would write the others for nobody."""
    plan = planning.make_plan(settings(folder), str(folder / "data"))
    tasks = planning.make_tasks(plan)
    units = os.path.join(plan.folder, unit_files.UNITS)
    stripes.offer(tasks[3:6], units)  # the last stripe of one file, two of the other
    assert os.listdir(units) == ["0-4.stripes"]
    found = [list(unit_files.read_documents(task, collections.Counter())) for task in tasks[3:6]]
    stripes.withdraw(units)
    assert os.listdir(units) == []
    again = [list(unit_files.read_documents(task, collections.Counter())) for task in tasks[3:6]]
    assert found == again and all(found)


def test_an_interrupted_preparation_does_not_read_it_again(folder, opened, monkeypatch):
    """The second stripe of the second file fails."""
    real = stripes._read

    def fail(path, counts):
        if path.endswith(os.path.join("0-4.stripes", "00001.zst")):
            raise ValueError("broken off")
        return real(path, counts)

    with monkeypatch.context() as patch:
        patch.setattr(stripes, "_read", fail)
        with pytest.raises(ValueError, match="broken off"):
            preparation.prepare(settings(folder), str(folder / "data"), lambda line: None)
    opened.clear()
    preparation.prepare(settings(folder), str(folder / "data"), lambda line: None)
    assert opened == {"a.jsonl.gz": 1, "b.txt.xz": 1}  # their beginnings


def test_a_damaged_file_is_named_and_leaves_no_stripe(folder):
    path = folder / "b.txt.xz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match="b.txt.xz cannot be read: .*; is the file whole"):
        preparation.prepare(settings(folder), str(folder / "data"), lambda line: None)
    found = {one.parent.name for one in (folder / "data").rglob("*.zst*")}
    assert found == {"0-0.stripes"}


def test_a_damaged_stripe_is_named_with_the_folder_to_delete(folder, monkeypatch):
    def broken_off(path, counts):
        raise ValueError("broken off")

    with monkeypatch.context() as patch:
        patch.setattr(stripes, "_read", broken_off)
        with pytest.raises(ValueError, match="broken off"):
            preparation.prepare(settings(folder), str(folder / "data"), lambda line: None)
    (path,) = (folder / "data").rglob("0-0.stripes/00000.zst")
    whole = path.read_bytes()
    path.write_bytes(whole[:9] + b"damage" + whole[15:])
    with pytest.raises(ValueError, match=f"{path} is damaged .*; delete {path.parent} and run"):
        preparation.prepare(settings(folder), str(folder / "data"), lambda line: None)

    shutil.rmtree(path.parent)
    preparation.prepare(settings(folder), str(folder / "data"), lambda line: None)


@pytest.mark.parametrize("name", ["a.txt", "a.parquet.gz"])
def test_what_is_not_decompressed_and_parquet_have_no_such_folder(name):
    assert not text.FileUnit(name, 0, 4).is_read_whole
    assert text.FileUnit("A.TXT.BZ2", 0, 4).is_read_whole
    assert not text.FileUnit("A.TXT.BZ2", 0, 1).is_read_whole
