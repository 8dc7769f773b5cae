# SPDX-License-Identifier: Apache-2.0
"""Means over runs, and what luck alone would make, held against scipy's t tests."""

import math

import pytest
from scipy import stats

from electra_jax.report import means

CASES = [
    ([1.0, 2.0, 3.0], [4.0, 5.0, 6.5]),
    ([0.1, 0.2], [0.4, 0.9]),
    ([0.5, 0.7, 0.6, 0.8], [0.9, 0.8, 1.1, 1.0]),
    ([3.0, 3.1, 2.9], [2.7, 2.6, 2.5]),
]


@pytest.mark.parametrize("ones, others", CASES)
def test_luck_is_that_of_students_t(ones, others):
    apart = means.difference(means.mean(ones), means.mean(others), None)
    welch = stats.ttest_ind(ones, others, equal_var=False)
    assert apart.degrees == pytest.approx(welch.df)
    assert apart.beyond_luck == (welch.pvalue < 0.05)

    pairs, test = means.paired(ones, others), stats.ttest_rel(ones, others)
    assert abs(pairs.amount / pairs.error) == pytest.approx(abs(test.statistic))
    assert pairs.degrees == len(ones) - 1 and pairs.beyond_luck == (test.pvalue < 0.05)


def test_both_verdicts_are_among_the_cases():
    found = {
        (apart.resolved, apart.beyond_luck)
        for ones, others in CASES
        for apart in (means.paired(ones, others),)
    }
    assert found >= {(True, True), (True, False)}


def test_what_moves_both_of_a_pair_is_no_error():
    apart = means.paired([1.0, 5.0, 9.0], [0.0, 4.0, 8.0])
    assert (apart.amount, apart.error) == (1.0, 0.0) and apart.beyond_luck
    assert means.paired([1.0], [0.0]).verdict == "one seed"
    assert not means.paired([1.0], [0.0]).beyond_luck
    equal = means.difference(means.mean([1.0, 1.0]), means.mean([1.0, 1.0]), None)
    assert equal.verdict == "equal" and not equal.beyond_luck and equal.degrees == math.inf
