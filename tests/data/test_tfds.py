# SPDX-License-Identifier: Apache-2.0
"""TFDS as a source: a real data set, made here, read at random, without TensorFlow."""

import json
import os
import subprocess
import sys
import textwrap

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


def test_a_data_set_that_nobody_knows_offers_local_text(tmp_path):
    code = READ.replace("tfds:tiny_books@1;tfds:tiny_books:test@1", "tfds:nothing_of_that_name")
    done = run(code, tmp_path, str(tmp_path / "data"))
    assert done.returncode == 1
    said = done.stderr.strip().splitlines()[-1]
    assert said.startswith("ValueError: tfds:nothing_of_that_name is not known")
    assert "data.source=text:GLOB" in said
