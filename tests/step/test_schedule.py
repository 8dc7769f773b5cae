# SPDX-License-Identifier: Apache-2.0
"""Learning rates in places that can be worked out by hand."""

import dataclasses
import math

import jax
import pytest
from jax import numpy as jnp

from electra_jax import config as config_lib
from electra_jax.speed import synthetic
from electra_jax.step import plans, schedule
from support.corpus import small_run


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 0.0),  # the first step of the reference changes nothing
        (1, 0.1 * 0.99),
        (5, 0.5 * 0.95),
        (10, 0.9),  # warm: the peak itself is never reached
        (50, 0.5),
        (99, 0.01),
        (100, 0.0),
        (150, 0.0),  # never below
    ],
)
def test_the_rate_decays_from_step_zero_while_it_warms_up(step, expected):
    rate = schedule.rate(2.0, steps=100, warmup_steps=10)
    assert float(rate(jnp.int32(step))) == pytest.approx(2.0 * expected, abs=1e-6)


def test_without_warmup_the_first_step_has_the_peak():
    assert float(schedule.rate(2.0, 100, 0)(jnp.int32(0))) == 2.0


@pytest.mark.parametrize(
    ("progress", "linear", "cosine", "stable"),
    [
        (0.0, 1.0, 1.0, 1.0),
        (0.25, 0.75, (1 + math.sqrt(0.5)) / 2, 1.0),
        (0.5, 0.5, 0.5, 1.0),
        (0.6, 0.4, (1 + math.cos(0.6 * math.pi)) / 2, 1.0),  # the last 40 % begin
        (0.7, 0.3, (1 + math.cos(0.7 * math.pi)) / 2, 0.5),  # a quarter of them: 1 - sqrt(1/4)
        (0.96, 0.04, (1 + math.cos(0.96 * math.pi)) / 2, 1 - math.sqrt(0.9)),
        (1.0, 0.0, 0.0, 0.0),
        (1.1, 0.0, 0.0, 0.0),  # nothing comes back after the end
    ],
)
def test_shapes_over_progress(progress, linear, cosine, stable):
    at = jnp.float32(progress)
    assert float(schedule.linear(at)) == pytest.approx(linear, abs=1e-6)
    assert float(schedule.cosine(at)) == pytest.approx(cosine, abs=1e-6)
    assert float(schedule.warmup_stable_decay(at, 0.4)) == pytest.approx(stable, abs=1e-3)


@pytest.mark.parametrize(
    ("power", "expected"),
    [
        (0.5, [1.0, 0.8, 0.5, 0.0, 0.0]),
        (1.0, [1.0, 0.64, 0.25, 0.0, 0.0]),
        (2.0, [1.0, 0.4096, 0.0625, 0.0, 0.0]),
    ],
)
def test_the_line_to_a_power(power, expected):
    """0.64 and 0.25 are left of the budget, nothing at its end, less than nothing after it."""
    found = [float(schedule.linear(jnp.float32(p), power)) for p in (0, 0.36, 0.75, 1, 1.1)]
    assert found == pytest.approx(expected, abs=1e-6)


def rate_of(**changes):
    """(step, progress) -> rate of a run of 100 steps, 10 of warmup, with these settings."""
    settings = dict(schedule__steps=100, schedule__warmup_steps=10, optimizer__learning_rate=2.0)
    config = config_lib.parse(small_run("builtin", "", **settings | changes))
    rate = plans.make_rate(config)
    return lambda step, progress=None: float(rate(jnp.int32(step), progress))


@pytest.mark.parametrize(
    ("changes", "at_50", "at_90"),
    [
        ({}, 1.0, 0.2),
        ({"schedule__decay_power": 0.5}, 2 * math.sqrt(0.5), 2 * math.sqrt(0.1)),
        ({"schedule__shape": "cosine"}, 1.0, 1 + math.cos(0.9 * math.pi)),
        ({"schedule__shape": "warmup_stable_decay"}, 2.0, 2.0),
        (
            {"schedule__shape": "warmup_stable_decay", "schedule__decay_share": 0.4},
            2.0,
            2 - 2 * math.sqrt(0.75),
        ),
    ],
)
def test_the_configuration_chooses_the_shape(changes, at_50, at_90):
    rate = rate_of(**changes)
    assert rate(50) == pytest.approx(at_50, abs=1e-6)
    assert rate(90) == pytest.approx(at_90, abs=1e-6)
    assert rate(5, jnp.float32(0.0)) == pytest.approx(1.0)  # the warmup counts steps


def test_with_another_budget_the_steps_do_not_move_the_rate():
    rate = rate_of()
    assert rate(90, jnp.float32(0.25)) == pytest.approx(1.5)


@dataclasses.dataclass
class State:
    """As much of a state as progress looks at."""

    step: jax.Array
    tokens_seen: jax.Array
    seconds: jax.Array


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (dict(schedule__steps=400), 0.125),
        (dict(schedule__budget="tokens", schedule__tokens=3 * 2**33), 0.25),
        (dict(schedule__budget="minutes", schedule__minutes=2.0), 0.75),
    ],
)
def test_progress_counts_what_the_budget_says(budget, expected):
    """50 steps taken; 2^32 + 2^31 tokens seen, in two words; 90 seconds spent."""
    state = State(jnp.int32(50), jnp.array([2**31, 1], jnp.uint32), jnp.float32(90))
    progress = plans.make_progress(config_lib.parse(small_run("builtin", "", **budget)))(state)
    assert float(progress) == pytest.approx(expected)


def not_reached(steps=None, **changes):
    config = config_lib.parse(small_run("text:nowhere", "", **changes))
    return plans.make_plan(config, synthetic.MadeUpVocabulary(64)).low_peak_warning(steps)


def test_a_warmup_that_outlasts_the_run_is_told_with_the_rate_that_is_reached():
    """Linear decay against a warmup of 250: highest half way, 0.5 x 50 / 250 of the peak."""
    line = not_reached(100, schedule__steps=100, schedule__warmup_steps=250)
    assert line == (
        "the learning rate reaches at most 0.0001, 10% of its peak of 0.001: the run ends at step"
        " 100, within the warmup; schedule.warmup_steps=250, try 10"
    )


def test_a_peak_that_decay_keeps_out_of_reach_is_told_and_the_published_course_is_not():
    line = not_reached(100, schedule__steps=100, schedule__warmup_steps=60)
    assert "at most 0.000417, 42% of its peak" in line  # 0.5 x 50 / 60, before the warmup is over
    assert "it falls while the warmup continues, for 60 of 100 steps" in line
    stable = dict(schedule__shape="warmup_stable_decay")
    assert not_reached(100, schedule__steps=100, schedule__warmup_steps=60, **stable) is None
    assert not_reached(100, schedule__steps=100, schedule__warmup_steps=10) is None
    assert not_reached(100, schedule__steps=100, schedule__warmup_steps=0) is None


def test_other_budgets_are_told_by_the_steps_that_they_buy_or_by_their_limit():
    tokens = dict(schedule__budget="tokens", schedule__tokens=10_000, schedule__steps=1000)
    assert "ends at step 40" in not_reached(40, schedule__warmup_steps=100, **tokens)
    assert not_reached(1000, schedule__warmup_steps=100, **tokens) is None
    minutes = dict(schedule__budget="minutes", schedule__minutes=1.0, schedule__steps=1000)
    assert "ends at step 1,000" in not_reached(None, schedule__warmup_steps=1000, **minutes)
    assert not_reached(None, schedule__warmup_steps=900, **minutes) is None  # it hangs on the speed
