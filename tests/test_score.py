# SPDX-License-Identifier: Apache-2.0
"""Sentences are scored as the pages say, whatever shares their batch."""

import dataclasses
import json
import subprocess
import sys

import jax
import numpy as np
import odd
import pytest
from corpus import ROOT, small_run, write_corpus
from jax import numpy as jnp

import electra_jax
from electra_jax import scoring
from electra_jax.model import networks
from electra_jax.objectives import all_tokens_mlm, electric, masked_lm, replace_mlm

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


def alone(objective, params, text, see=lambda ids: ids):
    """(ids of a row, what a function of the networks gives for it)."""
    ids = np.concatenate([[odd.CLS], Words().encode([text])[0], [odd.SEP]]).astype(int)
    marks = np.zeros_like(ids)
    marks[0] = odd.D
    return ids, odd.batch(see(ids)[None], marks[None])


def test_a_judge_adds_up_the_chances_of_being_original():
    objective, params = made(odd.replaced_token_detection.ReplacedTokenDetection)
    found = scoring.scores(objective, params, Words(), TEXTS, 40)
    for text, score in zip(TEXTS, found):
        _, batch = alone(objective, params, text)
        logits_L = np.asarray(networks.discriminate(CONFIG, params, batch))[0, 1:-1]
        assert score == pytest.approx(np.log(1 / (1 + np.exp(logits_L))).sum(), abs=1e-4)


def test_electric_adds_up_minus_the_energies():
    objective, params = made(electric.Electric)
    found = scoring.scores(objective, params, Words(), TEXTS, 40)
    for text, score in zip(TEXTS, found):
        _, batch = alone(objective, params, text)
        energies_L = np.asarray(networks.discriminate(CONFIG, params, batch))[0, 1:-1]
        assert score == pytest.approx(-energies_L.sum(), abs=1e-4)


def test_a_masked_lm_masks_each_word_in_turn():
    objective, params = made(masked_lm.MaskedLM)
    found = scoring.scores(objective, params, Words(), TEXTS, 40)
    token_VE, bias_V = networks.predictor_table(CONFIG, params)
    for text, score in zip(TEXTS, found):
        expected = 0.0
        for place in range(1, len(text.split()) + 1):

            def masked(ids, place=place):
                return np.where(np.arange(len(ids)) == place, odd.MASK, ids)

            ids, batch = alone(objective, params, text, masked)
            vector_E = networks.predict(CONFIG, params, batch, jnp.array([[place]]))[0, 0]
            logits_V = (token_VE @ vector_E + bias_V)[:37]
            expected += float(jax.nn.log_softmax(logits_V)[ids[place]])
        assert score == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("kind", [replace_mlm.ReplaceMLM, all_tokens_mlm.AllTokensMLM])
def test_who_predicts_from_replaced_words_is_asked_for_what_stands_there(kind):
    objective, params = made(kind)
    found = scoring.scores(objective, params, Words(), TEXTS, 40)
    token_VE, bias_V = networks.predictor_table(CONFIG, params)
    for text, score in zip(TEXTS, found):
        ids, batch = alone(objective, params, text)
        vectors_LE = networks.predict(CONFIG, params, batch, jnp.arange(len(ids))[None])[0]
        logits_LV = (vectors_LE @ token_VE.T + bias_V)[:, :37]
        chances_L = np.asarray(jax.nn.softmax(logits_LV))[np.arange(len(ids)), ids]
        if kind is all_tokens_mlm.AllTokensMLM:  # p = D + (1 - D) softmax of the token it sees
            gate = params["discriminator"]["copy"]
            copied_L = 1 / (1 + np.exp(-(vectors_LE @ gate["kernel"] + gate["bias"])[:, 0]))
            chances_L = copied_L + (1 - copied_L) * chances_L
        assert score == pytest.approx(np.log(chances_L[1:-1]).sum(), abs=1e-4)


def test_what_cannot_score_says_so():
    class Silent:
        """An objective without the doors that scoring asks at."""

    with pytest.raises(ValueError, match="a run of Silent cannot score: it has neither"):
        scoring.scores(Silent(), {}, Words(), TEXTS, 40)


def test_sentences_that_do_not_fit_are_named():
    objective, params = made(electric.Electric)
    with pytest.raises(ValueError, match="sentence 2 has 3 tokens, more than the 2 that fit"):
        scoring.scores(objective, params, Words(), ["5 6", "7 8 9"], 4)
    with pytest.raises(ValueError, match="sentence 1 has no words"):
        scoring.scores(objective, params, Words(), [""], 4)


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


def test_the_command_scores_pairs_of_a_trained_run(tmp_path):
    corpus = write_corpus(tmp_path / "corpus.txt")
    source = f"text:{corpus}"
    config = small_run(source, str(tmp_path / "data"), schedule__steps=2, model__max_positions=64)
    electra_jax.train(config, tmp_path / "run")

    def score(*arguments):
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "electra_jax.score",
                f"--workdir={tmp_path / 'run'}",
                *arguments,
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )

    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("the cat sees a letter.\tletter the a sees cat.\na bird.\tbird a.\n")
    done = score(f"--input={pairs}", "--first_is_right", "--json")
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert [len(row["scores"]) for row in found["rows"]] == [2, 2]
    assert found["first_wins"] == np.mean([row["best"] == 0 for row in found["rows"]])
    assert all(score < 0 for row in found["rows"] for score in row["scores"])

    # Rows of 32 were trained: of the 64 positions half are still as they were drawn.
    long = tmp_path / "long.txt"
    long.write_text("a letter finds " * 20 + "\n")
    refused = score(f"--input={long}")
    assert refused.returncode == 2
    assert "more than the 30 that fit a row of 32, the longest whose positions" in refused.stderr
    assert "Traceback" not in refused.stderr
