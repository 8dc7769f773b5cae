# SPDX-License-Identifier: Apache-2.0
"""The loop over batches with a step that only counts: every row once, dev, what is kept."""

import types

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from electra_jax import config as config_lib
from electra_jax.finetuning.tasks import built_in, examples
from electra_jax.finetuning.tuning import batches, loop, summary, tuned_model, tuning_step

ROWS = batches.TaskRows(
    ids=[np.array([7] * n) for n in (3, 4, 5, 6, 3)],
    marks=[np.zeros(n, np.uint8) for n in (3, 4, 5, 6, 3)],
    labels={"label": np.arange(5, dtype=np.int32)},
)
ACCURACY = {1: 0.2, 2: 0.9, 3: 0.5}  # of seed 0 at each step; seed 1 gets better all the time


def counting(seen):
    """Programs whose parameters are the number of the step."""

    def update(state, batch, rate_schedule, keys_Z):
        for seed in range(2):
            real = batch["weight"][seed] > 0
            seen[seed] += np.asarray(batch["label"][seed])[np.asarray(real)].tolist()
        params = jax.tree.map(lambda x: x + 1, state.params)
        after = tuning_step.State(params, state.opt_state, state.step + 1, state.skipped)
        return after, jnp.array([10.0, 20.0]) + float(params["x"][0, 0])

    return types.SimpleNamespace(update=update, rows=jax.devices()[0])


def train(keep, seen=None):
    state = tuning_step.State({"x": jnp.zeros((2, 3))}, (), jnp.zeros(2, int), jnp.zeros(2, int))
    plan = loop.TuningPlan(1e-3, 1, 2, 0.1, (8,), shared_seed=0, evaluate_times=3, keep=keep)

    def score(params):
        number = int(params["x"][0, 0])
        return [{"dev": {"accuracy": x}} for x in (ACCURACY[number], number / 10)]

    def better(left, right):
        return left["dev"]["accuracy"] > right["dev"]["accuracy"]

    seen = [[], []] if seen is None else seen
    return loop.train(counting(seen), state, None, [0, 1], ROWS, plan, 0, score, better)


def test_an_epoch_shows_every_row_once_to_each_seed():
    seen = [[], []]
    train("last", seen)
    assert [sorted(rows) for rows in seen] == [[0, 1, 2, 3, 4]] * 2
    assert seen[0] != seen[1]


def test_a_point_has_the_loss_since_the_point_before():
    points = train("last").evaluations
    assert [[point.step for point in seed] for seed in points] == [[1, 2, 3]] * 2
    assert [point.loss for point in points[1]] == [21, 22, 23]


def test_a_loss_that_was_not_applied_does_not_spoil_the_point():
    losses = [np.array([1.0, np.nan]), np.array([np.inf, np.nan]), np.array([4.0, np.nan])]
    np.testing.assert_array_equal(loop._mean_of_finite(losses), [2.5, np.nan])


@pytest.mark.parametrize(
    ("keep", "chosen", "weights"), [("last", [2, 2], [3, 3]), ("best", [1, 2], [2, 3])]
)
def test_each_seed_keeps_the_weights_that_count(keep, chosen, weights):
    tuned = train(keep)
    assert tuned.chosen == chosen
    assert tuned.params["x"][:, 0].tolist() == weights


def test_the_columns_of_a_table_are_pairs_too():
    """An array of several texts has no truth value."""
    model = tuned_model.Model(None, built_in.named("mrpc"))
    found = model._examples(np.array(["a", "b"]), np.array(["c", "d"]))
    assert [(example.a, example.b) for example in found] == [("a", "c"), ("b", "d")]


def test_texts_that_can_be_read_only_once_are_as_a_list():
    pairs = tuned_model.Model(None, built_in.named("mrpc"))
    found = pairs._examples(iter(["a", "b"]), (text for text in ("c", "d")))
    assert [(example.a, example.b) for example in found] == [("a", "c"), ("b", "d")]
    single = tuned_model.Model(None, built_in.named("sst2"))
    assert [example.a for example in single._examples(iter(["a", "b"]), None)] == ["a", "b"]
    tagged = tuned_model.Model(None, built_in.named("ner"))
    found = tagged._examples(iter(["Ann sleeps", ["Bob", "too"]]), None)
    assert [example.words for example in found] == [("Ann", "sleeps"), ("Bob", "too")]

    with pytest.raises(config_lib.ConfigError, match="^texts is None; give a list of texts$"):
        single._examples(None, None)


@pytest.mark.parametrize(
    ("task", "micro", "rows", "together"),
    [
        ("sst2", 32, 1, 2), ("sst2", 32, 3, 8), ("sst2", 32, 9, 64), ("sst2", 32, 1000, 64),
        ("sst2", 2, 3, 4), ("sst2", 1, 5, 2), ("squad2", 32, 1, 64),
    ],
)  # fmt: skip
def test_a_single_text_does_not_take_a_whole_batch(task, micro, rows, together):
    settings = types.SimpleNamespace(micro_batch_size=micro)
    model = tuned_model.Model(types.SimpleNamespace(settings=settings), built_in.named(task))
    assert model._rows_at_once(rows) == together


def test_a_note_keeps_a_path_that_begins_with_the_name_of_its_task():
    report = examples.Report()
    report.count("ner train", "examples", 3)
    report.count("ner train", "document marks skipped", 2)
    report.note("ner: pairs train in both orders")
    report.note("ner/eng.train: 'en:' taken off every word")
    prepared = types.SimpleNamespace(task=types.SimpleNamespace(name="ner"), report=report)
    assert summary._notes(prepared) == [
        "train: 2 document marks skipped",
        "pairs train in both orders",
        "ner/eng.train: 'en:' taken off every word",
    ]
