# SPDX-License-Identifier: Apache-2.0
"""From places in windows to texts: which spans may answer, and which of them does."""

import math

import numpy as np
import pytest

from electra_jax.finetuning.results import answers
from electra_jax.finetuning.tuning import datasets

#          0       1         2     3
CONTEXT = "Ada,  Gräfin  von Lovelace!"
# Position 0 is [CLS], 1 the question, 2 [SEP], then one place a token of the context, then [SEP].
SPANS = [(-1, -1)] * 3 + [(0, 3), (3, 4), (6, 12), (14, 17), (18, 26), (26, 27)] + [(-1, -1)]
ALLOWED_RL = np.array([SPANS])[:, :, 0] >= 0
ADA, COMMA, COUNTESS, VON, LOVELACE, BANG = range(3, 9)


def windows(*fullest, spans=SPANS):
    """A window for each list of the places that are seen best in it; all of one question."""
    fullest = fullest or (range(len(spans)),)
    return answers.Windows(
        [0] * len(fullest),
        [np.array(spans)] * len(fullest),
        [np.isin(np.arange(len(spans)), list(places)) for places in fullest],
    )


def beams(*rows, null=None):
    """Of each window a list of (start, end, score); the score stands with the end."""
    count = max(map(len, rows))
    lanes = np.array([[*row, *[(0, 0, -99.0)] * (count - len(row))] for row in rows])
    return answers.Beams(
        lanes[:, :, 0].astype(int),
        np.zeros(lanes.shape[:2]),
        lanes[:, :, 1:2].astype(int),
        lanes[:, :, 2:3],
        None if null is None else np.array(null),
    )


def only(windows, beams, **settings):
    (found,) = answers.answer([CONTEXT], windows, beams, **settings)
    return found


def texts(found):
    return [one.text for one in found.n_best]


def test_the_text_is_cut_from_the_context_as_it_stands():
    found = only(windows(), beams([(COUNTESS, LOVELACE, -1.0), (ADA, ADA, -2.0)]))
    assert found.text == "Gräfin  von Lovelace"
    best = found.n_best[0]
    assert (best.start, best.end, best.score) == (6, 26, -1.0)
    assert CONTEXT[best.start : best.end] == best.text
    assert found.null is None


def test_a_span_lies_in_the_context_forwards_and_is_no_longer_than_allowed():
    rows = [
        (0, ADA, 9.0),  # starts at [CLS]
        (1, LOVELACE, 8.0),  # in the question
        (LOVELACE, 9, 7.0),  # ends at [SEP]
        (LOVELACE, ADA, 6.0),  # ends before it starts
        (ADA, LOVELACE, 5.0),  # five tokens
        (COUNTESS, COUNTESS, 4.0),
        (LOVELACE, 12, 3.0),  # in the padding of the batch
        (15, 16, 2.0),
    ]
    assert texts(only(windows(), beams(rows), longest=4)) == ["Gräfin"]
    assert only(windows(), beams(rows), longest=5).text == "Ada,  Gräfin  von Lovelace"


def test_two_tokens_of_one_character_are_read_forwards():
    """As bytes of a letter that the vocabulary has not."""
    spans = [(-1, -1), (0, 1), (0, 1)]
    forwards, backwards = beams([(1, 2, 0.0)]), beams([(2, 1, 0.0)])
    texts = [only(windows(spans=spans), found).text for found in (forwards, backwards)]
    assert texts == ["A", ""]


def test_a_start_counts_in_the_window_that_shows_most_around_it():
    two = windows(range(0, COUNTESS), range(COUNTESS, 10))
    # The first window is surer of the name, but sees its first token at its own edge.
    found = only(two, beams([(LOVELACE, LOVELACE, 5.0)], [(VON, LOVELACE, 1.0)]))
    assert texts(found) == ["von Lovelace"]


def test_of_equal_texts_the_best_one_counts_and_shares_sum_to_one():
    spans = [(-1, -1), (0, 2), (3, 5), (6, 8)]
    two = windows(range(4), range(4), spans=spans)
    (found,) = answers.answer(
        ["no no on"], two, beams([(1, 1, 0.0), (2, 2, 2.0)], [(3, 3, 1.0), (1, 1, -1.0)])
    )
    assert [(one.text, one.score, one.start) for one in found.n_best] == [
        ("no", 2.0, 3),
        ("on", 1.0, 6),
    ]
    first, second = (one.probability for one in found.n_best)
    assert (first / second, first + second) == pytest.approx((math.e, 1.0))


def test_blanks_that_a_token_owns_are_no_part_of_an_answer():
    found = answers.answer(
        ["the  cat"], windows(spans=[(-1, -1), (0, 3), (3, 8)]), beams([(2, 2, 0.0)])
    )[0]
    assert (found.text, found.n_best[0].start) == ("cat", 5)


def test_the_null_score_is_the_least_of_the_windows():
    two = windows(range(10), range(10))
    found = only(two, beams([(ADA, ADA, 0.0)], [(VON, VON, 1.0)], null=[2.5, -1.5]))
    assert (found.text, found.null) == ("von", -1.5)


def test_answers_above_the_threshold_are_withheld():
    found = [answers.Answer(text, null, ()) for text, null in (("a", -2.0), ("b", -2.75))]
    assert answers.decided(found, -2.75) == ["", "b"]
    assert answers.decided(found, None) == ["a", "b"]


def test_a_question_without_a_span_has_the_empty_text():
    found = only(windows(), beams([(0, 0, 0.0)], null=[0.5]))
    assert (found.text, found.null, found.n_best) == ("", 0.5, ())


def test_a_plain_head_takes_the_best_of_all_pairs():
    """Against every pair there is, over two windows."""
    rng = np.random.default_rng(0)
    two = windows(range(0, 6), range(4, 10))
    start_RL, end_RL = rng.normal(size=(2, 2, 12))  # a batch of rows padded to 12
    allowed_RL = np.pad(np.repeat(ALLOWED_RL, 2, axis=0), ((0, 0), (0, 2)))
    found = only(two, answers.plain(start_RL, end_RL, allowed_RL), n_best=100, longest=3)
    every = {}
    for row in (0, 1):
        for start in range(ADA, BANG + 1):
            for end in range(start, min(start + 3, BANG + 1)):
                if two.best_context[row][start]:
                    text = CONTEXT[SPANS[start][0] : SPANS[end][1]]
                    score = start_RL[row, start] + end_RL[row, end]
                    every[text] = max(score, every.get(text, -math.inf))
    assert texts(found) == sorted(every, key=every.get, reverse=True)
    assert [one.score for one in found.n_best] == pytest.approx(sorted(every.values())[::-1])
    # No answer has the score of position 0, less the best span's.
    null = min(start_RL[row, 0] + end_RL[row, 0] for row in (0, 1))
    assert found.null == pytest.approx(null - max(every.values()))


def test_no_more_than_the_n_best_are_kept():
    scores_RL = np.zeros((1, 10))
    assert len(only(windows(), answers.plain(scores_RL, scores_RL, ALLOWED_RL)).n_best) == 20
    few = only(windows(), answers.plain(scores_RL, scores_RL, ALLOWED_RL, best=2), n_best=2)
    assert texts(few) == ["Ada", "Ada,"]


@pytest.mark.parametrize(
    ("contexts", "found", "message"),
    [
        ([CONTEXT], [[(3, 3, 0.0)], [(3, 3, 0.0)]], "beams of 2 windows for 1 windows"),
        ([CONTEXT, CONTEXT], [[(3, 3, 0.0)]], "question 1 has no window"),
    ],
)
def test_windows_that_do_not_fit_are_refused(contexts, found, message):
    with pytest.raises(ValueError, match=message):
        answers.answer(contexts, windows(), beams(*found))


def test_beams_of_rows_of_several_lengths_end_in_nothing():
    """Of a row of two tokens a beam has two starts, of a longer one three."""
    short, long = np.float32([-1, -2]), np.float32([-1, -2, -3])
    found = datasets._stacked([short, long], -np.inf)
    np.testing.assert_array_equal(found, [[-1, -2, -np.inf], [-1, -2, -3]])
    ends = datasets._stacked([np.ones((2, 2), int), np.ones((3, 3), int)], 0)
    assert ends.shape == (2, 3, 3) and ends.dtype == int and ends[0].sum() == 4
