# SPDX-License-Identifier: Apache-2.0
"""Sentences are scored as `scoring.py` says, whatever shares their batch."""

import dataclasses

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from electra_jax.model import networks
from electra_jax.objectives import (
    all_tokens_mlm,
    corrective_lm,
    electric,
    fixed_generator,
    masked_lm,
    masked_token_detection,
    multi_word_selection,
    replace_mlm,
    scoring,
)
from support import odd

CONFIG = dataclasses.replace(odd.NETWORKS, max_positions=40)


class Words:
    """A vocabulary whose words are the numbers 5 to 36."""

    pad_id, cls_id, sep_id, mask_id = odd.PAD, odd.CLS, odd.SEP, odd.MASK
    special_ids = (odd.PAD, odd.CLS, odd.SEP, odd.MASK)

    def encode(self, lines):
        return [np.array([int(word) for word in line.split()], np.uint32) for line in lines]


TEXTS = ["5 6 7", "8 9", "10 11 12 13 14 15"]


def made(kind):
    objective = odd.objective(kind, networks=CONFIG)
    return objective, odd.random_like(jax.eval_shape(objective.init, jax.random.key(0)))


def scorer(objective, params, limit=40, by=None):
    return scoring.Scorer(objective, params, Words(), limit, by)


def alone(objective, params, text, see=lambda ids: ids):
    """(ids of a row, what a function of the networks gives for it)."""
    ids = np.concatenate([[odd.CLS], Words().encode([text])[0], [odd.SEP]]).astype(int)
    marks = np.zeros_like(ids)
    marks[0] = odd.D
    return ids, odd.batch(see(ids)[None], marks[None])


def test_a_judge_adds_up_the_chances_of_being_original():
    objective, params = made(odd.replaced_token_detection.ReplacedTokenDetection)
    found = list(scorer(objective, params).scores(TEXTS))
    for text, score in zip(TEXTS, found):
        _, batch = alone(objective, params, text)
        logits_L = np.asarray(networks.discriminate(CONFIG, params, batch))[0, 1:-1]
        assert score == pytest.approx(np.log(1 / (1 + np.exp(logits_L))).sum(), abs=1e-4)


def test_electric_adds_up_minus_the_energies():
    objective, params = made(electric.Electric)
    found = list(scorer(objective, params).scores(TEXTS))
    for text, score in zip(TEXTS, found):
        _, batch = alone(objective, params, text)
        energies_L = np.asarray(networks.discriminate(CONFIG, params, batch))[0, 1:-1]
        assert score == pytest.approx(-energies_L.sum(), abs=1e-4)


def each_masked_in_turn(objective, params, text, vectors, table, temperature=1.0):
    """log p of each word from a network that sees all others: by eye, a row a word."""
    token_VE, bias_V = table(CONFIG, params)
    expected = []
    for place in range(1, len(text.split()) + 1):

        def masked(ids, place=place):
            return np.where(np.arange(len(ids)) == place, odd.MASK, ids)

        ids, batch = alone(objective, params, text, masked)
        vector_E = vectors(CONFIG, params, batch, jnp.array([[place]]))[0, 0]
        logits_V = (token_VE @ vector_E + bias_V)[:37] / temperature
        expected.append(float(jax.nn.log_softmax(logits_V)[ids[place]]))
    return pytest.approx(expected, abs=1e-4)


def test_a_masked_lm_masks_each_word_in_turn():
    objective, params = made(masked_lm.MaskedLM)
    asked = networks.predictor_vectors, networks.predictor_table
    for text, scores_N in zip(TEXTS, scorer(objective, params).of_tokens(TEXTS)):
        assert scores_N.tolist() == each_masked_in_turn(objective, params, text, *asked)


@pytest.mark.parametrize("kind", [replace_mlm.ReplaceMLM, all_tokens_mlm.AllTokensMLM])
def test_who_predicts_from_replaced_words_is_asked_for_what_stands_there(kind):
    objective, params = made(kind)
    found = list(scorer(objective, params).scores(TEXTS))
    token_VE, bias_V = networks.predictor_table(CONFIG, params)
    for text, score in zip(TEXTS, found):
        ids, batch = alone(objective, params, text)
        vectors_LE = networks.predictor_vectors(CONFIG, params, batch, jnp.arange(len(ids))[None])[
            0
        ]
        logits_LV = (vectors_LE @ token_VE.T + bias_V)[:, :37]
        chances_L = np.asarray(jax.nn.softmax(logits_LV))[np.arange(len(ids)), ids]
        if kind is all_tokens_mlm.AllTokensMLM:  # p = D + (1 - D) softmax of the token it sees
            gate = params["discriminator"]["copy"]
            copied_L = 1 / (1 + np.exp(-(vectors_LE @ gate["kernel"] + gate["bias"])[:, 0]))
            chances_L = copied_L + (1 - copied_L) * chances_L
        assert score == pytest.approx(np.log(chances_L[1:-1]).sum(), abs=1e-4)


def test_the_generator_masks_each_word_in_turn_at_the_last_temperature_of_the_run():
    objective, params = made(odd.replaced_token_detection.ReplacedTokenDetection)
    objective = dataclasses.replace(objective, temperature=0.5, first_temperature=2.0)
    last = float(objective.knobs(1.0)["temperature"])
    assert 0.5 < last < 0.51
    asked = networks.generator_vectors, networks.generator_table, last
    found = scorer(objective, params, by="generator").of_tokens(TEXTS)
    for text, scores_N in zip(TEXTS, found):
        assert scores_N.tolist() == each_masked_in_turn(objective, params, text, *asked)


def test_the_towers_of_electric_are_asked_for_the_noise_that_they_write():
    objective, params = made(electric.Electric)
    found = list(scorer(objective, params, by="generator").of_tokens(TEXTS))
    token_VE, bias_V = networks.generator_table(CONFIG, params)
    for text, scores_N in zip(TEXTS, found):
        ids, batch = alone(objective, params, text)
        logits_LV = np.array(networks.towers(CONFIG, params, batch)[0] @ token_VE.T + bias_V)
        logits_LV[:, [*Words.special_ids, *range(37, logits_LV.shape[1])]] = -np.inf
        expected_L = np.asarray(jax.nn.log_softmax(logits_LV))[np.arange(len(ids)), ids]
        assert scores_N.tolist() == pytest.approx(expected_L[1:-1].tolist(), abs=1e-4)


def test_who_also_corrects_is_asked_for_what_stands_there():
    objective, params = made(corrective_lm.CorrectiveLM)
    found = list(scorer(objective, params, by="correction").scores(TEXTS))
    token_VE, bias_V = networks.correction_table(CONFIG, params)
    for text, score in zip(TEXTS, found):
        ids, batch = alone(objective, params, text)
        hidden_1LD, _ = networks.discriminator_outputs(CONFIG, params, batch)
        vectors_LE = networks.correction_vectors(CONFIG, params, hidden_1LD)[0]
        logits_LV = (vectors_LE @ token_VE.T + bias_V)[:, :37]
        chances_L = np.asarray(jax.nn.log_softmax(logits_LV))[np.arange(len(ids)), ids]
        assert score == pytest.approx(chances_L[1:-1].sum(), abs=1e-4)


def test_two_ideal_networks_together_know_the_language():
    """A language of one word among three, a generator with other frequencies, and the discriminator
    that knows how often each word was written by whom: p comes back exactly."""
    p_3, g_3, filled = np.array([0.7, 0.25, 0.05]), np.array([0.2, 0.2, 0.6]), 0.15
    original_3 = np.zeros(3)
    replaced_3 = np.zeros(3)
    for word in range(3):
        original_3[word] += p_3[word] * (1 - filled)
        for written in range(3):
            side = original_3 if written == word else replaced_3
            side[written] += p_3[word] * filled * g_3[written]
    assert (original_3 + replaced_3).sum() == pytest.approx(1)

    says_3 = np.log(original_3 / (original_3 + replaced_3))
    found_3 = scoring.by_bayes(says_3, np.log(g_3), filled=filled)
    np.testing.assert_allclose(np.exp(found_3), p_3, rtol=1e-12)


def test_certainty_of_either_network_gives_a_score_that_is_a_number():
    certain = np.array([0.0, -1e-42, -100.0])  # surely original, twice, and surely not
    found = scoring.by_bayes(certain, np.array([-100.0, 0.0, 0.0]), filled=0.15)
    assert np.isfinite(found).all() and (found <= 0).all()
    assert found[2] == pytest.approx(-100 + np.log(0.15), abs=1e-3)


def test_where_all_places_are_filled_the_odds_are_those_of_the_word_itself():
    """As with `masked_token_detection` and a mask token in each of its slots."""
    says_N = np.log([0.9, 0.5, 0.1])
    for written in (-1.0, -30.0, -100.0):
        found_N = scoring.by_bayes(says_N, np.full(3, written), filled=1.0)
        np.testing.assert_allclose(found_N, says_N, rtol=1e-12)


@pytest.mark.parametrize(
    ("kind", "filled"),
    [
        (odd.replaced_token_detection.ReplacedTokenDetection, 0.3 * 0.8),
        (masked_token_detection.MaskedTokenDetection, 0.8),  # it judges the chosen slots alone
    ],
)
def test_both_networks_are_asked_about_the_same_tokens(kind, filled):
    objective, params = made(kind)
    shown = {"mask_token_rate": 0.6, "random_token_rate": 0.2}
    objective = dataclasses.replace(objective, mask_rate=0.3, first_mask_rate=0.9, **shown)
    parts = [
        scorer(objective, params, by=by).of_tokens(TEXTS)
        for by in ("detection", "generator", "both")
    ]
    for original_N, written_N, both_N in zip(*parts, strict=True):
        expected_N = scoring.by_bayes(original_N, written_N, filled=filled)
        np.testing.assert_allclose(both_N, expected_N, rtol=1e-6)


ALL = ("detection", "generator", "both")


@pytest.mark.parametrize(
    ("kind", "changes", "expected"),
    [
        (odd.replaced_token_detection.ReplacedTokenDetection, {}, ALL),
        (multi_word_selection.MultiWordSelection, {}, ALL),
        (corrective_lm.CorrectiveLM, {}, ("detection", "correction", "generator", "both")),
        # Where a sample is never the original, the odds mean something else.
        (corrective_lm.CorrectiveLM, {"disallow_correct": True},
         ("detection", "correction", "generator")),
        # Where it sees what it fills in, it says nothing of a token that it does not see.
        (corrective_lm.CorrectiveLM, {"mask_token_rate": 0.0, "random_token_rate": 0.0},
         ("detection", "correction", "generator")),
        (electric.Electric, {}, ("prediction", "generator")),
        (replace_mlm.ReplaceMLM, {}, ("prediction", "generator")),
        (masked_lm.MaskedLM, {}, ("prediction",)),
        (fixed_generator.FixedGenerator, {}, ("detection",)),
    ],
)  # fmt: skip
def test_a_run_scores_in_the_ways_that_its_networks_have(kind, changes, expected):
    objective = dataclasses.replace(odd.objective(kind, networks=CONFIG), **changes)
    params = jax.eval_shape(objective.init, jax.random.key(0))
    assert scoring.ways(objective, params) == expected
    assert scorer(objective, params).way == expected[0]
    for by in set(scoring.WAYS) - set(expected):
        says = f"cannot score by {by}; it can by {', '.join(expected)}"
        with pytest.raises(ValueError, match=says):
            scorer(objective, params, by=by)


def test_weights_without_their_generator_are_asked_for_detection_alone():
    objective, params = made(odd.replaced_token_detection.ReplacedTokenDetection)
    del params["generator"]
    assert scoring.ways(objective, params) == ("detection",)


def test_a_judge_says_of_each_token_how_likely_it_was_replaced():
    objective, params = made(odd.replaced_token_detection.ReplacedTokenDetection)
    found = list(scorer(objective, params).of_tokens(TEXTS))
    for text, scores_N in zip(TEXTS, found):
        _, batch = alone(objective, params, text)
        logits_N = np.asarray(networks.discriminate(CONFIG, params, batch))[0, 1:-1]
        ((name, p_N),) = scoring.probabilities("detection", scores_N).items()
        assert name == "p_replaced"
        np.testing.assert_allclose(p_N, 1 / (1 + np.exp(-logits_N)), atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (odd.replaced_token_detection.ReplacedTokenDetection, "p_replaced"),
        (masked_token_detection.MaskedTokenDetection, "p_replaced"),
        (electric.Electric, "p"),
        (all_tokens_mlm.AllTokensMLM, "p"),
        (masked_lm.MaskedLM, "p"),
    ],
)
def test_a_score_is_the_sum_over_what_is_said_of_the_tokens(kind, name):
    objective, params = made(kind)
    (score,) = scorer(objective, params).scores(TEXTS[:1])
    (scores_N,) = scorer(objective, params).of_tokens(TEXTS[:1])
    said = scoring.probabilities(scorer(objective, params).way, scores_N)
    assert list(said) == [name] and said[name].shape == (3,)
    p_N = 1 - said[name] if name == "p_replaced" else said[name]
    assert score == pytest.approx(np.log(p_N).sum(), abs=1e-4)


def test_a_run_with_an_accelerators_kernel_scores_rows_of_any_length():
    """The kernel wants rows of 128 tokens or more, and none of a CPU at all."""
    objective, params = made(odd.replaced_token_detection.ReplacedTokenDetection)
    main = dataclasses.replace(CONFIG.discriminator, attention="splash")
    theirs = dataclasses.replace(
        objective, networks=dataclasses.replace(CONFIG, discriminator=main)
    )
    expected = list(scorer(objective, params).scores(TEXTS))
    assert list(scorer(theirs, params).scores(TEXTS)) == expected


def test_what_cannot_score_says_so():
    class Silent:
        """An objective that gives no scores, as `Objective` has it."""

        token_scores = masked_scores = correction_scores = generator_scores = None

    with pytest.raises(ValueError, match="a run of Silent cannot score: it has neither"):
        scorer(Silent(), {})


def test_sentences_that_do_not_fit_are_named():
    objective, params = made(electric.Electric)
    with pytest.raises(ValueError, match="sentence 2 has 3 tokens, more than the 2 that fit"):
        scorer(objective, params, limit=4).scores(["5 6", "7 8 9"])
    with pytest.raises(ValueError, match="sentence 1 has no words"):
        scorer(objective, params, limit=4).scores([""])
    with pytest.raises(ValueError, match="b.txt:9 has 3 tokens, more than the 2 that fit"):
        scorer(objective, params, limit=4).scores(["5 6", "7 8 9"], ["b.txt:7", "b.txt:9"])


def test_a_truncated_sentence_has_the_score_of_its_beginning():
    objective, params = made(electric.Electric)
    cut = scorer(objective, params, limit=5).scores(["5 6 7 8", "9 10"], truncate=True)
    assert list(cut) == list(scorer(objective, params, limit=5).scores(["5 6 7", "9 10"]))


@pytest.mark.parametrize("kind", [electric.Electric, masked_lm.MaskedLM])
def test_what_is_scored_in_blocks_has_the_same_scores_in_the_same_order(kind, monkeypatch):
    objective, params = made(kind)
    texts = TEXTS * 3
    whole = list(scorer(objective, params).scores(texts))
    monkeypatch.setattr(scoring, "_BLOCK", 2)
    assert list(scorer(objective, params).scores(texts)) == pytest.approx(whole)


def test_weights_are_given_to_the_program_and_not_compiled_into_it(monkeypatch):
    objective, params = made(electric.Electric)
    real, seen = scoring._scores, []

    def noted(objective, params, *more):
        seen.extend(jax.tree.leaves(params))
        return real(objective, params, *more)

    monkeypatch.setattr(scoring, "_scores", noted)
    list(scorer(objective, params).scores(TEXTS))
    assert seen and all(isinstance(leaf, jax.core.Tracer) for leaf in seen)


def test_nothing_is_scored_before_it_is_asked_for(monkeypatch):
    """What is printed first waits for the first block alone."""
    monkeypatch.setattr(scoring, "_BLOCK", 2)
    objective, params = made(electric.Electric)
    asked = []

    class Counting(Words):
        def encode(self, lines):
            asked.append(list(lines))
            return super().encode(lines)

    found = scoring.Scorer(objective, params, Counting(), 40).scores(TEXTS)
    assert asked == [TEXTS[:2], TEXTS[2:]], "their lengths"
    next(found)
    assert asked[2:] == [TEXTS[:2]]
    list(found)
    assert asked[3:] == [TEXTS[2:]]


def test_the_best_of_each_group_is_its_highest_score():
    assert scoring.preferred([[-3.0, -2.0], [-1.0, -0.5, -5.0], [0.5]]) == [1, 1, 0]


def test_nothing_is_preferred_among_equals_or_where_a_score_is_no_number():
    nan = float("nan")
    groups = [
        [-1.0, -1.0],
        [nan, -2.0],
        [-2.0, nan],
        [nan, nan],
        [-1.0, -1.0, 0.0],
        [-1.0, 0.0, 0.0],
    ]
    assert scoring.preferred(groups) == [None, None, None, None, 2, None]
