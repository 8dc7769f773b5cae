# SPDX-License-Identifier: Apache-2.0
"""Sets of TensorFlow Datasets become examples, without TensorFlow."""

import os
import subprocess
import sys

from electra_jax.finetuning.tasks import examples, tfds_records
from support.corpus import ROOT
from support.task_files import read, texts


def test_classes_of_tfds_are_ours_by_name_or_by_number(monkeypatch, tmp_path):
    kept = {
        "cola": (
            ("unacceptable", "acceptable"),
            {"sentence": "A", "idx": 4, "label": "acceptable"},
        ),
        "rte": (
            ("entailment", "not_entailment"),
            {"sentence1": "A", "sentence2": "B", "idx": 4, "label": "not_entailment"},
        ),
    }

    def named(spec):
        return kept[spec.split("/")[1].split(":")[0]]

    monkeypatch.setattr(
        tfds_records, "classes", lambda spec, field: named(spec)[0] if field else ()
    )
    monkeypatch.setattr(tfds_records, "records", lambda spec: [(f"{spec}:0", dict(named(spec)[1]))])
    data = read("cola", "tfds")
    assert texts(data.train) == [("4", "A", None, 1)]
    assert texts(data.test["test"]) == [("4", "A", None, None)]
    assert data.train.files == ("tfds:glue/cola:train",)
    assert data.dev["dev"].files == ("tfds:glue/cola:validation",)
    assert texts(read("rte", "tfds").train) == [("4", "A", "B", 1)]


TFDS = """
import sys
import numpy as np
import tensorflow_datasets as tfds
from electra_jax.finetuning.tasks import custom, reading

ANSWERS = tfds.features.Sequence({"text": tfds.features.Text(), "answer_start": np.int32})

class TinyTasks(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict({
            "id": np.str_,
            "context": tfds.features.Text(),
            "question": tfds.features.Text(),
            "answers": ANSWERS,
            "label": tfds.features.ClassLabel(names=["bad", "good"]),
            "tokens": tfds.features.Sequence(tfds.features.Text()),
            "tags": tfds.features.Sequence(tfds.features.ClassLabel(names=["O", "B-PER"])),
        }))

    def _split_generators(self, manager):
        return {"train": self._generate_examples(3), "validation": self._generate_examples(1)}

    def _generate_examples(self, count):
        for i in range(count):
            answers = {"text": ["Bob", "Zoë"], "answer_start": [0, 8]}
            yield i, {"id": f"q{i}", "context": "Bob and Zoë", "question": "Who ?", "label": i % 2,
                      "answers": answers, "tokens": ["Zoë", "is"], "tags": ["B-PER", "O"]}

TinyTasks(file_format="array_record").download_and_prepare()
FILES = {"train": "tfds:tiny_tasks:train", "dev": "tfds:tiny_tasks:validation"}
for settings in (
    {"kind": "classification", "text": "context", "label": "label"},
    {"kind": "span"},
    {"kind": "tagging", "text": "tokens", "label": "tags"},
):
    data = reading.read(custom.task(FILES | settings), "")
    print("found", ascii([*data.train.examples, len(data.dev["dev"].examples), data.task.labels]))
print("tensorflow" in sys.modules)
"""


def test_a_tfds_set_gives_texts_questions_and_words_without_tensorflow(tmp_path):
    (tmp_path / "program.py").write_text(TFDS)
    environment = os.environ | {"TFDS_DATA_DIR": str(tmp_path / "tfds"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = [line[6:] for line in done.stdout.splitlines() if line.startswith("found")]
    kinds = (examples.TextExample, examples.QuestionExample, examples.TaggedExample)
    names = {kind.__name__: kind for kind in kinds}
    texts_, questions, sentences = (eval(line, names) for line in found)
    assert {e.label for e in texts_[:3]} == {0, 1} and texts_[3:] == [1, ("bad", "good")]
    assert questions[0].answers == (("Bob", 0), ("Zoë", 8)) and questions[0].context[8:] == "Zoë"
    assert sentences[0].words == ("Zoë", "is") and sentences[0].tags == ("B-PER", "O")
    assert done.stdout.splitlines()[-1] == "False"
