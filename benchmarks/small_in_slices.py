# SPDX-License-Identifier: Apache-2.0
"""ELECTRA-Small as published for a sixteenth of its steps, then GLUE, in slices of some minutes.

    python benchmarks/small_in_slices.py --data=FOLDER --workdir=FOLDER --out=FOLDER --seconds=540

The paper's figure 4 and table 1 have this point: 6.25 % of the training (62,500 steps of 128 rows
of 128 tokens, 1.02 billion tokens), 6 hours on one V100, a GLUE average of 74.1 on the dev sets.

A call ends by itself after --seconds, and the same call goes on where the last one ended: training
bit for bit, fine-tuning with the first seed that is not finished. When all is done, --out has the
table, the metrics, the scores and the encoder in float32, in parts that a narrow way can carry:

    cat encoder.safetensors.part* > model.safetensors

--data holds the text (*.txt.xz, *.jsonl.gz, *.parquet or the like), BERT's vocabulary as vocab.txt,
and GLUE's folders (CoLA, SST-2, ...) as they are published. --rows=512 takes larger steps: fewer of
them, a rate that grows with the root, and the same tokens. What stands after `--` goes to the
training command. Without an accelerator it is rehearsed with `--config=tiny_paper --steps=200
--tasks=mrpc --seeds=2 -- --config.model.dtype=float32`.
"""

import argparse
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[1]
sys.path.append(str(ROOT))

from electra_jax.finetuning.results import results_file  # noqa: E402 - ROOT must be known before
from electra_jax.report import writers  # noqa: E402 - as above

STEPS, ROWS, WARMUP, RATE = 62_500, 128, 10_000, 5e-4  # of the paper's run, 1/16 of its steps
PAPER = 74.1  # GLUE average of the dev sets, all eight tasks
# The released code's README: the same size after all of its steps, on public text.
AFTER_ALL_STEPS = {"cola": 56.8, "sst2": 88.3, "mrpc": 87.4, "stsb": 86.8, "qqp": 88.3,
                   "mnli": 78.9, "qnli": 87.9, "rte": 68.5}  # fmt: skip
FOLDERS = {"cola": "CoLA", "sst2": "SST-2", "mrpc": "MRPC", "stsb": "STS-B", "qqp": "QQP",
           "mnli": "MNLI", "qnli": "QNLI", "rte": "RTE"}  # fmt: skip
ENDINGS = (".txt", ".jsonl", ".json", ".parquet")
PART = 15 * 2**20  # bytes
GRACE = 45  # seconds of a slice in which a command saves and ends
CUT = 75  # what a training that was stopped and saved ends with


class Slice:
    """The time that a call has."""

    def __init__(self, seconds: float):
        self._end = time.monotonic() + seconds - GRACE

    def run(self, *command: str) -> bool:
        """Runs a command of the package; returns whether it came to its end.

        Raises SystemExit if it failed.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            return False

        process = subprocess.Popen([sys.executable, "-m", *command], cwd=ROOT)
        try:
            code = process.wait(left)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            process.wait()
            return False
        if code == CUT:
            return False
        if code:
            raise SystemExit(f"{command[0]} ended with {code}")
        return True


def text_of(data: pathlib.Path) -> str:
    """The text of a folder as `data.source`: its files by their one ending, such as *.txt.xz.

    Raises SystemExit if there is none, or of several kinds.
    """
    endings = {
        "".join(path.suffixes)
        for path in data.iterdir()
        if path.name != "vocab.txt" and path.suffixes and path.suffixes[0] in ENDINGS
    }
    if len(endings) != 1:
        kinds = ", ".join(sorted(endings)) or "none"
        raise SystemExit(f"--data={data}: give text of one kind, such as *.txt.xz; it has {kinds}")
    if ".txt" in endings:
        raise SystemExit(f"--data={data}: *.txt must be packed, as *.txt.xz: vocab.txt is no text")
    return f"text:{data}/*{endings.pop()}"


def train(slice_: Slice, given, workdir: pathlib.Path) -> bool:
    """Pre-trains, or goes on; returns whether all steps are done."""
    larger = given.rows / ROWS
    steps = given.steps or round(STEPS / larger)
    return slice_.run(
        "electra_jax.main",
        f"--config={given.config}",
        f"--workdir={workdir}",
        f"--stopped_code={CUT}",
        f"--config.data.source={text_of(given.data)}",
        f"--config.data.vocab={given.data / 'vocab.txt'}",
        f"--config.data.batch_size={given.rows}",
        f"--config.schedule.steps={steps}",
        f"--config.schedule.warmup_steps={round(WARMUP / larger * min(1, steps * larger / STEPS))}",
        f"--config.optimizer.learning_rate={RATE * larger**0.5:.6g}",
        "--config.model.dtype=bfloat16",
        f"--config.logging.every={max(1, steps // 125)}",
        f"--config.evaluation.every={max(1, steps // 5)}",
        f"--config.checkpoint.every={max(1, steps // 5)}",
        *given.more,
    )


def tune(slice_: Slice, given, workdir: pathlib.Path) -> bool:
    """Fine-tunes on the tasks whose folders are there; returns whether all seeds are done."""
    return slice_.run(
        "electra_jax.finetune",
        f"--workdir={workdir}",
        f"--config.data.dir={given.data}",
        f"--config.tasks={','.join(tasks_of(given))}",
        f"--config.seeds={given.seeds}",
    )


def tasks_of(given) -> list[str]:
    """The tasks that are asked for, or all whose folder has a training file."""
    if given.tasks:
        return given.tasks.split(",")
    return [
        task for task, folder in FOLDERS.items() if (given.data / folder / "train.tsv").exists()
    ]


def table(workdir: pathlib.Path) -> str:
    """What came out, beside what was published."""
    rows = writers.read(workdir / "metrics.jsonl")
    trained = [row for row in rows if row["kind"] == "train"][-1]
    found = [row for row in rows if row["kind"] == "eval"][-1:]
    lines = [f"step {trained['step']:,}, {trained['tokens_seen'] / 1e9:.3f} billion tokens,"
             f" {trained['tokens_per_second']:,.0f} tokens/s at the end"]  # fmt: skip
    for row in found:
        lines.append(f"held out: gen_masked_loss {row['gen_masked_loss']:.3f} (token frequencies"
                     f" {row['unigram_entropy']:.3f}), disc_auc {row['disc_auc']:.3f}")  # fmt: skip

    results = workdir / "finetune" / "finetune" / "results.json"
    if not results.exists():
        return "\n".join(lines)

    lines.append(f"{'task':<6} {'median':>7} {'mean':>7} {'error':>6}  seeds  after all steps")
    medians = []
    for task in results_file.load(str(results)).tasks:
        found = task.summary(task.splits[0], task.main)
        medians.append(100 * found.median)
        error = 100 * (found.error if found.error is not None else float("nan"))
        published = AFTER_ALL_STEPS[task.task]
        lines.append(f"{task.task:<6} {medians[-1]:>7.1f} {100 * found.mean:>7.1f} {error:>6.1f}"
                     f"  {found.count:>5}  {published:>15.1f}")  # fmt: skip
    lines.append(f"mean of {len(medians)} medians {statistics.mean(medians):.1f}; at this point the"
                 f" paper's average over all eight tasks is {PAPER}")  # fmt: skip
    return "\n".join(lines)


def bring(workdir: pathlib.Path, out: pathlib.Path) -> None:
    """Copies the metrics, the report and the scores, and the encoder in parts, into `out`."""
    for path in (workdir / "metrics.jsonl", workdir / "finetune" / "finetune" / "results.json"):
        if path.exists():
            shutil.copy(path, out)

    export = workdir / "encoder"
    shutil.rmtree(export, ignore_errors=True)
    subprocess.run(
        [sys.executable, "-m", "electra_jax.convert", f"--workdir={workdir}",
         "--to=hugging_face", f"--out={export}", "--only=discriminator"],
        cwd=ROOT, check=True,
    )  # fmt: skip
    (weights,) = export.rglob("model.safetensors")
    with open(weights, "rb") as file:
        for number, part in enumerate(iter(lambda: file.read(PART), b"")):
            (out / f"encoder.safetensors.part{number}").write_bytes(part)


def main() -> None:
    """Trains, fine-tunes, and says what there is so far."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--workdir", type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--out", type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="that this call has")
    parser.add_argument("--rows", type=int, default=ROWS, help="of a step")
    parser.add_argument("--steps", type=int, default=0, help="instead of the paper's sixteenth")
    parser.add_argument("--config", default="small")
    parser.add_argument("--tasks", default="", help="joined by commas; all that are in --data")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("more", nargs="*", help="after --: flags of the training command")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)

    slice_, run = Slice(given.seconds), given.workdir / "run"
    done = train(slice_, given, run) and tune(slice_, given, run)
    if done:
        bring(run, given.out)

    said = table(run) if (run / "metrics.jsonl").exists() else "nothing is trained yet"
    said += "" if done else "\nnot done: the same command goes on"
    (given.out / "table.txt").write_text(said + "\n")
    print(said)


if __name__ == "__main__":
    os.chdir(ROOT)
    main()
