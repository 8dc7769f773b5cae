# SPDX-License-Identifier: Apache-2.0
"""Drawings take a small share of the time, however long one of them takes."""

import pytest

from electra_jax.report import drawing_pace


def test_the_next_drawing_waits_for_the_seconds_and_for_the_share():
    clock = [100.0]
    one = drawing_pace.Pace(seconds=30.0, share=0.01, now=lambda: clock[0])
    assert one.is_due
    for took, wait in ((0.25, 30.0), (2.0, 200.0)):  # 2 seconds are 1 % of 200
        with one.drawing():
            clock[0] += took
        clock[0] += wait
        assert not one.is_due
        clock[0] += 0.5
        assert one.is_due


def test_a_drawing_that_fails_is_no_sooner_tried_again():
    clock = [0.0]
    one = drawing_pace.Pace(seconds=30.0, share=0.01, now=lambda: clock[0])
    with pytest.raises(OSError), one.drawing():
        raise OSError
    assert not one.is_due
