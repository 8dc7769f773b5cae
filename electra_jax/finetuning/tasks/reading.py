# SPDX-License-Identifier: Apache-2.0
"""Reads the splits of a task as examples and reports what was found, skipped or cut off.

    read(TASKS['cola'], 'glue')          official files: glue/CoLA/train.tsv, dev.tsv, test.tsv
    read(TASKS['cola'], 'tfds')          tfds:glue/cola
    read(custom.task({...}), 'texts')    the files that the configuration names, hf:OWNER/NAME too
    read(custom.task({...}), 'tfds')     the same, relative to the current folder

If there is no dev set (CoNLL-2000) or no train set (QNLI without its train file), a share of the
other one takes its place. A hash of the text decides which examples move, so equal texts stay on
the same side, and the division is the same in every run and on every machine.
"""

import dataclasses
import hashlib
import os
import re

from absl import logging

from electra_jax.data import downloads, text_hub
from electra_jax.finetuning.tasks import (
    built_in,
    conll,
    examples,
    files,
    labels,
    running_text,
    squad,
    tables,
    tfds_records,
)
from electra_jax.finetuning.tasks import task as task_lib

_OTHERWISE = "give files of this machine, such as custom.train=train.parquet"
# Shares of lines with a tag: of words with their tags at least, and of running text at most.
_FEW, _NEARLY_ALL = 0.5, 0.9
_ENTITY = re.compile(r"[BIES](-.+)?")  # a bare B, as where there is one kind of entity


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

    if task.kind not in ("tagging", "span"):
        # Labels must be known before rows become examples; they come from train if there is one.
        first = next(s for s in ("train", *sources) if s in sources)
        known = labels.known(rows[first], task, sources[first][0].separator)
        if "f1" in task.metrics:
            if len(known) != 2:
                raise ValueError(
                    f"task {task.name}: f1 is for 2 labels, not {len(known)}; use macro_f1"
                )
            report.note(f"{task.name}: f1 is of the label {known[1]!r}, the second one")
        if "relation_f1" in task.metrics:
            report.note(f"{task.name}: relation_f1 leaves out {known[0]!r}, the first label")
        task = dataclasses.replace(task, labels=known)

    splits = {}
    for split, (source, names) in sources.items():
        labelled = not split.startswith("test")
        found = [_example(row, task, n, source, labelled) for n, row in enumerate(rows[split])]
        splits[split] = examples.Split(split, tuple(found), names)
        report.count(f"{task.name} {split}", "examples", len(found))
        _report_empty(f"{task.name} {split}", found, report)

    # Tags are collected after the division, so that they are those of the examples trained on.
    splits = _with_train_and_dev(task, splits, dev_share, report)
    _check_train(task, splits)
    _report_repeated(task, splits, report)
    if task.kind == "tagging":
        task = dataclasses.replace(task, labels=_tags(task, splits))
        _check_entities(task, splits)
    if task.kind == "span":
        _check_questions(task, splits)

    return TaskExamples(task, splits, report)


def read_new(task: task_lib.Task, path: str, report: examples.Report) -> examples.Split:
    """Reads a file of new examples as a test set of a task, whose labels must be known.

    Its columns are those of the task's test files, or of the others if it has none. For tasks of
    single texts each line of a .txt file is a text, unless the task's own files have another format
    that is named; so it is where the task's lines begin with their labels. Labels are not read.
    For a task that tags words, a file of columns that may be running text is reported.

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
            unlabelled = dataclasses.replace(source, label=None)
            rows = tables.read(path, unlabelled, False, where, report)
        _check_ids(rows)

    return _new_split(task, path, source, rows, False, report)


def read_running_text(task: task_lib.Task, path: str, report: examples.Report) -> examples.Split:
    """Reads a file that has a text a line as a test set of a task that tags words.

    Lines in which words stand with tags of the task are reported.

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
            f"{path} holds records, not a text a line; give a .txt file of their texts, or leave"
            " out --running_text if they are lists of words"
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
    task, or an example has no label or one that the task does not have. Tags that it does not have
    are none of its predictions, as in a dev set.
    """
    source = _source_like(task, "dev")
    where = f"{task.name} test"
    if task.kind == "tagging":
        rows = conll.read(path, source, True, where, report)
        _check_tags(path, task, rows)
    elif task.kind == "span":
        rows = squad.read(path, source, task.impossible, where, report, {})
        _check_answers(path, rows)
    else:
        _check_place_of_labels(task, path, source)
        rows = tables.read(path, source, True, where, report)
        _check_ids(rows)
        _check_labels(task, path, source, rows)

    return _new_split(task, path, source, rows, True, report)


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
    found = tuple(_example(row, task, n, source, labelled) for n, row in enumerate(rows))
    report.count(where, "examples", len(found))
    _report_empty(where, found, report)
    return examples.Split("test", found, (path,))


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
            _check_all_found(task, found)
            return found

    first = next(iter(missing.values()), "")
    shown = "this folder" if place == os.curdir else place
    raise ValueError(f"task {task.name}: {shown} holds no {first}; set data.dir to its folder")


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


def _check_all_found(task, found):
    """Raises ValueError if a file of a custom task is missing; built-in tasks may lack splits."""
    if task in built_in.TASKS.values():
        return
    for split, source in task.files.items():
        if split not in found:
            raise ValueError(f"task {task.name}: no file {'; '.join(source.files)} for {split}")


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
        _check_ids(found)

    if task.kind == "multi_label" and not labelled and _only_keep_place(source, found):
        return [row._replace(label=None) for row in found]
    return found


def _only_keep_place(source, rows):
    """Returns whether a column of several labels is empty throughout, as in a test set.

    Columns of 0 and 1 are never empty.
    """
    return not isinstance(source.label, tuple) and all(row.label in ("", ()) for row in rows)


def _check_ids(rows):
    """Raises ValueError if two rows have the same id; a row without one gets its number."""
    taken: dict[str, str] = {}
    for number, row in enumerate(rows):
        examples.take_id(row.id or str(number), row.where, taken)


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
    if task.kind == "multi_label" and _only_keep_place(source, rows):
        raise ValueError(f"{path}: column {source.label!r} is empty throughout; write labels there")
    for row in rows:
        if row.label is None or (row.label == "" and task.kind != "multi_label"):
            raise ValueError(
                f"{row.where}: no label in column {source.label!r}; write one there, or take the"
                " row out"
            )


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


def _example(row, task, number, source, labelled):
    """Returns the example in a row; `number` is its position in the split."""
    if isinstance(row, tables.TableRow):
        return labels.text(row, task, str(number), source.separator, labelled)
    if isinstance(row, examples.TaggedExample):  # numbered per file so far; now per split
        return dataclasses.replace(row, id=str(number))
    return row


def _report_empty(where, found, report):
    """Reports examples that lack a text, a word or an answer."""
    for example in found:
        if isinstance(example, examples.TextExample):
            if not example.a or example.b == "":
                report.count(where, "empty texts kept")
        elif isinstance(example, examples.TaggedExample):
            if not all(word.strip() for word in example.words):
                report.count(where, "sentences with an empty word kept")
        elif not example.answers and not example.impossible and not where.endswith("test"):
            report.count(where, "questions without an answer, not trained on")


def _report_repeated(task, splits, report):
    """Reports examples of other splits that are in train too: their scores say little."""
    if "train" not in splits:
        return
    trained = {_content(example) for example in splits["train"].examples}
    for name, split in splits.items():
        if name != "train":
            again = sum(_content(example) in trained for example in split.examples)
            report.count(f"{task.name} {name}", "examples whose text is in train too", again)


def _content(example):
    """What an example asks about, without its label."""
    if isinstance(example, examples.TextExample):
        return example.a, example.b
    if isinstance(example, examples.TaggedExample):
        return example.words
    return example.question, example.context


def _with_train_and_dev(task, splits, share, report):
    """Divides the train set or the dev set into both, if the other one is missing.

    Questions without an answer go to train, where they are left out: dev could not score them.
    """
    dev = [name for name in splits if name.startswith("dev")]
    if ("train" in splits) == bool(dev) or not share:
        return splits
    whole = "train" if "train" in splits else dev[0]
    given = splits[whole]
    parts = {"train": [], "dev": []}
    for example in given.examples:
        scored = examples.is_labelled(example) and _text_fraction(example) < share
        parts["dev" if scored else "train"].append(example)

    other = "dev" if whole == "train" else "train"
    note = (
        f"{task.name}: no {other} file; {len(parts['dev']):,} of {len(given.examples):,} examples"
        f" of {whole} are dev by a hash of their text (dev_share {share:g})"
    )
    if not parts["train"] or not parts["dev"]:
        raise ValueError(f"{note}: one side is empty; give a file for {other}")

    report.note(note)
    made = {
        name: examples.Split(name, tuple(part), given.files, note) for name, part in parts.items()
    }
    kept = {name: split for name, split in splits.items() if name not in made and name != whole}
    return made | kept


def _check_train(task, splits):
    """Raises ValueError if there is nothing to train on, unless another task's model answers."""
    if "train" in splits or task.model_of:
        return
    there = ", ".join(name for split in splits.values() for name in split.files)
    wanted = "; ".join(task.files["train"].files if "train" in task.files else ("a file of train",))
    raise ValueError(
        f"task {task.name}: there is nothing to train on beside {there}; put {wanted} there, or set"
        " data.dir to a folder that has it"
    )


def _text_fraction(example) -> float:
    """Returns a number from 0 to 1 that depends only on the text.

    Questions about the same context get the same number, so they stay together.
    """
    if isinstance(example, examples.TextExample):
        text = f"{example.a}\0{example.b or ''}"
    elif isinstance(example, examples.TaggedExample):
        text = "\0".join(example.words)
    else:
        text = example.context

    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _check_questions(task, splits):
    """Raises ValueError for a dev question without answers that is not marked as impossible.

    Such a question could not be scored.
    """
    for name, split in splits.items():
        if name.startswith("dev"):
            _check_answers(f"task {task.name} {name}", split.examples)


def _check_answers(where, questions):
    """Raises ValueError for a question that could not be scored."""
    for question in questions:
        if not examples.is_labelled(question):
            raise ValueError(
                f"{where}: question {question.id!r} has no answer and is not said to be impossible"
                " (is_impossible); take it out"
            )


def _check_entities(task, splits):
    """Raises ValueError if entities are to be scored and tags are neither BIO nor BIOES.

    The scorer would find this out only after the training.
    """
    for name, split in splits.items():
        _check_tags(f"task {task.name} {name}", task, split.examples)


def _check_tags(where, task, sentences):
    """Raises ValueError for a tag of which the task's metrics could not tell the entity."""
    if not any(metric.startswith("entity_") for metric in task.metrics):
        return

    for example in sentences:
        for tag in example.tags or ():
            if tag != "O" and not _ENTITY.fullmatch(tag):
                raise ValueError(
                    f"{where}: tag {tag!r} of {_sentence(example)} is none of O, B-..., I-...,"
                    " E-..., S-... (or bare B, I, E, S); for plain tags set"
                    " metrics='token_accuracy'"
                )


def _sentence(example):
    """A tagged sentence by its first words, by which it is found in its file."""
    first = " ".join(example.words[:6])
    return f"the sentence {first + ' ...' * (len(example.words) > 6)!r}"


def _tags(task, splits):
    """Returns the tags that the task names or, if it names none, those of train: O first, the
    others sorted."""
    found = {tag for example in splits["train"].examples for tag in example.tags or ()}
    if not found:
        raise ValueError(f"task {task.name}: there are no tags in train; look at label, the column")
    if not task.labels:
        return tuple(sorted(found, key=lambda tag: (tag != "O", tag)))

    if strange := sorted(found - set(task.labels)):
        example = next(x for x in splits["train"].examples if strange[0] in (x.tags or ()))
        raise ValueError(
            f"task {task.name} train: tag {strange[0]!r} of {_sentence(example)} is none of labels,"
            f" {', '.join(task.labels[:20])}; name all tags there, or leave labels empty"
        )
    return task.labels
