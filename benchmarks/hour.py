# SPDX-License-Identifier: Apache-2.0
"""What an hour of training on two cores is worth: trains configs/hour.py, fine-tunes, keeps record.

    python benchmarks/hour.py --source='text:wiki/*.txt' --downstream=FOLDER --change='wider'
    python benchmarks/hour.py --report

One command prepares the text, trains for the hour (compiling, evaluating and saving do not count),
fine-tunes the encoder on five tasks with five seeds and random weights of its shape with two, asks
the frozen encoder, and adds a record to the page. It continues where it was stopped.

    WORKDIR/run                     an ordinary workdir
    WORKDIR/host.txt                the machine that has trained
    WORKDIR/run/finetune/NAME       the tasks; {trained,random}_{tags,...}
    docs/experiments/hour.json      all records, of which hour.md is made

--downstream holds glue/{SST-2,MRPC,STS-B}, wikiann/en.{train,dev,test}, and conll2000.zip and
subjectivity.zip as NLTK packs them. What stands after `--` goes to the training command.
"""

import argparse
import dataclasses
import datetime
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from benchmarks import bounded, fine_tuned, frozen_encoder, hour_page  # noqa: E402 - found by ROOT alone
from electra_jax.checks import finished_runs  # noqa: E402 - as above
from electra_jax.configs import finetune, finetune_hour  # noqa: E402 - as above
from electra_jax.finetuning.results import results_file, run_results  # noqa: E402 - as above
from electra_jax.weights import card_facts, reading  # noqa: E402 - as above
from electra_jax.workdir import saved_config, starts  # noqa: E402 - as above

HOST = "host.txt"  # in the workdir: the machine that has trained
REFUSED = 2  # what a command ends with that must be corrected


@dataclasses.dataclass(frozen=True)
class Group:
    """Tasks that are fine-tuned by one command. docs/LOG.md has the trials behind the numbers."""

    tasks: Sequence[str]  # as the page names them
    examples: int  # to train on at most; 0: all
    recipe: Mapping[str, float] = dataclasses.field(default_factory=dict)  # of both sides
    trained: Mapping[str, float] = dataclasses.field(default_factory=dict)  # of trained weights
    lengths: Sequence[int] = ()  # that rows are padded to; (): configs/finetune.py's


GROUPS = {
    "tags": Group(("chunking", "wikiann_en"), examples=0, trained={"learning_rate": 1e-3}),
    "sentences": Group(("sst2", "mrpc", "stsb"), examples=8000),
    # 67,349 examples, most of them a few words: one epoch is 2.8 times the steps of three of 8,000.
    "phrases": Group(("sst2_all",), examples=0, recipe={"epochs": 1}, lengths=(16, 32, 64, 128)),
}
SAME_TASK = {"sst2_all": "sst2"}  # with other examples: what the command calls it
FILES = {  # what --downstream holds for each task
    "chunking": frozen_encoder.CHUNKS,
    "wikiann_en": "wikiann",
    "sst2": "glue/SST-2",
    "sst2_all": "glue/SST-2",
    "mrpc": "glue/MRPC",
    "stsb": "glue/STS-B",
}
INITS = {"trained": "pretrained", "random": "fresh"}  # as encoder.init
HELD_OUT = ("gen_masked_loss", "mlm_masked_loss", "unigram_entropy", "disc_auc", "disc_auc_unigram")


def main() -> None:
    """Does what is not done yet, adds the record, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workdir", default="runs/hour")
    parser.add_argument("--config", default="configs/hour.py")
    parser.add_argument("--source", default="", help="as data.source; '': the configuration's")
    parser.add_argument("--corpus", default="English Wikipedia", help="what the page calls it")
    parser.add_argument("--downstream", help="folder of the tasks")
    parser.add_argument("--tasks", default=",".join(hour_page.TASKS), help="joined by commas")
    parser.add_argument("--seeds", type=int, default=5, help="of fine-tuning")
    parser.add_argument(
        "--random_seeds",
        type=int,
        default=2,
        help="the same of random weights; 0: none, where a record of this shape has them",
    )
    parser.add_argument("--change", default="", help="what this record has tried, in a few words")
    parser.add_argument("--report", action="store_true", help="only write the page")
    parser.add_argument("--page", default="docs/experiments/hour.md")
    parser.add_argument("more", nargs="*", help="after --: flags of the training command")
    given = parser.parse_args()

    if not given.report:
        if not given.change or not given.downstream:
            parser.error("a record needs --change, in a few words, and --downstream, the tasks")
        check_files(given)
        folder = train(given)
        refuse_known(given, folder)
        tune(given, folder, "trained", given.seeds)
        if given.random_seeds:
            tune(given, folder, "random", min(given.seeds, given.random_seeds))
        hour_page.add(given.page, record(given, folder))
    hour_page.write(given.page)


def check_files(given) -> None:
    """Raises SystemExit if a task of --tasks, or a probe, is not there: not after the hour."""
    tasks = [task for group in asked(given.tasks).values() for task in group]
    needed = [*(FILES[task] for task in tasks), frozen_encoder.CHUNKS, frozen_encoder.SUBJECTIVITY]
    for name in dict.fromkeys(needed):
        if not os.path.exists(os.path.join(given.downstream, name)):
            raise SystemExit(
                f"--downstream={given.downstream} has no {name}; the head of hour.py says"
                " what it holds"
            )


def train(given) -> str:
    """Trains for the hour, or continues; returns the workdir. SystemExit if it was stopped."""
    folder, host = os.path.join(given.workdir, "run"), pathlib.Path(given.workdir, HOST)
    if not os.path.exists(os.path.join(folder, starts.NAME)):  # later calls may have fewer cores
        host.parent.mkdir(parents=True, exist_ok=True)
        host.write_text(_host())

    source = [f"--config.data.source={given.source}"] if given.source else []
    where = (f"--config={given.config}", f"--workdir={folder}", f"--stopped_code={bounded.STOPPED}")
    _command("main", *where, *source, *given.more)
    return folder


def refuse_known(given, folder: str) -> None:
    """Raises SystemExit if the page has this run already, under another change."""
    begun = starts.read(folder)[0]["time"]
    for one in hour_page.records(given.page):
        if one["begun"] == begun and one["change"] != given.change:
            raise SystemExit(
                f"{folder} is the hour of --change={one['change']!r} already; give another"
                f" --workdir for {given.change!r}"
            )


def tune(given, folder: str, weights: str, seeds: int) -> None:
    """Fine-tunes the trained weights, or random ones of their shape, on all tasks."""
    for group, tasks in asked(given.tasks).items():
        settings = recipe(weights, group)
        _command(
            "finetune",
            f"--workdir={folder}",
            f"--config.name={weights}_{group}",
            f"--config.data.dir={given.downstream}",
            f"--config.data.train_examples={GROUPS[group].examples}",
            f"--config.tasks={','.join(SAME_TASK.get(task, task) for task in tasks)}",
            f"--config.seeds={seeds}",
            f"--config.encoder.init={INITS[weights]}",
            *(f"--config.recipe.{field}={value}" for field, value in settings.items()),
            *((f"--config.run.lengths={lengths}",) if (lengths := GROUPS[group].lengths) else ()),
        )


def recipe(weights: str, group: str) -> dict:
    """What is set of `recipe` for a group of tasks: configs/finetune_hour.py, or near it."""
    published, own = finetune.get_config().recipe, finetune_hour.get_config().recipe
    changed = {name: value for name, value in own.items() if value != published[name]}
    of_side = GROUPS[group].trained if weights == "trained" else fine_tuned.RANDOM
    return changed | of_side | GROUPS[group].recipe


def asked(tasks: str) -> dict[str, list[str]]:
    """The groups of --tasks, each with its tasks. Raises SystemExit for an unknown task."""
    names = tasks.split(",")
    if unknown := set(names) - set(hour_page.TASKS):
        raise SystemExit(
            f"--tasks has {', '.join(sorted(unknown))}; there are {', '.join(hour_page.TASKS)}"
        )
    found = {
        name: [task for task in group.tasks if task in names] for name, group in GROUPS.items()
    }
    return {name: tasks for name, tasks in found.items() if tasks}


def record(given, folder: str) -> dict:
    """All that was measured, as hour.json keeps it."""
    config = saved_config.read(folder)
    run = finished_runs.FinishedRun.open(config, folder)
    inits = tuple(INITS) if given.random_seeds else ("trained",)
    results = {
        name: {
            group: results_file.load(
                os.path.join(folder, "finetune", f"{name}_{group}", "results.json")
            )
            for group in asked(given.tasks)
        }
        for name in inits
    }
    one = next(iter(results["trained"].values()))
    last, first_start = run.evaluations[-1], starts.read(folder)[0]
    host = pathlib.Path(given.workdir, HOST)
    return {
        "date": datetime.date.today().isoformat(),
        "change": given.change,
        "commit": first_start["commit"],
        "begun": first_start["time"],
        "config": config.name,
        "objective": config.objective.name,
        "host": host.read_text() if host.exists() else "a machine that was not noted",
        "corpus": given.corpus,
        "minutes": config.schedule.minutes,
        "steps": last["step"],
        "tokens": last["tokens_seen"],
        "flops": card_facts.training_flops(reading.open(folder)),
        "parameters": one.encoder["parameters"],  # that are fine-tuned
        "heldout": {name: last[name] for name in HELD_OUT if name in last},
        "probes": frozen_encoder.measure(run, run.params, given.downstream),
        "untrained_probes": frozen_encoder.measure(run, run.first_params, given.downstream),
        "recipes": {
            name: {group: recipe(name, group) for group in asked(given.tasks)} for name in inits
        },
        "tasks": {
            name: {
                on_page(group, task.task): _score(task)
                for group, found in groups.items()
                for task in found.tasks
            }
            for name, groups in results.items()
        },
    }


def on_page(group: str, task: str) -> str:
    """What the page calls a task of a group's results."""
    return next(name for name in GROUPS[group].tasks if SAME_TASK.get(name, name) == task)


def _score(task: run_results.TaskResult) -> dict:
    """Split, metric, mean, error, seeds, and the score of one answer for all."""
    # Where there are a dev and a test split with labels, dev is the one that is first.
    split = task.splits[0]
    over = task.summary(split, task.main)
    return {
        "split": split,
        "metric": task.main,
        "mean": over.mean,
        "error": over.error,
        "seeds": over.count,
        "one_answer": task.baseline(split, task.main),
    }


def _host():
    """The processor's name and how many cores this process may use."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else "an unknown processor"
    count = len(os.sched_getaffinity(0))
    return f"{count} core{'' if count == 1 else 's'} of {name}"


def _command(name, *flags):
    """Runs a command of the package; SystemExit if it failed or was stopped."""
    done = subprocess.run([sys.executable, "-m", f"electra_jax.{name}", *flags], cwd=ROOT)
    if done.returncode == REFUSED:
        raise SystemExit(f"{name} was refused (above); correct what it names")
    if done.returncode:
        raise SystemExit(f"{name} ended with {done.returncode}; the same command continues")


if __name__ == "__main__":
    main()
