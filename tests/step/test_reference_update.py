# SPDX-License-Identifier: Apache-2.0
"""Two whole updates agree with `reference.py`, which shares no line and no library with them.

Losses, every leaf of the gradient, of both moments and of the new parameters; so a wrong epsilon,
a missing residual, another GELU or a wrong rule of decay fails here, wherever it is.
"""

import dataclasses
import re

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.core import streams
from electra_jax.step import optimizer, schedule, train_step
from support import odd, reference

KEY = jax.random.key(0)
FIRST = 3  # two steps: one in the warmup, one after it
SETTINGS = reference.Settings(
    vocab_size=odd.NETWORKS.vocab_size,
    pad_id=odd.PAD,
    mask_id=odd.MASK,
    peak=0.02,
    steps=10,
    warmup_steps=4,
)


@dataclasses.dataclass
class Step:
    """One step as the package took it, and as the reference takes it."""

    played: dict
    measured: dict
    gradients: dict  # by path, before the clip
    state: dict  # params, mu and nu, each by path
    expected: dict
    expected_gradients: dict
    expected_state: dict


LANES = jax.tree.map(jnp.asarray, odd.LANES)
ADAM = optimizer.Settings()
CHAIN = optimizer.reference_adamw(ADAM)


def start() -> train_step.TrainState:
    """Weights in every leaf, moments of zero, a step in the middle of the warmup."""
    state = train_step.state_of(odd.objective(), CHAIN, odd.weights())
    state = dataclasses.replace(state, step=jnp.int32(FIRST))
    return jax.tree.map(jnp.copy, state)  # a step writes over its own


@pytest.fixture(scope="module")
def update():
    """(state, lanes) -> (state, measured, what chance decided on the way)."""
    objective = odd.objective()
    rate = schedule.rate(SETTINGS.peak, SETTINGS.steps, SETTINGS.warmup_steps)
    progress = schedule.share_of_steps(SETTINGS.steps)
    step = train_step.make_update(objective, CHAIN, rate, KEY, odd.PAD, progress)

    def update(state, lanes):
        return *step(state, lanes), _play(objective, state, lanes)

    return odd.jit(update, donate_argnums=0).lower(start(), LANES).compile()


def test_no_moment_is_copied_before_it_is_written_over(update):
    """Moments are two thirds of the state, and a CPU would copy all of them in every step."""
    assert not re.findall(r"copy\(%\S*(?:mu|nu)__", update.as_text())


@pytest.fixture(scope="module")
def steps(update) -> list[Step]:
    state = start()
    params = odd.flat(state.params, np.float64)
    mu, nu = ({path: np.zeros_like(x) for path, x in params.items()} for _ in range(2))
    expected, steps = {"params": params, "mu": mu, "nu": nu}, []
    for number in (FIRST, FIRST + 1):
        old_mu = odd.flat(_moments(state).mu, np.float64)
        state, measured, played = jax.device_get(update(state, LANES))
        chosen = played.chosen
        gen_loss, disc_loss, gradients, norm, *expected_state = reference.update(
            *expected.values(),
            number,
            odd.IDS_BL,
            odd.MARKS_BL,
            reference.Decisions(
                chosen.slots_BN, chosen.used_BN, chosen.masked_BN, played.sampled_BN
            ),
            SETTINGS,
        )
        mu = odd.flat(_moments(state).mu, np.float64)
        sums = measured.metric_sums
        unclip = max(1, sums["grad_norm"][0] / ADAM.clip_norm) / (1 - ADAM.beta1)
        expected = dict(zip(("params", "mu", "nu"), expected_state))
        steps.append(
            Step(
                played=played,
                measured=sums,
                gradients={path: (mu[path] - ADAM.beta1 * old_mu[path]) * unclip for path in mu},
                state={
                    "params": odd.flat(state.params, np.float64),
                    "mu": mu,
                    "nu": odd.flat(_moments(state).nu, np.float64),
                },
                expected={
                    "gen_loss": gen_loss,
                    "disc_loss": disc_loss,
                    "loss": SETTINGS.gen_weight * gen_loss + SETTINGS.disc_weight * disc_loss,
                    "grad_norm": norm,
                },
                expected_gradients=gradients,
                expected_state=expected,
            )
        )
    return steps


def _play(objective, state, lanes):
    """What chance decides in this step, drawn as the step itself draws it."""
    row_B = state.rows_seen[0] + jnp.arange(len(lanes["ids"]), dtype=jnp.uint32)
    batch = batch_lib.from_lanes(lanes["ids"], lanes["marks"], row_B, odd.PAD)
    keys = streams.keys(KEY, state.step, row_B, dropout=True)
    return objective.intermediates(state.params, batch, keys, objective.knobs(state.step))


def _moments(state):
    (moments,) = (part for part in state.optimizer if hasattr(part, "mu"))
    return moments


def _assert_close(found, expected, floor=0.0, tolerance=1e-5):
    """Each leaf on the scale of its largest element, or of `floor` where that is larger."""
    assert found.keys() == expected.keys()
    for path, want in expected.items():
        error = np.abs(found[path] - want).max()
        assert error <= tolerance * max(np.abs(want).max(), floor), path


def test_the_two_steps_meet_every_case(steps):
    used, masked, sampled, original = (
        np.concatenate([part(step.played) for step in steps])
        for part in (
            lambda played: played.chosen.used_BN,
            lambda played: played.chosen.masked_BN,
            lambda played: played.sampled_BN,
            lambda played: np.take_along_axis(odd.IDS_BL, played.chosen.slots_BN, axis=1),
        )
    )
    assert 0 < masked.sum() < used.sum() < used.size  # [MASK], kept, and no slot at all
    assert 0 < (used & (sampled == original)).sum() < used.sum()  # lucky and not
    assert all(step.measured["grad_norm"][0] > 1 for step in steps)  # the clip is at work


@pytest.mark.parametrize("number", [0, 1])
def test_losses_agree(steps, number):
    for name, want in steps[number].expected.items():
        assert np.divide(*steps[number].measured[name]) == pytest.approx(want, rel=1e-6), name


@pytest.mark.parametrize("number", [0, 1])
def test_every_gradient_agrees(steps, number):
    step = steps[number]
    # The true derivative of a key's bias is 0: it moves all scores of a query alike. What rounding
    # leaves there is compared with a thousandth of the whole gradient.
    _assert_close(step.gradients, step.expected_gradients, 1e-3 * step.expected["grad_norm"])


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(("name", "floor"), [("params", 0.5), ("mu", 1e-4), ("nu", 1e-8)])
def test_the_new_state_agrees(steps, number, name, floor):
    step = steps[number]
    _assert_close(step.state[name], step.expected_state[name], floor)


@pytest.mark.parametrize("number", [0, 1])
def test_what_is_measured_is_what_happened(steps, number):
    """Every count by looping over the tokens of the batch."""
    played, tokens, slots = steps[number].played, [], []
    for row, ids_L in enumerate(odd.IDS_BL):
        for place, original in enumerate(ids_L):
            if original != odd.PAD:
                replaced = played.corrupted_BL[row, place] != original
                tokens.append((replaced, played.disc_logits_BL[row, place] > 0))
        for n, slot in enumerate(played.chosen.slots_BN[row]):
            if played.chosen.used_BN[row, n]:
                hits = (played.gen_hits_BN[row, n], played.sampled_BN[row, n] == ids_L[slot])
                slots.append((played.masked_BL[row, slot] == odd.MASK, *hits))
    (replaced, believed), (masked, hit, lucky) = np.array(tokens).T, np.array(slots).T
    expected = {
        "gen_accuracy": (hit.sum(), len(slots)),
        "gen_masked_accuracy": (hit[masked].sum(), masked.sum()),
        "gen_sampled_accuracy": (lucky.sum(), len(slots)),
        "disc_accuracy": ((believed == replaced).sum(), len(tokens)),
        "disc_precision": (replaced[believed].sum(), believed.sum()),
        "disc_recall": (believed[replaced].sum(), replaced.sum()),
        "masked_rate": (len(slots), len(tokens)),
        "replaced_rate": (replaced.sum(), len(tokens)),
    }
    for name, want in expected.items():
        assert tuple(steps[number].measured[name]) == want, name


@pytest.mark.parametrize("ids_L", [[odd.PAD] * 11, [odd.CLS, odd.SEP] + [odd.PAD] * 9])
def test_a_batch_with_nothing_to_choose_does_no_harm(update, ids_L):
    """Weights of zero, finite losses; without tokens only the decay moves a parameter."""
    state, real = start(), ids_L[0] != odd.PAD
    marks_BL = np.zeros((6, 11), int)
    marks_BL[:, 0] = real
    lanes = {"ids": jnp.array([ids_L] * 6), "marks": jnp.array(marks_BL)}
    new_state, measured, _ = update(state, lanes)
    assert int(new_state.skipped_steps) == 0
    assert all(np.isfinite(x) for x in measured.checks.values())
    assert measured.metric_sums["gen_loss"].tolist() == [0, 0]
    assert measured.metric_sums["disc_loss"][1] == (12 if real else 0)
    assert not measured.metric_sums["replaced_rate"][0]
    if not real:
        assert measured.metric_sums["grad_norm"].tolist() == [0, 1]
        old = odd.flat(start().params)
        moved = {path for path, x in odd.flat(new_state.params).items() if (x != old[path]).any()}
        assert moved == {path for path in old if optimizer.decays(path)}
