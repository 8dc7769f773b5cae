# SPDX-License-Identifier: Apache-2.0
"""A run keeps the checkpoint of its best evaluation beside the newest ones."""

import json

import pytest

import electra_jax
from electra_jax import config as config_lib
from electra_jax.training import trained_run
from electra_jax.weights import reading_workdir
from electra_jax.workdir import metadata
from support.corpus import StopAt, small_run

METRIC = "gen_masked_loss"
STEPS = 8


def settings(text, **changes):
    """Eight steps that are evaluated and saved one by one; the third and the fourth are better than
    all before them, and no later one is."""
    return small_run(*text, **dict(
        schedule__steps=STEPS, schedule__warmup_steps=STEPS, optimizer__learning_rate=0.1,
        checkpoint__every=1, checkpoint__keep_last=1, checkpoint__keep_best=METRIC,
        evaluation__every=1, logging__every=1, model__discriminator__layers=1,
    ) | changes)  # fmt: skip


def evaluated(workdir):
    """step -> the metric of its evaluation."""
    rows = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    return {row["step"]: row[METRIC] for row in rows if row["kind"] == "eval"}


def saved(workdir):
    return metadata.steps(str(workdir / "checkpoints"))


def test_the_best_checkpoint_outlives_newer_ones_and_later_starts(text, tmp_path, capsys):
    electra_jax.train(settings(text), tmp_path, extra_writers=[StopAt(3)])
    values = evaluated(tmp_path)
    assert min(values, key=values.get) == max(values) in (3, 4)
    assert saved(tmp_path) == [max(values)]

    electra_jax.train(settings(text), tmp_path, extra_writers=[StopAt(6)])
    values, (best, stopped) = evaluated(tmp_path), saved(tmp_path)
    assert best == min(values, key=values.get) < stopped < STEPS

    capsys.readouterr()
    electra_jax.train(settings(text), tmp_path)
    assert [*evaluated(tmp_path)] == [*range(1, STEPS + 1)]
    assert saved(tmp_path) == [best, STEPS]
    said = capsys.readouterr().out
    assert f"best       step {best}, whose {METRIC} is {values[best]:.4g} (" in said
    assert f"--step={best} --to=hugging_face" in said

    config = config_lib.parse(settings(text))
    run = trained_run.open(config, str(tmp_path), best, evaluates=True)
    assert trained_run.evaluate(run)[METRIC] == pytest.approx(values[best], rel=1e-6)

    (tmp_path / "checkpoints" / str(best) / "_CHECKPOINT_METADATA").write_text("")
    with pytest.raises(metadata.CheckpointError, match=f"step {best} .* leave out the step for"):
        reading_workdir.read(str(tmp_path), best)


def test_a_run_may_begin_to_keep_the_best_of_those_that_are_left(text, tmp_path):
    """And a finished one that goes on without the metric keeps the newest alone."""
    half = {"schedule__steps": STEPS // 2}
    electra_jax.train(
        settings(text, checkpoint__keep_best="", checkpoint__keep_last=2, **half), tmp_path
    )
    assert saved(tmp_path) == [3, 4]

    electra_jax.train(settings(text), tmp_path)
    values = evaluated(tmp_path)
    best = min(range(3, STEPS + 1), key=values.get)
    assert saved(tmp_path) == [*sorted({best, STEPS})]
