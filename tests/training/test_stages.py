# SPDX-License-Identifier: Apache-2.0
"""Rows of another length and larger batches from a share of the budget on, in whole runs.

The run of this page has six steps in three stages, two steps each:

    steps   rows per step   tokens per row   global rows
    1, 2          8               16         0-7, 8-15
    3, 4         16               16         16-31, 32-47
    5, 6          8               32         48-55, 56-63
"""

import os
import shutil
import signal
import threading
import types

import numpy as np
import pytest

import electra_jax
from electra_jax import config as config_lib
from electra_jax.config import stages
from electra_jax.core import meshes
from electra_jax.data import pipeline
from electra_jax.host import background_calls
from electra_jax.objectives import masking
from electra_jax.report import run_cost
from electra_jax.speed import dry_run, flops_figures, flops_tables
from electra_jax.step import plans
from electra_jax.training import budget, feed, runs, trained_run, weights_alone
from electra_jax.weights import card_facts, exporting, reading
from electra_jax.workdir import metadata, starts
from support import workdirs
from support.clocks import Ticking
from support.commands import command, complaint
from support.corpus import StopAt, small_run
from support.outcomes import digest, rows

STEPS = 6
STAGES = ((0.3, 16, 16), (0.6, 32, 8))


def staged(text, **changes):
    """The run above; every step leaves a checkpoint."""
    settings = dict(
        data__sequence_length=16, schedule__stages=STAGES, schedule__steps=STEPS, logging__every=1,
        checkpoint__every=1, checkpoint__keep_last=STEPS, evaluation__every=2,
        evaluation__batch_size=8, model__discriminator__layers=1,
    )  # fmt: skip
    return small_run(*text, **settings | changes)


class Recording(feed.Feed):
    """Keeps the ids that each step was fed, and how many folders of rows had open files then."""

    fed, open_folders, rows = [], [], set()

    def __next__(self):
        lanes = super().__next__()
        self.fed.append(np.asarray(lanes["ids"]))
        self.rows.add(self._order._records)
        self.open_folders.append(sum(bool(rows._maps) for rows in self.rows))
        return lanes


@pytest.fixture(scope="module")
def finished(text, tmp_path_factory):
    """A run that was never stopped: (workdir, final metrics, ids of each step)."""
    workdir = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feed, "Feed", Recording)
        final = electra_jax.train(staged(text), workdir)
    return workdir, final, list(Recording.fed)


@pytest.fixture(scope="module")
def run(text, finished):
    """Its parts, as they continue."""
    return runs.start(config_lib.parse(staged(text)), str(finished[0]))


def test_the_card_of_an_export_names_every_stage(finished, run, tmp_path):
    exporting.to_orbax(reading.open(finished[0]), str(tmp_path / "params"))
    flops = [stage.objective.flops(stage.sequence_length).train for stage in run.stages]
    expected = 16 * flops[0] + 32 * flops[1] + 16 * flops[2]
    for path in (finished[0], tmp_path / "params"):
        facts = card_facts.training_facts(reading.open(path))
        assert facts["batch"] == (
            "8 rows of 16 tokens (16 rows in all); then 16 rows of 16 tokens (32 rows in all);"
            " then 8 rows of 32 tokens (16 rows in all)"
        )
        assert facts["FLOPs"].startswith(f"{expected:.3g} in matrix products")

    # A checkpoint of the first stage has seen no other.
    facts = card_facts.training_facts(reading.open(finished[0], step=1))
    assert facts["batch"] == "8 rows of 16 tokens (8 rows in all)"


def test_weights_are_evaluated_on_the_rows_of_the_stage_that_their_run_was_in(
    text, finished, tmp_path
):
    """As `evaluate` does without --weights: so both see as much of the text."""
    config = config_lib.parse(staged(text))
    recipe = weights_alone.recipe_of(config, str(finished[0]))
    for given in (None, recipe):
        run = weights_alone.open(finished[0], given)
        assert (run.stage.sequence_length, run.stage.batch_size) == (32, 8)

    early = weights_alone.open(finished[0] / "checkpoints" / "3")
    assert (early.stage.sequence_length, early.stage.batch_size) == (16, 16)
    assert weights_alone.recipe_of(config, str(tmp_path)).data == config.data

    words = workdirs.small_vocabulary(tmp_path)
    short = dict(model__max_positions=16, data__sequence_length=16)
    workdirs.made(tmp_path / "short", words, **short)
    with pytest.raises(config_lib.ConfigError, match="length=16 and .*schedule.stages='[(][)]'"):
        weights_alone.open(tmp_path / "short", recipe)


def test_each_step_takes_the_rows_of_its_stage_where_the_one_before_it_ended(finished, run):
    orders = [pipeline.Order(stage.records, 0) for stage in run.stages]
    expected = [(0, 0, 8), (0, 8, 8), (1, 16, 16), (1, 32, 16), (2, 48, 8), (2, 56, 8)]
    assert len(finished[2]) == STEPS
    for ids_BL, (stage, first, count) in zip(finished[2], expected):
        np.testing.assert_array_equal(ids_BL, orders[stage].take(first, count).ids)
    assert run.rows_by_stage == [16, 32, 16]


def test_stages_share_a_folder_and_only_that_of_the_present_one_is_open(finished, run):
    short, same, long = (stage.records for stage in run.stages)
    assert short is same and short is not long
    assert Recording.open_folders == [1] * STEPS
    assert len(Recording.rows) == 2


def test_all_stages_have_one_vocabulary_and_the_same_documents_on_either_side(run):
    short, same, long = (stage.records for stage in run.stages)
    assert short.directory == same.directory != long.directory
    assert short.manifest.vocabulary == long.manifest.vocabulary
    np.testing.assert_array_equal(short.unigram(), long.unigram())  # of training and of held-out
    assert (short.manifest.sequence_length, long.manifest.sequence_length) == (16, 32)
    assert run.config.data.vocab.startswith("train:")  # once
    assert long.manifest.settings["vocab"] == short.manifest.vocabulary["sha256"]


def test_slots_and_speed_follow_the_length(run):
    assert [stage.objective.slots for stage in run.stages] == [2, 2, 4]  # int(0.155 L)
    assert masking.max_slots(0.15, 16) == 2 and masking.max_slots(0.15, 32) == 4
    assert run.stages[0].update is run.stages[1].update is not run.stages[2].update


def test_a_stage_ends_with_a_log_line_so_that_each_counts_its_own_flops(text, tmp_path):
    """Lines come every four steps, and stages end after the second and the fourth."""
    config = staged(text, logging__every=4, checkpoint__every=STEPS, evaluation__every=STEPS)
    electra_jax.train(config, tmp_path)
    logged = rows(tmp_path, "train")
    assert [row["step"] for row in logged] == [2, 4, 6]

    begun = starts.read(str(tmp_path))
    short, same, long = begun[-1]["row_flops"]
    assert short == same < long
    read = config_lib.parse(config)
    assert run_cost.of(read, logged, begun).flops == 2 * (8 * short + 16 * short + 8 * long)


def test_the_learning_rate_does_not_know_of_stages(finished):
    """Peak 1e-3, 6 steps, warmup 2."""
    expected = [1e-3 * (1 - s / 6) * min(1, s / 2) for s in range(STEPS)]
    logged = [row["learning_rate"] for row in rows(finished[0], "train")]
    np.testing.assert_allclose(logged, expected, rtol=1e-5)


def test_epochs_count_the_rows_of_each_length_for_themselves(finished, run):
    short, _, long = (stage.records.rows_per_epoch() for stage in run.stages)
    expected = [n / short for n in (8, 16, 32, 48)] + [48 / short + n / long for n in (8, 16)]
    logged = [row["epoch"] for row in rows(finished[0], "train")]
    np.testing.assert_allclose(logged, expected, rtol=1e-6)


def test_tokens_seen_grow_by_the_rows_of_the_stage(finished):
    seen = np.diff([0, *(row["tokens_seen"] for row in rows(finished[0], "train"))])
    assert (seen <= [128, 128, 256, 256, 256, 256]).all()
    assert (seen[2:] > 128).all()


@pytest.mark.parametrize(
    ("step", "length", "size"), [(1, 16, 8), (2, 16, 16), (4, 32, 8), (5, 32, 8)]
)
def test_a_checkpoint_is_looked_at_with_the_rows_that_come_next(text, finished, step, length, size):
    config = config_lib.parse(staged(text))
    run = trained_run.open(config, str(finished[0]), step)
    assert run.records.manifest.sequence_length == length
    assert (run.stage.sequence_length, run.stage.batch_size) == (length, size)
    assert run.objective.slots == masking.max_slots(0.15, length)


@pytest.mark.parametrize("stopped", [1, 2, 3, 4, 5])  # inside each stage, and where one ends
def test_interrupted_anywhere_it_goes_on_as_if_never_stopped(text, finished, tmp_path, stopped):
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    for step in range(stopped + 1, STEPS + 1):
        shutil.rmtree(tmp_path / "checkpoints" / str(step))
    assert electra_jax.train(staged(text), tmp_path) == finished[1]
    assert digest(tmp_path) == digest(finished[0])
    assert rows(tmp_path) == rows(finished[0])


class AskedToStop:
    """In place of `background_calls.begin`: so many programs are compiled, and then a signal comes.

    What is compiled then is not done before the run has ended.
    """

    def __init__(self, patch, after):
        self._left, self._run_has_ended, self._call = after, threading.Event(), None
        before = background_calls.begin

        def call(work, name):
            if name != "compiling":
                return before(work, name)
            self._left -= 1
            if self._left >= 0:
                return before(work, name)
            self._call = before(lambda: self._compile(work), name)
            return self._call

        patch.setattr(background_calls, "begin", call)

    def _compile(self, work):
        os.kill(os.getpid(), signal.SIGTERM)
        self._run_has_ended.wait(60)
        return work()

    def end(self):
        """The run has ended: the program becomes ready, and nobody needs it."""
        assert not self._call.is_done()
        self._run_has_ended.set()
        self._call.result()


# What a start from step FIRST compiles, in order: the steps of its stages and their evaluations.
@pytest.mark.parametrize(
    ("first", "after", "saved", "owes"),
    [
        (0, 0, 0, False),  # the first step
        (0, 1, 2, True),  # the evaluation of step 2
        (0, 2, 2, False),  # the first step of the second stage
        (0, 3, 4, True),  # the evaluation of step 4
        (5, 1, 6, True),  # the last evaluation
    ],
)
def test_a_signal_while_a_program_is_compiled_loses_no_step(
    text, finished, tmp_path, first, after, saved, owes
):
    if first:
        shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
        for step in range(first + 1, STEPS + 1):
            shutil.rmtree(tmp_path / "checkpoints" / str(step))

    with pytest.MonkeyPatch.context() as patch:
        asked = AskedToStop(patch, after)
        electra_jax.train(staged(text, checkpoint__every=1000), tmp_path)
        asked.end()

    assert metadata.steps(tmp_path / "checkpoints")[-1] == saved
    assert metadata.read(tmp_path / "checkpoints" / str(saved))["evaluation_due"] == owes
    assert f"stopped and saved at step {saved};" in (tmp_path / "log.txt").read_text()

    assert electra_jax.train(staged(text), tmp_path) == finished[1]
    assert digest(tmp_path) == digest(finished[0])
    assert rows(tmp_path) == rows(finished[0])


@pytest.mark.parametrize("on_spike", ["go_on", "roll_back"])
def test_a_signal_before_the_first_evaluation_of_given_weights_loses_nothing(
    text, finished, tmp_path, on_spike
):
    """With roll_back the state before the first step is saved in any case, but only once."""
    tree = staged(text, schedule__steps=2, schedule__on_spike=on_spike)
    tree.init["from"] = str(finished[0])
    electra_jax.train(tree, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        asked = AskedToStop(patch, after=0)
        electra_jax.train(tree, tmp_path / "stopped")
        asked.end()
    assert metadata.read(tmp_path / "stopped" / "checkpoints" / "0")["evaluation_due"]
    assert "stopped and saved at step 0;" in (tmp_path / "stopped" / "log.txt").read_text()

    electra_jax.train(tree, tmp_path / "stopped")
    assert digest(tmp_path / "stopped") == digest(tmp_path / "whole")
    assert rows(tmp_path / "stopped") == rows(tmp_path / "whole")
    assert rows(tmp_path / "whole")[0]["step"] == 0


def test_what_the_next_start_has_evaluated_is_not_evaluated_once_more(text, finished, tmp_path):
    """It is killed before it saves, so the checkpoint still says that the evaluation is due."""
    with pytest.MonkeyPatch.context() as patch:
        asked = AskedToStop(patch, after=1)
        electra_jax.train(staged(text), tmp_path)
        asked.end()

    class Killed:
        def write(self, step, kind, metrics):
            assert kind == "train"

        def close(self):
            pass

    for _ in range(2):
        with pytest.raises(AssertionError):
            electra_jax.train(staged(text), tmp_path, [Killed()])
        wrote = [(row["step"], row["kind"]) for row in rows(tmp_path)]
        assert wrote.count((2, "eval")) == 1


def test_the_log_says_where_a_stage_begins(finished):
    log = (finished[0] / "log.txt").read_text()
    assert "stage 1 of 3 from step 1 on: 8 rows of 16 tokens per step" in log
    assert "stage 2 of 3 from step 3 on: 16 rows of 16 tokens per step" in log
    assert "stage 3 of 3 from step 5 on: 8 rows of 32 tokens per step" in log
    assert log.count("first step after") == 3


@pytest.mark.slow
def test_a_budget_of_tokens_has_its_stages_by_tokens(text, tmp_path):
    """900 tokens: rows of 32 from 450 on; the step after them sees more than 8 rows of 16 have."""
    config = staged(
        text, schedule__budget="tokens", schedule__tokens=900, schedule__steps=50,
        schedule__stages=((0.5, 32, 8),),
    )  # fmt: skip
    electra_jax.train(config, tmp_path / "whole")
    seen = [0, *(row["tokens_seen"] for row in rows(tmp_path / "whole", "train"))]
    added = np.diff(seen)
    long = np.array(seen[:-1]) >= 450
    assert 3 < (~long).sum() < 6 and (added[~long] <= 128).all() and (added[long] > 128).all()
    border, last = int((~long).sum()), len(added)
    electra_jax.train(config, tmp_path / "parts", [StopAt(border - 1)])
    assert metadata.steps(f"{tmp_path}/parts/checkpoints")[-1] == border
    electra_jax.train(config, tmp_path / "parts")
    assert digest(tmp_path / "parts", last) == digest(tmp_path / "whole", last)
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")


@pytest.mark.slow
def test_a_budget_of_minutes_has_its_stages_by_the_clock_over_a_stop(text, tmp_path, monkeypatch):
    """Every look at the clock takes three seconds of a minute."""
    monkeypatch.setattr(budget.Clock.__init__, "__defaults__", (0.0, Ticking(3.0)))
    config = staged(
        text, schedule__budget="minutes", schedule__minutes=1.0, schedule__steps=50,
        schedule__stages=((0.5, 32, 8),), evaluation__every=50, checkpoint__keep_last=50,
    )  # fmt: skip
    electra_jax.train(config, tmp_path, [StopAt(1)])
    electra_jax.train(config, tmp_path)
    train = rows(tmp_path, "train")
    added = np.diff([0, *(row["tokens_seen"] for row in train)])
    folders = [f"{tmp_path}/checkpoints/{row['step']}" for row in train]
    before = [0, *(metadata.read(folder)["stage"] for folder in folders)][:-1]
    assert before == sorted(before) and set(before) == {0, 1}
    assert [n > 128 for n in added] == [bool(stage) for stage in before]


def schedule(**changes):
    changes = {f"schedule__{name}": value for name, value in changes.items()}
    return config_lib.parse(small_run("builtin", "", **changes)).schedule


@pytest.mark.parametrize(
    ("given", "begins"),
    [
        (dict(steps=1000), [0, 700, 900]),
        (dict(steps=10), [0, 7, 9]),
        (dict(steps=9, budget="tokens", tokens=10**10), [0, 7 * 10**9, 9 * 10**9]),
        (dict(steps=9, budget="minutes", minutes=10.0), [0, 420, 540]),
    ],
)
def test_a_stage_begins_when_its_share_of_the_budget_is_spent(given, begins):
    found = schedule(stages=((0.7, 32, 8), (0.9, 32, 8)), **given)
    assert stages.begins(found) == pytest.approx(begins)
    for number, begin in enumerate(begins):
        spent = {"step": 0, "tokens": 0, "seconds": 0.0}
        name = {"steps": "step", "minutes": "seconds"}.get(found.budget, found.budget)
        assert stages.number(found, **spent | {name: begin + 1e-6 if number else 0}) == number
        if number:
            assert stages.number(found, **spent | {name: begin - 0.5}) == number - 1


def test_a_stage_that_rounds_up_to_the_end_takes_no_step_and_no_run_ends_with_it(caplog):
    found = schedule(stages=((0.7, 32, 8), (0.9, 16, 16)), steps=5)
    assert stages.begins(found) == [0, 4, 5]  # 3.5 and 4.5 steps are spent after the 4th and 5th
    numbers = [stages.number(found, step, 0, 0.0) for step in range(6)]
    assert numbers == [0, 0, 0, 0, 1, 1]

    kinds = [stages.Stage(0.0, 32, 8), *(stages.Stage(*stage) for stage in found.stages)]
    plan = types.SimpleNamespace(stages=kinds, low_peak_warning=lambda steps: "")
    runs._warn_of_few_steps(plan, found, [])
    said = "the stage of 16 rows of 16 tokens, which begins at a share of 0.9, takes no step"
    assert said in caplog.text
    assert "raise schedule.steps" in caplog.text and len(caplog.messages) == 1


def test_rounding_delays_no_stage():
    assert 0.55 * 100 > 55
    assert stages.begins(schedule(steps=100, stages=((0.55, 32, 8),))) == [0, 55]


def test_the_steps_of_each_stage_by_hand():
    def config(**changes):
        settings = dict(schedule__stages=((0.25, 64, 4),), model__max_positions=64) | changes
        return config_lib.parse(small_run("builtin", "", **settings))

    def steps(config, *args):
        return stages.steps(config.schedule, stages.of(config), *args)

    assert steps(config(schedule__steps=100)) == [25, 75]
    tokens = dict(schedule__budget="tokens", schedule__tokens=102_400)
    # 25,600 of them in steps of 8 x 32 = 256, 76,800 in steps of 4 x 64 = 256; half of it padding
    assert steps(config(schedule__steps=10_000, **tokens)) == [100, 300]
    assert steps(config(schedule__steps=10_000, **tokens), [1.0, 0.5]) == [100, 600]
    assert steps(config(schedule__steps=150, **tokens)) == [100, 50]  # their limit
    minutes = config(schedule__budget="minutes", schedule__minutes=1.0, schedule__steps=100)
    assert steps(minutes) is None
    assert steps(minutes, (), [1.0, 3.0]) == [15, 15]


def test_the_dry_run_and_the_accountant_add_up_the_stages(text, finished, run):
    config = config_lib.parse(staged(text, schedule__steps=100))
    lines = dict(line.split("  ", 1) for line in dry_run.text(config, str(finished[0])).split("\n"))
    assert lines["stages"].strip() == (
        "30 steps of 8 rows of 16 tokens, then 30 steps of 16 rows of 16 tokens,"
        " then 40 steps of 8 rows of 32 tokens"
    )
    short, long = (run.stages[n].objective.flops(x).train for n, x in ((0, 16), (2, 32)))
    whole = 30 * 8 * short + 30 * 16 * short + 40 * 8 * long
    assert lines["FLOPs of the run"].strip() == f"{whole:.3g}"
    each = [stage.records.rows_per_epoch() for stage in run.stages]
    epochs = (30 * 8 + 30 * 16) / each[0] + 40 * 8 / each[2]
    assert lines["epochs over the data"].strip().startswith(f"{epochs:.2f} ({each[0]:,}, then")
    counted = flops_figures.of_config(config, run.vocabulary.size)
    assert counted["train"]["honest"] == pytest.approx(whole)
    assert [stage["steps"] for stage in counted["stages"]] == [30, 30, 40]
    assert "in stages: 30 steps of 8 rows of 16 tokens, then" in flops_tables.of_config(counted)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((0.9, 32, 8), r"holds 0.9, which is not .* try \(\(0.9, 512, 32\),\)"),
        (((0.9, 32),), r"holds \(0.9, 32\), which is not"),
        (((1, 32, 8),), r"holds \(1, 32, 8\), which is not"),
        (((0.5, 32, 8), (0.4, 16, 8)), "a share of 0.4; give shares that rise between 0.5 and 1"),
        (((0.0, 32, 8),), "a share of 0.0; give shares that rise between 0 and 1"),
        (((1.5, 32, 8),), "a share of 1.5; give"),
        (((0.5, 4, 8),), r"sequence_length of \(0.5, 4, 8\) is outside \[8, 65536\]"),
        (((0.5, 32, 0),), r"batch_size of \(0.5, 32, 0\) is outside"),
        (((0.5, 64, 8),), "rows of 64 .* longer than model.max_positions=32; raise max_positions"),
        (((0.5, 32, 7),), "7 rows per step .* not divisible by schedule.accumulation=2"),
    ],
)
def test_stages_that_cannot_be_are_refused_early(given, message):
    changes = dict(schedule__stages=given, schedule__accumulation=2)
    with pytest.raises(config_lib.ConfigError, match=message):
        config_lib.parse(small_run("builtin", "", **changes))


@pytest.mark.parametrize(("step", "longest"), [(1, 16), (4, 16), (5, 32)])
def test_the_longest_row_is_of_a_stage_that_was_trained(text, finished, step, longest):
    """Step 4 is the last before rows of 32 tokens come."""
    config = config_lib.parse(staged(text))
    run = trained_run.open(config, str(finished[0]), step, with_rows=False)
    assert run.longest_row == longest


@pytest.mark.parametrize(("step", "longest"), [(4, 16), (5, 32)])
def test_weights_and_exports_say_how_long_the_rows_were(finished, tmp_path, step, longest):
    found = reading.open(finished[0], step)
    exporting.to_orbax(found, str(tmp_path / "params"))
    again = reading.open(tmp_path / "params")
    assert found.trained_tokens == again.trained_tokens == longest


def test_rotary_positions_have_no_longest_row():
    changes = dict(schedule__stages=((0.5, 64, 8),), model__positions="rotary")
    assert config_lib.parse(small_run("builtin", "", **changes))


@pytest.mark.parametrize(("max_positions", "longest"), [(16, 64), (128, 128)])
def test_rotary_positions_take_texts_as_long_as_the_rows_of_training(
    tmp_path, max_positions, longest
):
    words = workdirs.small_vocabulary(tmp_path)
    settings = dict(positions="rotary", max_positions=max_positions)
    settings = {f"model__{name}": value for name, value in settings.items()}
    config, _ = workdirs.made(tmp_path / "run", words, data__sequence_length=64, **settings)
    assert reading.open(tmp_path / "run").limit == longest
    about = {"rows_by_stage": [8]}
    assert trained_run.longest_row(config, about) == longest


def test_a_stage_that_the_mesh_cannot_split_is_refused(monkeypatch):
    monkeypatch.setattr(meshes, "row_devices", lambda mesh: 4)
    config = config_lib.parse(small_run("builtin", "", schedule__stages=((0.5, 32, 6),)))
    with pytest.raises(config_lib.ConfigError, match="stages: batch_size=6 is not .* try 4 or 8"):
        plans.make_mesh(config)


def test_other_stages_are_refused_where_a_run_goes_on_and_another_end_is_not(text, finished):
    with pytest.raises(config_lib.ConfigError, match="schedule.stages: .* -> .*init.from"):
        electra_jax.train(staged(text, schedule__stages=((0.6, 32, 8),)), finished[0])
    old, new = (config_lib.parse(staged(text, schedule__steps=n)) for n in (6, 60))
    assert config_lib.differences(old, new) == (["schedule.steps: 6 -> 60"], [])


def test_stages_survive_config_json():
    config = config_lib.parse(small_run("builtin", "", schedule__stages=((0.5, 32, 8),)))
    tree = config_lib.to_tree(config)
    tree["schedule"]["stages"] = [[0.5, 32, 8]]  # as JSON has it
    assert config_lib.parse(tree) == config


def test_stages_on_the_command_line(tmp_path):
    """Given with a configuration, and again for a workdir whose config.json has them as lists."""
    given = "--config.schedule.stages=((0.75,32,128),)"
    flags = ["--config=configs/tiny_paper.py", "--config.schedule.steps=100"]
    result = command(*flags, given, f"--workdir={tmp_path}/new", "--dry_run")
    assert result.returncode == 0, result.stderr
    assert (
        "75 steps of 64 rows of 64 tokens, then 25 steps of 128 rows of 32 tokens" in result.stdout
    )
    config = small_run("builtin", "", schedule__stages=((0.5, 16, 8),), schedule__steps=100)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.json").write_text(config_lib.to_json(config_lib.parse(config)))
    (tmp_path / "old" / "starts.jsonl").touch()  # a run has begun there
    given = "--config.schedule.stages=((0.5,16,8),)"
    result = command(given, f"--workdir={tmp_path}/old", "--dry_run")
    assert result.returncode == 0, result.stderr
    assert "50 steps of 8 rows of 32 tokens, then 50 steps of 8 rows of 16 tokens" in result.stdout
    given = "--config.schedule.stages=((0.25,16,4),(0.5,32,8))"
    line = complaint(given, f"--workdir={tmp_path}/old", "--dry_run")
    assert "holds a run with other settings: schedule.stages: ((0.5, 16, 8),) -> ((0.25" in line
    line = complaint(*flags, "--config.schedule.stages=(0.9,512,32)", f"--workdir={tmp_path}/new")
    assert "try ((0.9, 512, 32),)" in line
