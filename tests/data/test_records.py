# SPDX-License-Identifier: Apache-2.0
"""Rows come back as they were written, and damage is noticed and named."""

import dataclasses
import os
import re
import resource
import zlib

import numpy as np
import pytest

from electra_jax.data import records, shard_writer
from electra_jax.host import safe_files
from support import made_records


def files(directory):
    """Paths inside the folder."""
    return sorted(
        os.path.relpath(os.path.join(folder, name), directory)
        for folder, _, names in os.walk(directory)
        for name in names
    )


def flip(path, place, bits):
    """Damages one byte of a file."""
    data = bytearray(path.read_bytes())
    data[place] ^= bits
    path.write_bytes(data)


def test_rows_come_back_in_the_order_asked_for(tmp_path):
    opened = records.open(made_records.write(str(tmp_path), [[3, 4], [2]]))
    assert [opened.rows("train", s) for s in (0, 1)] == [7, 2]
    ids, marks = opened.read("train", 0, np.array([6, 0, 3, 2, 3]))
    np.testing.assert_array_equal(ids, np.repeat([[6], [0], [3], [2], [3]], 4, 1))
    np.testing.assert_array_equal(marks, ids % 7)
    ids, _ = opened.read("train", 1, np.array([1]))
    np.testing.assert_array_equal(ids, [[1001] * 4])
    ids, _ = opened.read("heldout", 1, np.array([2, 1]))
    np.testing.assert_array_equal(ids, np.repeat([[2], [1]], 4, 1))
    with pytest.raises(IndexError, match=r"rows 0\.\.7 asked of 7 train rows"):
        opened.read("train", 0, np.array([0, 7]))


def test_many_shards_are_read_with_few_open_files(tmp_path, monkeypatch):
    """A map keeps its file open. Each file is checked once, although most are mapped again."""
    monkeypatch.setattr(records, "MAPPED_SHARDS", 4)
    monkeypatch.setattr(records, "_SHARDS_OF_A_SOURCE", 4)
    opened = records.open(made_records.write(str(tmp_path), [[2] * 60]))
    checked = []
    crc32 = zlib.crc32
    monkeypatch.setattr(records.zlib, "crc32", lambda data: checked.append(1) or crc32(data))

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 40, hard))
    try:
        for order in (np.arange(120), np.arange(120)[::-1]):
            np.testing.assert_array_equal(opened.read("train", 0, order)[0][:, 0], order)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(checked) == 60 * len(records.LANES)


@pytest.mark.parametrize(
    ("sources", "files", "most"),
    [
        (1, 20_000, 128),
        (30, 20_000, 960),  # two groups of 16 shards of each
        (30, 1_024, 128),
        (30, 4_096, 512),  # with two files each a quarter of what a process may open
        (30, resource.RLIM_INFINITY, 960),
    ],
)
def test_a_mixture_keeps_what_it_reads_from_open_if_it_may(sources, files, most, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert records._most_maps(sources) == most


@pytest.mark.parametrize("dtype", ["<u2", "<u4"])
def test_shards_are_raw_little_endian_arrays(tmp_path, dtype):
    made_records.write(str(tmp_path), [[2]], length=3, dtype=dtype)
    assert files(tmp_path) == [
        "manifest.json",
        "records/heldout/source0-00000-000.ids",
        "records/heldout/source0-00000-000.marks",
        "records/train/source0-00000-000.ids",
        "records/train/source0-00000-000.marks",
        "unigram.npy",
    ]
    raw = np.fromfile(tmp_path / "records/train/source0-00000-000.ids", dtype)
    np.testing.assert_array_equal(raw, [0, 0, 0, 1, 1, 1])
    assert records.open(str(tmp_path)).read("train", 0, np.array([1]))[0].dtype == dtype[1:]


def test_a_large_unit_becomes_several_shards(tmp_path):
    writer = shard_writer.ShardWriter(str(tmp_path), "wiki-00000", shard_rows=4)
    for begin in (0, 3, 6):
        ids = np.arange(begin, begin + 3, dtype=np.uint16)[:, None]
        writer.write(ids, ids.astype(np.uint8))
    assert [(shard.name, shard.rows) for shard in writer.close()] == [
        ("wiki-00000-000", 4),
        ("wiki-00000-001", 4),
        ("wiki-00000-002", 1),
    ]
    assert np.fromfile(tmp_path / "wiki-00000-001.ids", np.uint16).tolist() == [4, 5, 6, 7]


def test_an_unfinished_shard_never_has_its_own_name(tmp_path):
    writer = shard_writer.ShardWriter(str(tmp_path), "wiki-00000")
    writer.write(np.zeros((2, 4), np.uint16), np.zeros((2, 4), np.uint8))
    begun = files(tmp_path)
    assert len(begun) == 2 and all(
        re.fullmatch(r"wiki-00000-000\.(ids|marks)\..*\.partial", name) for name in begun
    )
    writer.discard()
    assert files(tmp_path) == []


@pytest.mark.parametrize("size", [None, 0, 39, 41])
def test_a_missing_cut_or_grown_file_is_named_with_the_remedy(tmp_path, size):
    made_records.write(str(tmp_path), [[5, 5]])
    path = tmp_path / "records/train/source0-00001-000.ids"
    if size is None:
        path.unlink()
    else:
        path.write_bytes(bytes(size))
    message = "is missing" if size is None else f"has {size} bytes instead of 40"
    with pytest.raises(ValueError, match=f"source0-00001-000.ids {message}; run prepare again"):
        records.open(str(tmp_path))


def test_verify_finds_one_flipped_bit(tmp_path):
    made_records.write(str(tmp_path), [[5, 5]])
    lines = []
    assert records.verify(str(tmp_path), lines.append) == 6
    assert lines == [f"verified 6 record files in {tmp_path}"]
    path = tmp_path / "records/train/source0-00001-000.marks"
    flip(path, 7, 16)
    records.open(str(tmp_path))  # the size is right
    with pytest.raises(ValueError, match="checksum differs: .*source0-00001-000.marks; move"):
        records.verify(str(tmp_path))


@pytest.mark.parametrize("lane", ["ids", "marks"])
def test_the_first_read_from_a_shard_finds_one_flipped_bit_in_it(tmp_path, lane):
    made_records.write(str(tmp_path), [[5, 5]])
    flip(tmp_path / f"records/train/source0-00001-000.{lane}", 7, 16)
    opened = records.open(str(tmp_path))
    opened.read("train", 0, np.array([4]))  # of the other shard
    with pytest.raises(ValueError, match=f"checksum of .*00001-000.{lane} differs; move"):
        opened.read("train", 0, np.array([4, 5]))


@pytest.mark.parametrize("place", [3, 9, 70, 129, -1])
def test_flipped_bits_in_the_counts_of_tokens_are_found(tmp_path, place):
    made_records.write(str(tmp_path), [[5]])
    opened = records.open(str(tmp_path))
    assert opened.unigram().tolist() == [[1] * 5] * 2
    flip(tmp_path / "unigram.npy", place, 64)
    with pytest.raises(ValueError, match=r"unigram.npy (cannot be read|is damaged).*; move"):
        opened.unigram()


def test_the_manifest_comes_back_and_its_hash_leaves_out_the_time(tmp_path):
    manifest = records.open(made_records.write(str(tmp_path), [[3]])).manifest
    assert manifest.sources[0].rows("train") == 3
    assert manifest.hash == dataclasses.replace(manifest, seconds=99.0).hash
    assert manifest.hash != dataclasses.replace(manifest, unk_rate=0.1).hash
    for counts, equal in (({"looked_at": 9, "unknown": 3}, True), ({"documents": 9}, False)):
        other = dataclasses.replace(manifest, totals=manifest.totals | counts)
        assert (manifest.hash == other.hash) == equal
    records.write_manifest(str(tmp_path), manifest)
    assert records.read_manifest(str(tmp_path)) == manifest


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"unk_rate": 0.0', '"unk_rate": 0.1', "was altered"),
        ('"format_version": 2', '"format_version": 9', "format version 9, this program reads 2"),
        ("{", "", "is not JSON"),
        ("{", "[{", "is not JSON"),
        ('"sources"', '"sourcer"', "was altered"),
        ('"weight"', '"weighs"', "was altered"),
        ('"key"', '"kez"', "was altered"),
    ],
)
def test_a_manifest_that_is_not_as_written_is_refused(tmp_path, old, new, message):
    path = tmp_path / "manifest.json"
    made_records.write(str(tmp_path), [[3]])
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(ValueError, match=message):
        records.open(str(tmp_path))


def test_a_folder_without_manifest_says_what_to_do(tmp_path):
    with pytest.raises(ValueError, match="manifest.json is missing; run prepare"):
        records.open(str(tmp_path))


def test_two_writers_of_one_shard_do_not_disturb_each_other(tmp_path):
    """As when a cluster takes a machine for lost that is only slow, and builds its unit again."""
    writers = [shard_writer.ShardWriter(str(tmp_path), "wiki-00000") for _ in range(2)]
    row = np.ones((1, 4), np.uint16), np.ones((1, 4), np.uint8)
    for writer in (*writers, writers[0]):
        writer.write(*row)
    writers[1].write(*row)
    assert writers[0].close() == writers[1].close()
    assert files(tmp_path) == ["wiki-00000-000.ids", "wiki-00000-000.marks"]
    assert np.fromfile(tmp_path / "wiki-00000-000.ids", np.uint16).tolist() == [1] * 8


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    safe_files.write(str(path), b"old")
    monkeypatch.setattr(safe_files, "partial_name", lambda name: str(tmp_path))  # a folder
    with pytest.raises(OSError):
        safe_files.write(str(path), b"new")
    assert path.read_bytes() == b"old"


def test_an_id_beyond_the_vocabulary_is_found_where_it_is_read(tmp_path):
    """Rows 2 to 4 of the second shard hold their numbers, the vocabulary ends before 4."""
    folder = made_records.write(str(tmp_path), [[2, 3]])
    opened = records.open(folder)
    opened.manifest.vocabulary["size"] = 4
    assert opened.read("train", 0, np.array([0, 3]))[0].max() == 3
    with pytest.raises(ValueError, match="row 2: id 4 is beyond .* end at 3; move .*") as error:
        opened.read("train", 0, np.array([4, 0, 1]))
    assert "source0-00001-000.ids" in str(error.value)
