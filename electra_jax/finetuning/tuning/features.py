# SPDX-License-Identifier: Apache-2.0
"""Examples -> arrays, one row per window, unpadded; batches pad rows to their bucket's length.

    pair    [CLS] the cat [SEP] sat down [SEP]     marks as in data/segments.py
            D+W    W   W    W  B+W   W    W        D document, B segment B, W word start

    words   [CLS] Electra [SEP]     ->  [CLS] elect ##ra [SEP]
            tags        B-PER               -1    3    -1    -1    the first token has it
            words         0                 -1    0    -1    -1    which word that is

    span    [CLS] who ? [SEP] Ann sleeps . [SEP]    question, then a window of the context
    allowed   1   0   0   0    1    1    1   0      [CLS] means that the answer is not here
    offsets  -1  -1  -1  -1   0:3  4:10 11:12 -1    characters of the context

What is too long for a row: a pair loses the end of its longer text, a single text its own end; a
sentence of words continues in further rows, each with whole words; a context is split into windows
that overlap.

Reference: finetune/classification, finetune/tagging and finetune/qa of google-research/electra.
Departure: its sentences of words are in segment B, ours in A, as a single text is in pre-training.
"""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from electra_jax.data import segments, vocabulary_codecs
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.finetuning.tasks import examples
from electra_jax.finetuning.tasks import task as task_lib
from electra_jax.finetuning.tuning import windows as windows_lib

NO_LABEL = -1  # for tokens without a tag of their own
WITHOUT_ANSWER = ("first_position", "impossible", "skip")
_SHORTEST = 8  # tokens in a row


@dataclasses.dataclass(frozen=True)
class Spans:
    """What rows of questions have beside their ids. Lists hold one array per row."""

    starts_R: np.ndarray  # int32, place of the answer's first token in the row; 0: not in this row
    ends_R: np.ndarray  # int32, place of its last token
    impossible_R: np.ndarray  # bool, of the question; of the window if without_answer says so
    allowed: list[np.ndarray]  # bool [L], context tokens and position 0
    offsets: list[np.ndarray]  # int32 [L, 2], characters of the context; -1 elsewhere
    best_context: list[np.ndarray]  # bool [L], no other window has more context around the token


@dataclasses.dataclass(frozen=True)
class Features:
    """The rows of one split. The type of `labels` depends on the kind of the task:

    classification: int32 [R]; regression: float32 [R]; multi_label: float32 [R, C] of 0 and 1;
    tagging: a list of int32 [L], NO_LABEL for tokens without a tag; span: None, as `spans` has
    them. They are None, too, if the split has no labels.
    """

    kind: str
    ids: list[np.ndarray]  # uint16 or uint32 [L], as records have them
    marks: list[np.ndarray]  # uint8 [L]
    example_R: np.ndarray  # int32, the number of each row's example in the split
    labels: Any = None
    words: list[np.ndarray] | None = None  # tagging: int32 [L], word that begins here or -1
    spans: Spans | None = None


def make(
    task: task_lib.Task,
    split: examples.Split,
    vocabulary: vocabulary_lib.Vocabulary,
    length: int,
    report: examples.Report,
    *,
    training: bool = False,
    query_length: int = 64,
    stride: int = 128,
    without_answer: str = "first_position",
) -> Features:
    """The rows of a split.

    Args:
      vocabulary: the encoder's vocabulary.
      length: the longest row, special tokens included.
      report: counts what was cut or left out.
      training: whether labels are required and questions left out that cannot be trained on,
        because their answer has no place in the context or fits no window.
      query_length: the most tokens of a question; the rest is cut off.
      stride: context tokens from one window to the next; cut to half of what a window holds.
      without_answer: what is trained on a window that does not hold the question's answer.
        'first_position', as released: the answer is at position 0, and the question still counts
        as answerable. 'impossible': the same, but the window counts as unanswerable. 'skip': the
        window is left out.

    Raises ValueError, one line: a length or setting is out of bounds, or labels are missing.
    """
    _check(task, split, length, training, query_length, stride, without_answer)
    layout = segments.Layout.of(vocabulary, length)
    where = f"{task.name} {split.name}"
    if task.kind == "tagging":
        return _of_words(task, split, vocabulary, layout, where, report)
    if task.kind == "span":
        cut = _Cut(query_length, stride, without_answer, training)
        return _of_questions(split, vocabulary, layout, cut, where, report)
    return _of_texts(task, split, vocabulary, layout, where, report)


def of_words(features: Features, values: Sequence[np.ndarray], count: int) -> list[np.ndarray]:
    """Predictions for tokens -> predictions for words; the rows of a sentence are joined again.

    Args:
      values: one array [L, ...] per row; padding after the row's tokens is ignored.
      count: the number of examples in the split.

    Returns:
      One array [words, ...] per sentence.
    """
    found: list[list] = [[] for _ in range(count)]
    for example, places, row in zip(features.example_R, features.words, values):
        found[example].append(np.asarray(row)[: len(places)][places >= 0])
    return [np.concatenate(parts) if parts else np.zeros(0, np.int32) for parts in found]


def _check(task, split, length, training, query_length, stride, without_answer):
    """Raises ValueError for settings out of bounds and for missing labels."""
    if length < _SHORTEST:
        raise ValueError(f"sequence_length {length} is too short; {_SHORTEST} is the least")

    if task.kind == "span":
        if query_length < 1 or length - query_length - 3 < 1:
            raise ValueError(
                f"query_length {query_length} leaves no room for the context in rows of {length};"
                f" the most is {length - 4}"
            )
        if stride < 1:
            raise ValueError(f"span.stride={stride} must be at least 1")
        if without_answer not in WITHOUT_ANSWER:
            raise ValueError(
                f"without_answer {without_answer!r} is none of {', '.join(WITHOUT_ANSWER)}"
            )
    elif training and not split.labelled:
        raise ValueError(f"task {task.name}: not every example of {split.name} has a label")


def _of_texts(task, split, vocabulary, layout, where, report):
    first = vocabulary.encode([example.a for example in split.examples])
    pairs = [n for n, example in enumerate(split.examples) if example.b is not None]
    second = dict(zip(pairs, vocabulary.encode([split.examples[n].b for n in pairs])))

    ids, marks = [], []
    for number, a in enumerate(first):
        b = second.get(number)
        room = layout.length - (2 if b is None else 3)
        a_length, b_length = _trimmed(len(a), 0 if b is None else len(b), room)
        if a_length < len(a) or (b is not None and b_length < len(b)):
            report.count(where, f"texts cut to {layout.length} tokens")
        row, row_marks = _row(a[:a_length], None if b is None else b[:b_length], layout)
        ids.append(row)
        marks.append(row_marks)

    return Features(
        kind=task.kind,
        ids=ids,
        marks=marks,
        example_R=np.arange(len(ids), dtype=np.int32),
        labels=_labels(task, split),
    )


def _trimmed(a, b, room):
    """Lengths that fit into `room`: the longer text is cut, at most until both have half of it."""
    if a + b <= room:
        return a, b
    if 2 * min(a, b) >= room:
        return (room + 1) // 2, room // 2
    return (room - b, b) if a > b else (a, room - a)


def _row(a, b, layout):
    """[CLS] a [SEP] or [CLS] a [SEP] b [SEP], and its marks."""
    cut = len(a) + 1
    row = np.full(cut + 1 if b is None else cut + len(b) + 2, layout.sep_id, layout.dtype)
    row[0] = layout.cls_id
    row[1:cut] = a
    if b is not None:
        row[cut + 1 : -1] = b

    marks = layout.marks_V[row]
    marks[0] |= segments.DOCUMENT_START
    marks[1] |= segments.WORD_START
    if b is not None:
        marks[cut + 1] |= segments.SEGMENT_B_START | segments.WORD_START
    return row, marks


def _labels(task, split):
    """Labels of classification, regression and multi_label; None if the split has none."""
    if not split.labelled:
        return None
    found = [example.label for example in split.examples]
    if task.kind == "classification":
        return np.array(found, np.int32)
    if task.kind == "regression":
        return np.array(found, np.float32)
    labels_RC = np.zeros((len(found), len(task.labels)), np.float32)
    for row, several in zip(labels_RC, found):
        row[list(several)] = 1
    return labels_RC


def _of_words(task, split, vocabulary, layout, where, report):
    """Rows of sentences of words; only the first token of each word has a tag."""
    tokens_of = _tokens_of_words(split, vocabulary, layout, where, report)
    numbers = {tag: number for number, tag in enumerate(task.labels)}
    ids, marks, places, labels, of_example = [], [], [], [], []
    unknown: collections.Counter[str] = collections.Counter()

    for number, example in enumerate(split.examples):
        tokens = _joined([tokens_of[word] for word in example.words], example.words, vocabulary)
        starts = _whole_words([len(t) for t in tokens], layout.length - 2)
        extra = len(starts) - 1
        report.count(where, f"extra rows for sentences over {layout.length} tokens", extra)

        for begin, end in zip(starts, [*starts[1:], len(tokens)]):
            text = tokens[begin:end]
            row, row_marks = _row(np.concatenate([*text, _NOTHING]), None, layout)
            begins = np.cumsum([1, *map(len, text)])[:-1]
            place = np.full(len(row), NO_LABEL, np.int32)
            place[begins] = np.arange(begin, end)
            ids.append(row)
            marks.append(row_marks)
            places.append(place)
            of_example.append(number)

            if example.tags is not None:
                label = np.full(len(row), NO_LABEL, np.int32)
                label[begins] = [numbers.get(tag, NO_LABEL) for tag in example.tags[begin:end]]
                labels.append(label)
                unknown.update(tag for tag in example.tags[begin:end] if tag not in numbers)

    if unknown:
        named = ", ".join(repr(tag) for tag, _ in unknown.most_common(3))
        if len(unknown) > 3:
            named += f" and {len(unknown) - 3:,} more"
        what = f"tags that train does not have ({named}), never predicted"
        report.count(where, what, unknown.total())

    return Features(
        kind=task.kind,
        ids=ids,
        marks=marks,
        example_R=np.array(of_example, np.int32),
        labels=labels if split.labelled else None,
        words=places,
    )


_NOTHING = np.zeros(0, np.uint32)


def _tokens_of_words(split, vocabulary, layout, where, report):
    """{word: its tokens}, each word encoded once; a word without a token gets [UNK]."""
    known = list(dict.fromkeys(word for example in split.examples for word in example.words))
    # Byte-level tokenizers know a new word by the blank before it; the others need none.
    before = " " if vocabulary.kind == "tokenizer_json" else ""

    found = {}
    for word, tokens in zip(known, vocabulary.encode([before + word for word in known])):
        if not len(tokens):
            report.count_distinct(where, "words without a token, given as [UNK]", word)
            tokens = np.array([vocabulary.unk_id], np.uint32)
        elif len(tokens) > layout.length - 2:
            report.count_distinct(where, "words longer than a row, cut", word)
        found[word] = tokens[: layout.length - 2]
    return found


def _joined(tokens, words, vocabulary):
    """The tokens of each word, without the "▁" of a beginning where text has no blank before it.

    Words of Chinese, often single characters, follow one another without blanks in pre-training,
    where no "▁" stands between them.
    """
    found = list(tokens)
    for number, (before, word) in enumerate(itertools.pairwise(words), 1):
        own = tokens[number]
        alone = len(own) > 1 and vocabulary.piece(int(own[0])) == "▁"
        if alone and all(map(vocabulary_codecs.without_blanks, (before[-1:], word[:1]))):
            found[number] = own[1:]
    return found


def _whole_words(lengths, room):
    """The first word of each row; a row gets as many whole words as fit."""
    starts, used = [0], 0
    for number, length in enumerate(lengths):
        if used + length > room:
            starts.append(number)
            used = 0
        used += length
    return starts


@dataclasses.dataclass(frozen=True)
class _Cut:
    query_length: int
    stride: int
    without_answer: str
    training: bool


@dataclasses.dataclass(frozen=True)
class _Window:
    """The row of a question and one window of its context."""

    example: int  # its number
    ids: np.ndarray
    marks: np.ndarray
    start: int  # places of the answer in the row; 0 where it has none
    end: int
    impossible: bool
    allowed: np.ndarray  # as `_window_lanes` says
    offsets: np.ndarray
    best: np.ndarray


def _of_questions(split, vocabulary, layout, cut, where, report):
    """Rows of questions, one per window of the context; what is left out is counted in `report`."""
    questions = vocabulary.encode([example.question for example in split.examples])
    contexts = list(dict.fromkeys(example.context for example in split.examples))
    read = dict(zip(contexts, vocabulary.encode_with_offsets(contexts)))

    rows: list[_Window] = []
    count = functools.partial(report.count, where)
    for number, (example, query) in enumerate(zip(split.examples, questions)):
        rows += _windows_of(number, example, query, *read[example.context], layout, cut, count)

    return Features(
        kind="span",
        ids=[row.ids for row in rows],
        marks=[row.marks for row in rows],
        example_R=np.array([row.example for row in rows], np.int32),
        spans=Spans(
            starts_R=np.array([row.start for row in rows], np.int32),
            ends_R=np.array([row.end for row in rows], np.int32),
            impossible_R=np.array([row.impossible for row in rows], bool),
            allowed=[row.allowed for row in rows],
            offsets=[row.offsets for row in rows],
            best_context=[row.best for row in rows],
        ),
    )


def _windows_of(number, example, query, tokens, spans, layout, cut, count):
    """Yields the rows of one question; none where training has to leave it out.

    Args:
      number: that of the example.
      example: the question, its context and its answer.
      query: the question's tokens.
      tokens: those of the context.
      spans: the place of each of them in the text.
      layout: of a row.
      cut: how contexts are cut, and whether the rows are for training.
      count: counts something that a user is told of.
    """
    placed = windows_lib.answer_tokens(example, spans)
    if not placed and not example.impossible:
        count("questions whose answer has no place in their context")
        if cut.training:
            return

    if len(query) > cut.query_length:
        count(f"questions cut to {cut.query_length} tokens")
        query = query[: cut.query_length]

    windows = windows_lib.windows(len(tokens), layout.length - len(query) - 3, cut.stride)
    answer = windows_lib.in_a_window(placed, windows)
    if placed and answer is None:
        # Training would teach that there is no answer; for scoring it counts as any other.
        count("questions whose answer fits no window")
        if cut.training:
            return

    best = windows_lib.best_context(windows, len(tokens))
    for window, (begin, end) in enumerate(windows):
        here = answer is not None and begin <= answer[0] and answer[1] < end
        impossible = example.impossible
        if not here and placed:
            count("windows without the answer")
            if cut.training and cut.without_answer == "skip":
                continue
            impossible = cut.training and cut.without_answer == "impossible"

        ids, marks = _row(query, tokens[begin:end], layout)
        shift = len(query) + 2 - begin  # from a token of the context to its place in the row
        start, stop = (answer[0] + shift, answer[1] + shift) if here else (0, 0)
        inside = slice(begin + shift, end + shift)
        lanes = _window_lanes(len(ids), inside, spans[begin:end], best[begin:end] == window)
        yield _Window(number, ids, marks, start, stop, impossible, *lanes)


def _window_lanes(length, inside, spans, best):
    """What is known of each token of a row: (may be an answer, place in the text, best window).

    Args:
      length: of the row.
      inside: where the window's tokens are in it; the values outside are False and -1.
      spans: the places of these tokens in the text.
      best: whether this is the window that shows most of the text around them.
    """
    allowed = np.zeros(length, bool)
    allowed[0] = allowed[inside] = True
    offsets = np.full((length, 2), -1, np.int32)
    offsets[inside] = spans
    shown_best = np.zeros(length, bool)
    shown_best[inside] = best
    return allowed, offsets, shown_best
