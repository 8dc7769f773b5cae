# SPDX-License-Identifier: Apache-2.0
"""GLUE's tasks, one after the other, in slices of time that may end in the middle of one.

On an accelerator all seeds of a task train in one program, and what was interrupted begins again:
a task that takes longer than a slice would never be done. So

1. Each task is a command of its own, that with the least work first: its rows, as often as they
   are trained on.
2. By the time of the task before it and its own work a task has a forecast. It waits for the next
   slice if it should not fit into what is left of this one.
3. If it should not fit into a whole slice, or did not, its seeds train one by one from then on,
   which takes longer in all, but each that is done stays.
4. If one seed does not fit into a whole slice, that is an error with its remedy.

WORKDIR/scores/TASK.json is results.json as it was when all seeds of that task were done, and
WORKDIR/slices.json has the time of the last task that trained all its seeds together, and the tasks
that were cut.
"""

import json
import pathlib
import time
from collections.abc import Sequence

from benchmarks.slices import Slice
from electra_jax.finetuning.results import results_file, run_results
from electra_jax.finetuning.tasks import built_in
from electra_jax.host import safe_files

FOLDERS = {"cola": "CoLA", "sst2": "SST-2", "mrpc": "MRPC", "stsb": "STS-B", "qqp": "QQP",
           "mnli": "MNLI", "qnli": "QNLI", "rte": "RTE"}  # fmt: skip


def tune(
    slice_: Slice, workdir: pathlib.Path, data: pathlib.Path, tasks: Sequence[str], seeds: int
) -> bool:
    """Fine-tunes the encoder of a workdir; returns whether all seeds of all tasks are done.

    Args:
      slice_: the time there is.
      workdir: that of the pre-training run.
      data: the folder with GLUE's folders.
      tasks: names of FOLDERS.
      seeds: of each task.
    """
    work = {task: work_of(data, task) for task in tasks}
    for task in sorted(tasks, key=work.get):
        done = scores(workdir).get(task)
        if done is not None and len(done.seeds) >= seeds:
            continue
        if not _tune_one(slice_, workdir, data, task, seeds, work[task]):
            return False
    return True


def scores(workdir: pathlib.Path) -> dict[str, run_results.TaskResult]:
    """{task: what its seeds came to} of all tasks that are done."""
    found = {}
    for path in sorted((workdir / "scores").glob("*.json")):
        tasks = results_file.load(str(path)).tasks  # those of the commands before it, too
        found[path.stem] = next(task for task in tasks if task.task == path.stem)
    return found


def work_of(data: pathlib.Path, task: str) -> int:
    """The rows that a seed of a task is trained on in all its epochs; 0 without a train.tsv."""
    path, about = data / FOLDERS[task] / "train.tsv", built_in.named(task)
    if not path.exists():
        return 0  # the command says what is missing
    with open(path, "rb") as file:
        return sum(1 for _ in file) * about.epochs * (2 if about.both_orders else 1)


def forecast(took: dict | None, work: int) -> float | None:
    """Seconds of a command with so much work; None if there was none before it.

    Args:
      took: the work, the seconds and the seconds of training of a command. What is no training
        (start, reading, compiling) is taken to be the same.
    """
    if not took or not took["work"]:
        return None
    return took["seconds"] - took["training"] + took["training"] * work / took["work"]


def _tune_one(slice_, workdir, data, task, seeds, work) -> bool:
    """Trains the seeds of a task that are not done; returns whether all are."""
    notes = _notes(workdir)
    wanted, fresh = forecast(notes["took"], work), slice_.fresh
    one_by_one = task in notes["cut"] or (wanted is not None and wanted > slice_.whole)
    waits = wanted is not None and wanted > slice_.left and not one_by_one and not fresh
    if waits or slice_.left <= 0:
        return False

    before, begun = _records(workdir, task), time.monotonic()
    ended = slice_.run(
        "electra_jax.finetune",
        f"--workdir={workdir}",
        f"--config.data.dir={data}",
        f"--config.tasks={task}",
        f"--config.seeds={seeds}",
        f"--config.run.vmapped_seeds={'off' if one_by_one else 'auto'}",
        # Layers as a loop: each length of rows is compiled for each kind of head, and unrolled
        # layers take twice as long to compile on two cores (docs/performance.md).
        "--config.run.scan=on",
    )
    seconds = time.monotonic() - begun
    if ended:
        results = workdir / "finetune" / "finetune" / "results.json"
        (workdir / "scores").mkdir(exist_ok=True)
        safe_files.write(workdir / "scores" / f"{task}.json", results.read_bytes())
        if not one_by_one and not before:
            training = sum(
                60 * record["minutes"] - record["compile_seconds"]
                for record in _records(workdir, task)
            )
            notes["took"] = {"work": work, "seconds": seconds, "training": training}
            _write_notes(workdir, notes)
        return True

    if fresh and one_by_one and len(_records(workdir, task)) == len(before):
        raise SystemExit(
            f"a seed of {task} did not fit into a slice of its own ({seconds:.0f} s); give more"
            " --seconds, or name the other tasks with --tasks"
        )
    if fresh and not one_by_one:
        notes["cut"].append(task)
        _write_notes(workdir, notes)
    return False


def _records(workdir, task) -> list[dict]:
    """The records of the seeds of a task that are done."""
    folder = workdir / "finetune" / "finetune" / task
    return [json.loads(path.read_text()) for path in sorted(folder.glob("seed_*/seed.json"))]


def _notes(workdir) -> dict:
    path = workdir / "slices.json"
    return json.loads(path.read_text()) if path.exists() else {"took": None, "cut": []}


def _write_notes(workdir, notes) -> None:
    safe_files.write(workdir / "slices.json", json.dumps(notes, indent=1).encode())
