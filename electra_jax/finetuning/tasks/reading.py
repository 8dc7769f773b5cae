# SPDX-License-Identifier: Apache-2.0
"""Reads the splits of a task as examples and reports what was found, skipped or cut off.

    read(TASKS['cola'], 'glue')          official files: glue/CoLA/train.tsv, dev.tsv, test.tsv
    read(TASKS['cola'], 'tfds')          tfds:glue/cola
    read(custom.task({...}), 'texts')    the files that the configuration names, hf:OWNER/NAME too
    read(custom.task({...}), 'tfds')     the same, relative to the current folder

If there is no dev set (CoNLL-2000) or no train set (QNLI without its train file), a share of the
other one takes its place (`train_and_dev`). `new_files` reads files for a model that is tuned.
"""

import dataclasses
import os

from absl import logging

from electra_jax.data import downloads, text_hub
from electra_jax.finetuning.tasks import (
    built_in,
    conll,
    example_checks,
    examples,
    files,
    labels,
    squad,
    tables,
    tfds_records,
    train_and_dev,
)
from electra_jax.finetuning.tasks import task as task_lib

_OTHERWISE = "give files of this machine, such as custom.train=train.parquet"


@dataclasses.dataclass(frozen=True)
class TaskExamples:
    """A task with its labels filled in, and its splits: train, dev or dev_*, test or test_*."""

    task: task_lib.Task
    splits: dict[str, examples.Split]
    report: examples.Report

    @property
    def train(self) -> examples.Split | None:
        """The train set; None for a task that is answered by the model of another task."""
        return self.splits.get("train")

    @property
    def dev(self) -> dict[str, examples.Split]:
        """The dev sets by name."""
        return {name: split for name, split in self.splits.items() if name.startswith("dev")}

    @property
    def test(self) -> dict[str, examples.Split]:
        """The test sets by name."""
        return {name: split for name, split in self.splits.items() if name.startswith("test")}


def read(task: task_lib.Task, place: str, dev_share: float = 0.1) -> TaskExamples:
    """Reads every split that exists.

    Args:
      place: the data folder, or 'tfds'.
      dev_share: the share of the examples that becomes the dev set if there is none.

    Raises ValueError with a remedy if there are no files, or with file and line if a file does not
    fit the task.
    """
    if not 0 <= dev_share < 1:
        raise ValueError(f"dev_share {dev_share} is not within 0 to 1; 0.1 keeps a tenth")

    report = examples.Report()
    sources = _sources(task, place)
    rows = {
        split: _rows(task, split, source, names, report)
        for split, (source, names) in sources.items()
    }

    # Labels must be known before rows become examples; they come from train if there is one.
    if task.kind not in ("tagging", "span"):
        first = next(s for s in ("train", *sources) if s in sources)
        known = labels.known(rows[first], task, sources[first][0].separator)
        _check_f1(task, known, report)
        _check_relevant(task, known, report)
        task = dataclasses.replace(task, labels=known)
    splits = {
        split: _split(task, split, source, names, rows[split], report)
        for split, (source, names) in sources.items()
    }

    # Tags are collected after the division, so that they are those of the examples trained on.
    splits = train_and_dev.divided(task, splits, dev_share, report)
    example_checks.check_train(task, splits)
    example_checks.report_repeated(task, splits, report)
    if task.kind == "tagging":
        task = dataclasses.replace(task, labels=example_checks.tags(task, splits))
        example_checks.check_entities(task, splits)
    if task.kind == "span":
        example_checks.check_questions(task, splits)
    if task.ranking_metrics:
        example_checks.check_queries(task, splits)
        example_checks.report_queries(task, splits, report)

    return TaskExamples(task, splits, report)


def _check_f1(task, known, report):
    """Reports which labels an F1 is about. Raises ValueError if `f1` has not two labels."""
    if "f1" in task.metrics:
        if len(known) != 2:
            raise ValueError(
                f"task {task.name}: f1 is for 2 labels, not {len(known)}; use macro_f1"
            )
        report.note(f"{task.name}: f1 is of the label {known[1]!r}, the second one")
    if "relation_f1" in task.metrics:
        report.note(f"{task.name}: relation_f1 leaves out {known[0]!r}, the first label")


def _check_relevant(task, known, report):
    """Reports which label a relevant candidate has in a task of classes.

    Raises ValueError for more than two labels, and for two of which none is said to be relevant.
    """
    if not task.ranking_metrics or task.kind != "classification":
        return
    if len(known) != 2:
        raise ValueError(
            f"task {task.name}: {task.ranking_metrics[0]} is for 2 labels, not {len(known)}; give"
            " grades as numbers, with custom.kind=regression"
        )
    if not task.labels and not all(label.removeprefix("-").isdecimal() for label in known):
        raise ValueError(
            f"task {task.name}: neither {known[0]!r} nor {known[1]!r} is said to be the label of"
            " relevant candidates; give custom.labels=OTHER,RELEVANT, the relevant one second"
        )
    report.note(f"{task.name}: relevant candidates have the label {known[1]!r}, the second one")


def _split(task, split, source, names, rows, report) -> examples.Split:
    """Returns the rows of a split as examples, which are counted in the report."""
    where, labelled = f"{task.name} {split}", not split.startswith("test")
    found = [labels.example(row, task, number, source, labelled) for number, row in enumerate(rows)]
    report.count(where, "examples", len(found))
    example_checks.report_empty(where, found, report)
    return examples.Split(split, tuple(found), names)


def _sources(task, place) -> dict[str, tuple[task_lib.SplitFiles, tuple[str, ...]]]:
    """Returns {split: (source, names of its files)} of the splits that exist."""
    if place == "tfds":
        if task.tfds:
            return {split: (source, source.files) for split, source in task.tfds.items()}
        if task in built_in.TASKS.values():
            raise ValueError(f"task {task.name} is not in TFDS; give a folder with its files")
        place = os.curdir  # a custom task names its files, or tfds:NAME:SPLIT, itself

    missing = {}
    for folder in task.folders:
        found = {}
        for split, source in task.files.items():
            names = []
            for entry in source.files:
                here = _matches(os.path.join(place, folder), entry, source.format)
                if not here:  # a split with some of its files missing counts as missing
                    missing.setdefault(split, os.path.join(folder, entry))
                    names = []
                    break
                names += here
            if names:
                # Two entries may name the same file, which is read once.
                found[split] = source, tuple(dict.fromkeys(names))
        if found:
            _check_all_found(task, found, missing, place)
            return found

    first = next(iter(missing.values()), "")
    raise ValueError(
        f"task {task.name}: {_shown(place)} holds no {first}; set data.dir to its folder"
    )


def _shown(place):
    return "this folder" if place == os.curdir else place


def _matches(folder, entry, layout):
    """Returns the paths that one entry of `SplitFiles.files` stands for, each with its '=label'."""
    if entry.startswith("tfds:"):
        return [entry]
    if entry.startswith("hf:"):
        return _fetched(entry)
    name, label = tables.without_label(entry) if layout == "lines" else (entry, None)
    return [path if label is None else f"{path}={label}" for path in files.find(folder, name)]


def _fetched(entry):
    """Returns the paths of a split's files on the Hub; downloads what is not there yet."""
    paths = []
    for file in text_hub.files(text_hub.parse(entry.removeprefix("hf:")), _OTHERWISE):
        if line := downloads.of_file(file):
            logging.info("%s: %s", entry, line)
        paths.append(file.local_path())
    return paths


def _check_all_found(task, found, missing, place):
    """Raises ValueError if a file of a custom task is missing; built-in tasks may lack splits."""
    if task in built_in.TASKS.values():
        return
    for split in task.files:
        if split not in found:
            raise ValueError(
                f"task {task.name}: {_shown(place)} holds no {missing[split]} for {split}; correct"
                f" custom.{split}, or set data.dir to the folder of all files"
            )


def _rows(task, split, source, names, report):
    """Returns the rows of a split (texts with raw labels), or examples for tagging and span."""
    where = f"{task.name} {split}"
    labelled = not split.startswith("test")
    found, taken = [], {}
    for name in names:
        if name.startswith("tfds:"):
            found += _records(task, name, source, labelled, where, report, taken)
        elif task.kind == "tagging":
            found += conll.read(name, source, labelled, where, report)
        elif task.kind == "span":
            found += squad.read(name, source, task.impossible, where, report, taken)
        else:
            found += tables.read(name, source, labelled, where, report)

    if task.kind not in ("tagging", "span"):
        example_checks.refuse_equal_ids(found)

    if task.kind == "multi_label" and not labelled and labels.none_given(source, found):
        return [row._replace(label=None) for row in found]
    return found


def _records(task, name, source, labelled, where, report, taken):
    """Yields rows, sentences or questions from a TFDS data set."""
    classes = tfds_records.classes(name, source.label) if task.labels else ()
    # If TFDS has other names than the task, such as 'acceptable' for '1', use class numbers.
    renamed = {c: str(n) for n, c in enumerate(classes)} if set(classes) - set(task.labels) else {}

    for place, record in tfds_records.records(name):
        if task.kind == "span":
            record["answers"] = squad.answer_dicts(record["answers"])
            question = squad.of_fields(
                place, record["context"], record, task.impossible, where, report
            )
            examples.take_id(question.id, place, taken)
            yield question
        elif task.kind == "tagging":
            yield examples.TaggedExample("", *conll.of_record(record, source, place, labelled))
        else:
            row = tables.of_record(record, source, place, labelled)
            yield row._replace(label=renamed.get(row.label, row.label))
