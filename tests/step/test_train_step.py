# SPDX-License-Identifier: Apache-2.0
"""A whole update by hand: what is averaged, undone, skipped and counted, on two weights."""

import dataclasses
import functools

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp

from electra_jax.core import averages, metrics
from electra_jax.objectives.objective import Phase
from electra_jax.step import optimizer, schedule, train_step
from support import odd

KEY = jax.random.key(0)


@dataclasses.dataclass(frozen=True)
class Pull:
    """An objective without networks: each step pulls one weight of each part with a given force."""

    force: float = 1.0

    def knobs(self, progress):
        return {"force": jnp.where(jnp.round(progress * 10) == 3, self.force, 1.0)}

    def denominators(self, batch, knobs):
        return {"gen": jnp.float32(1)}

    def total(self, means):
        return means["gen"]

    @property
    def phases(self):
        return (Phase("joint", self.pulled, ("generator", "discriminator")),)

    def pulled(self, params, batch, keys, knobs, handover):
        sums = {"gen": knobs["force"] * (params["generator"]["w"] + params["discriminator"]["w"])}
        return sums, {"gen_loss": metrics.pair(sums["gen"], jnp.ones(()))}, handover


class PullInTurn(Pull):
    """The same in two phases: first the generator's weight, then with the force the other."""

    @property
    def phases(self):
        return tuple(
            Phase(part, functools.partial(self.loss_of, part), (part,))
            for part in ("generator", "discriminator")
        )

    def loss_of(self, part, params, batch, keys, knobs, handover):
        force = knobs["force"] if part == "discriminator" else 1.0
        sums = {"gen": force * params[part]["w"]}
        return sums, {"gen_loss": metrics.pair(sums["gen"], jnp.ones(()))}, handover


def pulled(
    steps,
    extras,
    force=1.0,
    progress=lambda state: state.step / 10,
    rate=lambda step, progress: jnp.float32(1),
    kind=Pull,
    descent=optax.identity,
):
    """The states after each step from weights of 10; plain descent."""
    descent = optimizer.held_where_not_applied(descent())
    step = train_step.make_update(
        kind(force),
        descent,
        rate,
        KEY,
        odd.PAD,
        progress,
        extras=extras,
    )
    params = {"generator": {"w": jnp.array(10.0)}, "discriminator": {"w": jnp.array(10.0)}}
    state = train_step.state_of(kind(force), descent, params, extras)
    lanes, update, found = jax.tree.map(jnp.asarray, odd.LANES), odd.jit(step), []
    for _ in range(steps):
        state, measured = update(state, lanes)
        found.append((state, measured))
    return found


def generator(states):
    return [float(state.params["generator"]["w"]) for state, _ in states]


def test_averages_follow_applied_steps_alone_and_are_evaluated():
    """Weights 9, 8, 7, then a step that is not finite, then 6."""
    states = pulled(5, train_step.Extras(ema_decay=0.9), force=np.nan)
    assert generator(states) == pytest.approx([9, 8, 7, 7, 6])
    expected, value = [], 10.0
    for updates, weight in enumerate([9, 8, 7]):
        value = value * (1 + updates) / (10 + updates) + weight * 9 / (10 + updates)
        expected.append(value)
    expected.append(value)
    expected.append(value * 4 / 13 + 6 * 9 / 13)
    averaged = [float(state.ema["generator"]["w"]) for state, _ in states]
    assert averaged == pytest.approx(expected)
    state = states[-1][0]
    assert state.evaluated is state.ema
    assert pulled(1, train_step.Extras())[0][0].ema is None


@pytest.mark.parametrize("force", [np.nan, 100.0])
@pytest.mark.parametrize("kind", [Pull, PullInTurn])
def test_what_a_step_not_applied_did_is_taken_back_whole(kind, force, monkeypatch):
    """Of two phases the second is bad, at the fourth step; the first had already moved its part."""
    monkeypatch.setattr(averages, "JUDGED_AFTER", 2)
    extras = train_step.Extras(ema_decay=0.9, spike_factor=5.0)
    momentum = functools.partial(optax.trace, 0.5)
    states = pulled(5, extras, force=force, kind=kind, descent=momentum)
    before, bad, after = (states[n][0] for n in (2, 3, 4))
    assert [int(state.skipped_steps) for state in (before, bad, after)] == [0, 1, 1]
    for kept in ("params", "optimizer", "ema"):
        jax.tree.map(np.testing.assert_array_equal, getattr(bad, kept), getattr(before, kept))
    # 10, less 1, 1.5, 1.75 and, one step later, 1.875
    for part in ("generator", "discriminator"):
        found = [float(state.params[part]["w"]) for state in (before, after)]
        assert found == [5.75, 3.875]


def test_a_spike_is_counted_and_not_applied(monkeypatch):
    """Norms of sqrt(2), then one a hundred times that, at the fourth step."""
    monkeypatch.setattr(averages, "JUDGED_AFTER", 2)
    states = pulled(5, train_step.Extras(spike_factor=5.0), force=100.0)
    assert generator(states) == pytest.approx([9, 8, 7, 7, 6])
    assert [int(state.skipped_steps) for state, _ in states] == [0, 0, 0, 1, 1]
    spike = states[3][1]
    assert float(spike.checks["grad_norm"]) == pytest.approx(100 * np.sqrt(2))
    assert float(spike.limits["grad_norm"]) == pytest.approx(5 * np.sqrt(2), rel=1e-4)
    assert spike.metric_sums["gen_loss"].tolist() == pytest.approx([1400, 1])  # it stays to be seen


def test_without_the_wish_a_spike_is_applied(monkeypatch):
    monkeypatch.setattr(averages, "JUDGED_AFTER", 2)
    states = pulled(5, train_step.Extras(), force=100.0)
    assert generator(states)[3] == pytest.approx(7 - 100, abs=1e-3)
    assert states[-1][0].norms is None and states[-1][1].limits == {}


def test_a_step_that_is_not_finite_leaves_the_mean_of_norms(monkeypatch):
    states = pulled(5, train_step.Extras(spike_factor=5.0), force=np.nan)
    assert states[3][0].norms.tolist() == states[2][0].norms.tolist()
    assert states[4][0].norms[2] == 4


def test_rates_that_differ_have_names_of_their_own():
    shares = optimizer.PeakRates(0.5, 1.0).named()
    (_, measured), = pulled(1, train_step.Extras(logged_shares=shares))  # fmt: skip
    assert measured.metric_sums["gen_learning_rate"].tolist() == [0.5, 1]
    assert measured.metric_sums["disc_learning_rate"].tolist() == [1, 1]
    assert "learning_rate" not in measured.metric_sums


def test_what_an_objective_lets_move_follows_the_budget_as_the_rate_does():
    """At 0.3 of whatever is spent the pull is 7, and the rate 1 - 0.3."""
    spent, rate = lambda state: jnp.float32(0.3), schedule.rate(1.0, 10**9, 0)
    states = pulled(2, train_step.Extras(), force=7.0, progress=spent, rate=rate)
    assert generator(states) == pytest.approx([10 - 0.7 * 7, 10 - 2 * 0.7 * 7])
