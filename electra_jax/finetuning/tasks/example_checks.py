# SPDX-License-Identifier: Apache-2.0
"""What is refused or reported of examples: ids, answers, queries, tags, repeated texts."""

import collections
import re
from collections.abc import Iterable, Mapping, Sequence

from electra_jax.finetuning.tasks import examples, tables
from electra_jax.finetuning.tasks import task as task_lib

_ENTITY = re.compile(r"[BIES](-.+)?")  # a bare B, as where there is one kind of entity


def refuse_equal_ids(rows: Iterable[tables.TableRow]) -> None:
    """Raises ValueError if two rows have the same id; a row without one gets its number."""
    taken: dict[str, str] = {}
    for number, row in enumerate(rows):
        examples.take_id(row.id or str(number), row.where, taken)


def report_empty(where: str, found: Iterable[examples.Example], report: examples.Report) -> None:
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


def report_repeated(
    task: task_lib.Task, splits: Mapping[str, examples.Split], report: examples.Report
) -> None:
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


def check_train(task: task_lib.Task, splits: Mapping[str, examples.Split]) -> None:
    """Raises ValueError if there is nothing to train on, unless another task's model answers."""
    if "train" in splits or task.model_of:
        return
    there = ", ".join(name for split in splits.values() for name in split.files)
    wanted = "; ".join(task.files["train"].files if "train" in task.files else ("a file of train",))
    raise ValueError(
        f"task {task.name}: there is nothing to train on beside {there}; put {wanted} there, or set"
        " data.dir to a folder that has it"
    )


def check_questions(task: task_lib.Task, splits: Mapping[str, examples.Split]) -> None:
    """Raises ValueError for a dev question without answers that is not marked as impossible.

    Such a question could not be scored.
    """
    for name, split in splits.items():
        if name.startswith("dev"):
            check_answers(f"task {task.name} {name}", split.examples)


def check_answers(where: str, questions: Iterable[examples.Example]) -> None:
    """Raises ValueError for a question that could not be scored."""
    for question in questions:
        if not examples.is_labelled(question):
            raise ValueError(
                f"{where}: question {question.id!r} has no answer and is not said to be impossible"
                " (is_impossible); take it out"
            )


def check_queries(task: task_lib.Task, splits: Mapping[str, examples.Split]) -> None:
    """Raises ValueError if a split is to be scored and its candidates cannot be ranked."""
    for name, split in splits.items():
        if name != "train" and split.labelled:
            check_candidates(f"task {task.name} {name}", task, split.examples)


def check_candidates(
    where: str, task: task_lib.Task, candidates: Sequence[examples.TextExample]
) -> None:
    """Raises ValueError for candidates of which the task's metrics of rankings would say nothing.

    That is if one has no query, and if no query has two candidates of which a metric can tell
    whether they are in the right order.
    """
    for candidate in candidates:
        if candidate.query is None:
            raise ValueError(
                f"{where}: example {candidate.id!r} has a label and no query; write one there, or"
                " take all labels out"
            )

    labels = labels_by_query(candidates)
    if all(len(of_query) == 1 for of_query in labels):
        raise ValueError(
            f"{where}: each of {len(labels):,} queries has 1 candidate, and a ranking has 2 or"
            " more; look at custom.query, the column, or leave"
            f" {', '.join(task.ranking_metrics)} out of custom.metrics"
        )
    if all(len(set(of_query)) == 1 for of_query in labels):
        raise ValueError(
            f"{where}: all candidates of a query have the same label, in each of {len(labels):,}"
            " queries, so every order is right; look at custom.query and custom.label, the columns"
        )
    binary = [metric for metric in task.ranking_metrics if metric != "ndcg_at_10"]
    if binary and not any(any(of_query) and not all(of_query) for of_query in labels):
        raise ValueError(
            f"{where}: no query has a candidate with the label 0 beside others, so every order is"
            f" right for {', '.join(binary)}; give 0 to candidates that are not relevant, or take"
            " custom.metrics=ndcg_at_10"
        )


def report_queries(
    task: task_lib.Task, splits: Mapping[str, examples.Split], report: examples.Report
) -> None:
    """Reports how many queries are ranked in a split, and how many have nothing to find."""
    for name, split in splits.items():
        if name != "train" and split.labelled:
            labels = labels_by_query(split.examples)
            where, empty = f"{task.name} {name}", sum(not any(of_query) for of_query in labels)
            report.count(where, "queries", len(labels))
            report.count(where, "queries without a relevant candidate, which count as 0", empty)


def labels_by_query(candidates: Iterable[examples.TextExample]) -> list[list[float]]:
    """The labels of the candidates of each query."""
    found = collections.defaultdict(list)
    for candidate in candidates:
        found[candidate.query].append(candidate.label)
    return list(found.values())


def check_entities(task: task_lib.Task, splits: Mapping[str, examples.Split]) -> None:
    """Raises ValueError if entities are to be scored and tags are neither BIO nor BIOES.

    The scorer would find this out only after the training.
    """
    for name, split in splits.items():
        check_tags(f"task {task.name} {name}", task, split.examples)


def check_tags(
    where: str, task: task_lib.Task, sentences: Iterable[examples.TaggedExample]
) -> None:
    """Raises ValueError for a tag of which the task's metrics could not tell the entity."""
    if not any(metric.startswith("entity_") for metric in task.metrics):
        return

    for example in sentences:
        for tag in example.tags or ():
            if tag != "O" and not _ENTITY.fullmatch(tag):
                raise ValueError(
                    f"{where}: tag {tag!r} of {_sentence(example)} is none of O, B-..., I-...,"
                    " E-..., S-... (or bare B, I, E, S); for plain tags set"
                    " custom.metrics='token_accuracy'"
                )


def _sentence(example):
    """A tagged sentence by its first words, by which it is found in its file."""
    first = " ".join(example.words[:6])
    return f"the sentence {first + ' ...' * (len(example.words) > 6)!r}"


def tags(task: task_lib.Task, splits: Mapping[str, examples.Split]) -> tuple[str, ...]:
    """Returns the tags that the task names or, if it names none, those of train: O first, the
    others sorted."""
    found = {tag for example in splits["train"].examples for tag in example.tags or ()}
    if not found:
        raise ValueError(
            f"task {task.name}: there are no tags in train; look at custom.label, the column"
        )
    if not task.labels:
        return tuple(sorted(found, key=lambda tag: (tag != "O", tag)))

    if strange := sorted(found - set(task.labels)):
        example = next(x for x in splits["train"].examples if strange[0] in (x.tags or ()))
        raise ValueError(
            f"task {task.name} train: tag {strange[0]!r} of {_sentence(example)} is none of"
            f" custom.labels, {', '.join(task.labels[:20])}; name all tags there, or leave it empty"
        )
    return task.labels
