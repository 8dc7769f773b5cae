# SPDX-License-Identifier: Apache-2.0
"""Text behind addresses: real files over HTTP on loopback and through `file://`."""

import bz2
import collections
import errno
import functools
import gzip
import http.server
import lzma
import os
import pathlib
import re
import sys
import threading
import time

import aiohttp
import fsspec
import numpy as np
import pytest
from fsspec.registry import _registry

from electra_jax.data import preparation, records, servers, text, text_remote
from electra_jax.data.text_options import TextOptions
from electra_jax.host import error_causes, lock
from support.corpus import text_settings, write_corpus


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder; notes which files were sent, and says of some less than others do."""

    def do_HEAD(self):
        time.sleep(self.server.head_seconds)
        if self.server.closed and self.path.startswith(self.server.closed):
            self.send_error(self.server.refusal)
            return
        super().do_HEAD()

    def do_GET(self):
        if self.server.closed and self.path.startswith(self.server.closed):
            self.send_error(self.server.refusal)
            return
        if self.path.startswith("/hanging"):
            if os.path.exists(self.translate_path(self.path)):  # listed, and never sent
                self.send_response(200)
                self.send_header("Content-Length", "9")
                self.end_headers()
            self.server.ended.wait(60)
            return
        if self.path.startswith("/endless"):  # no length, as of a page that is made when asked for
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"a document\n")
            return
        if not self.path.endswith("/"):
            self.server.sent[self.path] += 1
        super().do_GET()

    def log_message(self, *_):
        pass


@pytest.fixture
def web(tmp_path, monkeypatch):
    """A server of the folder `web.root`; `web.at` is its address."""
    monkeypatch.setenv("ELECTRA_JAX_CACHE", str(tmp_path / "cache"))
    text_remote.files.cache_clear()
    root = tmp_path / "web"
    (root / "en").mkdir(parents=True)
    for number in range(3):
        lines = write_corpus(tmp_path / f"{number}.txt", 30, seed=number).read_bytes()
        (root / "en" / f"{number}.txt.gz").write_bytes(gzip.compress(lines))
    handler = functools.partial(Handler, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.root, server.sent = root, collections.Counter()
        server.at = f"http://127.0.0.1:{server.server_port}"
        server.ended = threading.Event()
        server.head_seconds = 0.0
        server.closed, server.refusal = "", 403  # what is refused, and with which answer
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.ended.set()
        server.shutdown()
        thread.join()
    text_remote.files.cache_clear()


def documents(spec):
    (source,) = text.parse(spec)
    counts = collections.Counter()
    return [one for unit in text.units(source) for one in unit.documents(TextOptions(), counts)]


def test_files_behind_an_address_are_read_as_files_are(web):
    here = documents(f"text:{web.root}/en/*.txt.gz")
    assert len(here) == 90
    assert documents(f"text:file://{web.root}/en/*.txt.gz") == here
    assert documents(f"text:{web.at}/en/*.gz") == here
    assert documents(f"text:{web.at}/en/1.txt.gz") == here[30:60]


def test_another_kind_of_address_is_read_in_the_same_way(web, tmp_path):
    """The memory of this process, with files of several compressions and folders in folders."""
    memory = fsspec.filesystem("memory")
    memory.pipe("/some/en/0.txt.gz", (web.root / "en" / "0.txt.gz").read_bytes())
    memory.pipe("/some/en/deep/1.txt.bz2", bz2.compress(b"a first one\n\na second one\n"))
    memory.pipe("/some/en/deep/2.jsonl.xz", lzma.compress(b'{"text": "a third one"}\n'))
    try:
        packed = documents(f"text:{web.root}/en/0.txt.gz")
        rest = ["a first one", "a second one", "a third one"]
        assert documents("text:memory://some/en/*.gz") == packed
        assert documents("text:memory://some/**/[12].*") == rest
        settings = text_settings(
            "text:memory://some/en/**", "train:wordpiece:150", 32, heldout_fraction=0.1, workers=1
        )
        opened = records.open(preparation.prepare(settings, str(tmp_path / "data")))
        assert opened.manifest.totals["documents"] == len(packed) + len(rest)
    finally:
        memory.rm("/some", recursive=True)


def test_endings_may_be_in_capitals(web):
    (web.root / "A.JSONL.GZ").write_bytes(gzip.compress(b'{"text": "one"}'))
    assert documents(f"text:{web.at}/A.JSONL.GZ") == ["one"]


def test_a_file_is_downloaded_once(web):
    source = f"text:{web.at}/en/1.txt.gz"
    (place,) = text_remote.files(f"{web.at}/en/1.txt.gz")
    assert place.bytes_here() == 0
    for _ in range(2):
        documents(source)
    assert web.sent == {"/en/1.txt.gz": 1} and place.bytes_here() == place.bytes
    with open(place.local_path(), "rb") as file:
        assert file.read() == (web.root / "en" / "1.txt.gz").read_bytes()


def test_prepared_by_several_workers_its_rows_are_those_of_the_same_files(web, tmp_path):
    ids = []
    for spec in (f"text:{web.at}/en/*.gz", f"text:{web.root}/en/*.gz"):
        settings = text_settings(spec, "train:wordpiece:150", 32, heldout_fraction=0.1, workers=2)
        place = preparation.prepare(settings, str(tmp_path / f"data{len(ids)}"))
        opened = records.open(place)
        ids.append(opened.read("train", 0, np.arange(opened.rows("train", 0)))[0].tolist())
    assert ids[0] == ids[1] and len(ids[0]) > 20
    assert set(web.sent.values()) == {1} and len(web.sent) == 3  # workers share what is fetched


def test_another_size_is_another_text(web):
    (source,) = text.parse(f"text:{web.at}/en/*.gz")
    before = text.fingerprint(source)
    with gzip.open(web.root / "en" / "0.txt.gz", "at") as file:
        file.write("one more document\n")
    text_remote.files.cache_clear()
    assert text.fingerprint(source) != before and text.size(source) > 0


def test_a_file_that_changed_since_it_was_listed_is_refused_and_not_kept(web, tmp_path):
    (listed,) = text_remote.files(f"{web.at}/en/0.txt.gz")
    (web.root / "en" / "0.txt.gz").write_bytes(b"short")
    with pytest.raises(ValueError, match=r"0\.txt\.gz cannot be downloaded .*5 bytes came of the"):
        listed.local_path()
    assert not list((tmp_path / "cache").rglob("0.txt.gz"))


def test_a_file_of_the_web_may_take_any_time_as_long_as_bytes_come(web, monkeypatch):
    """aiohttp's default ends each download after 300 seconds."""
    made, session = [], aiohttp.ClientSession
    monkeypatch.setattr(aiohttp, "ClientSession", lambda **asked: made.append(asked) or session())
    # What the user has set for fsspec stays; it also makes this file system another one than
    # those of other tests.
    monkeypatch.setitem(fsspec.config.conf, "http", {"client_kwargs": {"trust_env": True}})
    documents(f"text:{web.at}/en/1.txt.gz")
    assert made
    for asked in made:
        assert asked["trust_env"]
        assert (asked["timeout"].total, asked["timeout"].sock_read) == (None, 60)


def test_a_download_that_falls_silent_says_so_and_that_it_begins_again(web, monkeypatch):
    monkeypatch.setattr(text_remote, "_SILENCE", 0.3)
    (web.root / "hanging.txt").write_bytes(b"some text")
    with pytest.raises(ValueError, match="hanging.txt cannot be downloaded") as raised:
        documents(f"text:{web.at}/hanging.txt")
    assert str(raised.value).endswith(
        "TimeoutError: Timeout on reading data from socket); the same command begins it again, and"
        " keeps the files that are complete"
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{at}/fr/*.gz", "matches no file"),
        ("{at}/en/9.txt", "matches no file"),
        ("memory://nothing/of/that", "the files of a folder are text:memory://nothing/of/that/*"),
        ("zip://*.txt::{at}/en.zip", "files inside of another file; unpack that"),
        ("{at}/endless.txt", "the server does not say how large it is; download it"),
        ("{at}/en.zip", "en.zip is an archive; unpack it and give its files"),
        ("abc://bucket/x.txt", "is no kind of address that fsspec knows; gs://, s3:// and https"),
        ("https://lab/x.txt", "\"aiohttp\" to be installed: pip install 'aiohttp'"),
        ("gs://bucket/x.txt", "pip install 'gcsfs' 'google-cloud-storage>"),
    ],
)
def test_what_cannot_be_read_is_named_with_a_remedy(web, monkeypatch, spec, message):
    (web.root / "en.zip").write_bytes(b"x")
    # As where their libraries are not installed.
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    if spec.startswith("https://"):
        monkeypatch.delitem(_registry, "https", raising=False)
        monkeypatch.setitem(sys.modules, "fsspec.implementations.http", None)
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        documents(f"text:{spec.format(at=web.at)}")
    assert "\n" not in str(raised.value)
    assert not isinstance(raised.value, servers.Unreachable)


@pytest.mark.parametrize("answer", [401, 403])
@pytest.mark.parametrize("pattern", ["en/0.txt.gz", "en/*.gz"])
def test_a_server_that_refuses_is_an_error_that_stays(web, answer, pattern):
    """A launcher would begin the run again for ever if it might pass."""
    web.closed, web.refusal = "/en/", answer
    with pytest.raises(ValueError, match="may not be read with the credentials") as raised:
        documents(f"text:{web.at}/{pattern}")
    assert f": {answer}, message=" in str(raised.value)
    assert "; download it where it may be, and give data.source=text:" in str(raised.value)
    assert not error_causes.may_pass(raised.value) and "\n" not in str(raised.value)


def test_a_right_that_is_taken_away_after_the_listing_is_an_error_that_stays(web):
    listed, other = text_remote.files(f"{web.at}/en/*.gz")[:2]
    web.closed = "/en/0"
    with pytest.raises(ValueError, match=r"/en/0\.txt\.gz may not be read with the cr") as raised:
        listed.local_path()
    assert not error_causes.may_pass(raised.value)
    assert os.path.exists(other.local_path())


def test_without_locks_a_download_that_breaks_off_is_seen_and_leaves_nothing(web, monkeypatch):
    """Each has a name of its own, since several may fetch the file at the same time."""
    (listed,) = text_remote.files(f"{web.at}/en/0.txt.gz")
    seen = []

    class BreaksOff:
        def get_file(self, there, here):
            pathlib.Path(here).write_bytes(b"half")
            seen.append(listed.bytes_here())
            raise OSError("the connection was reset")

    monkeypatch.setattr(lock, "take", lambda file: False)
    monkeypatch.setattr(text_remote, "_file_system", lambda address: (BreaksOff(), address))
    with pytest.raises(error_causes.MayPass, match="cannot be downloaded"):
        listed.local_path()
    assert seen == [4] and listed.bytes_here() == 0
    assert os.listdir(os.path.dirname(listed._path())) == ["lock"]


class CodedError(Exception):
    """An error with the code of the answer, as gcsfs has it."""

    def __init__(self, code):
        super().__init__(f"an answer, {code}")
        self.code = code


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (OSError("Forbidden: b/lab/o\nnobody may list it"), True),  # gcsfs
        (CodedError(401), True),  # gcsfs, without credentials
        (PermissionError("Access Denied"), True),  # s3fs
        (CodedError(503), False),
        (OSError(errno.EBUSY, "SlowDown"), False),  # s3fs
        (PermissionError(errno.EACCES, "Permission denied", "/cache/lock"), False),  # this machine
    ],
)
def test_what_libraries_make_of_an_answer(error, refused):
    assert servers.refused(error) == refused
    wrapped = RuntimeError("cannot be read")
    wrapped.__cause__ = error
    assert servers.refused(wrapped) == refused


@pytest.mark.parametrize(
    ("address", "remedy"),
    [
        ("gs://lab/*.txt", "give them the role Storage Object Viewer on the bucket"),
        ("s3://lab/*.txt", "give them s3:ListBucket and s3:GetObject on the bucket"),
    ],
)
def test_a_bucket_that_refuses_is_named_with_what_it_needs(monkeypatch, address, remedy):
    def refuse(_):
        raise PermissionError("Access Denied")

    monkeypatch.setattr(text_remote, "_matching", refuse)
    with pytest.raises(ValueError, match=re.escape(f"(PermissionError: Access Denied); {remedy}")):
        documents(f"text:{address}")


def test_a_server_that_does_not_answer_is_one_line_in_time(web, monkeypatch):
    monkeypatch.setattr(servers, "SECONDS", 0.5)
    for address in ("http://127.0.0.1:9/x.txt", f"{web.at}/hanging.txt"):
        with pytest.raises(servers.Unreachable, match="cannot be listed") as raised:
            documents(f"text:{address}")
        assert f"without a network {servers.OTHER_TEXT}" in str(raised.value)
        assert ("(Connection refused);" in str(raised.value)) == (":9/" in address)
        assert "\n" not in str(raised.value)


def test_many_files_may_take_longer_than_one_answer(web, monkeypatch):
    """A server of the web is asked for the size of each: 1.2 s in all."""
    monkeypatch.setattr(servers, "SECONDS", 1)
    monkeypatch.setattr(servers, "AT_ONCE", 1)
    web.head_seconds = 0.4
    assert len(text_remote.files(f"{web.at}/en/*.gz")) == 3
