# SPDX-License-Identifier: Apache-2.0
"""A large file is read once for all its stripes, and the rows are the same."""

import codecs
import collections
import gzip
import io
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
from electra_jax.data.text_options import TextOptions
from support.corpus import text_settings
from support.digests import digests

PIECES = "the cat a dog sees follows river house".split()
DOCUMENTS = 1500  # six blocks


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A vocabulary and two files of four stripes each, compressed; and as they are in `plain`."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (tmp_path / "vocab.txt").write_text("\n".join([*special, *PIECES]) + "\n")

    draw = random.Random(1)
    found = [" ".join(draw.choices(PIECES, k=draw.randint(2, 9))) for _ in range(DOCUMENTS)]
    odd = ["", None, "a\0dog \0", "\ud800 the cat", "a\ndog\n\nsees", found[0]]
    lines = [json.dumps({"text": one}) for one in odd + found]
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "a.jsonl").write_text("\n".join(lines))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    found[7] += " \xff"
    data = "\n\n".join(found).encode("latin-1")
    (tmp_path / "plain" / "b.txt").write_bytes(data)
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


def settings(folder, files="*.?z*", **changes):
    source = f"text:{folder}/{files}"
    return text_settings(source, str(folder / "vocab.txt"), 16, workers=1, **changes)


@pytest.mark.parametrize(
    "changes",
    [{}, {"deduplicate": True}, {"deduplicate": True, "duplicate_similarity": 0.9}],
    ids=["all", "equal", "similar"],
)
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


@pytest.fixture
def bytes_read(monkeypatch):
    """Counts the bytes that are read of each file."""
    counts, real = collections.Counter(), text_files._opened

    class Counting(io.BufferedReader):
        def read(self, size=-1):
            data = super().read(size)
            counts[os.path.basename(self.raw.name)] += len(data)
            return data

    monkeypatch.setattr(text_files, "_opened", lambda path: Counting(real(path).detach()))
    return counts


@pytest.mark.parametrize("changes", [{}, {"deduplicate": True}], ids=["all", "deduplicated"])
def test_of_a_plain_file_each_stripe_reads_its_own_blocks(folder, bytes_read, monkeypatch, changes):
    asked = settings(folder, "plain/*", **changes)
    one = preparation.prepare(asked, str(folder / "once"), lambda line: None)
    sizes = {path.name: path.stat().st_size for path in (folder / "plain").iterdir()}
    times = 2 + bool(changes)  # to note the blocks, and for each pass over the documents
    for name, size in sizes.items():  # and once to look at its beginning
        assert size * times < bytes_read[name] <= size * (times + 1)

    monkeypatch.setattr(stripes, "offer", lambda tasks, units: None)
    bytes_read.clear()
    other = preparation.prepare(asked, str(folder / "each"), str)
    assert bytes_read["b.txt"] > 3.9 * (times - 1) * sizes["b.txt"]
    assert digests(one) == digests(other)
    totals = records.open(one).manifest.totals
    assert (totals["invalid_utf8"], totals["empty"]) == (1, 2)


@pytest.mark.parametrize("kind", ["blank_lines", "lines", "files"])
def test_the_blocks_of_a_file_hold_its_documents_whatever_its_lines_are(
    kind, tmp_path, monkeypatch
):
    """Blank lines of all kinds, tags without their ends, carriage returns, broken bytes."""
    monkeypatch.setattr(text_files, "BLOCK", 2)
    draw = random.Random(0)
    odd = [b"", b"", b" \t", "\u00a0\x1c".encode(), b"\r", b"<doc id=1>", b"<doc 2>\r", b"</doc>"]
    odd += ["é</doc> ".encode(), "日本".encode(), b"\xff\xe6", b"\xe6\x97", b"a", b"b\0", b"<doc"]
    several, options = 0, TextOptions(documents=kind)

    for trial in range(200):
        lines = draw.choices(odd, k=draw.randint(0, 40))
        path = tmp_path / f"{trial}.txt"
        path.write_bytes(draw.choice([b"", codecs.BOM_UTF8]) + b"\n".join(lines))
        monkeypatch.setattr(text_files, "_CHUNK", draw.choice([1, 2, 5, 1 << 20]))

        whole, by_block = collections.Counter(), collections.Counter()
        expected = list(text_files.documents(str(path), options, whole))
        blocks = text_files.blocks(str(path), options, collections.Counter())
        found = [
            list(text_files.documents(str(path), options, by_block, [text_files.FilePart(*block)]))
            for block in blocks.tolist()
        ]
        assert sum(found, []) == expected, lines
        assert all(len(block) == 2 for block in found[:-1])
        assert by_block["invalid_utf8"] <= whole["invalid_utf8"]  # blank lines are in no block
        several += len(blocks) > 2
    assert several > 50


@pytest.mark.parametrize("file", ["plain/b.txt", "b.txt.xz"])
def test_a_large_file_that_is_one_document_is_whole_in_its_first_stripe(folder, file):
    """Its 1,500 paragraphs are not shared out among the four stripes."""
    plan = planning.make_plan(settings(folder, file, documents="files"), str(folder / "data"))
    tasks = planning.make_tasks(plan)
    paragraphs = (folder / "plain" / "b.txt").read_text(errors="replace").split("\n\n")
    whole = [["\n".join(paragraphs)], [], [], []]
    for offered in (tasks, []):  # read once for all stripes, and by each
        units = os.path.join(plan.folder, unit_files.UNITS)
        stripes.offer(offered, units)
        found = [list(unit_files.read_documents(task, collections.Counter())) for task in tasks]
        assert found == whole
        stripes.withdraw(units)


def test_a_line_of_a_later_block_is_named_by_its_number_in_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "BLOCK", 2)
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n\n{"text": "b"}\n{"text": "c"}\n{"text": "d"\n')
    _, second = text_files.blocks(str(path), TextOptions(), collections.Counter()).tolist()
    parts = [text_files.FilePart(*second)]
    with pytest.raises(ValueError, match="a.jsonl, line 5: not JSON"):
        list(text_files.documents(str(path), TextOptions(), collections.Counter(), parts))


@pytest.mark.parametrize(("files", "written"), [("*.?z*", "*.zst"), ("plain/*", "blocks-*.npz")])
def test_a_sample_for_a_vocabulary_does_not_read_a_file_to_its_end(folder, files, written):
    """The beginning of a stripe is read off the file itself, unless that was read for all."""
    plan = planning.make_plan(settings(folder, files), str(folder / "data"))
    task, *_ = tasks = planning.make_tasks(plan)
    units = os.path.join(plan.folder, unit_files.UNITS)
    stripes.offer(tasks, units)

    def asked(**how):
        return stripes.documents(task, units, TextOptions(), collections.Counter(), **how)

    assert asked(write=False) is None and not list(folder.rglob(f"*.stripes/{written}"))
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


def test_damaged_notes_of_blocks_are_named_with_the_folder_to_delete(folder):
    plan = planning.make_plan(settings(folder, "plain/*"), str(folder / "data"))
    task, *_ = tasks = planning.make_tasks(plan)
    stripes.offer(tasks, os.path.join(plan.folder, unit_files.UNITS))
    list(unit_files.read_documents(task, collections.Counter()))
    (path,) = folder.rglob("0-0.stripes/blocks-*.npz")
    for length in (len(path.read_bytes()) - 30, 0):
        path.write_bytes(path.read_bytes()[:length])
        with pytest.raises(ValueError, match=f"{path} is damaged .*; delete {path.parent} and run"):
            unit_files.read_documents(task, collections.Counter())


def test_blocks_are_noted_again_if_the_file_was_written_anew(folder):
    """An interrupted preparation continues with another text of the same size."""
    plan = planning.make_plan(settings(folder, "plain/*"), str(folder / "data"))
    tasks = planning.make_tasks(plan)
    stripes.offer(tasks, os.path.join(plan.folder, unit_files.UNITS))
    first = [list(unit_files.read_documents(task, collections.Counter())) for task in tasks[:4]]

    path = folder / "plain" / "a.jsonl"
    lines = path.read_text().split("\n")
    path.write_text("\n".join(lines[::-1]))
    os.utime(path, ns=(0, 0))
    again = [list(unit_files.read_documents(task, collections.Counter())) for task in tasks[:4]]
    assert again != first
    assert sorted(sum(again, [])) == sorted(sum(first, []))


def test_copies_of_a_file_with_times_of_their_own_are_each_read_once(folder, monkeypatch):
    """As on machines that share the prepared folder, and have each downloaded the text."""
    plan = planning.make_plan(settings(folder, "plain/*"), str(folder / "data"))
    tasks = planning.make_tasks(plan)[:4]
    stripes.offer(tasks, os.path.join(plan.folder, unit_files.UNITS))
    read, note = [], stripes._note

    def noting(file, *more):
        read.append(file)
        note(file, *more)

    monkeypatch.setattr(stripes, "_note", noting)
    for task in tasks:
        for time in (1, 2):
            os.utime(folder / "plain" / "a.jsonl", ns=(time, time))
            list(unit_files.read_documents(task, collections.Counter()))
    assert len(read) == 2


def test_a_part_may_have_a_larger_share_of_nul_bytes_than_the_file(tmp_path, monkeypatch):
    """In 64 KiB of text 12 are a few, in the first block of 40 bytes they are many."""
    monkeypatch.setattr(text_files, "BLOCK", 2)
    path = tmp_path / "a.txt"
    path.write_text("a\0\0\0\0\0\0\n\nb\0\0\0\0\0\0\n\n" + "the cat\n\n" * 9000)
    first, *_ = text_files.blocks(str(path), TextOptions(), collections.Counter()).tolist()
    found = text_files.documents(
        str(path), TextOptions(), collections.Counter(), [text_files.FilePart(*first)]
    )
    assert [document.strip("\0") for document in found] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "stripes_n", "shared"),
    [("A.TXT.BZ2", 4, True), ("a.txt", 4, True), ("a.txt", 1, False), ("a.parquet.gz", 4, False)],
)
def test_parquet_and_files_of_one_stripe_have_no_such_folder(name, stripes_n, shared):
    assert text.FileUnit(name, 0, stripes_n).is_shared == shared
