# SPDX-License-Identifier: Apache-2.0
"""What fine-tuning came to: results.json, and the same as tables for a console and for Markdown.

    Seed (scores by dev split, curve, warnings)  ->  TaskResult  ->  Results
    Results  ->  results.json  ->  load  ->  Results
             ->  table_rows    ->  console, Markdown (and the page, `page.py`)
    two Results  ->  beside    ->  differences with their standard errors

Scores are shares and correlations in the file and hundredths of them in tables, as papers print
them; `mse` stays as it is.
"""

import dataclasses
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from electra_jax.finetuning.results import scores as scores_lib
from electra_jax.finetuning.results import statistics as statistics_lib
from electra_jax.report import drawing, style

VERSION = 1  # of the schema of results.json, docs/finetuning.md
CHOICES = ("last", "best")
# Of GLUE's average without WNLI, as ELECTRA's paper has it.
GLUE = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")

Scores = Mapping[str, Mapping[str, float]]  # dev split -> metric -> value


class Point(NamedTuple):
    """Of a curve: training loss since the point before, and what the dev split gave, if asked."""

    step: int
    loss: float | None
    scores: Mapping[str, float]  # of the first dev split


@dataclasses.dataclass(frozen=True)
class Seed:
    """One fine-tuning: the scores of its chosen checkpoint."""

    seed: int
    scores: Scores
    curve: Sequence[Point] = ()
    chosen_step: int | None = None
    warnings: Sequence[str] = ()  # statistics.degenerate


@dataclasses.dataclass(frozen=True)
class TaskResult:
    """All seeds of a task."""

    task: str
    kind: str  # one of scores.KINDS
    main: str  # the metric that counts, and that chooses where a choice is made
    seeds: Sequence[Seed]
    choice: str = "last"  # which checkpoint is scored: the last, or the best on dev
    examples: Mapping[str, int] = dataclasses.field(default_factory=dict)  # split -> count
    baselines: Scores = dataclasses.field(default_factory=dict)  # of a constant guess
    minutes: float | None = None  # of all seeds, evaluation included
    tokens_per_second: float | None = None  # in training, padding not counted
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    notes: Sequence[str] = ()  # what was cut, skipped, or chosen

    @property
    def splits(self) -> list[str]:
        """The dev splits in their order."""
        return list(dict.fromkeys(split for seed in self.seeds for split in seed.scores))

    def metrics(self, split: str) -> list[str]:
        """The main one first."""
        names = dict.fromkeys(n for seed in self.seeds for n in seed.scores.get(split, ()))
        return sorted(names, key=lambda name: name != self.main)

    def values(self, split: str, metric: str) -> list[float]:
        """One a seed, in the order of the seeds; nan where a seed has none."""
        return [seed.scores.get(split, {}).get(metric, math.nan) for seed in self.seeds]

    def summary(self, split: str, metric: str) -> statistics_lib.Summary:
        return statistics_lib.summarise(metric, self.values(split, metric))

    def baseline(self, split: str, metric: str) -> float | None:
        return self.baselines.get(split, {}).get(metric)

    @property
    def warnings(self) -> list[tuple[int, str]]:
        """(seed, words): the seeds' own, and those that are far under the others."""
        found = [(seed.seed, words) for seed in self.seeds for words in seed.warnings]
        named = {seed for seed, _ in found}
        for split in self.splits:
            far = statistics_lib.far_below(self.main, self.values(split, self.main))
            for place, words in far.items():
                if self.seeds[place].seed not in named:  # why it is far below is said already
                    found.append((self.seeds[place].seed, f"{split}: {words}"))
        return found


@dataclasses.dataclass(frozen=True)
class Results:
    """One command: an encoder on several tasks."""

    name: str
    tasks: Sequence[TaskResult]
    encoder: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # where from, step, size
    device: str = ""
    minutes: float | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def glue_average(self) -> float | None:
        """Mean of the medians of GLUE's eight tasks, MNLI matched; None while any is missing."""
        tasks = {result.task: result for result in self.tasks}
        if not all(name in tasks and tasks[name].splits for name in GLUE):
            return None
        medians = [
            tasks[name].summary(tasks[name].splits[0], tasks[name].main).median for name in GLUE
        ]
        return sum(medians) / len(medians)


@dataclasses.dataclass(frozen=True)
class Row:
    """Of the table: one metric of one dev split, ready to be shown."""

    task: str
    split: str
    metric: str
    main: bool
    median: str
    mean: str  # with the sd
    best: str
    guess: str
    count: str  # of seeds
    learnt: bool  # the median beats the guess


HEAD = ("task", "split", "metric", "median", "mean ± sd", "best", "n", "guess")


def table_rows(results: Results) -> list[Row]:
    """Task by task, split by split, the main metric first."""
    rows = []
    for task in results.tasks:
        for split in task.splits:
            for metric in task.metrics(split):
                found, guess = task.summary(split, metric), task.baseline(split, metric)
                rows.append(
                    Row(
                        task=task.task,
                        split=split,
                        metric=metric,
                        main=metric == task.main,
                        median=shown(metric, found.median),
                        mean=with_sd(metric, found),
                        best=shown(metric, found.best),
                        guess=shown(metric, guess),
                        count=f"{found.count} of {len(task.seeds)}"
                        if found.failed
                        else f"{found.count}",
                        learnt=guess is None or scores_lib.better(metric, found.median, guess),
                    )
                )
    return rows


def text(results: Results) -> str:
    """For a console."""
    table, before = [list(HEAD)], None
    for row in table_rows(results):
        place = (row.task, row.split)
        task, split = place if place != before else ("", "")
        before = place
        table.append(
            [task, split, row.metric, row.median, row.mean, row.best, row.count, row.guess]
        )
    lines = [f"fine-tuning {results.name}", *facts(results), ""]
    lines += _aligned(table, left=3)
    if results.glue_average is not None:
        lines += ["", f"GLUE average of {len(GLUE)} medians {100 * results.glue_average:.2f}"]
    lines += [
        f"WARNING: {task.task}, seed {seed}: {words}"
        for task in results.tasks
        for seed, words in task.warnings
    ]
    lines += [f"note: {note}" for note in all_notes(results)]
    return "\n".join(lines)


def markdown(results: Results) -> str:
    """A document of its own: table, warnings, notes."""
    lines = [f"# Fine-tuning: {results.name}", ""]
    lines += ["; ".join(facts(results)) + ".", ""] if facts(results) else []
    rows = [
        [
            row.task,
            row.split,
            row.metric,
            f"**{row.median}**" if row.main else row.median,
            row.mean,
            row.best,
            row.count,
            row.guess,
        ]
        for row in table_rows(results)
    ]
    lines += _markdown_table([list(HEAD), *rows], left=3)
    lines += [
        "",
        "Hundredths, but for mse. The median over seeds counts; sd has n - 1; guess is what the"
        " same answer to every example gets.",
    ]
    if results.glue_average is not None:
        lines += ["", f"GLUE average of {len(GLUE)} medians: {100 * results.glue_average:.2f}."]
    warnings = [(task.task, *one) for task in results.tasks for one in task.warnings]
    if warnings:
        lines += ["", "## Warnings", ""]
        lines += [f"- {task}, seed {seed}: {words}" for task, seed, words in warnings]
    notes = all_notes(results)
    if notes:
        lines += ["", "## Notes", "", *(f"- {note}" for note in notes)]
    return "\n".join(lines) + "\n"


@dataclasses.dataclass(frozen=True)
class Beside:
    """One task of two Results: the main metric of a dev split."""

    task: str
    split: str
    metric: str
    first: statistics_lib.Summary
    second: statistics_lib.Summary
    difference: statistics_lib.Difference


def beside(first: Results, second: Results) -> list[Beside]:
    """`first` less `second` in the tasks and dev splits that both have."""
    others, rows = {task.task: task for task in second.tasks}, []
    for task in first.tasks:
        other = others.get(task.task)
        for split in task.splits if other is not None else ():
            ours, theirs = (one.summary(split, task.main) for one in (task, other))
            if not ours.count or not theirs.count:
                continue
            pair = [one.values(split, task.main) for one in (task, other)]
            apart = statistics_lib.difference(task.main, *pair)
            rows.append(Beside(task.task, split, task.main, ours, theirs, apart))
    return rows


def shown(metric: str, value: float | None) -> str:
    """0.84312 -> `84.31`; mse 0.84312 -> `0.8431`; `-` where there is none."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.4f}" if metric in scores_lib.LOWER_IS_BETTER else f"{100 * value:.2f}"


def with_sd(metric: str, found: statistics_lib.Summary) -> str:
    """`84.31 ± 0.42`, of one seed `84.31`."""
    return with_error(metric, found.mean, found.sd)


def with_error(metric: str, value: float, error: float | None) -> str:
    return shown(metric, value) + ("" if error is None else f" ± {shown(metric, error)}")


def signed(metric: str, found: statistics_lib.Difference) -> str:
    """`+1.20 ± 0.31`."""
    sign = "-" if found.amount < 0 else "+" if found.amount > 0 else ""
    return sign + with_error(metric, abs(found.amount), found.error)


def facts(results: Results) -> list[str]:
    """A line each: the encoder, the device, how long it took."""
    found = []
    if results.encoder:
        words = ", ".join(f"{name} {_fact(value)}" for name, value in results.encoder.items())
        found.append(f"encoder: {words}")
    if results.device:
        found.append(f"device: {results.device}")
    if results.minutes is not None:
        found.append(f"time: {style.duration(60 * results.minutes)}")
    return found


def all_notes(results: Results) -> list[str]:
    """The results' own, then the tasks', then what a choice by dev score means."""
    notes = list(results.notes)
    notes += [f"{task.task}: {note}" for task in results.tasks for note in task.notes]
    chosen = [task.task for task in results.tasks if task.choice == "best"]
    if chosen:
        notes.append(
            f"{', '.join(chosen)}: each seed's best checkpoint on the dev split that scores it,"
            " which flatters; the published protocol takes the last"
        )
    return notes


# --- the file ---------------------------------------------------------------------------------


def to_json(results: Results) -> dict:
    """The tree of results.json; a number that is not finite becomes null."""
    return _plain(
        {
            "version": VERSION,
            "name": results.name,
            "encoder": results.encoder,
            "device": results.device,
            "minutes": results.minutes,
            "glue_average": results.glue_average,
            "settings": results.settings,
            "notes": results.notes,
            "tasks": [_task_to_json(task) for task in results.tasks],
        }
    )


def from_json(tree: Mapping) -> Results:
    """The inverse; what follows from the rest (statistics) is not read but computed."""
    if tree.get("version") != VERSION:
        raise ValueError(
            f"results of version {tree.get('version')!r}; this program reads version {VERSION}"
        )
    tasks = [
        TaskResult(
            task=one["task"],
            kind=one["kind"],
            main=one["main"],
            seeds=[
                Seed(
                    seed=seed["seed"],
                    scores={split: _finite(values) for split, values in seed["scores"].items()},
                    curve=[
                        Point(point["step"], point["loss"], _finite(point["scores"]))
                        for point in seed["curve"]
                    ],
                    chosen_step=seed["chosen_step"],
                    warnings=seed["warnings"],
                )
                for seed in one["seeds"]
            ],
            choice=one["choice"],
            examples=one["examples"],
            baselines={
                split: {
                    metric: entry["guess"]
                    for metric, entry in entries.items()
                    if entry["guess"] is not None
                }
                for split, entries in one["dev"].items()
            },
            minutes=one["minutes"],
            tokens_per_second=one["tokens_per_second"],
            settings=one["settings"],
            notes=one["notes"],
        )
        for one in tree["tasks"]
    ]
    return Results(
        name=tree["name"],
        tasks=tasks,
        encoder=tree["encoder"],
        device=tree["device"],
        minutes=tree["minutes"],
        settings=tree["settings"],
        notes=tree["notes"],
    )


def write(folder: str, results: Results) -> list[str]:
    """Writes results.json and results.md, each at once or not at all; returns their paths."""
    for task in results.tasks:
        if task.choice not in CHOICES:
            raise ValueError(f"{task.task}: choice {task.choice!r} is none of {CHOICES}")
    tree = json.dumps(to_json(results), ensure_ascii=False, indent=1, allow_nan=False) + "\n"
    paths = []
    for name, content in (("results.json", tree), ("results.md", markdown(results))):
        paths.append(os.path.join(folder, name))
        drawing.write_whole(paths[-1], content.encode())
    return paths


def load(path: str) -> Results:
    """Reads a results.json. Raises ValueError, in one line, for what is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return from_json(json.load(file))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no results.json: {error!r}") from error


def _task_to_json(task: TaskResult) -> dict:
    dev = {}
    for split in task.splits:
        dev[split] = {}
        for metric in task.metrics(split):
            found = task.summary(split, metric)
            dev[split][metric] = {
                "median": found.median,
                "mean": found.mean,
                "sd": found.sd,
                "standard_error": found.error,
                "best": found.best,
                "n": found.count,
                "failed": found.failed,
                "guess": task.baseline(split, metric),
                "values": task.values(split, metric),
            }
    return {
        "task": task.task,
        "kind": task.kind,
        "main": task.main,
        "choice": task.choice,
        "examples": task.examples,
        "minutes": task.minutes,
        "tokens_per_second": task.tokens_per_second,
        "settings": task.settings,
        "notes": task.notes,
        "warnings": [{"seed": seed, "warning": words} for seed, words in task.warnings],
        "dev": dev,
        "seeds": [
            {
                "seed": seed.seed,
                "chosen_step": seed.chosen_step,
                "scores": seed.scores,
                "warnings": seed.warnings,
                "curve": [point._asdict() for point in seed.curve],
            }
            for seed in task.seeds
        ],
    }


def _plain(value):
    """A value that JSON has."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _finite(values: Mapping[str, float | None]) -> dict[str, float]:
    """Null is nan again: the seed has a value there, and it is not a number."""
    return {name: math.nan if value is None else value for name, value in values.items()}


def _fact(value) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _aligned(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Columns under each other; the first `left` to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]


def _markdown_table(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    head, *body = rows
    rule = ["---" if place < left else "---:" for place in range(len(head))]
    return [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
        for row in (head, rule, *body)
    ]
