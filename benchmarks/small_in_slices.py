# SPDX-License-Identifier: Apache-2.0
"""ELECTRA-Small as published for a sixteenth of its steps, then GLUE, in slices of some minutes.

    python benchmarks/small_in_slices.py --data=FOLDER --workdir=FOLDER --out=FOLDER --seconds=540

The paper's figure 4 and table 1 have this point: 6.25 % of the training (62,500 steps of 128 rows
of 128 tokens, 1.02 billion tokens), 6 hours on one V100, a GLUE average of 74.1 on the dev sets.

A call ends by itself after --seconds, and the same call continues where the last one ended:
training at its newest step, tasks as tasks_in_slices.py says. --workdir must stay from one call to
the next, and if it is lost all begins again. So each call leaves in --out what there is by then:
the table, metrics and curves, the scores of all seeds by task, and, once it is trained, the encoder
in float32, in parts for ways back that limit the size of files:

    cat encoder.safetensors.part* > model.safetensors

--data holds the text (*.txt.xz, *.jsonl.gz, *.parquet or the like), BERT's vocabulary as vocab.txt,
and GLUE's folders (CoLA, SST-2, ...) as they are published. --rows=512 takes larger steps: fewer of
them, a rate that grows with the root, and the same tokens. What stands after `--` goes to the
training command. Without an accelerator it is rehearsed with `--config=tiny_paper --steps=200
--tasks=mrpc --seeds=2 -- --config.model.dtype=float32`.
"""

import argparse
import json
import os
import pathlib
import shlex
import shutil
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from benchmarks import (  # noqa: E402 - ROOT must be known before
    bounded,
    gpu_findings,
    slices,
    small_in_slices_picture,
    tasks_in_slices,
)
from electra_jax.host import safe_files  # noqa: E402 - as above
from electra_jax.report import writers  # noqa: E402 - as above

STEPS, ROWS, WARMUP, RATE = 62_500, 128, 10_000, 5e-4  # of the paper's run, 1/16 of its steps
PAPER = 74.1  # GLUE average of the dev sets after these steps, all eight tasks
# The released code's README: the same size after all of its steps, on public text.
AFTER_ALL_STEPS = {"cola": 56.8, "sst2": 88.3, "mrpc": 87.4, "stsb": 86.8, "qqp": 88.3,
                   "mnli": 78.9, "qnli": 87.9, "rte": 68.5}  # fmt: skip
ENDINGS = (".txt", ".jsonl", ".json", ".parquet")
PART = 15 * 2**20  # bytes
shown = gpu_findings.shown  # a number, or ? for one that was not finite


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


def tasks_of(given) -> list[str]:
    """The tasks that are asked for, or all whose folder has a training file.

    Raises SystemExit if one is none of the eight.
    """
    folders = tasks_in_slices.FOLDERS
    if not given.tasks:
        return [task for task in folders if (given.data / folders[task] / "train.tsv").exists()]
    asked = given.tasks.split(",")
    for task in asked:
        if task not in folders:
            raise SystemExit(f"--tasks: {task!r} is none of {', '.join(folders)}")
    return asked


def train(slice_: slices.Slice, given, workdir: pathlib.Path) -> bool:
    """Pre-trains, or continues; returns whether all steps are done."""
    larger = given.rows / ROWS
    steps = given.steps or round(STEPS / larger)
    command = (
        "electra_jax.main",
        f"--config={given.config}",
        f"--workdir={workdir}",
        f"--stopped_code={bounded.STOPPED}",
        f"--stop_timeout={slices.STOP}",
        f"--config.data.source={text_of(given.data)}",
        f"--config.data.vocab={given.data / 'vocab.txt'}",
        f"--config.data.batch_size={given.rows}",
        f"--config.schedule.steps={steps}",
        f"--config.schedule.warmup_steps={round(WARMUP / larger * min(1, steps * larger / STEPS))}",
        f"--config.optimizer.learning_rate={RATE * larger**0.5:.6g}",
        "--config.model.dtype=bfloat16",
        f"--config.logging.every={max(1, steps // 125)}",
        f"--config.logging.report_every={steps}",  # pages are drawn between two steps
        f"--config.evaluation.every={max(1, steps // 5)}",
        f"--config.checkpoint.every={max(1, steps // 5)}",
        *given.more,
    )

    # A training that is done would take a minute to say so at the beginning of every later slice.
    done, said = workdir / "trained.txt", shlex.join(command)
    if done.exists() and done.read_text() == said:
        return True
    if not slice_.run(*command):
        return False
    for of_fewer_steps in ("encoder", "finetune", "scores"):
        shutil.rmtree(workdir / of_fewer_steps, ignore_errors=True)
    safe_files.write(done, said.encode())
    return True


def table(workdir: pathlib.Path) -> str:
    """What came out, beside what was published."""
    rows = writers.read(workdir / "metrics.jsonl")
    lines = [
        f"step {row['step']:,}, {shown(row['tokens_seen'], ',')} tokens,"
        f" {shown(row['tokens_per_second'], ',.0f')} tokens/s at the end"
        for row in [row for row in rows if row["kind"] == "train"][-1:]
    ]
    for row in [row for row in rows if row["kind"] == "eval"][-1:]:
        lines.append(
            f"held out: gen_masked_loss {shown(row['gen_masked_loss'], '.3f')} (token frequencies"
            f" {shown(row['unigram_entropy'], '.3f')}), disc_auc {shown(row['disc_auc'], '.3f')}"
        )

    found = tasks_in_slices.scores(workdir)
    if not found:
        return "\n".join(lines)

    lines.append(f"{'task':<6} {'median':>7} {'mean':>7} {'error':>6}  seeds  after all steps")
    medians = {}
    for name, task in found.items():
        over_seeds = task.summary(task.splits[0], task.main)
        medians[name] = 100 * over_seeds.median
        error = None if over_seeds.error is None else 100 * over_seeds.error
        lines.append(
            f"{name:<6} {medians[name]:>7.1f} {100 * over_seeds.mean:>7.1f} "
            f"{shown(error, '.1f'):>6}  {over_seeds.count:>5}  {AFTER_ALL_STEPS[name]:>15.1f}"
        )
    count = f"{len(medians)} task{'s' if len(medians) > 1 else ''}"
    after = statistics.mean(AFTER_ALL_STEPS[name] for name in medians)
    lines += [
        f"mean of the medians of {count}: {statistics.mean(medians.values()):.1f}",
        f"mean of the same {count} as published after all steps: {after:.1f}",
        f"the paper's average at this sixteenth of the steps, over all eight tasks: {PAPER}",
    ]
    return "\n".join(lines)


def bring_encoder(slice_: slices.Slice, workdir: pathlib.Path, out: pathlib.Path) -> bool:
    """Writes the encoder into `out`, in parts; returns whether there was time for it."""
    export = workdir / "encoder"
    convert = f"--workdir={workdir}", "--to=hugging_face", f"--out={export}", "--only=discriminator"
    if not export.exists() and not slice_.run("electra_jax.convert", *convert):
        return False

    (weights,) = export.rglob("model.safetensors")
    with open(weights, "rb") as file:
        for number, part in enumerate(iter(lambda: file.read(PART), b"")):
            (out / f"encoder.safetensors.part{number}").write_bytes(part)
    return True


def bring_numbers(workdir: pathlib.Path, out: pathlib.Path) -> None:
    """Writes the metrics and the scores by task into `out`, as far as there are any."""
    if (workdir / "metrics.jsonl").exists():
        shutil.copy(workdir / "metrics.jsonl", out)
    files = sorted((workdir / "scores").glob("*.json"))
    content = {path.stem: json.loads(path.read_text()) for path in files}
    if content:
        safe_files.write(out / "scores.json", json.dumps(content).encode())


def bring_curves(workdir: pathlib.Path, out: pathlib.Path) -> None:
    """Writes the picture of the metrics into `out`, if there are any."""
    if (workdir / "metrics.jsonl").exists():
        drawn = small_in_slices_picture.picture(writers.read(workdir / "metrics.jsonl"))
        safe_files.write(out / "curves.png", drawn)


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
    bounded.end_on_sigterm()
    given.out.mkdir(parents=True, exist_ok=True)

    slice_, run, tasks = slices.Slice(given.seconds), given.workdir / "run", tasks_of(given)
    done = False
    try:
        done = (
            train(slice_, given, run)
            and bring_encoder(slice_, run, given.out)
            and tasks_in_slices.tune(slice_, run, given.data, tasks, given.seeds)
        )
    finally:  # also where a command has failed
        bring_numbers(run, given.out)
        said = table(run) if (run / "metrics.jsonl").exists() else "nothing is trained yet"
        said += "" if done else "\nnot done: the same command continues"
        safe_files.write(given.out / "table.txt", f"{said}\n".encode())
        print(said)
        bring_curves(run, given.out)  # the last: if it cannot be drawn, all else is there


if __name__ == "__main__":
    os.chdir(ROOT)
    main()
