# SPDX-License-Identifier: Apache-2.0
"""Every objective x sharing x optimizer, and every two settings: refused in one line, or it trains.

`combinations.py` makes the configurations out of `config`'s own choices.
"""

import collections

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from electra_jax import config as config_lib
from electra_jax.speed import synthetic
from electra_jax.step import plans, train_step
from support import combinations, odd

OBJECTIVES = combinations.axes()["objective.name"]
LANES = {
    "ids": jax.ShapeDtypeStruct((4, 16), jnp.uint16),
    "marks": jax.ShapeDtypeStruct((4, 16), jnp.uint8),
}


def prepared(row):
    return synthetic.prepare(config_lib.parse(combinations.tree(row)), combinations.VOCAB)


def of(name):
    """The rows of one objective."""
    return [row for row in combinations.rows()[0] if row["objective.name"] == name]


def failures(rows, run):
    """{row in one line: what `run` of it raised}."""
    found = {}
    for row in rows:
        try:
            run(row)
        except Exception as error:  # whatever it is, the others are tried too
            found[combinations.named(row)] = repr(error)
    return found


def test_every_switch_has_its_place_among_the_axes():
    assert combinations.unlisted_switches() == set(), "add it to SWITCHES, or to ALWAYS_ON"


def test_every_triple_and_every_pair_is_in_a_row_or_refused_in_one_line():
    rows, refused = combinations.rows()
    triples = [frozenset(triple.items()) for triple in combinations.triples()]
    held = [set(row.items()) for row in rows]
    for wanted in [*triples, *map(frozenset, combinations.pairs())]:
        assert wanted in refused or any(wanted <= row for row in held), wanted
    assert all(reason and "\n" not in reason for reason in refused.values())
    accepted = collections.Counter(dict(x)["optimizer.name"] for x in triples if x not in refused)
    assert len(set(accepted.values())) == 1  # an optimizer goes with all or with none
    assert {row["objective.name"] for row in rows} == {*OBJECTIVES}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_parameters_optimizer_and_places_of_every_row_can_be_made(name):
    """And the optimizer's update can be traced; that of Muon asks what each parameter is."""

    def run(row):
        step = prepared(row).plan
        phases = step.objective.phases
        states = (
            step.state_shapes.optimizer
            if len(phases) > 1
            else {phases[0].name: step.state_shapes.optimizer}
        )
        for phase in phases:
            trained = phase.trained(step.state_shapes.params)
            jax.eval_shape(step.optimizer.update, trained, states[phase.name], trained)

    assert failures(of(name), run) == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_update_of_every_row_traces(name):
    def run(row):
        made = prepared(row)
        state, measured = jax.eval_shape(made.update, made.plan.state_shapes, LANES)
        assert jax.tree.map(_kind, state) == jax.tree.map(_kind, made.plan.state_shapes)
        assert measured.metric_sums["loss"].shape == (2,)

    assert failures(of(name), run) == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_step_trains_what_it_should_and_nothing_else(name):
    """One row for each sharing, the optimizers by turns: compiling takes seconds a row."""
    sharings = list(dict.fromkeys(row["model.sharing"] for row in of(name)))
    if name in config_lib.WITHOUT_GENERATOR:  # one network shares nothing: the program is the same
        sharings = sharings[:1]
    optimizers = combinations.axes()["optimizer.name"]
    turn = 2 + OBJECTIVES.index(name)
    chosen = [
        next(
            row
            for row in of(name)
            if row["model.sharing"] == sharing
            and row["optimizer.name"] == optimizers[(turn + number) % len(optimizers)]
        )
        for number, sharing in enumerate(sharings)
    ]
    assert failures(chosen, _train) == {}


def _kind(x):
    return x.shape, x.dtype


def _train(row):
    """One real step. Raises AssertionError where the loss or a parameter is not as it should be."""
    made = prepared(row)
    step = made.plan
    params = odd.random_like(step.state_shapes.params)
    before = {path: x.copy() for path, x in odd.flat(params).items()}
    extras = plans.make_extras(made.config)
    state = train_step.state_of(step.objective, step.optimizer, params, extras)
    state = jax.tree.map(jnp.copy, state)  # its counters are one array, which is given away once
    lanes = made.lanes()
    update = made.update.lower(state, lanes).compile(
        compiler_options={"xla_backend_optimization_level": 0}
    )
    state, measured = update(state, lanes)
    assert np.isfinite(measured.metric_sums["loss"]).all() and int(state.skipped_steps) == 0
    after = odd.flat(state.params)
    changed = {path for path in before if not np.array_equal(before[path], after[path])}
    trained = {part for phase in step.objective.phases for part in phase.trained(params)}
    assert {path.partition("/")[0] for path in changed} == trained
    assert all(np.isfinite(x).all() for x in after.values())
