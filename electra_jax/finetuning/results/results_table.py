# SPDX-License-Identifier: Apache-2.0
"""Results as a table: lines for a console, a Markdown document, rows for the page.

    Results  ->  table_rows, comparison_rows  ->  text (console), markdown (results.md),
                                                  `page.py` (results.html)

Tables show shares and correlations in hundredths, as papers print them; `mse` keeps its unit.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence

from electra_jax.finetuning.results import run_results
from electra_jax.finetuning.results import scores as scores_lib
from electra_jax.finetuning.results import statistics as statistics_lib
from electra_jax.host import console_table
from electra_jax.report import means, style

HEAD = ("task", "split", "metric", "median", "mean ± sd", "best", "n", "guess")
LABEL_HEAD = ("label", "F1, mean ± sd", "precision", "recall", "examples")
COMPARISON = (
    "Mean ± standard error over seeds. A difference below two standard errors of both is not"
    " resolved: these seeds do not tell it from luck."
)


@dataclasses.dataclass(frozen=True)
class ScoreRow:
    """One row of the table: one metric of one dev split, as text."""

    task: str
    split: str
    metric: str
    main: bool
    median: str
    mean: str  # with the standard deviation
    best: str
    guess: str
    count: str  # of seeds
    learnt: bool  # whether the median is better than the guess


def table_rows(results: run_results.Results) -> list[ScoreRow]:
    """All rows by task and split, the main metric first."""
    rows = []
    for task in results.tasks:
        for split in task.splits:
            for metric in task.metrics(split):
                found, guess = task.summary(split, metric), task.baseline(split, metric)
                rows.append(
                    ScoreRow(
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


@dataclasses.dataclass(frozen=True)
class LabelTable:
    """The scores of each label in one dev split, as text: rows of `LABEL_HEAD`."""

    task: str
    split: str
    what: str  # its labels are: a class, a label, a type of entities, a tag
    rows: Sequence[Sequence[str]]


def label_tables(results: run_results.Results) -> list[LabelTable]:
    """A table for each dev split whose seeds have scores of labels."""
    tables = []
    for task in results.tasks:
        for split in task.splits:
            rows = [_label_row(task, split, label) for label in task.labels(split)]
            if rows:
                what = what_labels_are(task.kind, task.metrics(split))
                tables.append(LabelTable(task.task, split, what, rows))
    return tables


def what_labels_are(kind: str, metrics: Iterable[str]) -> str:
    """What the labels of a task of this kind are, in words."""
    if kind == "tagging":
        entities = any(metric.startswith("entity_") for metric in metrics)
        return "type of entities" if entities else "tag"
    return "class" if kind == "classification" else "label"


def _label_row(task, split, label) -> list[str]:
    f1, precision, recall, count = (
        statistics_lib.summarise(name, task.of_label(split, label, name))
        for name in ("f1", "precision", "recall", "count")
    )
    return [
        label or "(no type)",
        with_sd("f1", f1),
        shown("precision", precision.mean),
        shown("recall", recall.mean),
        f"{count.best:,.0f}",  # the same for all seeds, but for one that has met it nowhere
    ]


def comparison_rows(results: run_results.Results) -> list[tuple[str, ...]]:
    """The heads of a table of the results beside their control, and its rows, as text.

    A row has both means and their difference, for each task and dev split that both have. Empty
    without a control.
    """
    control = results.control
    if control is None:
        return []
    head = ("task", "split", "metric", results.name, control.name, "difference", "")
    rows = [
        (
            row.task,
            row.split,
            row.metric,
            with_error(row.metric, row.first.mean, row.first.error),
            with_error(row.metric, row.second.mean, row.second.error),
            signed(row.metric, row.difference),
            row.difference.verdict,
        )
        for row in run_results.compare(results, control)
    ]
    return [head, *rows]


def text(results: run_results.Results) -> str:
    """The table, the comparison with a control, warnings and notes for a console."""
    table, before = [list(HEAD)], None
    for row in table_rows(results):
        place = (row.task, row.split)
        task, split = place if place != before else ("", "")
        before = place
        table.append(
            [task, split, row.metric, row.median, row.mean, row.best, row.count, row.guess]
        )

    lines = [f"fine-tuning {results.name}", *facts(results), ""]
    lines += console_table.lines(table, right=range(3, len(HEAD)))

    if results.glue_average is not None:
        lines += [
            "",
            f"GLUE average of {len(run_results.GLUE)} medians {100 * results.glue_average:.2f}",
        ]
    if results.control is not None:
        lines += ["", *console_table.lines(comparison_rows(results), right=range(3, 6))]
        lines += ["", COMPARISON]
    lines += [
        f"WARNING: {task.task}, seed {seed}: {words}"
        for task in results.tasks
        for seed, words in task.warnings
    ]
    lines += [f"note: {note}" for note in all_notes(results)]
    return "\n".join(lines)


def markdown(results: run_results.Results) -> str:
    """The table, the comparison with a control, warnings and notes as a Markdown document."""
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
        "Scores are in hundredths, except mse. The median over seeds is the result; sd has n - 1;"
        " guess is what the same answer to every example gets.",
    ]
    if results.glue_average is not None:
        lines += [
            "",
            f"GLUE average of {len(run_results.GLUE)} medians: {100 * results.glue_average:.2f}.",
        ]

    if results.control is not None:
        lines += ["", f"## Against {results.control.name}", ""]
        lines += [*_markdown_table(comparison_rows(results), left=3), "", COMPARISON]

    warnings = [(task.task, *one) for task in results.tasks for one in task.warnings]
    if warnings:
        lines += ["", "## Warnings", ""]
        lines += [f"- {task}, seed {seed}: {words}" for task, seed, words in warnings]
    notes = all_notes(results)
    if notes:
        lines += ["", "## Notes", "", *(f"- {note}" for note in notes)]
    for table in label_tables(results):
        lines += ["", f"## {table.task}, {table.split}: each {table.what}", ""]
        lines += _markdown_table([list(LABEL_HEAD), *table.rows], left=1)
    return "\n".join(lines) + "\n"


def shown(metric: str, value: float | None) -> str:
    """0.84312 -> `84.31`; mse 0.84312 -> `0.8431`; None or nan -> `-`."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.4f}" if metric in scores_lib.LOWER_IS_BETTER else f"{100 * value:.2f}"


def with_sd(metric: str, found: statistics_lib.SeedStatistics) -> str:
    """Mean and standard deviation, `84.31 ± 0.42`; of one seed `84.31`."""
    return with_error(metric, found.mean, found.sd)


def with_error(metric: str, value: float, error: float | None) -> str:
    """`84.31 ± 0.42`; without an error `84.31`."""
    return shown(metric, value) + ("" if error is None else f" ± {shown(metric, error)}")


def signed(metric: str, found: means.Difference) -> str:
    """A difference with its standard error, `+1.20 ± 0.31`."""
    sign = "-" if found.amount < 0 else "+" if found.amount > 0 else ""
    return sign + with_error(metric, abs(found.amount), found.error)


def facts(results: run_results.Results) -> list[str]:
    """One line each for the encoder, the device and the time, as far as they are known."""
    found = []
    if results.encoder:
        words = ", ".join(f"{name} {_fact(value)}" for name, value in results.encoder.items())
        found.append(f"encoder: {words}")
    if results.device:
        found.append(f"device: {results.device}")
    if results.minutes is not None:
        hours = results.device_hours
        spent = "" if hours is None else f"; all seeds took {hours:.3g} device-hours"
        found.append(f"last command: {style.duration(60 * results.minutes)}{spent}")
    return found


def all_notes(results: run_results.Results) -> list[str]:
    """The notes of the results, of the tasks, on checkpoints chosen by dev, on the control."""
    notes = list(results.notes)
    notes += [f"{task.task}: {note}" for task in results.tasks for note in task.notes]
    chosen = [task.task for task in results.tasks if task.choice == "best"]
    if chosen:
        notes.append(
            f"{', '.join(chosen)}: each seed's best checkpoint on the dev split that scores it,"
            " which is optimistic; the published protocol takes the last"
        )
    if results.control is not None:
        notes += run_results.unlike_examples(results, results.control)
    return notes


def _fact(value) -> str:
    """Whole numbers with separators, 13,483,264; everything else as it is."""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _markdown_table(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    head, *body = rows
    rule = ["---" if place < left else "---:" for place in range(len(head))]
    return [
        "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) + " |"
        for row in (head, rule, *body)
    ]
