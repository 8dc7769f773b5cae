# SPDX-License-Identifier: Apache-2.0
"""The results of a fine-tuning command as values: by seed, by task, and all together.

    SeedResult (scores by dev split, curve, warnings)  ->  TaskResult  ->  Results
    two Results  ->  compare  ->  differences with their standard errors

`results_file.py` writes and reads them, `results_table.py` and `page.py` show them.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from electra_jax.finetuning.results import statistics as statistics_lib
from electra_jax.report import means

CHOICES = ("last", "best")
# The tasks of GLUE's average, without WNLI, as in ELECTRA's paper.
GLUE = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")
Scores = Mapping[str, Mapping[str, float]]  # dev split -> metric -> value


class CurvePoint(NamedTuple):
    """One evaluation: training loss since the previous one, and the dev scores if there are any."""

    step: int
    loss: float | None
    scores: Mapping[str, float]  # of the first dev split


@dataclasses.dataclass(frozen=True)
class SeedResult:
    """The result of one seed: the scores of its chosen checkpoint."""

    seed: int
    scores: Scores
    curve: Sequence[CurvePoint] = ()
    chosen_step: int | None = None
    warnings: Sequence[str] = ()  # from statistics.degenerate
    # dev split -> label -> f1, precision, recall and count, the number of its true examples
    by_label: Mapping[str, Scores] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class TaskResult:
    """The results of all seeds of one task."""

    task: str
    kind: str  # one of scores.KINDS
    main: str  # the metric that counts and by which checkpoints, seeds and points are chosen
    seeds: Sequence[SeedResult]
    choice: str = "last"  # which checkpoint is scored: the last, or the best on dev
    examples: Mapping[str, int] = dataclasses.field(default_factory=dict)  # split -> count
    baselines: Scores = dataclasses.field(default_factory=dict)  # scores of a constant guess
    minutes: float | None = None  # of all seeds, evaluation included
    device_minutes: float | None = None  # the same times the devices that each seed was trained on
    tokens_per_second: float | None = None  # in training, padding not counted
    padding_rate: float | None = None  # the share of padding in the batches of training
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    notes: Sequence[str] = ()  # what was cut, skipped, or chosen

    @property
    def splits(self) -> list[str]:
        """The dev splits, in order."""
        return list(dict.fromkeys(split for seed in self.seeds for split in seed.scores))

    def metrics(self, split: str) -> list[str]:
        """The metrics of a split, the main one first."""
        names = dict.fromkeys(n for seed in self.seeds for n in seed.scores.get(split, ()))
        return sorted(names, key=lambda name: name != self.main)

    def values(self, split: str, metric: str) -> list[float]:
        """One value per seed, in order; nan for a seed that has none."""
        return [seed.scores.get(split, {}).get(metric, math.nan) for seed in self.seeds]

    def summary(self, split: str, metric: str) -> statistics_lib.SeedStatistics:
        """Statistics of one metric over the seeds."""
        return statistics_lib.summarise(metric, self.values(split, metric))

    def labels(self, split: str) -> list[str]:
        """The labels of a split that any seed has scores of, in order."""
        found = (seed.by_label.get(split, {}) for seed in self.seeds)
        return list(dict.fromkeys(label for labels in found for label in labels))

    def of_label(self, split: str, label: str, name: str) -> list[float]:
        """`f1`, `precision`, `recall` or `count` of a label, a value for each seed that has it.

        A seed that has scores of other labels has neither predicted nor seen this one: 0.
        """
        found = [seed.by_label[split] for seed in self.seeds if seed.by_label.get(split)]
        return [labels.get(label, {}).get(name, 0.0) for labels in found]

    def baseline(self, split: str, metric: str) -> float | None:
        """The score of a constant guess."""
        return self.baselines.get(split, {}).get(metric)

    @property
    def warnings(self) -> list[tuple[int, str]]:
        """(seed, text): the warnings of the seeds, and seeds that are far worse than the others."""
        found = [(seed.seed, words) for seed in self.seeds for words in seed.warnings]
        named = {seed for seed, _ in found}

        for split in self.splits:
            far = statistics_lib.far_below(self.main, self.values(split, self.main))
            for place, words in far.items():
                if self.seeds[place].seed not in named:  # its own warning says why
                    found.append((self.seeds[place].seed, f"{split}: {words}"))

        return found


@dataclasses.dataclass(frozen=True)
class Results:
    """One encoder on several tasks: what one command has made, or several in the same folder."""

    name: str
    tasks: Sequence[TaskResult]
    encoder: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # origin, step, size
    device: str = ""
    minutes: float | None = None
    environment: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of the last command
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    notes: Sequence[str] = ()
    control: "Results | None" = None  # to compare with; it is not part of results.json

    @property
    def device_hours(self) -> float | None:
        """Of all seeds that were tried; None if those of a task are not known."""
        each = [task.device_minutes for task in self.tasks]
        known = [minutes for minutes in each if minutes is not None]
        return sum(known) / 60 if known and len(known) == len(each) else None

    @property
    def glue_average(self) -> float | None:
        """Mean of the medians of GLUE's eight tasks, MNLI matched; None if any is missing."""
        tasks = {result.task: result for result in self.tasks}
        if not all(name in tasks and tasks[name].splits for name in GLUE):
            return None
        medians = [
            tasks[name].summary(tasks[name].splits[0], tasks[name].main).median for name in GLUE
        ]
        return sum(medians) / len(medians)


@dataclasses.dataclass(frozen=True)
class SplitComparison:
    """The main metric of one dev split in two Results."""

    task: str
    split: str
    metric: str
    first: statistics_lib.SeedStatistics
    second: statistics_lib.SeedStatistics
    difference: means.Difference


def compare(first: Results, second: Results) -> list[SplitComparison]:
    """`first` minus `second`, for the tasks and dev splits that both have."""
    others, rows = {task.task: task for task in second.tasks}, []
    for task in first.tasks:
        other = others.get(task.task)
        for split in task.splits if other is not None else ():
            ours, theirs = (one.summary(split, task.main) for one in (task, other))
            if not ours.count or not theirs.count:
                continue

            pair = [one.values(split, task.main) for one in (task, other)]
            apart = statistics_lib.difference(task.main, *pair)
            rows.append(SplitComparison(task.task, split, task.main, ours, theirs, apart))
    return rows


def unlike_examples(first: Results, second: Results) -> list[str]:
    """A note for each task whose counts of examples differ: its scores do not compare."""
    others, notes = {task.task: task for task in second.tasks}, []
    for task in first.tasks:
        known = others[task.task].examples if task.task in others else {}
        unlike = [
            f"{count:,} of {split} here and {known[split]:,} there"
            for split, count in task.examples.items()
            if known.get(split, count) != count
        ]
        if unlike:
            notes.append(
                f"{task.task} has other examples than in {second.name}, so its scores do not"
                f" compare: {', '.join(unlike)}"
            )
    return notes
