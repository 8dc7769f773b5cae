# SPDX-License-Identifier: Apache-2.0
"""Checks labels and turns them from the spelling of files into numbers.

classification   'entailment'      ->  0           its index in the task's list
regression       '3.80'            ->  3.8         finite, within the task's range
multi_label      'sport,politics'  ->  (2, 0)      indices, in the order of the cell
no label         None              ->  None        test sets
"""

import dataclasses
import math
from collections.abc import Iterable

from electra_jax.finetuning.tasks import examples, tables
from electra_jax.finetuning.tasks import task as task_lib

_MOST_LABELS = 1000  # labels; with more, the column probably holds texts or numbers, not labels


def known(rows: Iterable[tables.TableRow], task: task_lib.Task, separator: str) -> tuple[str, ...]:
    """Returns the labels of the task or, if it names none, those found in the rows, sorted."""
    if task.labels or task.kind not in ("classification", "multi_label"):
        return task.labels

    several = task.kind == "multi_label"
    found = sorted({label for row in rows for label in _labels(row.label, separator, several)})
    if not 2 <= len(found) <= _MOST_LABELS:
        few = len(found) < 2 and not several
        empty = next((row.where for row in rows if few and not row.label), "")
        many = f"{len(found)} different labels" if len(found) != 1 else "one label"
        raise ValueError(
            f"task {task.name}: {many} in train{f', and none in {empty}' if empty else ''}; look at"
            " custom.label (the column), or set custom.labels"
        )

    if all(label.removeprefix("-").isdecimal() for label in found):
        found.sort(key=int)  # 2 before 10
    return tuple(found)


def text(
    row: tables.TableRow, task: task_lib.Task, number: str, separator: str, labelled: bool
) -> examples.TextExample:
    """Returns the example in a row.

    Args:
      number: the id of the example if the row has none.
      labelled: whether a label and, for a task with queries, a query is required; otherwise an
        empty label counts as no label. Of multi_label it counts as none of the labels, which an
        example may have.

    Raises ValueError with file and line if a label is missing or unknown to the task.
    """
    nothing = row.label is None or (row.label == "" and task.kind != "multi_label")
    label = None if nothing and not labelled else row.label
    if label is None and labelled:
        raise ValueError(f"{row.where}: no label; look at custom.label, its column or field")

    if labelled and task.has_queries and not row.query:
        raise ValueError(f"{row.where}: no query; look at custom.query, its column or field")

    value = None if label is None else _value(row._replace(label=label), task, separator)
    return examples.TextExample(row.id or number, row.a, row.b, value, row.query or None)


def example(
    row: tables.TableRow | examples.Example,
    task: task_lib.Task,
    number: int,
    source: task_lib.SplitFiles,
    labelled: bool,
) -> examples.Example:
    """Returns the example in a row of a split; `number` is its position there."""
    if isinstance(row, tables.TableRow):
        return text(row, task, str(number), source.separator, labelled)
    if isinstance(row, examples.TaggedExample):  # numbered per file so far; now per split
        return dataclasses.replace(row, id=str(number))
    return row


def none_given(source: task_lib.SplitFiles, rows: Iterable[tables.TableRow]) -> bool:
    """Returns whether the column of several labels is empty in all rows, as in a test set.

    With one column of 0 and 1 per label this is never so.
    """
    return not isinstance(source.label, tuple) and all(row.label in ("", ()) for row in rows)


def _value(row, task, separator):
    """Returns the label of a row as the kind of the task needs it: index, indices or score."""
    if task.kind == "multi_label":
        found = dict.fromkeys(_labels(row.label, separator, True))  # without repetitions, in order
        return tuple(_label_index(label, row, task) for label in found)
    if not isinstance(row.label, str):
        raise ValueError(f"{row.where}: several labels; set custom.kind='multi_label'")
    if task.kind == "regression":
        return _checked_score(row, task)
    return _label_index(row.label, row, task)


def _labels(label, separator, several) -> tuple[str, ...]:
    """Returns the labels in a cell or field; text is split only if there may be several."""
    if isinstance(label, tuple):
        return label
    parts = (label or "").split(separator) if several else [label or ""]
    return tuple(part.strip() for part in parts if part.strip())


def _label_index(label, row, task):
    if label not in task.labels:
        shown = ", ".join(task.labels[:20])
        raise ValueError(
            f"{row.where}: label {label!r} is none of {shown}; mend that row, or name all labels of"
            " a task of your own in custom.labels"
        )
    return task.labels.index(label)


def _checked_score(row, task):
    """Returns the label of a regression task, which must be finite and within the task's range."""
    try:
        score = float(row.label)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise ValueError(f"{row.where}: label {row.label!r} is no number")

    low, high = task.label_range or (-math.inf, math.inf)
    if not low <= score <= high:
        raise ValueError(
            f"{row.where}: label {row.label} is not within {low:.12g} to {high:.12g}; mend that"
            " row, or widen custom.label_range if the task is your own"
        )
    if task.ranking_metrics and score < 0:
        raise ValueError(
            f"{row.where}: label {row.label} is below 0, and a candidate that is not relevant has 0"
            f" in {', '.join(task.ranking_metrics)}; add the same number to all labels, or name"
            " other custom.metrics"
        )
    return score
