# SPDX-License-Identifier: Apache-2.0
"""The run that waits for an accelerator, rehearsed with tiny networks: nothing, all, the table."""

import dataclasses
import json
import lzma
import signal
import string
import subprocess
import sys
import types

import pytest
import safetensors.numpy

from benchmarks import bounded, slices, small_in_slices, small_in_slices_picture
from electra_jax.finetuning.results import results_file
from support import made_results
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
    assert said.endswith("nothing is trained yet\nnot done: the same command continues\n")
    assert not (data.parent / "workdir").exists()
    out = data.parent / "out"
    assert {path.name for path in out.iterdir()} == {"table.txt"}

    said = call(data)
    table = (out / "table.txt").read_text()
    assert said.endswith(table) and "not done" not in table
    trained, _, _, scores, mean, after, paper = table.splitlines()
    assert trained.startswith("step 6, ")
    task, median, *_, seeds, after_all_steps = scores.split()
    assert (task, seeds, after_all_steps) == ("sst2", "2", "88.3")
    assert 0 <= float(median) <= 100 and mean == f"mean of the medians of 1 task: {median}"
    assert after == "mean of the same 1 task as published after all steps: 88.3"
    assert paper.endswith("over all eight tasks: 74.1")
    assert {path.name for path in out.iterdir()} == {
        "table.txt", "metrics.jsonl", "curves.png", "scores.json", "encoder.safetensors.part0",
    }  # fmt: skip
    assert len(json.loads((out / "scores.json").read_text())["sst2"]["tasks"][0]["seeds"]) == 2
    tensors = safetensors.numpy.load((out / "encoder.safetensors.part0").read_bytes())
    assert "electra.embeddings.word_embeddings.weight" in tensors


def test_a_call_that_is_cut_in_the_tasks_leaves_what_there_is(tmp_path, monkeypatch):
    """The machine may be gone before the next call."""
    run, out = tmp_path / "workdir" / "run", tmp_path / "out"

    def trained(slice_, given, workdir):
        (workdir / "scores").mkdir(parents=True)
        (workdir / "scores" / "sst2.json").write_text("1")
        (workdir / "metrics.jsonl").write_text("")
        return True

    def convert(slice_, *command):
        assert command[0] == "electra_jax.convert"
        (run / "encoder" / "discriminator").mkdir(parents=True)
        (run / "encoder" / "discriminator" / "model.safetensors").write_bytes(b"abcde")
        return True

    def cut(*_):
        raise SystemExit("electra_jax.finetune ended with 1")

    monkeypatch.setattr(bounded, "end_on_sigterm", lambda: None)
    monkeypatch.setattr(small_in_slices, "PART", 3)
    monkeypatch.setattr(small_in_slices, "train", trained)
    monkeypatch.setattr(small_in_slices, "table", lambda workdir: "")
    monkeypatch.setattr(slices.Slice, "run", convert)
    monkeypatch.setattr(small_in_slices.tasks_in_slices, "tune", cut)
    places = [f"--data={tmp_path}", f"--workdir={run.parent}", f"--out={out}"]
    monkeypatch.setattr(sys, "argv", ["", *places])
    with pytest.raises(SystemExit, match="finetune ended with 1"):
        small_in_slices.main()

    parts = [out / f"encoder.safetensors.part{number}" for number in (0, 1)]
    assert [part.read_bytes() for part in parts] == [b"abc", b"de"]
    assert (out / "scores.json").read_text() == '{"sst2": 1}'
    assert {path.name for path in out.iterdir()} == {
        "table.txt", "metrics.jsonl", "curves.png", "scores.json", *(part.name for part in parts),
    }  # fmt: skip


def test_numbers_that_are_not_known_break_no_line(tmp_path):
    """A loss that was not finite, and one seed, whose mean has no error."""
    rows = [
        {"step": 5, "kind": "train", "tokens_seen": 1000, "tokens_per_second": None},
        {
            "step": 5, "kind": "eval", "gen_masked_loss": None, "unigram_entropy": 5.0,
            "disc_auc": None,
        },
    ]  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert small_in_slices.table(tmp_path).splitlines() == [
        "step 5, 1,000 tokens, ? tokens/s at the end",
        "held out: gen_masked_loss ? (token frequencies 5.000), disc_auc ?",
    ]

    (tmp_path / "scores").mkdir()
    for task in (made_results.task("cola", [0.25]), made_results.task("rte", [0.5, 0.75])):
        made = dataclasses.replace(made_results.three(), tasks=[task])
        (tmp_path / task.task).mkdir()
        results_file.write(str(tmp_path / task.task), made)
        found = tmp_path / task.task / "results.json"
        found.rename(tmp_path / "scores" / f"{task.task}.json")
    _, _, _, cola, rte, *means = small_in_slices.table(tmp_path).splitlines()
    assert cola.split() == ["cola", "25.0", "25.0", "?", "1", "56.8"]
    assert rte.split() == ["rte", "62.5", "62.5", "12.5", "2", "68.5"]
    assert means == [
        "mean of the medians of 2 tasks: 43.8",
        "mean of the same 2 tasks as published after all steps: 62.6",
        "the paper's average at this sixteenth of the steps, over all eight tasks: 74.1",
    ]


def test_a_run_without_a_line_of_metrics_has_an_empty_table(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("")
    assert small_in_slices.table(tmp_path) == ""


class MadeUp:
    """A slice in which a command comes to its end or not, as it is told."""

    def __init__(self, *ends):
        self.ends, self.commands = list(ends), []

    def run(self, *command):
        self.commands.append(command)
        return self.ends.pop(0)


def test_a_training_that_is_done_is_not_started_again(data, tmp_path):
    """Only the command itself knows whether another configuration may continue."""
    (tmp_path / "run").mkdir()
    given = types.SimpleNamespace(rows=8, steps=6, config="tiny_paper", data=data, more=[])
    slice_ = MadeUp(False, True)
    assert not small_in_slices.train(slice_, given, tmp_path / "run")
    assert small_in_slices.train(slice_, given, tmp_path / "run")
    assert small_in_slices.train(slice_, given, tmp_path / "run")
    assert len(slice_.commands) == 2

    given.more, slice_.ends = ["--config.seed=1"], [True]
    assert small_in_slices.train(slice_, given, tmp_path / "run")
    assert len(slice_.commands) == 3


def test_a_task_that_is_none_of_the_eight_is_refused(data):
    given = types.SimpleNamespace(data=data, tasks="")
    assert small_in_slices.tasks_of(given) == ["sst2"]
    given.tasks = "sst2,squad"
    with pytest.raises(SystemExit, match="^--tasks: 'squad' is none of cola, sst2, "):
        small_in_slices.tasks_of(given)


def test_a_slice_leaves_a_command_time_to_save(monkeypatch):
    """The command is asked to end before the slice is over, and may take that long for it."""
    found = []

    def wait(process, seconds, grace, request):
        found.append((process, round(seconds), grace, request))
        return bounded.STOPPED

    monkeypatch.setattr(bounded, "start", lambda command: command)
    monkeypatch.setattr(bounded, "wait", wait)
    slice_ = slices.Slice(100)
    assert slice_.fresh and slice_.whole == 100 - slices.GRACE
    assert not slice_.run("electra_jax.main", "--x")
    assert not slice_.fresh
    command = [sys.executable, "-m", "electra_jax.main", "--x"]
    assert found == [(command, 100 - slices.GRACE, slices.GRACE, signal.SIGTERM)]
    assert slices.GRACE > slices.STOP

    assert not slices.Slice(slices.GRACE).run("electra_jax.main") and len(found) == 1
    monkeypatch.setattr(bounded, "wait", lambda *_: 2)
    with pytest.raises(SystemExit, match="electra_jax.main ended with 2"):
        slice_.run("electra_jax.main")


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


def test_curves_leave_out_what_is_not_finite():
    """Two logged lines and an evaluation, of which the second line has no loss."""
    rows = [
        {"kind": "train", "tokens_seen": 1000, "gen_masked_loss": 6.0},
        {"kind": "train", "tokens_seen": 2000, "gen_masked_loss": None},
        {
            "kind": "eval", "tokens_seen": 2000, "gen_masked_loss": 5.5, "unigram_entropy": 5.0,
            "disc_auc": 0.6, "disc_auc_unigram": 0.7,
        },
    ]  # fmt: skip
    for some in (rows, rows[:2], []):
        assert small_in_slices_picture.picture(some).startswith(b"\x89PNG")
    assert small_in_slices_picture.curve(rows[:2], "gen_masked_loss") == ([1000], [6.0])
    assert small_in_slices_picture.curve([], "gen_masked_loss") == ([], [])
