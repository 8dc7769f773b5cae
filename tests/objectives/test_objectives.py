# SPDX-License-Identifier: Apache-2.0
"""Each objective does what its page says, and a switch that did nothing would fail here."""

import dataclasses

import numpy as np
import pytest
from jax import numpy as jnp

from electra_jax import config as config_lib
from electra_jax.objectives import unigram_probe
from electra_jax.report import console_lines
from electra_jax.step import optimizer, plans, schedule, train_step
from support import odd
from support.small_objectives import KEY, KINDS, UNIGRAM_V, keys, make, weights

TEN_STEPS = schedule.share_of_steps(10)


@pytest.fixture(scope="module")
def stepped():
    """{name: (old parameters, new parameters, measured)} of one step with a rate of 0.1."""
    adam = optimizer.adamw(optimizer.Settings())
    found = {}
    for name in KINDS:
        objective = make(name)
        update = train_step.make_update(
            objective, adam, lambda *_: jnp.float32(0.1), KEY, odd.PAD, TEN_STEPS
        )
        state = train_step.state_of(objective, adam, weights(objective))
        new_state, measured = odd.jit(update)(state, odd.LANES)
        found[name] = odd.flat(state.params), odd.flat(new_state.params), measured
    return found


@pytest.mark.parametrize("name", KINDS)
def test_a_step_moves_every_leaf_that_learns_and_no_other(stepped, name):
    old, new, measured = stepped[name]
    learns = KINDS[name][3]
    assert all(np.isfinite(x) for x in measured.checks.values())
    for path in old:
        # A generator of one slot in six rows leaves some position and type rows untouched.
        moved = (old[path] != new[path]).any()
        assert moved == path.startswith(learns), path


@pytest.mark.parametrize("name", KINDS)
def test_the_loss_is_its_terms_by_their_weights(stepped, name):
    _, _, measured = stepped[name]
    objective = make(name)
    terms = {term: measured.checks[f"{term}_loss"] for term in objective.terms}
    assert measured.metric_sums["loss"][0] == pytest.approx(float(objective.total(terms)), rel=1e-6)


@pytest.mark.parametrize("name", KINDS)
def test_the_step_line_and_the_evaluation_are_about_the_same_tokens(stepped, name):
    """Else a difference between the two looks like overfitting."""
    objective, batch = make(name), odd.batch()
    probe = unigram_probe.of(KEY, batch.row_B, jnp.asarray(UNIGRAM_V, jnp.float32))

    def tokens(sums):
        return {metric: sums[metric][1] for metric in console_lines.LOSSES if metric in sums}

    @odd.jit
    def evaluated(params):
        return objective.evaluate(params, batch, keys(batch), objective.knobs(0.0), probe)

    found, sums = tokens(stepped[name][2].metric_sums), evaluated(weights(objective))
    assert found and found == tokens(sums)
    assert {f"{term}_loss" for term in objective.terms} <= sums.keys()
    declared = config_lib.evaluated(name.replace("fixed", "uniform"))
    assert set(declared) - {"loss"} == sums.keys() & set(config_lib.BEST_BY)  # loss has no sum
    if "gen_masked_loss" in found and name != "electric":  # where some slots keep their token
        assert found["gen_masked_loss"] < stepped[name][2].metric_sums["gen_loss"][1]


@pytest.mark.parametrize("name", KINDS)
def test_each_term_is_a_mean_over_its_weight(stepped, name):
    _, _, measured = stepped[name]
    batch, objective = odd.batch(), make(name)
    expected = objective.denominators(batch, objective.knobs(0.0))
    for term in objective.terms:
        assert measured.metric_sums[f"{term}_loss"][1] == expected[term]


def test_every_objective_has_its_settings_listed():
    assert set(plans.OBJECTIVES) == set(config_lib.READS)
    fields = {field.name for field in dataclasses.fields(config_lib.Objective)}
    read = {path for paths in config_lib.READS.values() for path in paths}
    named = {path for path in read if path.startswith("objective.")}
    assert named == {f"objective.{field}" for field in fields - {"name"}}


def test_electra_15_hears_the_discriminator_at_the_slots_alone():
    objective, batch = make("masked_token_detection"), odd.batch()
    params = weights(objective)
    detected = odd.jit(objective.intermediates)(params, batch, keys(batch), objective.knobs(0.0))
    loss_mask_BL = objective.disc_loss_mask(batch, detected)
    slots = {
        (row, int(slot))
        for row in range(len(odd.IDS_BL))
        for slot, used in zip(detected.chosen.slots_BN[row], detected.chosen.used_BN[row])
        if used
    }
    assert {tuple(place) for place in np.argwhere(loss_mask_BL).tolist()} == slots
    assert 0 < len(slots) < (odd.IDS_BL != odd.PAD).sum()


@pytest.mark.parametrize("name", ["fixed_generator", "electric"])
def test_where_no_network_is_shown_mask_nothing_is_said_to_be_masked(name):
    """`show` goes by it."""
    batch, objective = odd.batch(), make(name)
    params = weights(objective)
    made = odd.jit(objective.intermediates)(params, batch, keys(batch), objective.knobs(0.0))
    assert made.chosen.used_BN.any()
    assert not made.chosen.masked_BN.any() and not made.chosen.random_BN.any()
    assert (made.masked_BL == batch.ids_BL).all()


def test_a_frozen_generator_writes_what_it_wrote_before(stepped):
    old, new, measured = stepped["frozen_generator"]
    assert "gen_masked_loss" in measured.metric_sums  # still watched
    same = [path for path in old if path.startswith("generator/")]
    assert "generator/embeddings/token" in same
    assert all((old[path] == new[path]).all() for path in same)


def test_the_mask_rate_falls_in_a_straight_line_and_the_temperature_towards_one():
    objective = make(
        "replaced_token_detection", mask_rate=0.15, first_mask_rate=0.3,
        first_temperature=2.0, temperature_decay=0.1,
    )  # fmt: skip
    by_share = {
        share: {name: float(x) for name, x in objective.knobs(share).items()}
        for share in (0.0, 0.1, 0.5, 1.0)
    }
    rates = [by_share[share]["mask_rate"] for share in by_share]
    assert rates == pytest.approx([0.3, 0.285, 0.225, 0.15])
    heats = [by_share[share]["temperature"] for share in by_share]
    assert heats == pytest.approx([2, 1 + np.exp(-1), 1 + np.exp(-5), 1 + np.exp(-10)])
    constant = make("replaced_token_detection").knobs(0.3)
    assert [float(x) for x in constant.values()] == pytest.approx([0.3, 1.0])
