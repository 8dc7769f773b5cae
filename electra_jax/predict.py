# SPDX-License-Identifier: Apache-2.0
"""Answers new texts with a fine-tuned task, and scores the answers where labels are known.

    python -m electra_jax.predict --from=runs/mine/finetune/NAME/TASK new.tsv --out=answers.jsonl
    python -m electra_jax.predict --from=runs/mine/finetune/NAME/TASK a.jsonl b.jsonl
    python -m electra_jax.predict --from=runs/mine/finetune/NAME/TASK texts.txt
    python -m electra_jax.predict --from=runs/mine/finetune/NAME/TASK --running_text texts.txt
    python -m electra_jax.predict --from=runs/mine/finetune/NAME/TASK --score a.tsv b.tsv

The files have the columns of the task's test set, or of its other files if it has none; labels are
not read. For tasks of single texts a .txt file has one text per line. Each example becomes a line
of JSON, printed while the next ones are answered: its id, the prediction, for classes the
probability of each, and the name of the file if there are several. The model is that of the best
seed on dev, as in the results.

For tasks that tag words, --running_text reads one text per line and finds the words in it. A line
of the output has the text, its words and their tags and, if the task's metrics are of entities, the
entities; text[start:end] is an entity.

With --score the files have the columns of the task's dev set, and every example its label. After
the answers come the task's metrics, and the scores of each label, of each file and of all files
together. docs/finetuning.md has the details, and `electra_jax.load_tuned` answers in a program.
"""

if __name__ == "__main__":
    from electra_jax.cli import usage

    # Before all other imports, so that help answers at once.
    usage.answer(__file__)

import dataclasses
import itertools
import json
import os
from collections.abc import Sequence
from typing import Any

from absl import flags, logging

from electra_jax import config as config_lib
from electra_jax.cli import command, printing
from electra_jax.data import progress_lines
from electra_jax.finetuning.results import file_scores
from electra_jax.finetuning.tasks import examples, tables
from electra_jax.finetuning.tuning import tuned_model
from electra_jax.host import safe_files

_FROM = flags.DEFINE_string(
    "from", None, "The folder of a fine-tuned task, or its export for orbax.", allow_override=True
)
_OUT = flags.DEFINE_string(
    "out", None, "File for the answers; without it they are printed.", allow_override=True
)
_SCORE = flags.DEFINE_bool("score", False, "Read labels too, and print the scores at the end.")
_RUNNING = flags.DEFINE_bool(
    "running_text", False, "For a task that tags words: find the words in each line of text."
)
_JSON = flags.DEFINE_bool(
    "json", False, "Also print the scores as one JSON object, the last line.", allow_override=True
)


def main(paths: Sequence[str]) -> None:
    """Reads the files, answers them, writes or prints the answers, and prints their scores."""
    if not _FROM.value:
        raise config_lib.ConfigError(
            "--from names no fine-tuned task; give it the folder WORKDIR/finetune/NAME/TASK, or an"
            " export of one for orbax"
        )
    if not paths:
        raise config_lib.ConfigError("no file is named; give one or several after the flags")
    for path, what in [(_FROM.value, "--from"), *((path, "a file") for path in paths)]:
        safe_files.check_no_address(path, what, config_lib.ConfigError)
    if _JSON.value and not _SCORE.value:
        raise config_lib.ConfigError("--json prints the scores, which need --score; add it")
    if _RUNNING.value and _SCORE.value:
        raise config_lib.ConfigError(
            "--score reads the tags of words, and running text has none; leave out one of"
            " --running_text and --score"
        )
    names = [_without_label(path) if _SCORE.value else path for path in paths]
    for path, name in zip(paths, names):
        if not os.path.isfile(name):
            raise config_lib.ConfigError(f"there is no file {path}")
    if _OUT.value:
        check_place(_OUT.value, names)

    model = tuned_model.load(_FROM.value)
    files = [_File.read(path, model) for path in paths]  # all, before the first is answered
    with progress_lines.Phases(logging.info) as phases:
        lines = _lines(model, files, phases)
        if _OUT.value:
            safe_files.write_parts(_OUT.value, ((line + "\n").encode() for line in lines))
            lines = [f"written: {_OUT.value}"]
        # A reader that leaves before the last answer, as `head` may, asks for no scores.
        printing.say_each(itertools.chain(lines, _score_lines(model.task, files)))


def _without_label(path):
    """FILE for a path FILE=LABEL; the path itself if there is a file of that name."""
    return path if os.path.isfile(path) else tables.without_label(path)[0]


@dataclasses.dataclass(frozen=True)
class _File:
    """A file to answer, and what reading it has reported."""

    path: str
    split: examples.Split
    report: examples.Report
    # With --score these are filled while the file is answered.
    decided: list = dataclasses.field(default_factory=list)
    targets: list = dataclasses.field(default_factory=list)
    ranked: list = dataclasses.field(default_factory=list)  # of a task with queries

    @classmethod
    def read(cls, path, model):
        read = model.read_labelled if _SCORE.value else model.read
        if _RUNNING.value:
            read = model.read_running_text
        file = cls(path, read(path, report := examples.Report()), report)
        file.log(())
        return file

    def log(self, known):
        """Logs the lines of the report that are not among those in `known`."""
        for line in self.report.lines():
            if line not in known:
                logging.info("%s: %s", self.path, line)


def _lines(model, files, phases):
    """Yields a line of JSON for each example; logs the progress and what the files report."""
    done, total = 0, sum(len(file.split.examples) for file in files)
    phases.begin("answering", f"answering {total:,} examples", lambda: done / max(1, total))

    for file in files:
        known = file.report.lines()
        named = {"file": file.path} if len(files) > 1 else {}
        for block in model.blocks(file.split, file.report):
            for example, answer in zip(block.examples, block.answers):
                yield json.dumps(named | row(example, answer), ensure_ascii=False, allow_nan=False)
                done += 1
            if _SCORE.value:
                file.decided.extend(block.decided)
                file.targets.extend(block.targets)
                file.ranked.extend(block.ranked or ())
        file.log(known)


def _score_lines(task, files):
    """The tables of the scores, and with --json an object; nothing without --score."""
    if not _SCORE.value:
        return
    scored = [
        file_scores.of_file(task, one.path, one.decided, one.targets, one.ranked) for one in files
    ]
    decided = [decision for one in files for decision in one.decided]
    targets = [label for one in files for label in one.targets]
    ranked = [candidate for one in files for candidate in one.ranked]
    whole = file_scores.of_file(task, file_scores.ALL, decided, targets, ranked)

    yield ""
    yield from file_scores.lines(task, scored, whole)
    if _JSON.value:
        yield json.dumps(file_scores.to_json(scored, whole), ensure_ascii=False, allow_nan=False)


def row(example: examples.Example, answer: Any) -> dict[str, Any]:
    """The object of an example: its id and prediction, and what the module's docstring adds."""
    if not isinstance(answer, dict):
        return {"id": example.id, "prediction": answer}
    if "tags" in answer:
        rest = {name: value for name, value in answer.items() if name != "tags"}
        return {"id": example.id, "prediction": answer["tags"], "text": example.text} | rest
    return {
        "id": example.id,
        "prediction": answer["label" if "label" in answer else "labels"],
        "scores": {name: round(score, 6) for name, score in answer["scores"].items()},
    }


def check_place(out: str, paths: Sequence[str]) -> None:
    """Raises ConfigError if the answers cannot be written there, or would replace a file read."""
    safe_files.check_no_address(out, "--out", config_lib.ConfigError)
    folder = os.path.dirname(out) or "."
    if not os.path.isdir(folder):
        raise config_lib.ConfigError(f"--out={out}: there is no folder {folder}")
    if os.path.isdir(out) or any(os.path.exists(out) and os.path.samefile(out, p) for p in paths):
        what = "a folder" if os.path.isdir(out) else "one of the files to answer"
        raise config_lib.ConfigError(f"--out={out} is {what}; name another file")


if __name__ == "__main__":
    command.run_on_paths(main)
