# SPDX-License-Identifier: Apache-2.0
"""Tasks whose files are on the Hub, from a server on loopback that speaks its protocol."""

import json
import socket

import pyarrow
import pytest
from absl import logging
from pyarrow import parquet

from electra_jax.data import text_hub
from electra_jax.finetuning.tasks import custom, reading
from electra_jax.host import error_causes
from support import hub_server

CLASSES = {"info": {"features": {"y": {"names": ["bad", "good"], "_type": "ClassLabel"}}}}


def write(path, texts, numbers):
    """A parquet file of texts with class numbers, and their names where `datasets` puts them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pyarrow.table({"t": texts, "y": numbers})
    parquet.write_table(table.replace_schema_metadata({"huggingface": json.dumps(CLASSES)}), path)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A server with a data set of two files for train and one for validation."""
    folder = tmp_path / "hub" / "pages" / "films"
    write(folder / "data" / "train-00000-of-00002.parquet", ["A", "B"], [1, 0])
    write(folder / "data" / "train-00001-of-00002.parquet", ["C"], [1])
    write(folder / "data" / "validation-00000-of-00001.parquet", ["D"], [0])
    with hub_server.serving(tmp_path / "hub") as server:
        hub_server.reach(monkeypatch, server.url, tmp_path / "cache")
        yield server
    text_hub.files.cache_clear()


def task(train="hf:pages/films", dev="hf:pages/films:validation", **settings):
    return custom.task(dict(train=train, dev=dev, text="t", label="y") | settings)


def test_a_split_is_all_of_its_files_each_downloaded_once(hub, tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr(logging, "info", lambda form, *values: lines.append(form % values))
    for _ in range(2):
        data = reading.read(task(), str(tmp_path))
        found = [(e.a, data.task.labels[e.label]) for e in data.train.examples]
        assert found == [("A", "good"), ("B", "bad"), ("C", "good")]
        assert [e.a for e in data.dev["dev"].examples] == ["D"]
    gets = [path for method, path, _ in hub.requests if method == "GET" and "/resolve/" in path]
    assert len(gets) == 3
    assert len(lines) == 3 and lines[0].startswith(
        "hf:pages/films: downloading data/train-00000-of-00002.parquet, "
    )


def test_files_of_the_hub_and_of_this_machine_go_together(hub, tmp_path):
    lines = hub.root / "pages" / "films" / "json"
    lines.mkdir()
    (lines / "train.jsonl").write_text('{"t": "E", "y": "good"}\n')
    (tmp_path / "mine.csv").write_text("t,y\nF,bad\n")
    data = reading.read(task("hf:pages/films/json; hf:pages/films/data; mine.csv"), str(tmp_path))
    assert [e.a for e in data.train.examples] == ["E", "A", "B", "C", "F"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("hf:films", "hf:films does not name a data set; write hf:OWNER/NAME"),
        (
            "hf:pages/films",
            "task custom: custom.dev=hf:pages/films names no split, .*:validation$",
        ),
    ],
)
def test_what_names_no_set_or_no_split_is_refused_before_the_hub_is_asked(entry, message):
    with pytest.raises(ValueError, match=message):
        task(dev=f"mine.csv; {entry}")


def test_an_unknown_set_or_split_is_named(hub, tmp_path):
    for dev, message in (
        ("hf:pages/nothing:dev", "the Hub knows no data set pages/nothing"),
        ("hf:pages/films:dev", "of this configuration and split; it has files in data"),
    ):
        with pytest.raises(ValueError, match=message):
            reading.read(task(dev=dev), str(tmp_path))


def test_a_set_with_conditions_says_how_to_agree(hub, tmp_path):
    hub.gated.add("pages/films")
    with pytest.raises(ValueError, match="agree to the conditions on the page of") as raised:
        reading.read(task(), str(tmp_path))
    assert not error_causes.may_pass(raised.value)


def test_without_a_network_the_remedy_is_one_for_tasks(monkeypatch, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    hub_server.reach(monkeypatch, f"http://127.0.0.1:{port}", tmp_path)
    said = "without a network give files of this machine, such as custom.train=train.parquet$"
    with pytest.raises(ValueError, match=said) as raised:
        reading.read(task(), str(tmp_path))
    assert error_causes.may_pass(raised.value)
