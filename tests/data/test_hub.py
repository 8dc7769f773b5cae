# SPDX-License-Identifier: Apache-2.0
"""Text of the Hugging Face Hub, from a server on loopback that speaks its protocol."""

import collections
import gzip
import os
import pty
import re
import socket
import sys
import time

import huggingface_hub
import numpy as np
import pyarrow
import pytest
from huggingface_hub import constants
from pyarrow import parquet

from electra_jax import config as config_lib
from electra_jax.data import (
    downloads,
    evaluation_text,
    planning,
    preparation,
    records,
    servers,
    text,
    text_hub,
    vocabulary,
    worker_pool,
)
from electra_jax.data.text_options import TextOptions
from electra_jax.host import error_causes
from electra_jax.speed import dry_run
from support import hub_server
from support.corpus import small_run, text_settings

OPTIONS = TextOptions()
WORDS = "the a cat dog sat ran on under mat tree and then it was".split()


def document(number):
    """Three lines, which differ between numbers."""
    words = [WORDS[(number * k + k * k) % len(WORDS)] for k in range(1, 13)]
    return f"{' '.join(words)}\nnumber {number}\n{' '.join(reversed(words))}"


def write(path, numbers):
    """A parquet file with these documents; blank lines lie within them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    column = [document(n).replace("\n", "\n\n") for n in numbers]
    parquet.write_table(pyarrow.table({"id": list(numbers), "text": column}), path)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A server with English and German text, three files in all, and a cache of its own."""
    root = tmp_path / "hub"
    for shard in range(2):
        file = root / "pages" / "wiki" / "en" / f"train-{shard:05d}-of-00002.parquet"
        write(file, range(30 * shard, 30 * shard + 30))
    write(root / "pages" / "wiki" / "en" / "validation-00000-of-00001.parquet", range(90, 95))
    write(root / "pages" / "wiki" / "de" / "train-00000-of-00001.parquet", range(100, 140))
    (root / "pages" / "wiki" / "README.md").write_text("About it.")

    with hub_server.serving(root) as server:
        hub_server.reach(monkeypatch, server.url, tmp_path / "cache")
        yield server
    text_hub.files.cache_clear()


def documents(spec):
    """All documents of a source."""
    (source,) = text.parse(spec)
    counts = collections.Counter()
    return [d for unit in text.units(source) for d in unit.documents(OPTIONS, counts)]


def test_a_split_is_read_file_by_file_in_order(hub):
    assert documents("hf:pages/wiki/en") == [document(n) for n in range(60)]
    assert documents("hf:pages/wiki/en:validation") == [document(n) for n in range(90, 95)]
    assert documents("hf:pages/wiki/de:train") == [document(n) for n in range(100, 140)]


def test_nothing_is_downloaded_before_it_is_read_and_nothing_twice(hub):
    (source,) = text.parse("hf:pages/wiki/en")
    units = text.units(source)
    assert text.size(source) > 0 and len(text.fingerprint(source)) == 2
    asked = [path for _, path, _ in hub.requests]
    pages = asked.count(f"/api/datasets/pages/wiki/tree/{hub_server.COMMIT}")
    assert asked[0] == "/api/datasets/pages/wiki/revision/main" and len(asked) == 1 + pages
    assert pages > 2, "the files were to come in several pages"

    for _ in range(2):
        list(units[1].documents(OPTIONS, collections.Counter()))
    files = {path for _, path, _ in hub.requests[len(asked) :]}
    assert {path.rpartition("/")[2] for path in files} == {"train-00001-of-00002.parquet"}
    gets = [path for method, path, _ in hub.requests[len(asked) :] if method == "GET"]
    assert len(gets) == 1


def test_another_text_has_another_fingerprint(hub):
    (source,) = text.parse("hf:pages/wiki/de")
    before = text.fingerprint(source)
    write(hub.root / "pages" / "wiki" / "de" / "train-00000-of-00001.parquet", range(101, 141))
    text_hub.files.cache_clear()
    assert text.fingerprint(source) != before


def test_a_download_that_breaks_off_goes_on_where_it_stopped(hub, monkeypatch):
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 100)
    hub.broken_off = 1
    (source,) = text.parse("hf:pages/wiki/de")
    (unit,) = text.units(source)
    found = list(unit.documents(OPTIONS, collections.Counter()))
    assert found == [document(n) for n in range(100, 140)]
    assert any(range_ for _, _, range_ in hub.requests), "nothing was asked for from the middle on"


def test_what_is_downloaded_is_told_in_files_and_bytes(hub, tmp_path):
    """Also of a file that is still coming; nothing once all are here."""
    (source,) = text.parse("hf:pages/wiki/en")
    first, second = text.files(source)
    settings = text_settings("hf:pages/wiki/en", "train:wordpiece:150", 32, workers=1)
    tasks = planning.make_tasks(planning.make_plan(settings, str(tmp_path / "data")))
    with worker_pool.Workers(1) as workers:
        told = downloads.so_far(tasks, workers)
    both = f"of {(first.bytes + second.bytes) / 1000:.1f} kB downloaded"
    assert told() == f"0 of 2 files, 0.0 {both}"

    second.local_path()
    assert told() == f"1 of 2 files, {second.bytes / 1000:.1f} {both}"
    (coming,) = (tmp_path / "cache").rglob("blobs")
    (coming / f"{first.digest}.1.incomplete").write_bytes(b"x" * 1000)
    assert told() == f"1 of 2 files, {(second.bytes + 1000) / 1000:.1f} {both}"
    first.local_path()
    assert told() == ""
    assert downloads.Downloads([first, second]).summary().startswith("2 of 2 files")


def test_a_dry_run_says_how_much_it_would_download(hub, tmp_path):
    config = config_lib.parse(small_run("hf:pages/wiki/en; builtin", str(tmp_path / "data")))
    files = text.files(text.parse("hf:pages/wiki/en")[0])
    size = f"{sum(file.bytes for file in files) / 1000:.1f} kB"
    lines = dry_run.text(config, str(tmp_path / "run")).splitlines()
    (said,) = (line for line in lines if line.startswith("text "))
    assert said.endswith(f"  hf:pages/wiki/en: 0 of 2 files, 0.0 of {size} downloaded")
    assert not any(path.endswith(".parquet") for _, path, _ in hub.requests)


def test_a_download_draws_no_bar_into_the_lines_of_the_terminal(hub, monkeypatch):
    (file,) = text.files(*text.parse("hf:pages/wiki/de"))
    ours, theirs = pty.openpty()
    with open(theirs, "w") as terminal, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", terminal)
        file.local_path()
        terminal.write("end")
    assert os.read(ours, 4096) == b"end"
    os.close(ours)


def test_a_data_set_without_such_files_is_read_from_the_hubs_own_parquet(hub):
    (hub.root / "pages" / "raw").mkdir()
    (hub.root / "pages" / "raw" / "pages.xml.bz2").write_bytes(b"x")
    write(
        hub.root / "pages" / "raw@refs/convert/parquet" / "default" / "train" / "0000.parquet", [7]
    )
    assert documents("hf:pages/raw") == [document(7)]


def test_hub_text_is_prepared_as_the_same_text_in_files_is(hub, tmp_path):
    folder = hub.root / "pages" / "wiki" / "en"
    shared = "train:wordpiece:150", 32
    ids = []
    for number, spec in enumerate(("hf:pages/wiki/en", f"text:{folder}/train*.parquet")):
        settings = text_settings(spec, *shared, heldout_fraction=0.1, workers=2)
        place = preparation.prepare(settings, str(tmp_path / f"data{number}"))
        opened = records.open(place)
        ids.append(opened.read("train", 0, np.arange(opened.rows("train", 0)))[0].tolist())
    assert ids[0] == ids[1] and len(ids[0]) > 20

    # A text to evaluate on is read by one process, which says what it waits for.
    (source,), lines = text.parse("hf:pages/wiki/de"), []
    words = vocabulary.load(os.path.join(place, records.VOCABULARY))
    for _ in range(2):
        evaluation_text.read(source, settings, words, 0, lines.append)
    assert len(lines) == 1
    assert re.fullmatch(r"de: downloading de/train-00000-of-00001.parquet, \d\.\d kB", lines[0])


def test_endings_may_be_in_capitals(hub):
    (hub.root / "pages" / "loud").mkdir()
    packed = gzip.compress(b'{"text": "one"}')
    (hub.root / "pages" / "loud" / "train.JSONL.GZ").write_bytes(packed)
    assert documents("hf:pages/loud") == ["one"]


@pytest.mark.parametrize(
    ("paths", "config", "split", "expected"),
    [
        (["en/train-0-of-2.parquet", "de/train-0-of-2.parquet"], "en", "train", [0]),
        (["data/en/train.jsonl.gz", "data/en/test.jsonl.gz"], "en", "test", [1]),
        (["en/train/0.parquet", "en/test/0.parquet", "train/0.parquet"], "en", "train", [0]),
        (["data/train-0.parquet", "data/training.parquet"], "", "train", [0]),
        (["2023.en/train-0.parquet", "2023.en-x/train-0.parquet"], "2023.en", "train", [0]),
        (["sample/10BT/000.parquet"], "sample/10BT", "train", []),
        (["train_sft-0-of-1.parquet", "train-0-of-1.parquet", "train.jsonl"], "", "train", [1, 2]),
        (["train_sft-0-of-1.parquet", "test.parquet"], "", "train", [0]),
        (["train_sft.parquet", "train-0-of-1-1a2b3c.parquet"], "", "train", [1]),
    ],
)  # fmt: skip
def test_which_files_belong_to_a_split(paths, config, split, expected):
    found = text_hub.matching(paths, config, split)
    assert found == {paths[number] for number in expected}


def test_rows_in_two_formats_are_not_read_twice(hub):
    (hub.root / "pages" / "twice").mkdir()
    for name in ("train.jsonl", "train.jsonl.gz"):
        (hub.root / "pages" / "twice" / name).write_bytes(b'{"text": "one"}')
    with pytest.raises(ValueError, match="has train.jsonl and train.jsonl.gz, which probably hold"):
        documents("hf:pages/twice")


# What cannot be read is an error of one line, in time


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("hf:wiki", "hf:wiki does not name a data set; write hf:OWNER/NAME"),
        ("hf:pages/nothing", "the Hub knows no data set pages/nothing, or it needs an account"),
        ("hf:pages/wiki", "has 2 configurations; name one, as in hf:pages/wiki/de: de, en"),
        ("hf:pages/wiki/fr", "of this configuration and split; it has files in de, en"),
        ("hf:pages/wiki/en:test", "of this configuration and split; it has files in de, en"),
    ],
)
def test_an_unknown_data_set_is_named_with_a_remedy(hub, spec, words):
    with pytest.raises(ValueError, match=".") as raised:
        documents(spec)
    assert words in str(raised.value) and "\n" not in str(raised.value)


def test_without_a_network_the_remedy_comes_at_once(monkeypatch, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    hub_server.reach(monkeypatch, f"http://127.0.0.1:{port}", tmp_path)
    began = time.monotonic()
    refused = rf"^hf:pages/wiki/en:train cannot be reached at http://127.0.0.1:{port} \(Connect"
    with pytest.raises(ValueError, match=refused) as raised:
        documents("hf:pages/wiki/en")
    assert time.monotonic() - began < 20
    assert "read your own files, data.source=text:GLOB, or data.source=builtin" in str(raised.value)


def test_a_hub_that_does_not_answer_is_given_up(monkeypatch, tmp_path):
    monkeypatch.setattr(servers, "SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hub_server.reach(monkeypatch, f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path)
        began = time.monotonic()
        with pytest.raises(ValueError, match="cannot be reached"):
            documents("hf:pages/wiki/en")
        assert time.monotonic() - began < 10


def test_a_file_that_is_gone_says_that_the_same_command_goes_on(hub, monkeypatch):
    (source,) = text.parse("hf:pages/wiki/de")
    (unit,) = text.units(source)
    monkeypatch.setattr(
        huggingface_hub,
        "hf_hub_download",
        lambda *args, **names: (_ for _ in ()).throw(OSError("full")),
    )
    said = "cannot be downloaded .OSError: full.; the same command"
    with pytest.raises(error_causes.MayPass, match=said):
        list(unit.documents(OPTIONS, collections.Counter()))


REFUSALS = {
    "conditions": (403, b"{}", {"X-Error-Code": "GatedRepo"}),
    "a token that has expired": (401, b"{}", hub_server.EXPIRED),
    "a token without rights": (403, b"{}"),
}


@pytest.mark.parametrize("answer", REFUSALS.values(), ids=REFUSALS)
def test_a_list_that_is_refused_says_how_to_agree_and_not_to_wait(hub, answer):
    hub.listing = answer
    said = "^hf:pages/wiki/de:train: the Hub refuses its files; agree to the .* into HF_TOKEN"
    with pytest.raises(ValueError, match=said) as raised:
        text.units(*text.parse("hf:pages/wiki/de"))
    assert not error_causes.may_pass(raised.value)


def test_a_data_set_with_conditions_says_how_to_agree_and_not_to_wait(hub):
    hub.gated.add("pages/wiki")
    (source,) = text.parse("hf:pages/wiki/de")
    (unit,) = text.units(source)
    said = "the Hub refuses de/train-00000-of-00001.parquet; agree to the conditions on"
    with pytest.raises(ValueError, match=f"^hf:pages/wiki: {said} .* into HF_TOKEN") as raised:
        list(unit.documents(OPTIONS, collections.Counter()))
    assert not error_causes.may_pass(raised.value)
