# SPDX-License-Identifier: Apache-2.0
"""A task of your own, from ten lines of a configuration.

    task({'name': 'news', 'train': 'news/*.csv', 'text': 'title', 'label': 'topic'})
        ->  tasks.Task, as those that are built in

What is not said has the value of `DEFAULTS`, or follows from the kind.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

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
_METRICS = {  # of those that fit, what is looked at where nobody says
    "classification": ("accuracy", "macro_f1"),  # the others are for two classes, or few
    "multi_label": task_lib.METRICS["multi_label"][:2],
    "tagging": task_lib.METRICS["tagging"][:2],
    "span": task_lib.METRICS["span"][:2],
}
_LENGTHS = {"tagging": 256, "span": 512}  # those of the released code's chunking and SQuAD


def task(settings: Mapping[str, Any]) -> task_lib.Task:
    """A task from a section of a configuration.

    Keys (only `train` and, but for span, `label` have no default):
      name, kind: 'custom', 'classification' | 'regression' | 'multi_label' | 'tagging' | 'span'.
      train, dev, test: file names, globs, `x.zip/member`, `tfds:NAME:SPLIT`; several as a list or
        with ';' between. Without `dev` a share of train is cut off.
      text, pair, label, id: columns, by name or number (from 0); `label` of multi_label may be a
        list of columns of 0 and 1. Of tagging: the word's column and the tag's, first and last.
      labels: their names, else those of train. separator: between the labels of one cell.
      format, header, quotes, encoding, odd_rows: as in `tasks.Source`.
      metrics, main, epochs, sequence_length, both_orders, label_range, impossible: as in
        `tasks.Task`; sequence_length 0 and no metrics mean those of the kind.
    """
    known = {**DEFAULTS, **settings}
    if unknown := sorted(set(settings) - set(DEFAULTS)):
        raise ValueError(f"custom task: {unknown[0]!r} is none of {', '.join(DEFAULTS)}")
    name, kind = str(known["name"]), known["kind"]
    _one_of(name, "kind", kind, task_lib.KINDS)
    metrics = _listed(known["metrics"]) or _METRICS.get(kind, task_lib.METRICS[kind])
    for metric in metrics:
        _one_of(name, "metrics", metric, task_lib.METRICS[kind])
    main = known["main"] or metrics[0]
    _one_of(name, "main", main, task_lib.METRICS[kind])
    metrics = tuple(dict.fromkeys([*metrics, main]))
    label = _label_column(name, kind, known["label"], known["format"])
    labels = _listed(known["labels"])
    if isinstance(label, tuple):
        labels = labels or tuple(str(column) for column in label)
        if len(labels) != len(label):
            raise ValueError(
                f"task {name}: {len(labels)} labels for {len(label)} columns of label; give as many"
            )
    source = task_lib.Source(
        files=(),
        a=_column(known["text"], 0),
        b=_column(known["pair"], None),
        label=label,
        id=_column(known["id"], None),
        format=_format(name, kind, known["format"]),
        header=known["header"],
        quotes=known["quotes"],
        separator=known["separator"],
        odd_rows=known["odd_rows"],
        encoding=known["encoding"],
    )
    _one_of(name, "odd_rows", source.odd_rows, ("refuse", "skip"))
    files = {
        split: dataclasses.replace(source, files=_listed(known[split], ";"))
        for split in ("train", "dev", "test")
        if known[split]
    }
    if not set(files) & {"train", "dev"}:
        raise ValueError(f"task {name}: no file to train on; give train=FILE")
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
        label_range=tuple(known["label_range"]) if known["label_range"] else None,
        impossible=known["impossible"],
    )


def _one_of(name, what, value, known):
    if value not in known:
        raise ValueError(f"task {name}: {what} {value!r} is none of {', '.join(known)}")


def _listed(value, separator: str = ",") -> tuple[str, ...]:
    """'a,b' or ['a', 'b'] -> ('a', 'b')."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(separator) if part.strip())
    return tuple(str(part) for part in value)


def _column(value, default):
    """A column's name, or its number where it is written as one."""
    if value is None or value == "":
        return default
    return int(value) if str(value).removeprefix("-").isdecimal() else value


def _label_column(name, kind, value, layout):
    if kind == "span":
        return None
    if kind == "tagging":
        return _column(value, -1)
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        if kind != "multi_label":
            raise ValueError(f"task {name}: several columns of label are for kind='multi_label'")
        return tuple(_column(column, None) for column in value)
    column = _column(value, None)
    if column is None and layout not in ("lines", "label_first"):
        raise ValueError(f"task {name}: no column of labels; give label=COLUMN")
    return column


def _format(name, kind, value):
    expected = {"tagging": "conll", "span": "squad"}.get(kind, "")
    if value:
        _one_of(name, "format", value, (expected,) if expected else task_lib.TEXT_FORMATS)
    return value or expected
