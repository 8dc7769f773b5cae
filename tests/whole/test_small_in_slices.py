# SPDX-License-Identifier: Apache-2.0
"""The run that waits for an accelerator, rehearsed with tiny networks: nothing, all, the table."""

import lzma
import string
import subprocess
import sys

import pytest
import safetensors.numpy

from benchmarks import small_in_slices
from support.corpus import ROOT, write_corpus

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ",", *string.ascii_lowercase]
PIECES += [f"##{letter}" for letter in string.ascii_lowercase]
MICRO = (
    "--config=tiny_paper", "--rows=8", "--steps=6", "--tasks=sst2", "--seeds=2", "--",
    "--config.model.dtype=float32", "--config.data.sequence_length=16",
    "--config.data.heldout_fraction=0.1", "--config.evaluation.rows=16",
    "--config.model.max_positions=16", "--config.logging.report_every=0",
)  # fmt: skip


@pytest.fixture
def data(tmp_path):
    """A folder as `--data` takes it."""
    folder = tmp_path / "data"
    (folder / "SST-2").mkdir(parents=True)
    text = write_corpus(tmp_path / "corpus.txt").read_bytes()
    (folder / "AA.txt.xz").write_bytes(lzma.compress(text, preset=0))
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    rows = "".join(f"the {'old' if i % 2 else 'small'} cat sat\t{i % 2}\n" for i in range(40))
    for name in ("train", "dev"):
        (folder / "SST-2" / f"{name}.tsv").write_text(f"sentence\tlabel\n{rows}")
    return folder


def call(data, *flags):
    """Runs the script on the folder; what it prints last."""
    places = [f"--{name}={data.parent / name}" for name in ("data", "workdir", "out")]
    done = subprocess.run(
        [sys.executable, "benchmarks/small_in_slices.py", *places, *flags, *MICRO],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_a_call_without_time_does_nothing_and_the_next_one_does_all(data):
    said = call(data, "--seconds=0")
    assert said.endswith("nothing is trained yet\nnot done: the same command goes on\n")
    assert not (data.parent / "workdir").exists()

    said, out = call(data), data.parent / "out"
    table = (out / "table.txt").read_text()
    assert said.endswith(table) and "not done" not in table
    trained, _, _, scores, mean = table.splitlines()
    assert trained.startswith("step 6, ")
    task, median, *_, seeds, after_all_steps = scores.split()
    assert (task, seeds, after_all_steps) == ("sst2", "2", "88.3")
    assert 0 <= float(median) <= 100 and mean.startswith(f"mean of 1 medians {median}; ")
    assert {path.name for path in out.iterdir()} == {
        "table.txt", "metrics.jsonl", "results.json", "encoder.safetensors.part0",
    }  # fmt: skip
    tensors = safetensors.numpy.load((out / "encoder.safetensors.part0").read_bytes())
    assert "electra.embeddings.word_embeddings.weight" in tensors


def test_the_text_is_of_one_kind_and_not_the_vocabulary(data):
    assert small_in_slices.text_of(data) == f"text:{data}/*.txt.xz"
    (data / "more.jsonl.gz").touch()
    with pytest.raises(SystemExit, match=r"it has \.jsonl\.gz, \.txt\.xz$"):
        small_in_slices.text_of(data)
    for path in data.glob("*.*z"):
        path.unlink()
    with pytest.raises(SystemExit, match="it has none$"):
        small_in_slices.text_of(data)
    (data / "plain.txt").touch()
    with pytest.raises(SystemExit, match="must be packed, .*: vocab.txt is no text$"):
        small_in_slices.text_of(data)
