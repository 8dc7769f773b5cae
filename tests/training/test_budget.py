# SPDX-License-Identifier: Apache-2.0
"""Runs that end with their tokens or their minutes, stopped and gone on with; the clock by hand."""

import types

import numpy as np
import pytest

import electra_jax
from electra_jax import config as config_lib
from electra_jax.report import console_lines, style, writers
from electra_jax.speed import dry_run
from electra_jax.step import plans
from electra_jax.training import budget, runs
from electra_jax.workdir import metadata
from support.clocks import Ticking
from support.corpus import StopAt, small_run
from support.outcomes import digest, rows

TOKENS = 1300  # of at most 8 x 32 per step: six steps or a few more


def tokens_run(text, **changes):
    """Spends TOKENS, far below its limit of steps."""
    settings = dict(
        schedule__budget="tokens", schedule__tokens=TOKENS, schedule__steps=50,
        schedule__warmup_steps=0, logging__every=1, evaluation__every=50, checkpoint__every=50,
    )  # fmt: skip
    return small_run(*text, **settings | changes)


def last_checkpoint(workdir):
    """(step, digests of every array)."""
    step = metadata.steps(f"{workdir}/checkpoints")[-1]
    return step, digest(workdir, step)


@pytest.fixture(scope="module")
def spent(text, tmp_path_factory):
    """A run that was never stopped: its workdir."""
    workdir = tmp_path_factory.mktemp("spent")
    electra_jax.train(tokens_run(text, logging__report_every=1000), workdir)
    return workdir


def test_a_run_ends_with_the_step_that_reaches_its_tokens(spent):
    seen = [row["tokens_seen"] for row in rows(spent) if row["kind"] == "train"]
    assert seen[-2] < TOKENS <= seen[-1]
    assert [row["kind"] for row in rows(spent)][-1] == "eval"
    assert last_checkpoint(spent)[0] == len(seen) < 10


def test_the_rate_falls_with_the_tokens_that_were_seen(spent):
    """Linear, without a warmup: peak (1 - tokens before the step / budget)."""
    train = [row for row in rows(spent) if row["kind"] == "train"]
    seen = [0] + [row["tokens_seen"] for row in train[:-1]]
    expected = [1e-3 * (1 - tokens / TOKENS) for tokens in seen]
    np.testing.assert_allclose([row["learning_rate"] for row in train], expected, rtol=1e-5)
    progress = [min(1, row["tokens_seen"] / TOKENS) for row in train]
    np.testing.assert_allclose([row["progress"] for row in train], progress, rtol=1e-6)


def test_a_stopped_run_of_tokens_goes_on_as_if_never_stopped(text, spent, tmp_path):
    electra_jax.train(tokens_run(text), tmp_path, [StopAt(2)])
    assert last_checkpoint(tmp_path)[0] == 3  # the step after the signal
    final = electra_jax.train(tokens_run(text), tmp_path)
    assert last_checkpoint(tmp_path) == last_checkpoint(spent)
    assert rows(tmp_path) == rows(spent)
    assert electra_jax.train(tokens_run(text), tmp_path) == final  # nothing is left to do
    assert rows(tmp_path) == rows(spent)


def test_more_tokens_lengthen_a_run_that_was_finished(text, spent):
    old, new = (config_lib.parse(tokens_run(text, schedule__tokens=n)) for n in (TOKENS, 9999))
    assert config_lib.differences(old, new) == ([f"schedule.tokens: {TOKENS} -> 9999"], [])
    state = runs.start(old, str(spent)).state
    assert budget.Budget(old.schedule, 8 * 32, state).over
    assert not budget.Budget(new.schedule, 8 * 32, state).over


def test_the_steps_stay_an_upper_bound(text, tmp_path):
    electra_jax.train(tokens_run(text, schedule__steps=2), tmp_path)
    assert last_checkpoint(tmp_path)[0] == 2


def test_the_clock_runs_from_begin_on_and_not_while_it_is_paused():
    ticking = Ticking(0)
    clock = budget.Clock(100.0, ticking)
    ticking.now = 50.0
    assert clock.seconds == 100  # compiling
    clock.begin()
    ticking.now = 53.0
    assert clock.seconds == 103
    with clock.paused():
        ticking.now = 60.0
    assert clock.seconds == 103
    ticking.now = 61.0
    assert clock.seconds == 104


def test_the_end_of_a_run_of_minutes_is_that_of_the_state_that_it_saves():
    """The state counts in float32, whose steps are 0.03 s after four days."""
    changes = {"schedule__budget": "minutes", "schedule__minutes": 5760.01}
    schedule = config_lib.parse(small_run("builtin", "", **changes)).schedule
    seconds = 60 * schedule.minutes + 0.001
    assert float(np.float32(seconds)) < 60 * schedule.minutes

    def at(spent):
        tokens = np.zeros(2, np.uint32)
        return types.SimpleNamespace(seconds=np.float32(spent), tokens_seen=tokens, step=3)

    running = budget.Budget(schedule, 256, at(seconds - 1))
    running._count(4, seconds)
    assert running.over == budget.Budget(schedule, 256, at(seconds)).over


@pytest.mark.slow
def test_minutes_are_kept_over_a_stop(text, tmp_path, monkeypatch):
    """Every look at the clock takes two seconds of a minute."""
    monkeypatch.setattr(budget.Clock.__init__, "__defaults__", (0.0, Ticking(2.0)))
    config = tokens_run(text, schedule__budget="minutes", schedule__tokens=0, schedule__minutes=1.0)
    electra_jax.train(config, tmp_path, [StopAt(2)])
    stopped = [row for row in writers.read(f"{tmp_path}/metrics.jsonl") if row["kind"] == "train"]
    assert 0 < stopped[-1]["progress"] < 1
    electra_jax.train(config, tmp_path)
    train = [row for row in writers.read(f"{tmp_path}/metrics.jsonl") if row["kind"] == "train"]
    assert [row["step"] for row in train] == list(range(1, len(train) + 1))
    assert 3 < len(train) < 12  # a minute in all, not one a start
    shares = [row["progress"] for row in train]
    assert shares == sorted(shares) and shares[2] > shares[1] and shares[-1] == 1
    rates = [row["learning_rate"] for row in train]
    assert rates == sorted(rates, reverse=True) and rates[0] == pytest.approx(1e-3)
    assert rates[-1] < 0.5e-3
    assert electra_jax.train(config, tmp_path)  # nothing is left to do, but to evaluate
    assert len(writers.read(f"{tmp_path}/metrics.jsonl")) == len(train) + 1


def test_a_budget_stands_in_the_dry_run(text, spent):
    config = config_lib.parse(tokens_run(text, schedule__tokens=2_560_000, schedule__steps=100_000))
    lines = dict(line.split("  ", 1) for line in dry_run.text(config, str(spent)).splitlines())
    words, steps = lines["budget"].strip().split(", about ")
    assert words == "2.56M tokens"
    assert 10_000 < int(steps.removesuffix(" steps").replace(",", "")) < 20_000  # with padding
    limited = config_lib.parse(tokens_run(text, schedule__tokens=10**9))
    assert "about 50 steps (their limit)" in dry_run.text(limited, str(spent))
    config = config_lib.parse(
        tokens_run(text, schedule__budget="minutes", schedule__tokens=0, schedule__minutes=90.0)
    )
    assert "1h30m of training" in dry_run.text(config, str(spent))


def test_the_console_says_how_much_is_spent_and_left():
    row = {"loss": 7.0, "step_seconds": 1.0, "progress": 0.25, "seconds_left": 90.0}
    assert console_lines.step_line(2, 9000, row) == (
        "step    2 ( 25%)  loss 7.000          ETA  1m30s"
    )


def test_the_report_says_how_much_is_spent_and_left(spent):
    page = (spent / "report.html").read_text()
    assert f"100.0% of {style.count(TOKENS)} tokens" in page


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(schedule__budget="tokens"), "schedule.tokens=0 with schedule.budget='tokens'"),
        (dict(schedule__budget="minutes"), "schedule.minutes=0.0 with schedule.budget='minutes'"),
        (dict(schedule__tokens=5), "schedule.tokens=5 with schedule.budget='steps'"),
        (dict(schedule__shape="square"), "schedule.shape='square' is not one of"),
        (dict(schedule__decay_share=0.0), "schedule.decay_share=0.0 is outside"),
        (dict(schedule__decay_power=0.0), "schedule.decay_power=0.0 is outside [0.001, 100]"),
    ],
)
def test_a_budget_that_does_not_fit_together_is_refused(changes, message):
    with pytest.raises(config_lib.ConfigError) as error:
        config_lib.parse(small_run("builtin", "", **changes))
    assert message in str(error.value)


def test_only_a_budget_of_minutes_puts_seconds_into_the_state():
    for kind, changes in (("steps", {}), ("minutes", dict(schedule__minutes=1.0))):
        config = config_lib.parse(small_run("builtin", "", schedule__budget=kind, **changes))
        assert plans.make_extras(config).timed == (kind == "minutes")
