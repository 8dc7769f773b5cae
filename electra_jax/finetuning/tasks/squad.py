# SPDX-License-Identifier: Apache-2.0
"""Reads questions from the JSON of SQuAD 1.1 and 2.0, which XQuAD and SQuADShifts use as well, and
from parquet.

    data[] . paragraphs[] . context, qas[] . id, question, answers[] . text, answer_start
                                             is_impossible (2.0), plausible_answers (not used)

A row of parquet has the fields `id`, `question`, `context` and `answers`, which has `text` and
`answer_start` as lists. SQuAD 2.0 has no `is_impossible` there: in a file that has answers, empty
lists say it.

If the words of an answer are not at the given position, the nearest occurrence in the context is
used. If they do not occur at all, the position is -1: such an answer counts in scoring but is not
trained on.
"""

import json
from collections.abc import Iterator
from typing import Any

from electra_jax.finetuning.tasks import examples, files, parquet_records, task

_FIELDS = ("id", "question", "context", "answers", "is_impossible")


def read(
    path: str,
    source: task.SplitFiles,
    impossible: bool,
    where: str,
    report: examples.Report,
    taken: dict[str, str],
) -> list[examples.QuestionExample]:
    """Returns all questions of a file, in its order.

    Args:
      impossible: whether questions without an answer are allowed.
      taken: {id: place} of the questions read from earlier files of the split; extended here.

    Raises ValueError with the file and the position in it if the format is wrong.
    """
    if parquet_records.is_parquet(path, source):
        walked = _rows(path, impossible)
    else:
        walked = _walk(path, _articles(path, source.encoding))

    found = []
    for place, context, qa in walked:
        question = of_fields(place, context, qa, impossible, where, report)
        examples.take_id(question.id, place, taken)
        found.append(question)

    if not found:
        raise ValueError(f"{path} holds no question; is it the right file?")
    return found


def of_fields(place, context, qa, impossible, where, report) -> examples.QuestionExample:
    """Returns the question in one entry of `qas`, or in a TFDS record with the same fields."""
    answers = []
    for number, answer in enumerate(_field(qa, "answers", list, place, default=[])):
        here = f"{place}.answers[{number}]"
        text = _field(answer, "text", str, here)
        begin = _field(answer, "answer_start", int, here)
        answers.append((text, _nearest_position(context, text, begin, where, report)))

    unanswerable = _field(qa, "is_impossible", bool, place, default=False)
    if unanswerable and not impossible:
        raise ValueError(
            f"{place}: a question without an answer; SQuAD 2.0 is task squad2, and a task of your"
            " own takes such questions with custom.impossible=True"
        )

    return examples.QuestionExample(
        id=str(_field(qa, "id", str | int, place)),
        question=_field(qa, "question", str, place).strip(),
        context=context,
        answers=() if unanswerable else tuple(answers),
        impossible=unanswerable,
    )


def answer_dicts(answers: Any) -> Any:
    """Turns {'text': [...], 'answer_start': [...]} into one dictionary per answer, as in SQuAD.

    Anything else stays as it is, but for None, which becomes no answer.
    """
    if not (isinstance(answers, dict) and {"text", "answer_start"} <= answers.keys()):
        return [] if answers is None else answers
    pairs = zip(answers["text"], answers["answer_start"])
    return [{"text": text, "answer_start": begin} for text, begin in pairs]


def _rows(path, impossible) -> Iterator[tuple]:
    """Yields (place, context, fields as in `qas`) for each row of a parquet file."""
    rows = [
        (place, row | {"answers": answer_dicts(row.get("answers"))})
        for place, row in parquet_records.Table(path).rows(_FIELDS)
    ]
    answered = any(row["answers"] for _, row in rows)
    for place, row in rows:
        if impossible and answered and row.get("is_impossible") is None:
            row["is_impossible"] = not row["answers"]
        yield place, _field(row, "context", str, place), row


def _articles(path, encoding):
    content = files.text(path, encoding)
    try:
        return files.from_json(content)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}:{error.lineno}: not JSON ({error.msg}); is it whole?") from error


def _walk(path, content) -> Iterator[tuple]:
    """Yields (place, context, qa) for each question."""
    for i, article in enumerate(_field(content, "data", list, path)):
        here = f"{path}: data[{i}]"
        for j, paragraph in enumerate(_field(article, "paragraphs", list, here)):
            there = f"{here}.paragraphs[{j}]"
            context = _field(paragraph, "context", str, there)
            for k, qa in enumerate(_field(paragraph, "qas", list, there)):
                yield f"{there}.qas[{k}]", context, qa


def _field(record, name, kind, place, default=None):
    """Returns a field of a JSON object; raises ValueError if it is missing or of another type."""
    value = record.get(name) if isinstance(record, dict) else None
    value = default if value is None else value
    if not isinstance(value, kind):
        state = "no" if value is None else f"a {type(value).__name__} for"
        raise ValueError(f"{place}: {state} {name!r}; the format is SQuAD's JSON")
    return value


def _nearest_position(context, text, begin, where, report) -> int:
    """Returns `begin` if the text is there, else its nearest position, else -1."""
    if begin >= 0 and context.startswith(text, begin):
        return begin

    places = []
    at = context.find(text) if text else -1
    while at >= 0:
        places.append(at)
        at = context.find(text, at + 1)

    if not places:
        report.count(where, "answers that are not in their context")
        return -1
    report.count(where, "answers found beside their place")
    return min(places, key=lambda place: abs(place - begin))
