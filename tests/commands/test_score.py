# SPDX-License-Identifier: Apache-2.0
"""Sentences are scored as the pages say, whatever shares their batch."""

import dataclasses
import json
import math
import re
import subprocess
import sys

import jax
import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver
from jax import numpy as jnp

import electra_jax
from electra_jax import config as config_lib
from electra_jax import score as score_command
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
from support.corpus import ROOT, small_run, write_corpus

CONFIG = dataclasses.replace(odd.NETWORKS, max_positions=40)


class Words:
    """A vocabulary whose words are the numbers 5 to 36."""

    pad_id, cls_id, sep_id, mask_id = odd.PAD, odd.CLS, odd.SEP, odd.MASK
    special_ids = (odd.PAD, odd.CLS, odd.SEP, odd.MASK)

    def encode(self, lines):
        return [np.array([int(word) for word in line.split()], np.uint32) for line in lines]


TEXTS = ["5 6 7", "8 9", "10 11 12 13 14 15"]
LONG = " ".join(["the cat sees a letter in the morning"] * 6)


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


def test_a_masked_lm_masks_each_word_in_turn():
    objective, params = made(masked_lm.MaskedLM)
    found = list(scorer(objective, params).of_tokens(TEXTS))
    token_VE, bias_V = networks.predictor_table(CONFIG, params)
    for text, scores_N in zip(TEXTS, found):
        expected = []
        for place in range(1, len(text.split()) + 1):

            def masked(ids, place=place):
                return np.where(np.arange(len(ids)) == place, odd.MASK, ids)

            ids, batch = alone(objective, params, text, masked)
            vector_E = networks.predictor_vectors(CONFIG, params, batch, jnp.array([[place]]))[0, 0]
            logits_V = (token_VE @ vector_E + bias_V)[:37]
            expected.append(float(jax.nn.log_softmax(logits_V)[ids[place]]))
        assert scores_N.tolist() == pytest.approx(expected, abs=1e-4)


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


def test_the_generator_masks_each_word_in_turn_at_the_temperature_of_the_run():
    objective, params = made(odd.replaced_token_detection.ReplacedTokenDetection)
    fallen = {"temperature": 0.5, "first_temperature": 2.0, "temperature_decay": 0.01}
    objective = dataclasses.replace(objective, **fallen)
    found = list(scorer(objective, params, by="generator").of_tokens(TEXTS))
    token_VE, bias_V = networks.generator_table(CONFIG, params)
    for text, scores_N in zip(TEXTS, found):
        expected = []
        for place in range(1, len(text.split()) + 1):

            def masked(ids, place=place):
                return np.where(np.arange(len(ids)) == place, odd.MASK, ids)

            ids, batch = alone(objective, params, text, masked)
            vector_E = networks.generator_vectors(CONFIG, params, batch, jnp.array([[place]]))[0, 0]
            logits_V = (token_VE @ vector_E + bias_V)[:37] / 0.5
            expected.append(float(jax.nn.log_softmax(logits_V)[ids[place]]))
        assert scores_N.tolist() == pytest.approx(expected, abs=1e-4)


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
            scorer(objective, params, by=by).way  # noqa: B018


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
        scorer(Silent(), {}).scores(TEXTS)


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


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(configuration, workdir) of a run of two steps, whose rows hold 32 tokens.

    Of its 64 positions half are still as they were drawn.
    """
    base = tmp_path_factory.mktemp("trained")
    corpus = write_corpus(base / "corpus.txt")
    source, data = f"text:{corpus}", str(base / "data")
    config = small_run(source, data, schedule__steps=2, model__max_positions=64)
    electra_jax.train(config, base / "run")
    return config_lib.parse(config), base / "run"


def test_the_command_scores_pairs_of_a_trained_run(trained, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("the cat sees a letter.\tletter the a sees cat.\n\na bird.\tbird a.\n")
    done = subprocess.run(
        [
            sys.executable, "-m", "electra_jax.score", f"--workdir={trained[1]}",
            f"--input={pairs}", "--first_is_right", "--json",
        ],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert [len(row["scores"]) for row in found["rows"]] == [2, 2]
    assert [row["line"] for row in found["rows"]] == [1, 3], "the second line is empty"
    assert found["first_wins"] == np.mean([row["best"] == 0 for row in found["rows"]])
    assert all(score < 0 for row in found["rows"] for score in row["scores"])


def test_a_reader_of_scores_that_has_seen_enough_is_no_error(trained, tmp_path):
    path = tmp_path / "sentences.txt"
    path.write_text("a bird.\n" * 8000)  # 160 kB of output, more than a pipe holds
    line = (
        f"{sys.executable} -m electra_jax.score --workdir={trained[1]} --input={path} | head -n 1;"
        " exit ${PIPESTATUS[0]}"
    )
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr and done.stdout.endswith("a bird.\n")


def score(trained, path, **values):
    """Calls the command in this process."""
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    with flagsaver.flagsaver(input=str(path), **values):
        score_command.main(trained[0], str(trained[1]))


def test_a_score_that_is_no_number_is_null_in_json(capsys):
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    with flagsaver.flagsaver(first_is_right=True):
        line = score_command._Line(3, ["a", "b"], [math.nan, 1.0], None)
        score_command._print_json([line], [], "")
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found == {
        "rows": [{"line": 3, "texts": ["a", "b"], "scores": [None, 1.0], "best": None}],
        "first_wins": 0.0,
    }


def test_by_both_networks_each_token_has_its_probability(trained, tmp_path, capsys):
    (tmp_path / "sentences.txt").write_text("a bird.\n")
    score(trained, tmp_path / "sentences.txt", tokens=True, json=True, by="both")
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    p_N = np.array([token["p"] for token in row["tokens"][0]])
    assert row["scores"] == [pytest.approx(np.log(p_N).sum(), abs=1e-4)]

    score(trained, tmp_path / "sentences.txt", tokens=True, by="both")
    key, *_, percentages, _ = capsys.readouterr().out.splitlines()
    assert key == "%: probability that the token stands there"
    assert percentages.startswith("probability ") and "!" not in percentages

    with pytest.raises(ValueError, match="cannot score by correction; it can by detection, gen"):
        score(trained, tmp_path / "sentences.txt", by="correction")


def test_a_notebook_scores_as_the_command_does(trained, tmp_path, capsys):
    texts = ["a bird.", "the cat sees a letter."]
    (tmp_path / "sentences.txt").write_text("\n".join(texts))
    scores = electra_jax.load_scorer(trained[1], by="both")
    for by, ask in (("both", scores), ("detection", electra_jax.load_scorer(trained[1]))):
        score(trained, tmp_path / "sentences.txt", tokens=True, json=True, by=by)
        rows = json.loads(capsys.readouterr().out)["rows"]
        assert ask(texts).tolist() == [row["scores"][0] for row in rows]
        told = json.loads(json.dumps(ask.tokens(iter(texts))))
        assert told == [row["tokens"][0] for row in rows]

    with pytest.raises(ValueError, match="texts"):
        scores("a bird.")
    with pytest.raises(ValueError, match="more than the 30 that fit.*in Python truncate=True$"):
        scores([LONG])
    assert scores([LONG], truncate=True).shape == (1,)
    assert len(scores.tokens([LONG], truncate=True)[0]) == 30


def test_a_notebook_is_told_at_once_what_cannot_be_asked(trained, tmp_path):
    with pytest.raises(ValueError, match="cannot score by correction; it can by detection, gen"):
        electra_jax.load_scorer(trained[1], by="correction")
    with pytest.raises(config_lib.ConfigError, match=r"has no config.json; give that of a run"):
        electra_jax.load_scorer(tmp_path)
    with pytest.raises(config_lib.ConfigError, match=r"no checkpoint of step 1 .*; there are 2$"):
        electra_jax.load_scorer(trained[1], step=1)


def test_a_second_question_compiles_nothing(trained):
    scores = electra_jax.load_scorer(trained[1])
    first = scores(["a bird."])
    ((_, program),) = scores.scorer._programs
    assert program._cache_size() == 1
    assert scores(["a bird."]).tolist() == first.tolist() and program._cache_size() == 1


def test_tokens_follow_their_sentence_in_80_columns(trained, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = "a cat sees a letter in the morning"
    (tmp_path / "sentences.txt").write_text(f"{text}\ta bird.\n")
    score(trained, tmp_path / "sentences.txt", tokens=True)
    key, empty, first, *rest = capsys.readouterr().out.splitlines()
    assert key == "! more likely replaced than not   %: belief that it was replaced"
    assert empty == "" and first.endswith(f"  {text}")
    assert rest[0] == "" and rest[1].startswith("tokens         a  ")
    assert re.fullmatch(r"discriminator( +!?\d+%)+", rest[2])
    assert sum(line.endswith(" a bird.") for line in rest) == 1
    assert 70 < max(map(len, rest)) <= 80 and rest[-1] == ""


def test_tokens_have_their_characters_and_a_probability_in_json(trained, tmp_path, capsys):
    text = f"a cat  sees {LONG}"
    (tmp_path / "sentences.txt").write_text(text)
    score(trained, tmp_path / "sentences.txt", tokens=True, json=True, long="truncate")
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    (tokens,) = row["tokens"]
    assert len(tokens) == 30, "those that fit a row"
    assert [token["text"] for token in tokens] == [text[slice(*x["span"])] for x in tokens]
    assert tokens[0]["piece"] == "▁a" and tokens[0]["span"] == [0, 1]
    left_N = 1 - np.array([token["p_replaced"] for token in tokens])
    assert row["scores"] == [pytest.approx(np.log(left_N).sum(), abs=1e-4)]


def test_a_probability_that_is_no_number_is_null_in_json():
    token = scoring.Token("a", True, "a", (0, 1), p=math.inf)
    assert score_command._plain([token]) == [{"text": "a", "piece": "a", "span": (0, 1), "p": None}]


@pytest.mark.usefixtures("second_process")
def test_of_several_processes_the_first_one_scores(trained, tmp_path, capsys):
    (tmp_path / "sentences.txt").write_text("a bird.\n")
    score(trained, tmp_path / "sentences.txt")
    assert capsys.readouterr().out == ""


def test_a_long_sentence_is_refused_with_its_line_cut_or_left_out(trained, tmp_path, capsys):
    path = tmp_path / "sentences.txt"
    path.write_text(f"\ufeffa bird.\n\na dog.\t{LONG}\n{LONG}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"sentences.txt:3 has \d+ tokens, more than the 30 that"):
        score(trained, path)

    score(trained, path, long="truncate", json=True)
    found = json.loads(capsys.readouterr().out)
    assert [row["line"] for row in found["rows"]] == [1, 3, 4]
    assert found["truncated_lines"] == [3, 4]
    assert found["rows"][0]["texts"] == ["a bird."], "a byte-order mark is no text"
    first = found["rows"][0]["scores"]

    score(trained, path, long="skip", json=True)
    found = json.loads(capsys.readouterr().out)
    assert [row["line"] for row in found["rows"]] == [1] and found["skipped_lines"] == [3, 4]
    assert found["rows"][0]["scores"] == pytest.approx(first, abs=1e-4)

    score(trained, path, long="skip")
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 1
    assert said.err.strip().endswith("2 lines with more than 30 tokens were skipped: 3, 4")

    path.write_text(f"{LONG}\n")
    with pytest.raises(config_lib.ConfigError, match="every line has more than the 30 tokens"):
        score(trained, path, long="skip")
