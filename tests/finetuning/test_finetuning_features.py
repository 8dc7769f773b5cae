# SPDX-License-Identifier: Apache-2.0
"""Examples become rows that lose no word, and counts say what was cut."""

import dataclasses
import itertools

import numpy as np
import pytest

from electra_jax.data import segments, vocabulary, vocabulary_training
from electra_jax.finetuning.tasks import examples
from electra_jax.finetuning.tasks import task as task_lib
from electra_jax.finetuning.tuning import features
from electra_jax.finetuning.tuning import windows as windows_lib

PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on mat . who ? elect ##ra a b c d e f".split()
D, B, W = segments.DOCUMENT_START, segments.SEGMENT_B_START, segments.WORD_START


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    path = tmp_path_factory.mktemp("words") / "vocab.txt"
    path.write_text("\n".join(PIECES) + "\n")
    return vocabulary.load(str(path))


def task(kind, labels=(), **others):
    metric = task_lib.METRICS[kind][0]
    return task_lib.Task("made", kind, (metric,), metric, {}, labels, **others)


def make(kind, found, words, length=16, labels=(), name="dev", **options):
    report = examples.Report()
    split = examples.Split(name, tuple(found), ("made",))
    made = features.make(task(kind, labels), split, words, length, report, **options)
    return made, report


def pieces(row):
    return " ".join(PIECES[i] for i in row)


def test_a_text_and_a_pair_in_the_lanes_of_pre_training(words):
    found = [
        examples.TextExample("0", "the cat", None, 1),
        examples.TextExample("1", "the cat", "sat .", 0),
    ]
    made, report = make("classification", found, words, labels=("no", "yes"))
    assert [pieces(row) for row in made.ids] == [
        "[CLS] the cat [SEP]",
        "[CLS] the cat [SEP] sat . [SEP]",
    ]
    assert made.marks[0].tolist() == [D | W, W, W, W]
    assert made.marks[1].tolist() == [D | W, W, W, W, B | W, W, W]
    assert made.labels.tolist() == [1, 0] and made.labels.dtype == np.int32
    assert made.example_R.tolist() == [0, 1] and [len(ids) for ids in made.ids] == [4, 7]
    assert report.lines() == []


def reference_trim(a, b, room):
    """One token at a time off the longer side, off b where they are equal."""
    while a + b > room:
        a, b = (a - 1, b) if a > b else (a, b - 1)
    return a, b


def test_the_longer_side_of_a_pair_gives():
    for a in range(12):
        for b in range(12):
            for room in range(1, 24):
                assert features._trimmed(a, b, room) == reference_trim(a, b, room), (a, b, room)


def test_what_is_cut_is_counted(words):
    found = [
        examples.TextExample("0", "a b c d e f", "the cat", 0),
        examples.TextExample("1", "a " * 30, None, 0),
    ]
    made, report = make("classification", found, words, length=8, labels=("0", "1"))
    assert [pieces(row) for row in made.ids] == [
        "[CLS] a b c [SEP] the cat [SEP]",
        "[CLS] a a a a a a [SEP]",
    ]
    assert report.lines() == ["made dev: 2 texts cut to 8 tokens"]


def test_empty_texts_still_are_rows(words):
    found = [examples.TextExample("0", "", None), examples.TextExample("1", "", "", None)]
    made, _ = make("classification", found, words, labels=("0", "1"))
    assert [pieces(row) for row in made.ids] == ["[CLS] [SEP]", "[CLS] [SEP] [SEP]"]
    assert made.marks[1].tolist() == [D | W, W, B | W]
    assert made.labels is None


def test_scores_and_several_labels(words):
    made, _ = make("regression", [examples.TextExample("0", "a", "b", 3.8)], words)
    assert made.labels.dtype == np.float32 and made.labels.tolist() == [np.float32(3.8)]
    found = [examples.TextExample("0", "a", None, (2, 0)), examples.TextExample("1", "b", None, ())]
    made, _ = make("multi_label", found, words, labels=("x", "y", "z"))
    assert made.labels.tolist() == [[1, 0, 1], [0, 0, 0]]


TAGS = ("O", "B-X", "I-X")


def test_the_first_token_of_a_word_speaks_for_it(words):
    found = [
        examples.TaggedExample("0", ("the", "Electra", "\u200b", "mat"), ("O", "B-X", "O", "I-X"))
    ]
    made, report = make("tagging", found, words, labels=TAGS)
    assert pieces(made.ids[0]) == "[CLS] the elect ##ra [UNK] mat [SEP]"
    assert made.labels[0].tolist() == [-1, 0, 1, -1, 0, 2, -1]
    assert made.words[0].tolist() == [-1, 0, 1, -1, 2, 3, -1]
    assert report.lines() == ["made dev: 1 words without a token, given as [UNK]"]


def test_words_of_a_text_without_blanks_follow_each_other_as_in_pre_training():
    """In Chinese each character is a word, and SentencePiece sets a sign before each by itself."""
    text = "人人生而自由平等"
    other = vocabulary_training.train("sentencepiece", 16, iter([text, "a b ab"] * 20))
    whole = [other.piece(i) for i in other.encode([text])[0]]
    tags = ("O",) * (len(text) + 2)
    made, _ = make("tagging", [examples.TaggedExample("0", (*text, "a", "人"), tags)], other)
    row = [other.piece(i) for i in made.ids[0]]
    assert row[1:].count("▁") == whole.count("▁") + 1  # and the one between "a" and the last word
    assert (made.words[0] >= 0).sum() == len(text) + 2


def test_a_long_sentence_goes_on_in_further_rows_and_loses_no_word(words):
    sentence = ("electra", "a", "electra", "electra", "b", "electra", "c")
    found = [
        examples.TaggedExample("0", sentence, ("B-X",) * 7),
        examples.TaggedExample("1", ("d",), ("I-Y",)),
        examples.TaggedExample("2", ("electra" + "ra" * 20,), ("O",)),
    ]
    made, report = make("tagging", found, words, length=8, labels=TAGS)
    assert [pieces(row) for row in made.ids][:4] == [
        "[CLS] elect ##ra a elect ##ra [SEP]",
        "[CLS] elect ##ra b elect ##ra c [SEP]",
        "[CLS] d [SEP]",
        "[CLS] elect ##ra ##ra ##ra ##ra ##ra [SEP]",
    ]
    assert made.example_R.tolist() == [0, 0, 1, 2]
    assert made.labels[2].tolist() == [-1, -1, -1]
    # Each row says its own place: [places of tokens] -> the words of the sentence, in order.
    padded = [np.arange(10) + 100 * n for n in range(4)]
    joined = features.of_words(made, padded, 3)
    assert [row.tolist() for row in joined] == [[1, 3, 4, 101, 103, 104, 106], [201], [301]]
    assert report.lines() == [
        "made dev: 1 words longer than a row, cut",
        "made dev: 1 extra rows for sentences over 8 tokens",
        "made dev: 1 tags that train does not have ('I-Y'), never predicted",
    ]


CONTEXT = "a b c d e f the cat sat on the mat ."  # 13 tokens


def question(answers=(), impossible=False, text="who ?"):
    return examples.QuestionExample("q", text, CONTEXT, answers, impossible)


def test_windows_overlap_and_the_answer_stands_where_it_is(words):
    found = [question((("the cat", CONTEXT.index("the cat")),))]
    made, report = make("span", found, words, length=13, stride=4, query_length=4)
    assert [pieces(row) for row in made.ids] == [
        "[CLS] who ? [SEP] a b c d e f the cat [SEP]",
        "[CLS] who ? [SEP] e f the cat sat on the mat [SEP]",
        "[CLS] who ? [SEP] sat on the mat . [SEP]",
    ]
    spans = made.spans
    assert spans.starts_R.tolist() == [10, 6, 0] and spans.ends_R.tolist() == [11, 7, 0]
    assert spans.impossible_R.tolist() == [False] * 3
    assert made.marks[0].tolist() == [D | W, W, W, W, B | W] + [W] * 8
    assert spans.allowed[2].tolist() == [True, False, False, False] + [True] * 5 + [False]
    begin, end = spans.offsets[1][6, 0], spans.offsets[1][7, 1]
    assert CONTEXT[begin:end] == "the cat"
    assert spans.offsets[1][3].tolist() == [-1, -1]
    assert report.lines() == ["made dev: 1 windows without the answer"]


def test_windows_share_half_of_their_room_whatever_the_stride(words):
    """7 tokens of room: steps of 3, although the stride is longer than the rows."""
    found = [question((("the cat", CONTEXT.index("the cat")),))]
    made, report = make("span", found, words, length=12, stride=128, query_length=4)
    assert [pieces(row) for row in made.ids] == [
        "[CLS] who ? [SEP] a b c d e f the [SEP]",
        "[CLS] who ? [SEP] d e f the cat sat on [SEP]",
        "[CLS] who ? [SEP] the cat sat on the mat . [SEP]",
    ]
    assert made.spans.starts_R.tolist() == [0, 7, 4] and made.spans.ends_R.tolist() == [0, 8, 5]
    assert report.lines() == ["made dev: 1 windows without the answer"]


def test_an_answer_of_half_the_room_is_whole_in_a_window_wherever_it_stands():
    for tokens, room, stride in itertools.product(range(1, 40), range(1, 14), (1, 3, 128)):
        windows = windows_lib.windows(tokens, room, stride)
        for first in range(tokens - (room + 1) // 2 + 1):
            last = first + (room + 1) // 2 - 1
            held = any(begin <= first and last < end for begin, end in windows)
            assert held, (tokens, room, stride, first)


def test_an_answer_that_fits_no_window_is_counted_and_not_trained_on(words):
    """A window holds 7 tokens: of the first question's answer, 8 tokens, none shows all."""
    wide = ("c d e f the cat sat on", CONTEXT.index("c d"))
    found = [question((wide,)), question((wide, ("mat", CONTEXT.index("mat"))))]
    options = {"length": 12, "query_length": 4}
    made, report = make("span", found, words, name="train", training=True, **options)
    assert made.example_R.tolist() == [1, 1, 1], "another answer of the second one fits"
    assert made.spans.starts_R.tolist() == [0, 0, 9]
    assert "made train: 1 questions whose answer fits no window" in report.lines()
    made, report = make("span", found, words, **options)
    assert made.example_R.tolist() == [0, 0, 0, 1, 1, 1], "all are asked where it is scored"
    assert "made dev: 1 questions whose answer fits no window" in report.lines()


def test_an_answer_over_the_edge_of_a_window_is_not_in_it(words):
    found = [question((("cat sat", CONTEXT.index("cat sat")),))]  # the first window ends with cat
    made, _ = make("span", found, words, length=13, stride=4, query_length=4)
    assert made.spans.starts_R.tolist() == [0, 7, 0] and made.spans.ends_R.tolist() == [0, 8, 0]


def reference_best(windows, tokens):
    """As SQuAD's own preparation: the window with the most context on the poorer side."""
    found = []
    for place in range(tokens):
        best, best_score = None, None
        for number, (begin, end) in enumerate(windows):
            if begin <= place < end:
                score = min(place - begin, end - 1 - place) + 0.01 * (end - begin)
                if best_score is None or score > best_score:
                    best, best_score = number, score
        found.append(best)
    return found


def test_each_token_is_best_in_one_window():
    small = itertools.product(range(40), range(1, 12), range(1, 14))
    for tokens, room, stride in [*small, (390, 384, 128)]:  # a long window weighs more than a short
        windows = windows_lib.windows(tokens, room, stride)
        assert windows[-1][1] == tokens and all(e - b <= room for b, e in windows)
        best = reference_best(windows, tokens)
        assert None not in best, "a stride over the room would skip tokens"
        assert windows_lib.best_context(windows, tokens).tolist() == best, (tokens, room, stride)


def test_best_context_of_a_row_is_where_it_is_best(words):
    made, _ = make("span", [question()], words, length=13, stride=4, query_length=4)
    shown = [
        [pieces([i]) for i, best in zip(row, bests) if best]
        for row, bests in zip(made.ids, made.spans.best_context)
    ]
    assert sum(map(len, shown)) == 13


def test_windows_without_the_answer_are_what_the_setting_says(words):
    found = [question((("a", 0),)), question(impossible=True), question((("zzz", -1),)), question()]
    options = {"length": 13, "stride": 4, "query_length": 4, "name": "train", "training": True}
    made, report = make("span", found, words, **options)
    assert made.example_R.tolist() == [0, 0, 0, 1, 1, 1], "what cannot be trained on is left out"
    assert made.spans.starts_R.tolist() == [4, 0, 0, 0, 0, 0]
    assert made.spans.impossible_R.tolist() == [False] * 3 + [True] * 3
    assert report.lines() == [
        "made train: 2 windows without the answer",
        "made train: 2 questions whose answer has no place in their context",
    ]
    made, _ = make("span", found, words, without_answer="impossible", **options)
    assert made.spans.impossible_R.tolist() == [False] + [True] * 5
    made, _ = make("span", found, words, without_answer="skip", **options)
    assert made.example_R.tolist() == [0, 1, 1, 1]
    made, _ = make("span", found, words, length=13, stride=4, query_length=4)
    assert made.example_R.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3], "all are answered"


def test_a_long_question_is_cut(words):
    made, report = make("span", [question(text="a " * 20)], words, length=32, query_length=3)
    assert pieces(made.ids[0]).startswith("[CLS] a a a [SEP] a b c d e f the")
    assert "made dev: 1 questions cut to 3 tokens" in report.lines()


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("span", {"length": 7}, "sequence_length 7 is too short; 8 is the least"),
        ("span", {"length": 64}, "query_length 64 leaves no room .* the most is 60"),
        ("span", {"length": 128, "stride": 0}, "span.stride=0 must be at least 1"),
        ("span", {"length": 128, "without_answer": "x"}, "'x' is none of first_position, imposs"),
        ("classification", {"training": True}, "not every example of train has a label"),
    ],
)
def test_settings_out_of_bounds_are_refused(kind, options, message, words):
    found = [question()] if kind == "span" else [examples.TextExample("0", "a", None, None)]
    with pytest.raises(ValueError, match=message):
        make(kind, found, words, name="train", labels=("0", "1"), **options)


def test_both_orders_double_the_pairs():
    split = examples.Split("train", (examples.TextExample("0", "a", "b", 1.0),), ("made",))
    doubled = examples.both_orders(split)
    turned = dataclasses.replace(split.examples[0], a="b", b="a")
    assert doubled.examples == (split.examples[0], turned)
