# SPDX-License-Identifier: Apache-2.0
"""TFDS as a source: a real data set, made here, read at random, without TensorFlow."""

import functools
import hashlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time

import pytest
import requests

from electra_jax.data import servers, text_tfds
from support.commands import free_port
from support.corpus import ROOT

MAKE = """
import tensorflow_datasets as tfds

class TinyBooks(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = tfds.features.FeaturesDict({"text": tfds.features.Text()})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, manager):
        return {"train": self._generate_examples(40), "test": self._generate_examples(3)}

    def _generate_examples(self, count):
        for i in range(count):
            yield i, {"text": f"the cat number {i} sat on the mat\\nand slept there"}

TinyBooks(file_format="array_record").download_and_prepare()
"""

DOWNLOADED = """
import sys
import tensorflow_datasets as tfds
from electra_jax.data import text_tfds
from electra_jax.finetuning.tasks import tfds_records

class DistantBooks(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = tfds.features.FeaturesDict({"text": tfds.features.Text()})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, manager):
        path = manager.download("ADDRESS/books.txt")
        return {"train": self._generate_examples(path)}

    def _generate_examples(self, path):
        yield from ((i, {"text": line}) for i, line in enumerate(path.read_text().splitlines()))

if sys.argv[1:] == ["fine-tune"]:
    print([place for place, _ in tfds_records.records("tfds:distant_books:train")])
elif __name__ == "__main__":
    found = text_tfds.random_access("distant_books", "train")
    print(sorted(found[i]["text"].decode() for i in range(len(found))))
"""

READ = """
import json, sys
from electra_jax.data import preparation, records, text
from support.corpus import text_settings

def main():
    settings = text_settings(
        "tfds:tiny_books@1;tfds:tiny_books:test@1", "train:sentencepiece:32", 16, workers=2,
        heldout_fraction=0.2, vocab_sample_characters=100_000)
    folder = preparation.prepare(settings, sys.argv[1])
    manifest = records.open(folder).manifest
    print(json.dumps([
        [source.name, source.counts["documents"], source.weight] for source in manifest.sources
    ] + ["tensorflow" in sys.modules]))

if __name__ == "__main__":
    main()
"""

TRAIN = """
import sys
import electra_jax
from support.corpus import small_run

if __name__ == "__main__":
    config = small_run("tfds:tiny_books", "", schedule__steps=2, schedule__warmup_steps=1)
    config.data.update(vocab="train:sentencepiece:32", heldout_fraction=0.2)
    final = electra_jax.train(config, sys.argv[1])
    assert 0 < final["gen_masked_loss"] < 10, final
    assert "tensorflow" not in sys.modules
"""


def run(code, tmp_path, *arguments):
    """Runs a program of its own, since data sets register themselves for good."""
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(code))
    environment = os.environ | {
        "TFDS_DATA_DIR": str(tmp_path / "tfds"),
        "PYTHONPATH": f"{ROOT}:{ROOT}/tests",
    }
    return subprocess.run(
        [sys.executable, str(path), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_prepared_data_set_is_read_by_name_in_worker_processes_and_trained_on(tmp_path):
    made = run(MAKE, tmp_path)
    assert made.returncode == 0, made.stderr[-2000:]
    done = run(READ, tmp_path, str(tmp_path / "data"))
    assert done.returncode == 0, done.stderr[-2000:]
    train, test, tensorflow = json.loads(done.stdout.splitlines()[-1])
    assert train == ["tiny_books", 40, 0.5]
    assert test == ["tiny_books2", 3, 0.5]
    assert tensorflow is False

    trained = run(TRAIN, tmp_path, str(tmp_path / "run"))
    assert trained.returncode == 0, trained.stderr[-2000:]
    assert "prepared 40 documents" in trained.stderr


def test_a_data_set_is_downloaded_and_read_again_without_its_server(tmp_path):
    books = tmp_path / "served" / "books.txt"
    books.parent.mkdir()
    books.write_text("the cat sat\nthe dog ran\n")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=books.parent)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        code = DOWNLOADED.replace("ADDRESS", address)
        digest = hashlib.sha256(books.read_bytes()).hexdigest()
        listed = f"{address}/books.txt\t{books.stat().st_size}\t{digest}\tbooks.txt\n"
        # A server of another version, which is gone.
        gone = f"http://127.0.0.1:{free_port()}/old.txt\t1\t{'0' * 64}\told.txt\n"
        (tmp_path / "checksums.tsv").write_text(gone + listed)
        done = run(code, tmp_path)
        server.shutdown()
    assert done.stdout.endswith("['the cat sat', 'the dog ran']\n"), done.stderr[-2000:]

    # What is prepared needs no server, nor does what is downloaded but not prepared.
    again = run(code, tmp_path)
    assert again.stdout == "['the cat sat', 'the dog ran']\n", again.stderr[-2000:]
    shutil.rmtree(tmp_path / "tfds" / "distant_books")
    again = run(code, tmp_path)
    assert again.stdout.endswith("['the cat sat', 'the dog ran']\n"), again.stderr[-2000:]
    tuned = run(code, tmp_path, "fine-tune")
    places = [f"tfds:distant_books:train:{number}" for number in range(2)]
    assert tuned.stdout == f"{places}\n", tuned.stderr[-2000:]


def test_a_server_that_is_gone_is_one_line_that_offers_other_text(tmp_path):
    address = f"http://127.0.0.1:{free_port()}"
    (tmp_path / "checksums.tsv").write_text(f"{address}/books.txt\t1\t{'0' * 64}\tbooks.txt\n")
    why = f"tfds:distant_books:train cannot be downloaded from {address[7:]} (Connection refused); "
    for arguments, remedy in (
        ((), "read your own files, data.source=text:GLOB, or data.source=builtin"),
        (("fine-tune",), "give a folder that holds the official files, --config.data.dir=FOLDER"),
    ):
        began = time.monotonic()
        done = run(DOWNLOADED.replace("ADDRESS", address), tmp_path, *arguments)
        assert done.returncode == 1
        assert time.monotonic() - began < 20  # TFDS alone would try for minutes
        said = done.stderr.strip().splitlines()[-1]
        assert said.endswith(f"{why}without a network {remedy}")


def test_a_set_that_is_made_with_apache_beam_says_so_and_offers_the_hubs(tmp_path, monkeypatch):
    def gone(url, timeout):
        raise requests.ConnectionError(f"Max retries exceeded with url: {url}")

    monkeypatch.setattr(requests, "head", gone)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    with pytest.raises(servers.Unreachable) as raised:
        text_tfds.random_access("wikipedia/20190301.en", "train")
    said = str(raised.value)
    assert said.startswith("tfds:wikipedia/20190301.en:train cannot be downloaded from ")
    assert "(pip install apache-beam); hf:wikimedia/wikipedia/20231101.en needs no such" in said


def test_a_data_set_that_nobody_knows_offers_local_text(tmp_path):
    code = READ.replace("tfds:tiny_books@1;tfds:tiny_books:test@1", "tfds:nothing_of_that_name")
    done = run(code, tmp_path, str(tmp_path / "data"))
    assert done.returncode == 1
    said = done.stderr.strip().splitlines()[-1]
    assert said.startswith("ValueError: tfds:nothing_of_that_name is not known")
    assert "data.source=text:GLOB" in said
