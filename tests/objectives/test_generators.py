# SPDX-License-Identifier: Apache-2.0
"""Which tokens generators draw, and what trains them: on their own, in two phases, by reward."""

import dataclasses

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from electra_jax.core import streams
from electra_jax.model import networks
from electra_jax.objectives import masking, replaced_token_detection, sampling
from electra_jax.step import optimizer, schedule, train_step
from support import odd
from support.small_objectives import KEY, SHALLOW, UNIGRAM_V, keys, make, weights

TEN_STEPS = schedule.share_of_steps(10)


def test_a_fixed_generator_draws_from_its_distribution():
    ids_BL = np.full((2000, 20), 9)
    batch = odd.batch(ids_BL, np.zeros_like(ids_BL))
    objective = make("fixed_generator")
    made = objective.generate({}, batch, keys(batch), objective.knobs(0.0))
    counts = np.bincount(np.asarray(made.sampled_BN).ravel(), minlength=37)
    allowed = UNIGRAM_V[:37] * ~np.isin(np.arange(37), objective.special_ids)
    np.testing.assert_allclose(counts / counts.sum(), allowed / allowed.sum(), atol=0.012)


def test_without_the_correct_token_every_slot_is_replaced():
    batch = odd.batch()
    counts = {}
    for disallow in (False, True):
        objective = make("replaced_token_detection", disallow_correct=disallow)
        params = weights(objective)
        params["embeddings"]["token"] *= 0  # all words alike: one in 33 is lucky
        lucky, generate = 0, odd.jit(objective.generate)
        for step in range(30):
            made = generate(params, batch, keys(batch, step), objective.knobs(0.0))
            same_BN = made.sampled_BN == masking.at(batch.ids_BL, made.chosen)
            lucky += int((made.chosen.used_BN & same_BN).sum())
        counts[disallow] = lucky
    assert counts[True] == 0 < counts[False]


def test_the_discriminators_phase_reads_the_tables_after_the_generators_step():
    objective, batch = make("decoupled_detection"), odd.batch()
    params, knobs = weights(objective), objective.knobs(0.0)
    made = objective.generator_loss(params, batch, keys(batch), knobs, None)[2]
    moved = params | {"embeddings": jax.tree.map(lambda x: x + 0.1, params["embeddings"])}
    logits = [
        objective.discriminate(p, batch, made, keys(batch)).disc_logits_BL for p in (params, moved)
    ]
    assert not np.allclose(*logits, atol=1e-3)
    adam = optimizer.adamw(optimizer.Settings(clip_norm=0.0, weight_decay=0.0))
    rate = jnp.float32(0.1)
    update = odd.jit(
        train_step.make_update(objective, adam, lambda *_: rate, KEY, odd.PAD, TEN_STEPS)
    )
    _, measured = update(train_step.state_of(objective, adam, params), odd.LANES)

    def generator_loss(trained):
        sums, _, made = objective.generator_loss(params | trained, batch, keys(batch), knobs, None)
        return sums["gen"] / objective.denominators(batch, knobs)["gen"], made

    trained = {part: params[part] for part in ("embeddings", "generator")}
    gradients, made = odd.jit(jax.grad(generator_loss, has_aux=True))(trained)
    updates, _ = adam.update(gradients, adam.init(trained), trained)
    after = params | jax.tree.map(lambda p, u: p - rate * u, trained, updates)
    sums, _, _ = objective.discriminator_loss(after, batch, keys(batch), knobs, made)
    expected = sums["disc"] / objective.denominators(batch, knobs)["disc"]
    assert measured.checks["disc_loss"] == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize(
    ("sharing", "generator", "discriminator"),
    [
        ("embeddings", ("embeddings", "generator"), ("embeddings", "discriminator")),
        ("none", ("generator",), ("embeddings", "discriminator")),
        ("gdes", ("embeddings", "generator"), ("discriminator",)),
    ],
)
def test_each_phase_moves_what_its_network_reads(sharing, generator, discriminator):
    """A table that a phase only reads would still decay in it."""
    config = dataclasses.replace(SHALLOW, sharing=sharing)
    phases = make("decoupled_detection", networks=config).phases
    assert [(p.name, p.trains) for p in phases] == [
        ("generator", generator),
        ("discriminator", discriminator),
    ]


@pytest.mark.parametrize(("name", "equal"), [("decoupled", True), ("joint", False)])
def test_lambda_means_nothing_to_adam_unless_something_is_shared(name, equal):
    """Powers of two scale exactly; epsilon out of the way, no clipping: 1 and 64 agree under gdes
    in two phases, and not where both losses move one table."""
    kind, sharing = {
        "decoupled": ("decoupled_detection", "gdes"),
        "joint": ("replaced_token_detection", "embeddings"),
    }[name]
    adam = optimizer.adamw(optimizer.Settings(epsilon=1e-20, clip_norm=0.0, weight_decay=0.0))
    ends = []
    for weight in (1.0, 64.0):
        config = dataclasses.replace(SHALLOW, sharing=sharing)
        objective = make(kind, networks=config, disc_weight=weight)
        state = train_step.state_of(objective, adam, weights(objective))
        update = train_step.make_update(
            objective, adam, lambda *_: jnp.float32(1e-3), KEY, odd.PAD, TEN_STEPS
        )
        update = odd.jit(update)
        for _ in range(3):
            state, _ = update(state, odd.LANES)
        ends.append(odd.flat(state.params))
    # Of a key's bias the true gradient is 0; what Adam makes of rounding there says nothing.
    differ = max(
        np.abs(ends[0][path] - ends[1][path]).max()
        for path in ends[0]
        if not path.endswith("key/bias")
    )
    assert (differ < 1e-6) == equal, differ


def test_the_policy_gradient_is_advantage_times_the_gradient_of_the_log_probability():
    objective, batch = make("adversarial_generator"), odd.batch()
    params, knobs = weights(objective), objective.knobs(0.0)
    config = objective.networks
    detected = objective.intermediates(params, batch, keys(batch), knobs)
    losses_BL = replaced_token_detection.detection_loss(detected)
    used_BN = detected.chosen.used_BN
    baseline_BN = networks.gate(params["generator"]["baseline"], detected.vectors_BNE)
    advantage_BN = masking.at(losses_BL, detected.chosen) - baseline_BN
    seen = dataclasses.replace(batch, ids_BL=detected.masked_BL)

    def by_hand(generator):
        p = params | {"generator": generator}
        logits_BNV = networks.generator_logits(
            config, p, seen, detected.chosen.slots_BN, keys(batch).generator_B
        )
        allowed_V = ~np.isin(np.arange(config.vocab_size), objective.special_ids)
        logits_BNV = logits_BNV[..., : config.vocab_size]
        log_BNV = jax.nn.log_softmax(jnp.where(allowed_V, logits_BNV, -jnp.inf))
        log_BN = jnp.take_along_axis(log_BNV, detected.sampled_BN[..., None], 2)[..., 0]
        return -(log_BN * advantage_BN * used_BN).sum()

    def objectives_own(generator):
        p = params | {"generator": generator}
        return objective.loss(p, batch, keys(batch), knobs)[0]["policy"]

    expected, found = (
        odd.flat(odd.jit(jax.grad(f))(params["generator"])) for f in (by_hand, objectives_own)
    )
    for path in expected:
        np.testing.assert_allclose(found[path], expected[path], atol=1e-4, err_msg=path)
    assert np.abs(found["baseline/kernel"]).max() == 0  # the policy does not move its baseline


@pytest.mark.parametrize(
    ("temperature", "disallow_correct"), [(1.0, False), (2.0, False), (2.0, True)]
)
def test_the_policy_gradient_is_that_of_the_expected_reward(
    monkeypatch, temperature, disallow_correct
):
    """One slot: the mean over all 33 words, each as often as it is drawn, of the gradient with the
    baseline, against the gradient of sum_x q(x) R(x), R held."""
    objective = make(
        "adversarial_generator", slots=1, mask_token_rate=1.0, temperature=temperature,
        disallow_correct=disallow_correct,
    )  # fmt: skip
    batch, knobs = odd.batch(odd.IDS_BL[4:5], odd.MARKS_BL[4:5]), objective.knobs(0.0)
    params, keys_ = weights(objective), streams.keys(KEY, 0, batch.row_B, dropout=False)
    chosen = objective.choose(batch, keys_, knobs)
    seen = objective.mask(batch, chosen, keys_)
    original = int(masking.at(batch.ids_BL, chosen)[0, 0])
    barred = {*objective.special_ids, *([original] if disallow_correct else [])}
    words_X = jnp.array([word for word in range(37) if word not in barred])

    def q(generator):
        logits_BNV = networks.generator_logits(
            objective.networks, params | {"generator": generator}, seen, chosen.slots_BN
        )
        return jax.nn.softmax(logits_BNV[0, 0, words_X] / temperature)

    def loss(generator, word):
        monkeypatch.setattr(sampling, "from_blocks", lambda *_: jnp.full((1, 1), word))
        sums, measured = objective.loss(params | {"generator": generator}, batch, keys_, knobs)
        return sums["policy"], measured["gen_reward"][0]

    @odd.jit
    def gradients(generator):
        each = jax.vmap(jax.grad(loss, has_aux=True), in_axes=(None, 0))
        gradient_X, reward_X = each(generator, words_X)
        q_X = q(generator)
        mean = jax.tree.map(lambda x: jnp.tensordot(q_X, x, 1), gradient_X)
        return mean, jax.grad(lambda generator: -(q(generator) * reward_X).sum())(generator)

    found, expected = map(odd.flat, gradients(params["generator"]))
    largest = max(np.abs(x).max() for x in expected.values())
    assert largest > 0.01
    for path in expected:
        np.testing.assert_allclose(found[path], expected[path], atol=1e-5, err_msg=path)
