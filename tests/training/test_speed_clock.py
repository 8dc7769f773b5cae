# SPDX-License-Identifier: Apache-2.0
"""A lap holds the steps between two log lines, and no time in which the clock stood still."""

from electra_jax.training import budget, speed_clock


def test_laps_leave_out_pauses_and_what_was_before_a_restart():
    now = [0.0]
    clock = budget.Clock(now=lambda: now[0])
    speed = speed_clock.SpeedClock(clock, step=10, tokens=1_000)

    now[0] = 7.0  # the first step is compiled
    clock.begin()
    speed.restart(11, 1_100)

    now[0] = 10.0  # four steps, three seconds
    assert speed.lap(15, 1_500) == speed_clock.Lap(steps=4, seconds=3.0, tokens=400)

    with clock.paused():
        now[0] = 60.0  # an evaluation
    now[0] = 62.0
    assert speed.lap(16, 1_600) == speed_clock.Lap(steps=1, seconds=2.0, tokens=100)
