# SPDX-License-Identifier: Apache-2.0
"""The scores of a tuned model on labelled files: each file, and the examples of all together.

    decisions, targets of a file  ->  of_file  ->  FileScores  ->  lines (console), to_json

They are computed as those of a dev set, and shown in hundredths as `results_table.py` shows them.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from electra_jax.finetuning.results import label_scores, ranking_scores, results_table
from electra_jax.finetuning.results import scores as scores_lib
from electra_jax.finetuning.tasks import task as task_lib
from electra_jax.host import console_table

ALL = "all files"  # the name of all together


@dataclasses.dataclass(frozen=True)
class FileScores:
    """The scores of one file, or of several files as one."""

    file: str
    count: int  # of its examples
    scores: Mapping[str, float]  # the main metric first
    by_label: Mapping[str, label_scores.LabelScore]  # {} for numbers and answers


def of_file(
    task: task_lib.Task,
    file: str,
    decided: Sequence,
    targets: Sequence,
    ranked: Sequence[ranking_scores.Ranked] | None = None,
) -> FileScores:
    """Scores a file, whose decisions, targets and ranked candidates are as `scores` takes them."""
    metrics = dict.fromkeys((task.main, *task.metrics))
    return FileScores(
        file=file,
        count=len(targets),
        scores=scores_lib.compute(metrics, decided, targets, ranked),
        by_label=scores_lib.by_label(task.kind, task.metrics, decided, targets, task.labels),
    )


def lines(task: task_lib.Task, files: Sequence[FileScores], whole: FileScores) -> list[str]:
    """A table of the metrics and, if there are any, one of the labels; of one file without `whole`.

    Args:
      whole: the scores of all files together.
    """
    shown = [*files, whole] if len(files) > 1 else files
    rows = [["file", "examples", *whole.scores]]
    for one in shown:
        values = [results_table.shown(*score) for score in one.scores.items()]
        rows.append([one.file, f"{one.count:,}", *values])
    found = console_table.lines(rows, right=range(1, len(rows[0])))

    if whole.by_label:
        what = results_table.what_labels_are(task.kind, task.metrics)
        rows = [["file", what, "F1", "precision", "recall", "examples"]]
        rows += [row for one in shown for row in _label_rows(one)]
        found += ["", *console_table.lines(rows, right=range(2, 6))]
    return found


def _label_rows(one):
    """A row for each label; the first one names the file."""
    name = one.file
    for label, score in one.by_label.items():
        values = [results_table.shown(x, getattr(score, x)) for x in ("f1", "precision", "recall")]
        yield [name, label or "(no type)", *values, f"{score.count:,}"]
        name = ""


def to_json(files: Sequence[FileScores], whole: FileScores) -> dict:
    """The same as an object; a number that is not finite is null."""
    return {
        "files": [{"file": one.file} | _to_json(one) for one in files],
        "all": _to_json(whole),
    }


def _to_json(one):
    return {
        "examples": one.count,
        "scores": {
            name: value if math.isfinite(value) else None for name, value in one.scores.items()
        },
        "by_label": {label: score._asdict() for label, score in one.by_label.items()},
    }
