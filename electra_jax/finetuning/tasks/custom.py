# SPDX-License-Identifier: Apache-2.0
"""Makes a task from a few lines of a configuration, for data sets that are not built in.

    task({'name': 'news', 'train': 'news/*.csv', 'text': 'title', 'label': 'topic'})
        ->  task.Task, the same type that built-in tasks have

A setting that is not given has its value in `DEFAULTS`, or a value that follows from the kind.
"""

import csv
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from electra_jax.data import text_hub
from electra_jax.finetuning.tasks import task as task_lib

DEFAULTS = {
    "name": "custom",
    "kind": "classification",
    "train": "",
    "dev": "",
    "test": "",
    "text": "",
    "pair": "",
    "label": "",
    "id": "",
    "query": "",
    "labels": (),
    "separator": ",",
    "format": "",
    "header": True,
    "quotes": None,
    "encoding": "utf-8",
    "odd_rows": "refuse",
    "metrics": (),
    "main": "",
    "epochs": 3,
    "sequence_length": 0,
    "both_orders": False,
    "label_range": (),
    "impossible": True,
}
_METRICS = {  # the metrics that are computed if the configuration names none
    "classification": ("accuracy", "macro_f1"),  # the others suit two classes, or few
    "regression": task_lib.REGRESSION_METRICS,
    "multi_label": task_lib.METRICS["multi_label"][:2],
    "tagging": task_lib.METRICS["tagging"][:2],
    "span": task_lib.METRICS["span"][:2],
}
_LENGTHS = {"tagging": 256, "span": 512}  # as in the released code, for chunking and SQuAD


def task(settings: Mapping[str, Any]) -> task_lib.Task:
    """Returns the task that a section of a configuration describes.

    Settings (only `train` is required, and `label` where kind and format do not imply it):
      name: 'custom' by default.
      kind: 'classification', 'regression', 'multi_label', 'tagging' or 'span'.
      train, dev, test: file names, globs, `x.zip/member`, `hf:OWNER/NAME[/CONFIG][:SPLIT]` or
        `tfds:NAME:SPLIT`; several as a list or separated by ';'. Without `dev`, a share of train
        becomes the dev set.
      text, pair, label, id: columns, by name or by number from 0. For multi_label, `label` may be a
        list of columns that hold 0 or 1. For tagging, `text` is the column of the word (by default
        the first) and `label` that of the tag (by default the last).
      query: the column of the query to which the text, or the pair, is a candidate: its number, its
        text, or whatever tells queries apart. For metrics of rankings.
      labels: names of the labels, as a list or as for `names`; by default those found in train.
      separator: between several labels in one cell.
      format, header, quotes, encoding, odd_rows: as in `task.SplitFiles`.
      metrics, main, epochs, sequence_length, both_orders, label_range, impossible: as in
        `task.Task`. With sequence_length 0 or without metrics, those of the kind are used, and with
        a query also those of rankings, which come first.

    Raises ValueError if a setting is unknown, missing or does not fit the kind.
    """
    known = {**DEFAULTS, **settings}
    if unknown := sorted(set(settings) - set(DEFAULTS)):
        raise ValueError(f"custom task: {unknown[0]!r} is none of {', '.join(DEFAULTS)}")

    name, kind = str(known["name"]), known["kind"]
    _check_choice(name, "kind", kind, task_lib.KINDS)

    _check_query(name, kind, known["query"], known["format"])
    metrics, main = _metrics(name, kind, known)
    label = _label_column(name, kind, known["label"], known["format"])
    labels = _labels(name, label, known["labels"])
    files = _files(name, kind, label, known)

    return task_lib.Task(
        name=name,
        kind=kind,
        metrics=metrics,
        main=main,
        files=files,
        labels=labels,
        epochs=known["epochs"],
        both_orders=known["both_orders"],
        sequence_length=known["sequence_length"] or _LENGTHS.get(kind, 128),
        label_range=_label_range(name, kind, tuple(known["label_range"] or ())),
        impossible=known["impossible"],
    )


def names(joined: str) -> tuple[str, ...]:
    """Returns names that are joined by commas; one with a comma in it stands in quotes: 'a,"b, c"'.

    Raises ValueError if the quotes do not close.
    """
    try:
        found = next(csv.reader([joined], skipinitialspace=True, strict=True), [])
    except csv.Error as error:
        raise ValueError(f'names {joined!r}: {error}; write them as a,"b, c",d') from error
    return tuple(name.strip() for name in found if name.strip())


def _check_query(name, kind, query, layout):
    """Raises ValueError if a column of queries is given where there can be none."""
    if query in ("", None):
        return
    if kind not in ("classification", "regression"):
        raise ValueError(
            f"task {name}: custom.query={query!r} is for custom.kind='classification' or"
            f" 'regression', not {kind!r}; set it to ''"
        )
    if layout in ("lines", "label_first"):
        raise ValueError(
            f"task {name}: custom.query={query!r} is a column, and custom.format={layout!r} has"
            " none; write the rows as tsv, csv, jsonl or parquet"
        )


def _metrics(name, kind, known):
    """All metrics of a task, and the main one, which is among them."""
    of_rankings = () if known["query"] in ("", None) else task_lib.RANKING_METRICS
    metrics = _as_tuple(known["metrics"]) or (*of_rankings, *_METRICS[kind])
    for metric in metrics:
        if metric not in task_lib.METRICS[kind]:
            raise ValueError(
                f"task {name}: custom.metrics {metric!r} is none of custom.kind={kind!r}:"
                f" {', '.join(task_lib.METRICS[kind])}; '' takes those of the kind"
            )

    main = known["main"] or metrics[0]
    _check_choice(name, "main", main, task_lib.METRICS[kind])
    metrics = tuple(dict.fromkeys([*metrics, main]))
    ranking = next((metric for metric in metrics if metric in task_lib.RANKING_METRICS), None)
    if ranking and not of_rankings:
        raise ValueError(
            f"task {name}: the metric {ranking!r} ranks the candidates of each query, and"
            " custom.query is empty; give custom.query=COLUMN, which has the same value in all rows"
            " of a query"
        )
    return metrics, main


def _labels(name, label, given):
    """The names of the labels; several columns of label also name them."""
    labels = names(given) if isinstance(given, str) else _as_tuple(given)
    if not isinstance(label, tuple):
        return labels

    labels = labels or tuple(str(column) for column in label)
    if len(labels) != len(label):
        raise ValueError(
            f"task {name}: {len(labels)} labels for {len(label)} columns of label; give"
            " custom.labels as many"
        )
    return labels


def _files(name, kind, label, known):
    """{split: its source}, of the splits that have files."""
    source = task_lib.SplitFiles(
        files=(),
        a=_column_of(known["text"], 0),
        b=_column_of(known["pair"], None),
        label=label,
        id=_column_of(known["id"], None),
        query=_column_of(known["query"], None),
        format=_format(name, kind, known["format"]),
        header=known["header"],
        quotes=known["quotes"],
        separator=known["separator"],
        odd_rows=known["odd_rows"],
        encoding=known["encoding"],
    )
    _check_choice(name, "odd_rows", source.odd_rows, ("refuse", "skip"))
    if kind == "multi_label" and not source.separator:
        raise ValueError(
            f"task {name}: custom.separator is empty; give what stands between labels: ','"
        )
    for column in label if isinstance(label, tuple) else (label,):
        if column is not None and column in (source.a, source.b):
            raise ValueError(
                f"task {name}: column {column!r} would be the text and its label; set"
                " custom.label, or custom.text and custom.pair, to another"
            )

    files = {
        split: dataclasses.replace(source, files=_as_tuple(known[split], ";"))
        for split in ("train", "dev", "test")
        if known[split]
    }
    if not set(files) & {"train", "dev"}:
        raise ValueError(f"task {name}: no file to train on; give custom.train=FILE")
    for split, found in files.items():
        _check_hub(name, split, found.files)
    return files


def _check_hub(name, split, entries):
    """Raises ValueError if an entry names no data set of the Hub, or no split for dev or test.

    Without a name it would be the split `train`.
    """
    for entry in entries:
        if not entry.startswith("hf:"):
            continue
        text_hub.parse(entry.removeprefix("hf:"))
        if split != "train" and entry.count(":") == 1:
            example = "validation" if split == "dev" else split
            raise ValueError(
                f"task {name}: custom.{split}={entry} names no split, which would be train; add"
                f" it, as in {entry}:{example}"
            )


def _label_range(name, kind, given):
    """The lowest and the highest label of a regression; None if those of train count."""
    if not given:
        return None
    if kind != "regression":
        raise ValueError(
            f"task {name}: custom.label_range={given} is for custom.kind='regression'; set it to ()"
        )
    numbers = all(type(bound) in (int, float) and math.isfinite(bound) for bound in given)
    if len(given) != 2 or not numbers or not given[0] < given[1]:
        raise ValueError(
            f"task {name}: custom.label_range={given} is not (lowest, highest), two numbers of"
            " which the second is larger, such as (0, 5); () takes those of train"
        )
    return float(given[0]), float(given[1])


def _check_choice(name, what, value, known):
    if value not in known:
        raise ValueError(f"task {name}: custom.{what} {value!r} is none of {', '.join(known)}")


def _as_tuple(value, separator: str = ",") -> tuple[str, ...]:
    """Returns ('a', 'b') for 'a,b' as well as for ['a', 'b']."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(separator) if part.strip())
    return tuple(str(part) for part in value)


def _column_of(value, default):
    """Returns a column's number if the value is a number, else its name."""
    if value is None or value == "":
        return default
    return int(value) if str(value).removeprefix("-").isdecimal() else value


def _label_column(name, kind, value, layout):
    """Returns the column of the label, a tuple of columns, or None if the format needs none."""
    if kind == "span":
        return None
    if kind == "tagging":
        return _column_of(value, -1)
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        if kind != "multi_label":
            raise ValueError(
                f"task {name}: several columns of label are for custom.kind='multi_label'"
            )
        return tuple(_column_of(column, None) for column in value)

    column = _column_of(value, None)
    if column is None and layout not in ("lines", "label_first"):
        raise ValueError(f"task {name}: no column of labels; give custom.label=COLUMN")
    return column


def _format(name, kind, value):
    """Returns the file format; '' of texts, whose files tell it by their endings."""
    if value:
        _check_choice(name, "format", value, task_lib.FORMATS.get(kind, task_lib.TEXT_FORMATS))
    return value or task_lib.FORMATS.get(kind, ("",))[0]
