# SPDX-License-Identifier: Apache-2.0
"""Rows are judged where 2 % of the originals are accused, and shown by the margin."""

import dataclasses

import numpy as np
import pytest

from electra_jax.report import ranking, view


def row(replaced, p_replaced):
    n = len(replaced)
    return view.Example(
        pieces=["▁a"] * n,
        starts_word=[True] * n,
        masked=replaced,
        kept=[False] * n,
        sampled=["▁b" if x else None for x in replaced],
        replaced=replaced,
        p_replaced=p_replaced,
    )


def test_at_the_threshold_two_of_a_hundred_originals_are_accused():
    originals = list(np.linspace(0.01, 0.2, 100))  # the two highest may be accused, not the third
    rows = ranking.judged([row([False] * 100, originals), row([True, True], [0.199, 0.195])])
    assert [one.counts()[view.FALSE_ALARM] for one in rows] == [2, 0]
    assert originals[97] < rows[0].threshold < originals[98]
    assert rows[0].threshold == rows[1].threshold
    assert rows[1].counts()[view.CAUGHT] == 1 + (0.195 >= rows[1].threshold)


def test_ties_are_not_accused_and_few_originals_have_no_alarm():
    tied = ranking.judged([row([False] * 100, [0.3] * 100)])
    assert tied[0].counts()[view.FALSE_ALARM] == 0
    few = ranking.judged([row([True, False], [0.1, 0.9])])
    assert few[0].counts()[view.FALSE_ALARM] == few[0].counts()[view.CAUGHT] == 0


def test_rows_come_by_the_margin_and_those_without_one_last():
    good = row([True, False, False], [0.8, 0.1, 0.3])
    guessed = row([True, False, False], [0.2, 0.2, 0.2])
    wrong = row([True, False], [0.1, 0.4])
    nothing = row([False, False], [0.9, 0.9])
    assert [ranking.margin(one) for one in (good, guessed, wrong, nothing)] == [
        pytest.approx(0.6), 0.0, pytest.approx(-0.3), None,
    ]  # fmt: skip
    rows = [nothing, wrong, guessed, good]
    assert ranking.ranked(rows) == [good, guessed, wrong, nothing]
    assert ranking.ranked(rows, worst_first=True) == [wrong, guessed, good, nothing]


def test_four_tokens_that_stand_out_come_before_one_that_does_a_little_more():
    one, four = row([True, False], [0.8, 0.1]), row([True] * 4 + [False], [0.7] * 4 + [0.1])
    assert ranking.margin(one) > ranking.margin(four) > ranking.margin(one) / 2
    assert ranking.ranked([one, four]) == [four, one]


def test_the_extremes_are_other_rows_and_all_of_them_were_judged():
    rows = [row([True, False], [p, 0.5]) for p in (0.9, 0.8, 0.7, 0.6)]
    nothing = row([False, False], [0.9, 0.9])
    best, worst = ranking.extremes([rows[2], nothing, rows[0], rows[3], rows[1]], 1, 2)
    assert (best, worst) == ([rows[0]], [rows[3], rows[2]])
    assert ranking.extremes([nothing, rows[1], rows[0]], 3, 2) == ([rows[0], rows[1]], [])
    blind = dataclasses.replace(rows[0], p_replaced=[None, None])
    assert ranking.extremes([blind, blind], 1, 1) == ([blind], [])


def test_the_sentence_counts_over_all_rows_beside_a_guesser():
    rows = [row([True] * 4 + [False] * 50, [0.9, 0.8, 0.1, 0.1] + [0.2] * 49 + [0.7])] * 2
    assert ranking.sentence(ranking.judged(rows)) == (
        "2 held-out rows, 8 tokens replaced: 50.0% caught at a belief of 20% or more, where 2.0% of"
        " the original tokens are false alarms (a guesser would catch 2.0% too)"
    )


def test_without_a_discriminator_nothing_is_judged():
    blind = dataclasses.replace(row([True, False], [0.5, 0.5]), p_replaced=[None, None])
    assert ranking.judged([blind]) == [blind]
    assert ranking.margin(blind) is None and ranking.sentence([blind]) == ""
    assert ranking.judged([]) == [] and ranking.sentence([]) == ""
