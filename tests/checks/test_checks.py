# SPDX-License-Identifier: Apache-2.0
"""The learning checks pass on what is built here, and each turns when the thing is broken."""

import dataclasses
import math
import os
import re
import types

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from electra_jax import check as check_command
from electra_jax import config as config_lib
from electra_jax.checks import (
    all_checks,
    extra_runs,
    gradients,
    micro_run,
    scoring,
    stored_results,
    tiny_networks,
)
from electra_jax.checks import result as result_lib
from electra_jax.checks.result import Measure, Result
from electra_jax.core import batch as batch_lib
from electra_jax.core import streams
from electra_jax.model import networks
from electra_jax.objectives import masking, replace_mlm, sampling
from electra_jax.objectives import objective as objective_lib
from electra_jax.objectives import replaced_token_detection as rtd
from electra_jax.step import optimizer
from electra_jax.training import loop, runs
from support.corpus import load_config, small_run, write_corpus

CONFIG = config_lib.parse(small_run("builtin", "", model__discriminator__layers=1))


def failing(number):
    """The numbers of a check that are out of bounds."""
    result = all_checks.UNTRAINED[number](CONFIG, 0)
    assert result.number == number
    failed = {measure.name for measure in result.measures if measure.verdict == result_lib.FAILS}
    assert (result.verdict == result_lib.FAILS) == bool(failed)
    return failed


@pytest.mark.parametrize("number", all_checks.UNTRAINED)
def test_what_is_built_here_passes(number, monkeypatch):
    monkeypatch.setattr(gradients, "STEPS", 10)
    assert failing(number) == set()


def test_networks_that_share_layers_are_checked_as_small_ones_that_do_not():
    one_shape = dict(layers=2, width=32, heads=2, feed_forward=64)
    tree = small_run("builtin", "", model__generator=one_shape, model__shared_layers=1)
    tree.model.discriminator.update(one_shape)
    result = all_checks.UNTRAINED[7](config_lib.parse(tree), 0)
    assert result.verdict != result_lib.FAILS
    assert tiny_networks.config(config_lib.parse(tree)).model.shared_layers == 0


# Broken on purpose: the same functions, and the verdict turns


def wrap(monkeypatch, where, name, make):
    """Replaces where.name by make(what it was)."""
    monkeypatch.setattr(where, name, make(getattr(where, name)))


def test_1_sees_scores_that_are_scaled(monkeypatch):
    wrap(monkeypatch, networks, "generator_vectors", lambda real: lambda *args: 30 * real(*args))
    assert failing(1) == {"loss on [MASK] less ln V less E s^2 / 2"}


def test_3_sees_a_head_that_begins_with_an_opinion(monkeypatch):
    def opinionated(real):
        def outputs(*args):
            hidden_BLD, logits_BL = real(*args)
            return hidden_BLD, 1 + logits_BL

        return outputs

    wrap(monkeypatch, networks, "discriminator_outputs", opinionated)
    assert failing(3) == {"loss less ln 2 less z^2 / 8"}


@pytest.mark.slow
def test_3_sees_positions_left_out_of_the_loss(monkeypatch):
    wrap(
        monkeypatch, rtd, "detection_loss",
        lambda real: lambda played: real(played) * played.replaced_BL,
    )  # fmt: skip
    assert failing(3) == {"loss less ln 2 less z^2 / 8"}


def best_guess(keys_B, mass_BNG, mass_of):
    """Argmax where `sampling.from_blocks` samples; one block holds all ids here."""
    del keys_B
    return mass_of(jnp.argmax(mass_BNG, -1)).argmax(-1)


def test_6_sees_argmax_instead_of_a_sample(monkeypatch):
    monkeypatch.setattr(sampling, "from_blocks", best_guess)
    assert "hits less p_G(original), in standard errors" in failing(6)
    assert "argmax accuracy less hits" in failing(6)


def test_6_sees_another_temperature(monkeypatch):
    wrap(
        monkeypatch, objective_lib.Objective, "predict_and_sample",
        lambda real: lambda self, params, vectors, originals, keys, heat, **rest: real(
            self, params, vectors, originals, keys, 0.7 * heat, **rest
        ),
    )  # fmt: skip
    assert failing(6) == {"hits less p_G(original), in standard errors"}


def test_7_sees_labels_by_position(monkeypatch):
    def by_position(real):
        def generate(self, params, batch, *rest):
            made = real(self, params, batch, *rest)
            chosen = made.chosen
            ones_BL = masking.write(jnp.zeros_like(batch.ids_BL), chosen, chosen.used_BN)
            return dataclasses.replace(made, replaced_BL=ones_BL > 0)

        return generate

    wrap(monkeypatch, rtd.WithGenerator, "generate", by_position)
    assert failing(7) == {
        "labels less chosen slots that differ", "replaced of chosen less 1 less lucky of chosen",
    }  # fmt: skip


def test_11_sees_a_table_that_both_networks_read(monkeypatch):
    monkeypatch.setattr(networks, "main_embeddings", networks.generator_embeddings)
    assert "largest of L_D in the generator" in failing(11)


def test_12_sees_a_missing_stop_gradient(monkeypatch):
    def let_through(real):
        def main_embeddings(config, params):
            if config.sharing != "gdes":
                return real(config, params)
            delta = params["discriminator"]["embeddings_delta"]
            return jax.tree.map(jnp.add, params["embeddings"], delta)

        return main_embeddings

    wrap(monkeypatch, networks, "main_embeddings", let_through)
    assert failing(12) == {"gdes: L_D in the tables"}


@pytest.mark.slow
def test_13_sees_a_clip_that_is_always_there(monkeypatch):
    monkeypatch.setattr(gradients, "STEPS", 10)
    wrap(
        monkeypatch, optimizer, "adamw",
        lambda real: lambda config: real(dataclasses.replace(config, clip_norm=1.0)),
    )  # fmt: skip
    assert failing(13) == {"untied, no clip: relative difference"}


def test_17_sees_a_main_network_that_reads_the_masked_text(monkeypatch):
    wrap(
        monkeypatch, replace_mlm.ReplaceMLM, "generate",
        lambda real: lambda *args: dataclasses.replace(
            real(*args), corrupted_BL=real(*args).masked_BL
        ),
    )  # fmt: skip
    assert failing(17) == {"[MASK] under replace_mlm"}


@pytest.mark.slow
def test_21_sees_a_lost_place_in_the_data(monkeypatch):
    def forgetful(real):
        def start(*args):
            run = real(*args)
            nothing = jnp.zeros_like(run.state.rows_seen)
            run.state = dataclasses.replace(run.state, rows_seen=nothing)
            return run

        return start

    wrap(monkeypatch, runs, "start", forgetful)
    assert failing(21) == {"largest difference of a loss after resuming"}


def test_22_sees_one_key_for_all_rows(monkeypatch):
    wrap(
        monkeypatch, streams, "row_keys",
        lambda real: lambda key, step, row_B: real(key, step, jnp.zeros_like(row_B)),
    )  # fmt: skip
    assert failing(22) == {"rows with equal slots, two replicas"}


def test_22_sees_a_key_that_forgets_the_step(monkeypatch):
    wrap(
        monkeypatch, streams, "row_keys",
        lambda real: lambda key, step, row_B: real(key, 0, row_B),
    )  # fmt: skip
    assert failing(22) == {"rows with equal slots, two steps"}


def test_23_sees_padding_in_the_loss(monkeypatch):
    every = property(lambda self: jnp.ones(self.ids_BL.shape, bool))
    monkeypatch.setattr(batch_lib.Batch, "real_BL", every)
    assert "change of disc_loss" in failing(23)


@pytest.mark.slow
def test_23_sees_padding_in_attention(monkeypatch):
    def one_document(real):
        def from_lanes(*args, **names):
            made = real(*args, **names)
            return dataclasses.replace(made, documents_BL=jnp.ones_like(made.documents_BL))

        return from_lanes

    wrap(monkeypatch, batch_lib, "from_lanes", one_document)
    assert "largest change of a logit" in failing(23)


# Verdicts


@pytest.mark.parametrize(
    ("value", "bounds", "verdict", "expected"),
    [
        (0.3, dict(low=0.3, high=0.4), "passes", "0.3 to 0.4"),  # bounds belong to it
        (0.29, dict(low=0.3, high=0.4), "FAILS", "0.3 to 0.4"),
        (0.41, dict(high=0.4), "FAILS", "<= 0.4"),
        (0, dict(low=0, high=0), "passes", "= 0"),
        (0, dict(low=result_lib.ABOVE_ZERO), "FAILS", "> 0"),
        (1e-30, dict(low=result_lib.ABOVE_ZERO), "passes", "> 0"),
        (math.nan, dict(low=0), "FAILS", ">= 0"),
        (math.inf, dict(low=0), "FAILS", ">= 0"),
        (None, dict(low=0), "FAILS", ">= 0"),
        (7, dict(why="not calibrated: the table has 8"), "not calibrated", "the table has 8"),
        (7, dict(why="for scale"), "for scale", "-"),
    ],
)
def test_a_verdict_follows_from_the_number_and_its_bounds(value, bounds, verdict, expected):
    measure = Measure("x", value, **bounds)
    assert (measure.verdict, measure.expected) == (verdict, expected)


def test_a_number_without_a_bound_says_why():
    for bounds in ({}, dict(low=0, why="soft")):
        with pytest.raises(ValueError, match="'x' needs a bound"):
            Measure("x", 1.0, **bounds)


def check(*measures, number=5):
    return Result(number, "title", "what it catches", measures)


def test_one_failing_number_fails_a_check_and_one_without_a_bound_does_not_pass_it():
    good, bad = Measure("a", 1, 0), Measure("b", -1, 0)
    waits, scale = Measure("c", 1, why="not calibrated"), Measure("d", 1, why="for scale")
    assert check(good, bad, waits).verdict == "FAILS"
    assert check(good, waits, scale).verdict == "passes"
    assert check(waits, scale).verdict == "not calibrated"
    with pytest.raises(ValueError, match="check 5 measures nothing"):
        check(scale).verdict  # noqa: B018 - a property


def test_a_result_comes_back_from_json_as_it_was():
    result = check(Measure("a", 1.0, 0.0), Measure("b", None, why="soft: no pairs"))
    assert result_lib.from_tree(result_lib.to_tree(result)) == result


def test_the_table_has_a_line_for_each_number():
    text = result_lib.table([(3, check(Measure("a", 0.123456, 0), Measure("b", None, high=1)))])
    assert [line.split() for line in text.splitlines() if not line.startswith("-")] == [
        ["check", "expected", "measured", "verdict"],
        ["5", "title,", "seed", "3", "FAILS"],
        ["a", ">=", "0", "0.1235", "passes"],
        ["b", "<=", "1", "-", "FAILS"],
    ]
    partly = check(Measure("a", 1, 0), Measure("b", 1, why="not calibrated"))
    failed = check(Measure("a", -1, 0))
    passed = check(Measure("a", 1, 0), number=7)
    said = result_lib.suspicions([(0, failed), (1, passed), (2, failed)])
    assert said == "check 5 failed, which may mean: what it catches"
    assert "title, seed 0" in result_lib.table([(0, partly)])
    assert "passes, 1 not calibrated" in result_lib.table([(0, partly)])


def test_verdicts_alone_have_a_colour():
    found = check(Measure("it  passes", 1, 0), Measure("b", 2, high=1), Measure("c", 1, why="soft"))
    partly = check(Measure("a", 1, 0), Measure("b", 1, why="not calibrated"))
    coloured = re.finditer(result_lib.COLOURS, result_lib.table([(0, found), (0, partly)]))
    assert [match.lastgroup for match in coloured] == ["red", "green", "red", "green", "green"]


def test_three_seeds_suggest_a_bound_and_two_do_not():
    def of(value):
        return check(Measure("a", value, why="not calibrated: small"), Measure("b", 1, 0))

    results = [(seed, of(value)) for seed, value in enumerate((1.0, 2.0, 3.0))]
    assert result_lib.calibration(results[:2]) == ""
    assert result_lib.calibration(results) == (
        " 5  a: 2, deviation 1 over 3 seeds; a bound would be -23.78 or 27.78"
    )


def test_one_further_seed_in_a_thousand_is_beyond_a_suggested_bound():
    draws_TS = np.random.default_rng(0).normal(5.0, 2.0, (40_000, 10))  # trials of ten seeds
    bounds_T2 = np.array([result_lib.next_seed(draws_S) for draws_S in draws_TS[:, :9].tolist()])
    next_T = draws_TS[:, 9]
    for missed in (next_T < bounds_T2[:, 0], next_T > bounds_T2[:, 1]):
        assert 0.0005 < missed.mean() < 0.0016  # 40 of 40,000 expected, deviation 6.3


# Kept, by check, seed and settings


@pytest.fixture
def counted(monkeypatch):
    """Check 7 replaced by one that counts its calls; the calls."""
    calls = []

    def seven(config, seed):
        calls.append((config.optimizer.learning_rate, seed))
        return check(Measure("calls so far", len(calls), high=3), number=7)

    monkeypatch.setitem(all_checks.UNTRAINED, 7, seven)
    return calls


def test_what_was_measured_is_kept_by_seed_and_settings(counted, tmp_path):
    def values(config, seeds):
        found = all_checks.measure(config, str(tmp_path / "checks"), [7], seeds)
        return [(seed, result.measures[0].value) for seed, result in found]

    other = dataclasses.replace(
        CONFIG, optimizer=dataclasses.replace(CONFIG.optimizer, learning_rate=0.5)
    )
    assert values(CONFIG, 1) == [(0, 1)]
    assert values(CONFIG, 2) == [(0, 1), (1, 2)]  # the first comes from the file
    assert values(other, 1) == [(0, 3)]
    assert values(CONFIG, 2) == [(0, 1), (1, 2)]
    assert counted == [(1e-3, 0), (1e-3, 1), (0.5, 0)]


def test_a_check_that_dies_loses_nothing_before_it(counted, tmp_path, monkeypatch):
    def dies(config, seed):
        raise KeyboardInterrupt

    monkeypatch.setitem(all_checks.UNTRAINED, 11, dies)
    with pytest.raises(KeyboardInterrupt):
        all_checks.measure(CONFIG, str(tmp_path), [7, 11], 1)
    all_checks.measure(CONFIG, str(tmp_path), [7], 1)
    assert len(counted) == 1
    assert os.listdir(tmp_path) == [stored_results.NAME]


def test_another_kind_of_device_has_results_of_its_own(counted, tmp_path, monkeypatch):
    all_checks.measure(CONFIG, str(tmp_path), [7], 1)
    device = types.SimpleNamespace(device_kind="TPU v5e")
    monkeypatch.setattr(jax, "devices", lambda: [device])
    all_checks.measure(CONFIG, str(tmp_path), [7], 1)
    assert len(counted) == 2


def test_checks_without_a_run_have_exact_products(monkeypatch):
    before = jax.config.jax_default_matmul_precision
    found = []

    def seven(config, seed):
        found.append(jax.config.jax_default_matmul_precision)

    monkeypatch.setitem(all_checks.UNTRAINED, 7, seven)
    all_checks.run(CONFIG, "nowhere", 7, 0)
    assert (found, jax.config.jax_default_matmul_precision) == (["highest"], before)


def test_several_processes_would_write_one_file_and_are_refused(monkeypatch):
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(jax, "process_count", lambda: 4)
    with pytest.raises(config_lib.ConfigError, match="check runs in one process, here are 4"):
        check_command.main(CONFIG, "nowhere")


def test_settings_that_change_no_number_share_results():
    def of(**sections):
        return stored_results.settings_hash(dataclasses.replace(CONFIG, **sections))

    assert of(seed=5, logging=dataclasses.replace(CONFIG.logging, every=7)) == of()
    assert of(schedule=dataclasses.replace(CONFIG.schedule, steps=7)) != of()


def test_a_file_that_holds_no_results_is_refused(tmp_path):
    (tmp_path / stored_results.NAME).write_text('{"format": 0}')
    with pytest.raises(config_lib.ConfigError, match="format 0, this version reads 1; move it"):
        stored_results.StoredResults(str(tmp_path))
    (tmp_path / stored_results.NAME).write_text("torn")
    with pytest.raises(config_lib.ConfigError, match="not a file of results"):
        stored_results.StoredResults(str(tmp_path))


def test_all_24_are_there_and_others_are_refused():
    assert all_checks.numbers([]) == list(range(1, 25))
    assert all_checks.numbers(["12", "2", "12"]) == [2, 12]
    for bad in ("25", "0", "x", ""):
        with pytest.raises(config_lib.ConfigError, match=f"--only='{bad}' is not a check"):
            all_checks.numbers([bad])
    other = config_lib.parse(small_run("builtin", "", objective__name="masked_lm"))
    with pytest.raises(config_lib.ConfigError, match="the checks are of replaced_token_detection"):
        all_checks.measure(other, "nowhere", [7], 1)


# What trained checks compute with


def judged(corrupted, ids, logits, word=None):
    corrupted, ids, logits = map(np.asarray, (corrupted, ids, logits))
    word = np.ones(ids.shape, bool) if word is None else np.asarray(word)
    return scoring.Judged(ids, 0 * ids, corrupted, ids != corrupted, ids != corrupted, word, logits)


def test_auc_counts_words_and_ties_half():
    #     original 5 6 7, replaced 8 and the [CLS] that does not count
    ids, corrupted = [[2, 5, 6, 7, 9]], [[2, 5, 6, 7, 8]]
    words = [[False, True, True, True, True]]
    assert judged(corrupted, ids, [[-9, 0, 1, 2, 1]], words).auc() == 0.5  # over, tie, under
    assert judged(corrupted, ids, [[9, 0, 1, 2, 3]], words).auc() == 1
    assert judged(ids, ids, [[9, 0, 1, 2, 3]], words).auc() is None


def test_the_loss_over_words_is_binary_cross_entropy():
    found = judged([[2, 5, 8]], [[2, 5, 9]], [[50.0, 0.0, 2.0]], [[False, True, True]])
    assert found.loss() == pytest.approx((math.log(2) + math.log(1 + math.exp(-2))) / 2)
    assert found.rate == 0.5


class Ended:
    """What check 4 reads of a run that has not been evaluated."""

    evaluations = ()
    config = CONFIG  # some bounds are of tiny_paper alone

    def __init__(self, judged):
        self.judged = judged


@pytest.mark.parametrize(
    ("corrupted", "verdicts"),
    [
        ([[5, 6, 8]], ["passes", "for scale", "passes"]),
        ([[5, 6, 7]], ["FAILS", "for scale", "FAILS"]),
    ],
)
def test_4_fails_where_no_word_is_replaced(corrupted, verdicts):
    found = micro_run.discriminator_beats_a_constant(
        Ended(judged(corrupted, [[5, 6, 7]], [[-3.0, -3.0, 3.0]]))
    )
    assert [measure.verdict for measure in found.measures[1:]] == verdicts
    assert found.verdict == verdicts[0]
    assert result_lib.table([(0, found)])


@pytest.mark.parametrize(("below", "verdict"), [(0.006, "passes"), (0.003, "FAILS")])
def test_4_asks_of_tiny_paper_what_its_seeds_reached_by_step_300(below, verdict):
    """Half of the tokens are replaced, so that the best constant costs ln 2."""
    run = Ended(judged([[5, 6, 8]], [[5, 6, 7]], [[-3.0, -3.0, 3.0]]))
    run.config = config_lib.parse(load_config("tiny_paper"))
    run.evaluations = ({"step": 250, "disc_loss": math.log(2) - below, "disc_majority": 0.5},)
    early, *_ = micro_run.discriminator_beats_a_constant(run).measures
    assert early.value == pytest.approx(-below) and early.verdict == verdict


def test_what_identity_gives_away_is_arithmetic_for_draws_without_context():
    """Uniform draws into Zipf's text: rare words are suspect. Draws from the text itself: none."""
    draw = np.random.default_rng(0)
    size = 200
    text_V = 1 / np.arange(1, size + 1)
    ids = draw.choice(size, (2000, 50), p=text_V / text_V.sum())
    chosen = draw.random(ids.shape) < 0.15
    for drawn_V, low, high in ((np.ones(size), 0.75, 0.95), (text_V, 0.49, 0.53)):
        drawn = draw.choice(size, ids.shape, p=drawn_V / drawn_V.sum())
        found = scoring.identity_auc(judged(np.where(chosen, drawn, ids), ids, ids), size)
        expected = scoring.expected_identity_auc(text_V, drawn_V, 0.15)
        assert found == pytest.approx(expected, abs=0.02)
        assert low < expected < high


@pytest.mark.parametrize(("unigram", "verdict"), [(0.55, "passes"), (0.53, "FAILS")])
def test_9_asks_of_tiny_paper_what_its_seeds_reached(unigram, verdict):
    tree = load_config("tiny_paper")
    tree.data.source = "builtin"
    aucs = {"micro": 0.54, "uniform": 0.91, "unigram": unigram}

    def run(name, **_):
        return types.SimpleNamespace(judged=types.SimpleNamespace(auc=lambda: aucs[name]))

    runs = types.SimpleNamespace(config=config_lib.parse(tree), micro=lambda: run("micro"), run=run)
    result = extra_runs.order_of_generators(runs)
    assert [measure.verdict for measure in result.measures[:2]] == ["passes", verdict]


class MadeUpRuns:
    """Stands in for the runs of check 18: a generator that is read, and heat, do what they should.

    `broken` names a setting that no run listens to.
    """

    def __init__(self, broken):
        tree = load_config("tiny_paper")
        tree.data.source = "builtin"
        self.config, self._broken = config_lib.parse(tree), broken

    def micro(self):
        return self.run("micro")

    def run(self, name, **changes):
        changes.pop(self._broken, None)
        hot = changes.get("objective__first_temperature", 1.0) - 1
        joint = changes.get("objective__name") != "frozen_generator"
        kept = not joint and changes.get("init__generator_from") == "micro"
        return types.SimpleNamespace(
            workdir=name,
            judged=types.SimpleNamespace(auc=lambda: 0.52 if joint else 0.55),
            evaluations=[{"gen_masked_loss": 4.8 if kept or name == "micro" else 7.6}],
            log=[{"replaced_rate": rate} for rate in (0.11 + 0.016 * hot, 0.11)],
        )


@pytest.mark.parametrize(
    ("broken", "failed"),
    [
        (None, set()),
        ("init__generator_from", {"frozen generator's loss less the trained one's"}),
        ("objective__first_temperature", {"more replaced with heat, first tenth"}),
        ("objective__name", {"frozen generator's loss less the trained one's"}),
    ],
)
def test_18_asks_for_a_generator_that_is_read_and_a_heat_that_is_used(broken, failed):
    result = extra_runs.frozen_generator(MadeUpRuns(broken))
    assert {measure.name for measure in result.measures if measure.verdict == "FAILS"} == failed


def test_18_sees_a_heat_that_never_falls():
    runs = MadeUpRuns(None)
    heated = runs.run("heated", objective__name="frozen_generator", init__generator_from="micro")
    heated.log = [{"replaced_rate": 0.126}] * 2
    others = runs.run
    runs.run = lambda name, **changes: heated if name == "heated" else others(name, **changes)
    failed = [m.name for m in extra_runs.frozen_generator(runs).measures if m.verdict == "FAILS"]
    assert failed == ["the same in the last tenth"]


def test_pairs_differ_in_one_word():
    good, bad = micro_run.pairs()
    assert len(good) == len(bad) == len(set(good)) > 100
    for right, wrong in zip(good, bad):
        different = [pair for pair in zip(right.split(), wrong.split()) if pair[0] != pair[1]]
        assert len(different) == 1 and set(different[0]) in ({"a", "an"}, {"this", "these"})
    assert "this is an object." in good and "this is a object." in bad


@pytest.mark.slow
def test_checks_with_runs_of_their_own_train_them_once(tmp_path, monkeypatch):
    """Eight steps decide nothing: this is about the wiring, down to a second call from the file."""
    corpus = write_corpus(tmp_path / "corpus.txt", documents=1500)
    config = config_lib.parse(
        small_run(f"text:{corpus}", "", schedule__steps=8, evaluation__rows=64)
    )
    asked = [2, 4, 5, 9, 10, 14, 15, 16, 18, 19]
    monkeypatch.setattr(extra_runs, "STEPS", 3)
    with tiny_networks.compiling_fast():
        found = all_checks.measure(config, str(tmp_path / "checks"), asked, 1)
    assert [result.number for _, result in found] == asked
    values = [measure.value for _, result in found for measure in result.measures]
    assert None not in values and np.isfinite(values).all()
    trained_runs = sorted(os.listdir(tmp_path / "checks" / "seed0"))
    assert trained_runs == sorted(
        ["electra_15", "frozen", "heated", "joint_short", "leak", "masked_lm", "micro", "uniform",
         "unigram"]
    )  # fmt: skip
    monkeypatch.setattr(loop, "train", None)
    assert all_checks.measure(config, str(tmp_path / "checks"), asked, 1) == found


def test_a_score_that_is_no_number_is_never_right():
    nan, positive = float("nan"), np.array([True, True, False, False])
    assert scoring.auc(np.array([nan, nan, nan, nan]), positive) == 0.0
    assert scoring.auc(np.array([3.0, nan, 1.0, 2.0]), positive) == 0.5
    assert scoring.auc(np.array([3.0, 4.0, nan, 2.0]), positive) == 0.5


@pytest.mark.parametrize("logit", [0.0, float("nan")])
def test_a_discriminator_that_says_the_same_everywhere_finds_no_word(monkeypatch, logit):
    """Among the 10 most suspect of 40 equally suspect words is none."""
    word = np.ones((3, 40), bool)
    ids = np.zeros((3, 40), int)
    changed = ids + (np.arange(40) == 7)
    same = scoring.Judged(ids, ids, changed, ids != changed, ids != changed, word, word * logit)
    monkeypatch.setattr(micro_run, "one_random_token", lambda run: same)
    assert [measure.value for measure in micro_run.locality(None).measures] == [0.0, 0.0, 0.0]


def test_what_checks_train_is_said_before_they_do(tmp_path):
    config = config_lib.parse(small_run("builtin", "", schedule__steps=1234))
    said = all_checks._what_is_trained(config, str(tmp_path))
    assert f"in {tmp_path}/seed0" in said and f"{config.name} with 1,234 steps" in said
    assert "is not read" not in said
    (tmp_path / "checkpoints" / "5").mkdir(parents=True)
    assert f"the run in {tmp_path} itself is not read" in (
        all_checks._what_is_trained(config, str(tmp_path))
    )
