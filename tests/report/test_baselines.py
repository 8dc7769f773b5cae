# SPDX-License-Identifier: Apache-2.0
"""Each metric is held against a guesser that was asked about the same tokens."""

import dataclasses

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from electra_jax.checks import tiny_networks
from electra_jax.core import meshes, metrics, sharding, streams
from electra_jax.objectives import (
    all_tokens_mlm,
    corrective_lm,
    electric,
    fixed_generator,
    masked_lm,
    masked_token_detection,
    measuring,
    multi_word_selection,
    replace_mlm,
    replaced_token_detection,
    unigram_probe,
)
from electra_jax.report import alarms, baselines, console_lines
from electra_jax.step import evaluation
from support import odd

WEIGHTS_V = jnp.arange(128.0) * (jnp.arange(128) < odd.NETWORKS.vocab_size)
SHALLOW = dataclasses.replace(
    odd.NETWORKS,
    generator=dataclasses.replace(odd.NETWORKS.generator, layers=1),
    discriminator=dataclasses.replace(odd.NETWORKS.discriminator, layers=1),
)
JUDGES = {
    "replaced_token_detection": (replaced_token_detection.ReplacedTokenDetection, {}),
    "masked_token_detection": (masked_token_detection.MaskedTokenDetection, {}),
    "multi_word_selection": (multi_word_selection.MultiWordSelection, {}),
    "corrective_lm": (corrective_lm.CorrectiveLM, {}),
    "electric": (electric.Electric, {}),
    "unigram_generator": (fixed_generator.FixedGenerator, {"weights_V": WEIGHTS_V}),
}


def params_of(objective):
    return odd.random_like(jax.eval_shape(objective.init, jax.random.key(0)))


def one_answer(params, logit):
    """A discriminator that says the same of every token."""
    head = params["discriminator"]["head"]
    output = {"kernel": 0 * head["output"]["kernel"], "bias": jnp.full(1, logit)}
    own = params["discriminator"] | {"head": head | {"output": output}}
    return params | {"discriminator": own}


def evaluated(objective, params, batch):
    key = jax.random.key(evaluation.SEED)
    keys = streams.keys(key, 0, batch.row_B, dropout=False)
    probe = unigram_probe.of(key, batch.row_B, WEIGHTS_V)
    return objective.evaluate(params, batch, keys, objective.knobs(1.0), probe)


def test_a_network_that_scores_alike_all_that_is_offered_is_at_the_baseline_of_its_loss():
    kind, settings = JUDGES["multi_word_selection"]
    objective = odd.objective(kind, networks=SHALLOW, **settings)
    params = params_of(objective)
    level = jax.tree.map(jnp.zeros_like, params["discriminator"]["selection"])
    params |= {"discriminator": params["discriminator"] | {"selection": level}}

    sums = odd.jit(lambda params: evaluated(objective, params, odd.batch()))(params)
    values = metrics.compute(jax.device_get(sums))
    line = baselines.of("selection_loss", values)
    assert line.margin(values["selection_loss"]) == pytest.approx(0, abs=1e-6)
    assert baselines.of("selection_accuracy", values).value == pytest.approx(0.25)  # of four


@pytest.mark.parametrize("name", JUDGES)
def test_one_answer_to_every_token_is_at_its_baseline_exactly(name):
    """Over whatever the objective judges: all tokens, the chosen slots, the words."""
    kind, settings = JUDGES[name]
    objective = odd.objective(kind, networks=SHALLOW, **settings)
    # So many slots that some draws hit the original.
    batch = odd.batch(np.tile(odd.IDS_BL, (20, 1)), np.tile(odd.MARKS_BL, (20, 1)))
    params = params_of(objective)

    @odd.jit
    def sums(logit):
        return evaluated(objective, one_answer(params, logit), batch)

    original, replaced = (metrics.compute(jax.device_get(sums(logit))) for logit in (-1e4, 1e4))
    for values in (original, replaced):
        chance = baselines.of("disc_recall_at_2", values).value
        assert values["disc_recall_at_2"] == pytest.approx(chance, abs=1e-6)

    majority = original["disc_majority"]
    assert 0 < majority < 1 and majority == replaced["disc_majority"]
    assert original["disc_accuracy"] == majority
    assert replaced["disc_accuracy"] == pytest.approx(1 - majority)
    better = original if majority > 0.5 else replaced
    line = baselines.of("disc_accuracy", better)
    assert line.margin(better["disc_accuracy"]) == pytest.approx(0)
    assert "accuracy equal to always saying" in baselines.verdict(better)

    if name != "electric":  # whose logit holds log q too
        best = metrics.compute(jax.device_get(sums(np.log((1 - majority) / majority))))
        assert baselines.of("disc_loss", best).margin(best["disc_loss"]) == pytest.approx(
            0, abs=1e-6
        )


def judged_slots(sure):
    """Metrics where 15 of 100 tokens are chosen, 12 of them replaced, each found by `sure`."""
    replaced, judged = np.arange(100) < 12, np.arange(100) < 15
    logits = jnp.asarray(np.where(replaced, sure, -sure) + np.log(12 / 3), jnp.float32)
    losses = jax.nn.softplus(jnp.where(replaced, -logits, logits))
    sums = measuring.discriminator_sums(*map(jnp.asarray, (losses, logits, replaced, judged)))
    rates = {"replaced_rate": metrics.pair(jnp.asarray(replaced), jnp.ones(100))}
    return metrics.compute(jax.device_get(sums | rates))


def test_the_collapse_of_electra_15_raises_the_alarm():
    """0.500 nats is what one guess gets where 12 of 15 judged tokens are replaced."""
    learnt, lost = judged_slots(1.0), judged_slots(-0.5)
    assert baselines.of("disc_loss", learnt).value == pytest.approx(0.500402, abs=1e-5)
    assert learnt["disc_loss"] < 0.4 and lost["disc_loss"] > 0.6
    rows = [
        {"step": step, "kind": "eval"} | values
        for step, values in enumerate([learnt, lost, lost, lost])
    ]
    assert [(alarm.step, alarm.name) for alarm in alarms.alarms(rows)] == [
        (3, "discriminator_collapse")
    ]


def test_easy_samples_are_no_praise():
    """Before the generator has learnt anything its samples are easy to tell."""
    row = {"unigram_entropy": 6.0, "disc_auc": 0.76, "disc_auc_unigram": 0.53}
    early, later = (baselines.verdict(row | {"gen_masked_loss": loss}) for loss in (6.8, 4.3))
    assert early == (
        "Generator 0.80 nats above the unigram line; discriminator AUC 0.76 on its easy samples"
        " and 0.53 on tokens drawn by frequency."
    )
    assert later == "Generator 1.70 nats below the unigram line; discriminator AUC 0.76."


def test_where_most_are_replaced_the_guesser_says_replaced():
    values = {"disc_accuracy": 0.75, "disc_majority": 0.2}
    assert baselines.of("disc_accuracy", values).value == 0.8
    assert 'accuracy 5.0 points below always saying "replaced"' in baselines.verdict(values)
    assert 'always "replaced"' in console_lines.evaluation_table(1, 2, values)


def test_a_main_network_that_is_shown_no_mask_has_no_line_of_word_frequencies():
    """Its slots are those where the generator was wrong, which hold rarer words."""
    masked = {"mlm_masked_loss": 5.0, "unigram_entropy": 6.0}
    assert baselines.of("mlm_masked_loss", masked).value == 6.0
    replaced = masked | {"gen_masked_loss": 4.0}
    assert baselines.of("mlm_masked_loss", replaced) is None
    assert baselines.of("gen_masked_loss", replaced).value == 6.0
    assert "main network" not in baselines.verdict(replaced)


@pytest.mark.parametrize(
    ("kind", "shown_mask"),
    [
        (masked_lm.MaskedLM, True),
        (replace_mlm.ReplaceMLM, False),
        (all_tokens_mlm.AllTokensMLM, False),
    ],
)
def test_which_objectives_have_that_line_follows_from_their_metrics(kind, shown_mask):
    objective = odd.objective(kind, networks=SHALLOW)
    shapes = jax.eval_shape(lambda: evaluated(objective, params_of(objective), odd.batch()))
    row = dict.fromkeys(shapes, 1.0) | {"unigram_entropy": 6.0}
    assert (baselines.of("mlm_masked_loss", row) is not None) == shown_mask


# Several sources, and the probe


def evaluation_of(objective, params):
    """The metrics of sources as a run has them, on one device."""
    mesh = meshes.make_mesh(1, 1, 1, jax.devices()[:1])
    where = jax.tree.map(lambda _: sharding.replicated(mesh), params)
    weights_V = np.asarray(WEIGHTS_V)[: odd.NETWORKS.vocab_size]
    program = evaluation.compile_evaluate(objective, odd.PAD, weights_V, mesh, where)
    evaluator = evaluation.Evaluator(program, objective, odd.PAD, mesh, batch_size=6)

    def run(sources):
        with tiny_networks.compiling_fast():
            return evaluator.of_sources(params, sources)

    return run


@pytest.fixture(scope="module")
def plain():
    objective = odd.objective(networks=SHALLOW)
    return objective, params_of(objective)


@pytest.fixture(scope="module")
def run(plain):
    return evaluation_of(*plain)


def entropy(ids):
    _, counts = np.unique(ids[ids > odd.MASK], return_counts=True)  # no [UNK] in these rows
    share = counts / counts.sum()
    return -(share * np.log(share)).sum()


@pytest.fixture(scope="module")
def sources():
    """Twelve rows of one source, five of another, which has few words of the first."""
    few = np.where(odd.IDS_BL > odd.MASK, 5 + odd.IDS_BL % 3, odd.IDS_BL)[:5]
    return [
        ("wiki", np.tile(odd.IDS_BL, (2, 1)), np.tile(odd.MARKS_BL, (2, 1))),
        ("books", few, odd.MARKS_BL[:5]),
    ]


def test_no_rows_are_refused_in_one_line_before_anything_is_compiled(sources):
    evaluator = evaluation.Evaluator(None, None, odd.PAD, None, batch_size=6)
    wiki, (_, *books) = sources
    nothing = ("books", *(lane[:0] for lane in books))
    for given, line in (
        ([wiki, nothing], "books has no rows to evaluate; give it more text"),
        ([], "no source has any rows to evaluate"),
    ):
        with pytest.raises(ValueError, match=f"^{line}.*data.heldout_fraction$"):
            evaluator.of_sources(None, given)


def test_each_source_has_the_entropy_of_its_own_rows_and_all_have_that_of_what_is_evaluated(
    run, sources
):
    found = run(sources)
    wiki, books = (ids for _, ids, _ in sources)
    assert found["unigram_entropy/wiki"] == pytest.approx(entropy(wiki))
    assert found["unigram_entropy/books"] == pytest.approx(entropy(books))
    both = np.concatenate([wiki, books])
    assert found["unigram_entropy"] == pytest.approx(entropy(both))
    # The same weighting as that of the losses, where a source counts by its slots.
    for name in ("wiki", "books"):
        for metric in ("gen_masked_loss", "disc_loss"):
            assert baselines.of(f"{metric}/{name}", found) is not None
    assert "unigram_entropy/wiki" not in run(sources[:1])


def test_the_shared_auc_follows_from_no_setting_of_the_run(plain, run, sources):
    """Same weights, other rates, units, slots and temperatures: the same questions."""
    objective, params = plain
    expected = run(sources)
    other = dataclasses.replace(
        objective,
        slots=9,
        mask_rate=0.7,
        first_mask_rate=0.9,
        mask_token_rate=1.0,
        random_token_rate=0.0,
        mask_unit="span",
        temperature=3.0,
        disallow_correct=True,
    )
    found = evaluation_of(other, params)(sources)
    for name in ("disc_auc_unigram", "disc_auc_unigram/wiki", "disc_auc_unigram/books"):
        assert found[name] == expected[name] is not None
    assert found["disc_auc"] != expected["disc_auc"]


def test_the_probe_replaces_15_percent_of_the_tokens_one_by_one():
    length = 40
    ids = np.concatenate([[[odd.CLS]] * 50, np.full((50, length - 1), 7)], 1)
    ids[:25, 30:] = odd.PAD
    batch = odd.batch(ids, odd.D * (np.arange(length) == 0) * np.ones_like(ids))
    probe = unigram_probe.of(jax.random.key(0), batch.row_B, 1.0 * (jnp.arange(128) == 9))
    made = unigram_probe.corrupted(probe, batch, (odd.PAD, odd.CLS))
    drawn = np.asarray(made) == 9
    assert drawn.sum(1).tolist() == [round(0.15 * 30)] * 25 + [6] * 25
    assert (np.asarray(made) == ids)[~drawn].all()
