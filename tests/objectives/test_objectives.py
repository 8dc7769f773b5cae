# SPDX-License-Identifier: Apache-2.0
"""Each objective does what its page says, and a switch that did nothing would fail here."""

import dataclasses

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp

from electra_jax import config as config_lib
from electra_jax.core import streams
from electra_jax.model import networks
from electra_jax.objectives import (
    adversarial_generator,
    all_tokens_mlm,
    corrective_lm,
    decoupled_detection,
    electric,
    fixed_generator,
    frozen_generator,
    masked_lm,
    masked_token_detection,
    masking,
    multi_word_selection,
    replace_mlm,
    replaced_token_detection,
    sampling,
    unigram_probe,
    vocabulary_softmax,
)
from electra_jax.report import console_lines
from electra_jax.step import optimizer, plans, schedule, train_step
from support import odd

SHALLOW = dataclasses.replace(
    odd.NETWORKS,
    generator=dataclasses.replace(odd.NETWORKS.generator, layers=1),
    discriminator=dataclasses.replace(odd.NETWORKS.discriminator, layers=1),
)
KEY = jax.random.key(11)
UNIGRAM_V = np.where(np.arange(128) < 37, np.arange(128), 0)

# kind -> (settings, how it shares, the subtrees that learn)
KINDS = {
    "replaced_token_detection": (
        replaced_token_detection.ReplacedTokenDetection, {}, "embeddings",
        ("embeddings", "generator", "discriminator"),
    ),
    "masked_token_detection": (
        masked_token_detection.MaskedTokenDetection, {}, "embeddings",
        ("embeddings", "generator", "discriminator"),
    ),
    "multi_word_selection": (
        multi_word_selection.MultiWordSelection, {}, "embeddings",
        ("embeddings", "generator", "discriminator"),
    ),
    "corrective_lm": (
        corrective_lm.CorrectiveLM, {}, "embeddings", ("embeddings", "generator", "discriminator"),
    ),
    "decoupled_detection": (
        decoupled_detection.DecoupledDetection, {}, "gdes",
        ("embeddings", "generator", "discriminator"),
    ),
    "adversarial_generator": (
        adversarial_generator.AdversarialGenerator, {}, "embeddings",
        ("embeddings", "generator", "discriminator"),
    ),
    "frozen_generator": (
        frozen_generator.FrozenGenerator, {}, "none", ("embeddings", "discriminator"),
    ),
    "fixed_generator": (
        fixed_generator.FixedGenerator, {"weights_V": UNIGRAM_V}, "embeddings",
        ("embeddings", "discriminator"),
    ),
    "electric": (
        electric.Electric, {}, "embeddings", ("embeddings", "generator", "discriminator"),
    ),
    "masked_lm": (
        masked_lm.MaskedLM, {"random_token_rate": 0.2}, "embeddings",
        ("embeddings", "discriminator"),
    ),
    "replace_mlm": (
        replace_mlm.ReplaceMLM, {}, "embeddings", ("embeddings", "generator", "discriminator"),
    ),
    "all_tokens_mlm": (
        all_tokens_mlm.AllTokensMLM, {}, "embeddings",
        ("embeddings", "generator", "discriminator"),
    ),
}  # fmt: skip


def make(name, **changes):
    kind, settings, sharing, _ = KINDS[name]
    config = dataclasses.replace(SHALLOW, sharing=sharing)
    return odd.objective(kind, **{"networks": config} | settings | changes)


def weights(objective):
    return odd.random_like(jax.eval_shape(objective.init, KEY))


TEN_STEPS = schedule.share_of_steps(10)


def keys(batch, step=0):
    return streams.keys(KEY, step, batch.row_B, dropout=True)


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


# Masked-token detection: ELECTRA 15 %


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


# Networks that predict


def test_bert_sees_mask_and_replace_mlm_never_does():
    batch = odd.batch()
    for name in ("masked_lm", "replace_mlm", "all_tokens_mlm"):
        objective = make(name)
        made = odd.jit(objective.intermediates)(
            weights(objective), batch, keys(batch), objective.knobs(0.0)
        )
        assert (made.corrupted_BL == odd.MASK).any() == (name == "masked_lm")


@pytest.mark.parametrize("name", ["fixed_generator", "electric"])
def test_where_no_network_is_shown_mask_nothing_is_said_to_be_masked(name):
    """`show` goes by it."""
    batch, objective = odd.batch(), make(name)
    params = weights(objective)
    made = odd.jit(objective.intermediates)(params, batch, keys(batch), objective.knobs(0.0))
    assert made.chosen.used_BN.any()
    assert not made.chosen.masked_BN.any() and not made.chosen.random_BN.any()
    assert (made.masked_BL == batch.ids_BL).all()


def test_80_10_10():
    """4,000 rows of 20 candidates, 3 slots each."""
    ids_BL = np.full((4000, 20), 9)
    batch = odd.batch(ids_BL, np.where(np.arange(20) == 0, odd.D, 0) + 0 * ids_BL)
    objective = make("masked_lm", mask_token_rate=0.8, random_token_rate=0.1, mask_rate=0.15)
    chosen = objective.choose(batch, keys(batch), objective.knobs(0.0))
    seen = masking.at(objective.mask(batch, chosen, keys(batch)).ids_BL, chosen)
    counts = np.bincount(np.asarray(seen[chosen.used_BN]), minlength=37)
    total, random = counts.sum(), counts.sum() - counts[odd.MASK] - counts[9]
    assert total == 12_000
    assert counts[odd.MASK] / total == pytest.approx(0.8, abs=0.015)
    assert random / total == pytest.approx(0.1 * 32 / 33, abs=0.012)  # one in 33 draws the 9
    assert counts[[odd.PAD, odd.CLS, odd.SEP]].sum() == 0
    drawn = np.delete(counts, [odd.PAD, odd.CLS, odd.SEP, odd.MASK, 9])
    assert drawn.min() > 0.4 * drawn.mean()  # all words, about equally


def test_predicted_losses_are_those_of_the_whole_softmax():
    objective, batch = make("masked_lm"), odd.batch()
    params = weights(objective)
    config = objective.networks
    made, losses_BN, hits_BN = objective._mask_and_predict(
        params, batch, keys(batch), objective.knobs(0.0)
    )
    seen = dataclasses.replace(batch, ids_BL=made.masked_BL)
    vectors_BNE = networks.predictor_vectors(
        config, params, seen, made.chosen.slots_BN, keys(batch).discriminator_B
    )
    token_VE, bias_V = networks.predictor_table(config, params)
    logits_BNV = (vectors_BNE @ token_VE.T + bias_V)[..., : config.vocab_size]
    originals_BN = masking.at(batch.ids_BL, made.chosen)
    expected = optax.softmax_cross_entropy_with_integer_labels(logits_BNV, originals_BN)
    np.testing.assert_allclose(losses_BN, expected, rtol=1e-5)
    np.testing.assert_array_equal(hits_BN, logits_BNV.argmax(-1) == originals_BN)


def test_the_copy_gate_mixes_two_distributions():
    """D = 0.25 and p = 0.1: 0.25 + 0.75 x 0.1 where it sees the original, 0.75 x 0.1 elsewhere."""
    gate, losses = jnp.log(jnp.array(0.25 / 0.75)), -jnp.log(jnp.array(0.1))
    seen, other = (all_tokens_mlm.copied_loss(losses, gate, jnp.array(x)) for x in (True, False))
    assert jnp.exp(-seen) == pytest.approx(0.325, rel=1e-6)
    assert jnp.exp(-other) == pytest.approx(0.075, rel=1e-6)
    extreme = all_tokens_mlm.copied_loss(losses, jnp.float32(200), jnp.array([True, False]))
    assert extreme.tolist() == pytest.approx([0, 200 + float(losses)])


# Generators


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


def test_a_frozen_generator_writes_what_it_wrote_before(stepped):
    old, new, measured = stepped["frozen_generator"]
    assert "gen_masked_loss" in measured.metric_sums  # still watched
    same = [path for path in old if path.startswith("generator/")]
    assert "generator/embeddings/token" in same
    assert all((old[path] == new[path]).all() for path in same)


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


# Electric


@pytest.fixture(scope="module")
def towers():
    """(objective, params, a jitted function from ids to the towers' vectors)."""
    objective = make("electric")
    params = weights(objective)

    @odd.jit
    def vectors(ids_BL):
        batch = dataclasses.replace(odd.batch(), ids_BL=ids_BL)
        return networks.towers(objective.networks, params, batch)

    return objective, params, vectors


def test_a_tower_guesses_a_token_from_all_others_of_its_document_and_never_from_itself(towers):
    """Row 0 is [CLS] 11 12 [SEP] 13 14 [SEP] | [CLS] 15 [SEP] [PAD]."""
    *_, vectors = towers
    ids_BL = jnp.asarray(odd.IDS_BL)
    before_LE = vectors(ids_BL)[0]
    after_LE = vectors(ids_BL.at[0, 4].set(30))[0]
    moved_L = np.abs(before_LE - after_LE).max(-1) > 1e-6
    #                        CLS   11    12    SEP   13     14    SEP
    assert moved_L[:7].tolist() == [True, True, True, True, False, True, True]
    assert moved_L[8].tolist() is False  # 15, in the other document


def test_the_logit_is_energy_plus_noise_plus_odds(towers):
    objective, params, vectors = towers
    batch, knobs = odd.batch(), objective.knobs(0.0)
    keys_ = streams.keys(KEY, 0, batch.row_B, dropout=False)
    detected = odd.jit(objective.intermediates)(params, batch, keys_, knobs)
    noised = dataclasses.replace(batch, ids_BL=detected.corrupted_BL)
    energy_BL = networks.discriminate(objective.networks, params, noised)
    token_VE, bias_V = networks.generator_table(objective.networks, params)
    logits_BLV = (vectors(batch.ids_BL) @ token_VE.T + bias_V)[..., :37]
    allowed_V = ~np.isin(np.arange(37), objective.special_ids)
    log_q_BLV = jax.nn.log_softmax(jnp.where(allowed_V, logits_BLV, -jnp.inf))
    used_BN, slots_BN = np.asarray(detected.chosen.used_BN), np.asarray(detected.chosen.slots_BN)
    words_BL = allowed_V[odd.IDS_BL] & (odd.IDS_BL != odd.PAD)
    checked = 0
    for row in range(len(odd.IDS_BL)):
        k, n = used_BN[row].sum(), words_BL[row].sum()
        noise = set(slots_BN[row][used_BN[row]].tolist())
        assert set(np.flatnonzero(detected.replaced_BL[row])) == noise
        for place in np.flatnonzero(words_BL[row]):
            id_ = int(detected.corrupted_BL[row, place])
            expected = energy_BL[row, place] + log_q_BLV[row, place, id_]
            expected += np.log(k / max(n - k, 1))
            assert detected.disc_logits_BL[row, place] == pytest.approx(float(expected), abs=1e-3)
            checked += 1
    assert checked == words_BL.sum()


# What moves during a run


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


# Units


def test_words_are_chosen_whole():
    """Twelve tokens, words of 2, 1, 3, 1, 2 and 3; four slots. The last word may be cut."""
    starts_L = np.array([1, 0, 1, 1, 0, 0, 1, 1, 0, 1, 0, 0], bool)
    word_L = np.cumsum(starts_L)
    rows = 300
    row_keys = streams.row_keys(KEY, 0, jnp.arange(rows, dtype=jnp.uint32))
    chosen = masking.choose(
        row_keys, jnp.ones((rows, 12), bool), jnp.full(rows, 4), jnp.tile(starts_L, (rows, 1)),
        n=5, mask_token_rate=1.0,
    )  # fmt: skip
    sizes = np.bincount(word_L)
    for slots_N in np.asarray(chosen.slots_BN)[:, :4]:
        found = np.bincount(word_L[slots_N], minlength=7)
        cut = [word for word in range(1, 7) if 0 < found[word] < sizes[word]]
        assert len(cut) <= 1
        assert len(set(slots_N.tolist())) == 4
        for word in cut:  # from its start
            first = int(np.argmax(word_L == word))
            assert {first + i for i in range(found[word])} <= set(slots_N.tolist())


def test_spans_are_words_with_a_geometric_number_of_them():
    starts_BL = jnp.ones((400, 100), bool)
    row_keys = streams.row_keys(KEY, 0, jnp.arange(400, dtype=jnp.uint32))
    borders_BL = jnp.zeros_like(starts_BL).at[:, 0].set(True)
    spans_BL = masking.span_starts(row_keys, starts_BL, borders_BL, 3.8)
    assert float(spans_BL[:, 1:].mean()) == pytest.approx(1 / 3.8, abs=0.005)
    between = np.diff(np.flatnonzero(np.asarray(spans_BL).ravel()))
    assert (between == 1).mean() == pytest.approx(1 / 3.8, abs=0.01)
    assert (between == 3).mean() == pytest.approx((1 / 3.8) * (1 - 1 / 3.8) ** 2, abs=0.01)
    assert not (spans_BL & ~starts_BL).any()


def test_a_unit_that_is_not_known_is_refused():
    """It would have been taken for spans, without a word."""
    batch, objective = odd.batch(), make("masked_lm", mask_unit="sentence")
    with pytest.raises(ValueError, match="mask_unit='sentence' is none of 'token', 'word', 'span'"):
        objective.choose(batch, keys(batch), objective.knobs(0.0))


@pytest.mark.parametrize("unit", ["word", "span"])
def test_the_unit_reaches_the_step(unit):
    ids_BL = np.tile(np.arange(5, 25), (200, 1))
    marks_BL = np.tile(np.where(np.arange(20) % 2, 0, 4), (200, 1))  # words of two tokens
    batch = odd.batch(ids_BL, marks_BL)
    objective = make("masked_lm", mask_rate=0.2, slots=4, mask_unit=unit)
    chosen = objective.choose(batch, keys(batch), objective.knobs(0.0))
    for slots_N in np.sort(np.asarray(chosen.slots_BN)):
        assert {slot // 2 for slot in slots_N[::2]} == {slot // 2 for slot in slots_N[1::2]}


# The head that hears [CLS]


def test_the_context_head_hears_the_cls_of_its_own_document():
    config = dataclasses.replace(SHALLOW, discriminator_head="cls_context")
    params = odd.weights(config)
    assert "discriminator/head/norm/scale" in odd.flat(params)
    batch = odd.batch()
    hidden_BLD, logits_BL = networks.discriminator_outputs(config, params, batch)
    head = jax.tree.map(np.asarray, params["discriminator"]["head"])
    #                  [CLS] of each token's document in the first row, padding left out
    for token, cls in enumerate([0, 0, 0, 0, 0, 0, 0, 7, 7, 7]):
        heard_D = np.asarray(hidden_BLD[0, token] + hidden_BLD[0, cls])
        heard_D = (heard_D - heard_D.mean()) / np.sqrt(heard_D.var() + 1e-12)
        heard_D = heard_D * head["norm"]["scale"] + head["norm"]["bias"]
        scored_D = np.asarray(
            jax.nn.gelu(
                heard_D @ head["dense"]["kernel"] + head["dense"]["bias"], approximate=False
            )
        )
        expected = scored_D @ head["output"]["kernel"][:, 0] + head["output"]["bias"][0]
        assert float(logits_BL[0, token]) == pytest.approx(float(expected), abs=1e-4)


def test_score_is_predict_and_sample_without_the_draw():
    draw = np.random.default_rng(0)
    vectors_BNE = jnp.asarray(draw.standard_normal((2, 3, 4)), jnp.float32)
    table_VE = jnp.asarray(draw.standard_normal((256, 4)), jnp.float32)
    bias_V, targets_BN = jnp.zeros(256), jnp.asarray(draw.integers(0, 200, (2, 3)))
    row_keys = jax.random.split(KEY, 2)
    predicted = vocabulary_softmax.predict_and_sample(
        table_VE, bias_V, jnp.float32(1), vectors_BNE, targets_BN, row_keys, size=200,
        forbidden_ids=(),
    )  # fmt: skip
    losses_BN, hits_BN = vocabulary_softmax.score(
        table_VE, bias_V, vectors_BNE, targets_BN, size=200
    )
    np.testing.assert_array_equal(losses_BN, predicted.losses_BN)
    np.testing.assert_array_equal(hits_BN, predicted.hits_BN)
