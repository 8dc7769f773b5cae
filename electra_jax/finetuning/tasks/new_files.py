# SPDX-License-Identifier: Apache-2.0
"""Reads files for a model that is tuned: new examples, running text, and labelled ones to score.

Each becomes a test set of the model's task, whose labels are known. `reading` reads the files that
a model is tuned on.
"""

import dataclasses
import os

from electra_jax.finetuning.tasks import (
    conll,
    example_checks,
    examples,
    files,
    labels,
    running_text,
    squad,
    tables,
)
from electra_jax.finetuning.tasks import task as task_lib

# Shares of lines with a tag of the task. Below the first a file of columns may be running text;
# above the second a file of running text may be words with their tags.
_FEW, _NEARLY_ALL = 0.5, 0.9


def read_new(task: task_lib.Task, path: str, report: examples.Report) -> examples.Split:
    """Reads a file of new examples as a test set of a task, whose labels must be known.

    Its columns are those of the task's test files, or of the others if it has none. For tasks of
    single texts each line of a .txt file is a text, unless the task's own files have another format
    that is named. The same holds if the task's own lines begin with their labels. Labels and
    queries are not read. For a task that tags words, a file of columns that may be running text is
    reported.

    Raises ValueError with file and line if the file does not fit the task.
    """
    source = _source_like(task, "test")
    where = f"{task.name} test"
    if task.kind == "tagging":
        unlabelled = dataclasses.replace(source, label=None)
        rows = _new_sentences(task, path, unlabelled, where, report)
    elif task.kind == "span":  # a question may be marked as one without an answer
        rows = squad.read(path, source, True, where, report, {})
    else:
        plain = source.format in ("lines", "label_first")
        if plain or not (source.format or task.pairs) and files.ending(path) == ".txt":
            rows = tables.plain_lines(path, source.encoding, where, report)
        else:
            unlabelled = dataclasses.replace(source, label=None, query=None)
            rows = tables.read(path, unlabelled, False, where, report)
        example_checks.refuse_equal_ids(rows)

    return _new_split(task, path, source, rows, False, report)


def read_running_text(task: task_lib.Task, path: str, report: examples.Report) -> examples.Split:
    """Reads a file with one text per line as a test set of a task that tags words.

    If nearly all lines have a tag of the task beside a word, that is reported.

    Raises ValueError, one line, if the task tags no words, or the file holds records or no text.
    """
    if task.kind != "tagging":
        raise ValueError(
            f"task {task.name} tags no words, so none are looked for in {path}; leave out"
            " --running_text"
        )
    source = dataclasses.replace(_source_like(task, "test"), format="")
    if not conll.has_columns(path, source):
        raise ValueError(
            f"{path} holds records, not one text per line; give a .txt file of their texts, or"
            " leave out --running_text if they are lists of words"
        )

    # As they stand, with the blanks around them: entities have their places in the line.
    lines = files.lines(path, source.encoding)
    rows = [of_running_text(line) for line in lines if line.strip()]
    if not rows:
        raise ValueError(f"{path} holds no text; is it the right file?")
    report.count(f"{task.name} test", "blank lines skipped", len(lines) - len(rows))
    if len(rows) > 2 and conll.tagged_share(path, source, task.labels) > _NEARLY_ALL:
        report.note(
            "lines have tags of the task beside their first words; if these are words with tags,"
            " leave out --running_text"
        )
    return _new_split(task, path, source, rows, False, report)


def of_running_text(text: str, identity: str = "") -> examples.TaggedExample:
    """Returns an example without tags, with the words that are found in a text."""
    words = tuple(word.text for word in running_text.words(text))
    return examples.TaggedExample(identity, words, text=text)


def read_labelled(task: task_lib.Task, path: str, report: examples.Report) -> examples.Split:
    """Reads a file of new examples with their labels, as a test set of a task that can be scored.

    Its columns are those of the task's dev files, or of the others if it has none. Where a file of
    the task has one label for all of its lines, the path ends in '=label'.

    Raises ValueError with the file, and the line where there is one, if the file does not fit the
    task, an example has no label or one that the task does not have, or its candidates cannot be
    ranked. Tags that it does not have are none of its predictions, as in a dev set.
    """
    source = _source_like(task, "dev")
    where = f"{task.name} test"
    if task.kind == "tagging":
        rows = conll.read(path, source, True, where, report)
        example_checks.check_tags(path, task, rows)
    elif task.kind == "span":
        rows = squad.read(path, source, task.impossible, where, report, {})
        example_checks.check_answers(path, rows)
    else:
        _check_place_of_labels(task, path, source)
        rows = tables.read(path, source, True, where, report)
        example_checks.refuse_equal_ids(rows)
        _check_labels(task, path, source, rows)

    split = _new_split(task, path, source, rows, True, report)
    if task.ranking_metrics:
        example_checks.check_candidates(path, task, split.examples)
    return split


def _new_sentences(task, path, source, where, report):
    """Returns sentences of words; says how running text is read if the file may be that instead."""
    try:
        found = conll.read(path, source, False, where, report)
    except conll.UnevenColumnsError as error:
        raise ValueError(f"{error} (running text is read with --running_text)") from error

    columns = conll.has_columns(path, source)
    if columns and conll.tagged_share(path, source, task.labels) < _FEW:
        report.note(
            "one word of each line is read, and few have a tag of the task beside them; if this is"
            " running text, add --running_text"
        )
    return found


def _source_like(task, split):
    """Returns the source of the task's dev or test files, or of the others if it has none."""
    first = min(task.files, key=lambda name: not name.startswith(split))
    return task.files[first]


def _new_split(task, path, source, rows, labelled, report):
    """Returns the rows of a new file as a test set."""
    where = f"{task.name} test"
    found = tuple(labels.example(row, task, n, source, labelled) for n, row in enumerate(rows))
    report.count(where, "examples", len(found))
    example_checks.report_empty(where, found, report)
    return examples.Split("test", found, (path,))


def _check_place_of_labels(task, path, source):
    """Raises ValueError for a file of lines that says nowhere which label they have."""
    if source.format == "lines":
        name, label = tables.without_label(path)
        if label is None or not os.path.isfile(name):
            raise ValueError(
                f"{path}: its lines have no label; name it as FILE=LABEL, such as"
                f" {path}={task.labels[0]}"
            )
    elif not source.format and files.ending(path) == ".txt":
        raise ValueError(
            f"{path}: lines of a .txt file have no column {source.label!r}; give a .tsv, .csv,"
            " .jsonl or .parquet file with labels"
        )


def _check_labels(task, path, source, rows):
    """Raises ValueError if a row has no label; an example may have none of several labels."""
    if task.kind == "multi_label" and labels.none_given(source, rows):
        raise ValueError(f"{path}: column {source.label!r} is empty throughout; write labels there")
    for row in rows:
        if row.label is None or (row.label == "" and task.kind != "multi_label"):
            raise ValueError(
                f"{row.where}: no label in column {source.label!r}; write one there, or take the"
                " row out"
            )
