# SPDX-License-Identifier: Apache-2.0
"""Odd, damaged and large files: each document once, each count once, each error named."""

import bz2
import collections
import errno
import gzip
import lzma
import random
import socket
import threading
import time

import pyarrow
import pytest
from pyarrow import parquet

from electra_jax.data import servers, text, text_files
from electra_jax.data.text_options import TextOptions


def read(path, stripes=1, **options):
    """(documents of each stripe, counts) of one file."""
    counts = collections.Counter()
    units = [text.FileUnit(str(path), stripe, stripes) for stripe in range(stripes)]
    return [list(unit.documents(TextOptions(**options), counts)) for unit in units], counts


def write_parquet(path, values, rows):
    parquet.write_table(pyarrow.table({"text": values}), path, row_group_size=rows)


def test_stripes_take_whole_row_groups_of_parquet(tmp_path):
    write_parquet(tmp_path / "a.parquet", list("abcdefg"), rows=2)  # ab cd ef g
    assert read(tmp_path / "a.parquet", stripes=2)[0] == [list("abef"), list("cdg")]


def test_a_single_row_group_is_striped_by_blocks(tmp_path):
    values = [str(number) for number in range(600)]
    write_parquet(tmp_path / "a.parquet", values, rows=600)
    first, second = read(tmp_path / "a.parquet", stripes=2)[0]
    assert first == values[:256] + values[512:]
    assert second == values[256:512]


def test_bad_bytes_are_counted_once_however_many_stripes_there_are(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"caf\xe9 au lait\n")
    assert [read(tmp_path / "a.txt", stripes=k)[1]["invalid_utf8"] for k in (1, 3)] == [1, 1]


def test_a_replacement_character_that_was_there_is_no_bad_byte(tmp_path):
    (tmp_path / "a.txt").write_bytes("was \ufffd there, ".encode() + b"\xff was not\n")
    (documents,), counts = read(tmp_path / "a.txt")
    assert documents == ["was \ufffd there, \ufffd was not"]
    assert counts == {"invalid_utf8": 1}


@pytest.mark.parametrize("chunk", [1, 2, 3, 5])
def test_characters_and_line_ends_may_lie_across_pieces(chunk, tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "_CHUNK", chunk)
    (tmp_path / "a.txt").write_bytes("\ufeff日本\r\né\ufffd\r\n\r\nz".encode())
    (documents,), counts = read(tmp_path / "a.txt")
    assert documents == ["日本\né\ufffd", "z"]
    assert not counts
    (tmp_path / "b.txt").write_bytes("日本".encode() + b"\xe6x")  # six bytes, then a broken one
    with pytest.raises(ValueError, match="b.txt: invalid UTF-8 near byte 6;"):
        read(tmp_path / "b.txt", invalid_utf8="refuse")


@pytest.mark.parametrize(
    "content",
    [
        "the cat\n\na dog\n".encode("utf-16-le"),
        ("\u732b\u3068\u72ac" * 30 + "\n").encode("utf-16-be") * 9,
        gzip.compress(random.Random(0).randbytes(100_000)),
        b"\x7fELF" + bytes(60),
    ],
)
def test_a_file_that_is_no_text_is_refused_with_its_name(content, tmp_path):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(ValueError, match="a.txt is not text: .* bytes are NUL; leave it out of"):
        read(tmp_path / "a.txt")
    with pytest.raises(ValueError, match="a.txt is not text"):
        text_files.invalid_share(str(tmp_path / "a.txt"))


@pytest.mark.parametrize("lines", [1, 500])
def test_a_few_nul_bytes_are_damage_and_are_dropped(lines, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"the c\0at\n" + b"a dog\n" * lines)
    assert read(tmp_path / "a.txt")[0][0][0].startswith("the cat\na dog")


@pytest.mark.parametrize(
    ("content", "share"),
    [
        ("Öl, Käse, Brötchen\n".encode("latin-1"), 3 / 19),
        ("Öl, Käse, \ufffd\n".encode(), 0.0),
        (b"a" * (text_files._BEGINNING - 1) + "ö".encode(), 0.0),  # cut within a letter
        (b"", 0.0),
    ],
)
def test_how_much_of_the_beginning_is_not_utf8(content, share, tmp_path):
    (tmp_path / "a.txt").write_bytes(content)
    assert text_files.invalid_share(str(tmp_path / "a.txt")) == pytest.approx(share)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(content)[:-9])  # told when it is read
    assert text_files.invalid_share(str(tmp_path / "a.txt.gz")) == 0.0


def test_a_wrapped_document_may_end_in_the_middle_of_a_line(tmp_path):
    (tmp_path / "a.txt").write_text("<doc id='1'>\nfirst\nlast words.</doc>\nloose\n")
    assert read(tmp_path / "a.txt")[0] == [["first\nlast words.", "loose"]]


def test_null_is_an_empty_document(tmp_path):
    write_parquet(tmp_path / "a.parquet", ["a", None], rows=2)
    (tmp_path / "b.jsonl").write_text('{"text": "a"}\n{"text": null}\n')
    for name in ("a.parquet", "b.jsonl"):
        assert read(tmp_path / name) == ([["a"]], {"empty": 1})


def test_undecoded_parquet_is_decoded_and_numbers_are_refused(tmp_path):
    write_parquet(tmp_path / "a.parquet", pyarrow.array([b"caf\xc3\xa9", b"\xff"]), rows=2)
    assert read(tmp_path / "a.parquet") == ([["café", "\ufffd"]], {"invalid_utf8": 1})
    write_parquet(tmp_path / "b.parquet", [1, 2], rows=2)
    with pytest.raises(ValueError, match="b.parquet, field 'text' is int, not text; set data"):
        read(tmp_path / "b.parquet")


def test_damage_inside_a_compressed_file_is_named(tmp_path):
    data = bytearray(gzip.compress(bytes(range(256)) * 400, mtime=0))
    for at in range(12, len(data), 9):
        data[at] ^= 0x55
    (tmp_path / "a.txt.gz").write_bytes(data)
    with pytest.raises(ValueError, match="a.txt.gz cannot be read: .*; is the file whole"):
        read(tmp_path / "a.txt.gz")


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("a.txt.GZ", gzip.compress),
        ("A.JSONL.BZ2", bz2.compress),
        ("a.Json.XZ", lzma.compress),
        ("a.NDJSON.ZST", lambda data: pyarrow.compress(data, "zstd", asbytes=True)),
    ],
)
def test_endings_may_be_in_capitals(name, pack, tmp_path):
    content = b"one" if "txt" in name else b'{"text": "one"}'
    (tmp_path / name).write_bytes(pack(content))
    assert read(tmp_path / name)[0] == [["one"]]
    assert text_files.text_bytes(str(tmp_path / name), size=5) == 20


def test_parquet_may_end_in_capitals(tmp_path):
    write_parquet(tmp_path / "A.PARQUET", ["one"], rows=1)
    assert read(tmp_path / "A.PARQUET")[0] == [["one"]]
    (tmp_path / "B.PARQUET.GZ").write_bytes(gzip.compress((tmp_path / "A.PARQUET").read_bytes()))
    assert read(tmp_path / "B.PARQUET.GZ")[0] == [["one"]]


def test_compressed_files_may_be_joined(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"one\n\n") + gzip.compress(b"two"))
    assert read(tmp_path / "a.txt.gz")[0] == [["one", "two"]]


def test_a_name_that_is_there_is_no_pattern(tmp_path):
    (tmp_path / "part[1].txt").write_text("found")
    (source,) = text.parse(f"text:{tmp_path}/part[1].txt")
    assert text.fingerprint(source) == [(f"{tmp_path}/part[1].txt", 5)]


def test_a_file_that_a_pattern_matches_in_two_ways_is_one_file(tmp_path):
    """The first `**` is nothing or en, and the second is then en or nothing."""
    (tmp_path / "en" / "en").mkdir(parents=True)
    (tmp_path / "en" / "en" / "x.txt").write_text("found")
    (source,) = text.parse(f"text:{tmp_path}/**/en/**/*.txt")
    assert text.fingerprint(source) == [(f"{tmp_path}/en/en/x.txt", 5)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "is a folder; its files are text:.*/[*]"),
        ("a.tar.xz", "is an archive; unpack it"),
        ("A.ZIP", "is an archive; unpack it"),
    ],
)
def test_folders_and_archives_are_refused_with_the_remedy(name, message, tmp_path):
    for archive in ("a.tar.xz", "A.ZIP"):
        (tmp_path / archive).write_bytes(b"")
    (source,) = text.parse(f"text:{tmp_path}/{name}".rstrip("/"))
    with pytest.raises(ValueError, match=message):
        text.units(source)


def test_a_source_is_named_after_no_ending():
    assert [s.name for s in text.parse("text:en/*.txt.gz;text:FR/*.TXT.GZ")] == ["en", "FR"]


def test_names_keep_letters_of_all_scripts():
    found = text.parse("text:数据/中文.txt;text:daten/größe/*.txt;text:日本語/*.jsonl.gz")
    assert [s.name for s in found] == ["中文", "größe", "日本語"]


def test_names_differ_on_file_systems_that_fold_case():
    assert [s.name for s in text.parse("text:en/*.txt;text:EN/*.txt")] == ["en", "EN2"]


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("two\nlines", "two lines"),
        ("of a host (Caused by NameResolution(" + "word " * 60 + "))", "word word ...))"),
        ("x" * 500, "x" * 160 + " ..."),
    ],
)
def test_a_long_message_of_a_library_ends_at_a_word_with_its_parentheses_closed(message, shown):
    found = text_files.one_line(ValueError(message))
    assert found.endswith(shown) and len(found) < 170
    assert found.count("(") == found.count(")")


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (socket.gaierror(-2, "Name or service not known"), "name resolution failed: Name or"),
        (ConnectionRefusedError(111, "Connect call failed"), "Connection refused"),
        (OSError(errno.ENOSPC, "no space"), "No space left on device"),
        (KeyError("etag"), "RuntimeError: Max retries exceeded"),
    ],
)
def test_why_a_server_gives_nothing_is_said_in_the_systems_words(cause, words):
    outer = RuntimeError("Max retries exceeded with url: /another/version/of/it")
    outer.__context__ = cause
    assert servers.why(outer).startswith(words)


def test_an_error_without_a_message_gives_the_reason_of_its_cause_or_else_its_kind_alone():
    outer = TimeoutError()
    assert servers.why(outer) == "TimeoutError"
    outer.__cause__ = ValueError("no byte in 60 s")
    assert servers.why(outer) == "ValueError: no byte in 60 s"


def test_many_questions_may_take_longer_than_one(monkeypatch):
    monkeypatch.setattr(servers, "SECONDS", 1)
    monkeypatch.setattr(servers, "AT_ONCE", 1)
    found = servers.each_in_time(lambda n: time.sleep(0.4) or n * n, range(4))  # 1.6 s
    assert found == [0, 1, 4, 9]


def test_questions_are_asked_at_the_same_time(monkeypatch):
    """Each waits until another one is asked too."""
    monkeypatch.setattr(servers, "AT_ONCE", 2)
    both = threading.Barrier(2, timeout=10)
    assert servers.each_in_time(lambda n: both.wait() * 0 + n, range(4)) == [0, 1, 2, 3]


def test_a_question_without_an_answer_ends_all(monkeypatch):
    monkeypatch.setattr(servers, "SECONDS", 0.3)
    never = threading.Event()
    with pytest.raises(TimeoutError, match="no answer in 0.3 s"):
        servers.each_in_time(lambda n: n if n < 5 else never.wait(60), range(20))
    never.set()


def test_an_error_ends_the_questions(monkeypatch):
    monkeypatch.setattr(servers, "AT_ONCE", 1)
    with pytest.raises(ZeroDivisionError):
        servers.each_in_time(lambda n: 1 / n, range(3))
    assert servers.each_in_time(lambda n: 1 / n, []) == []
