# SPDX-License-Identifier: Apache-2.0
"""One run with Muon, rates and clips by network, averages and skipped spikes, in whole."""

import json

import numpy as np
import pytest

import electra_jax
from electra_jax import config as config_lib
from electra_jax.core import averages, sharding
from electra_jax.report import alarms
from electra_jax.step import plans
from electra_jax.training import runs, saved_state, trained_run
from electra_jax.weights import checkpoint, checkpoint_series, starting_weights, warm_start
from electra_jax.workdir import metadata
from support.corpus import StopAt, small_run
from support.outcomes import digest, rows

STEPS = 6


def settings(text, **changes):
    """Six steps that hardly learn; a norm above the mean of those before it is a spike."""
    return small_run(*text, **dict(
        optimizer__name="muon", optimizer__learning_rate=1e-6, optimizer__gen_learning_rate=2e-6,
        optimizer__muon_learning_rate=4e-6, optimizer__disc_muon_learning_rate=3e-6,
        optimizer__clip="per_network", optimizer__ema_decay=0.9,
        schedule__on_spike="skip", schedule__spike_factor=1.0,
        schedule__shape="warmup_stable_decay", schedule__decay_share=0.5, schedule__warmup_steps=0,
        logging__every=1, checkpoint__every=50, evaluation__every=3,
    ) | changes)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def judged_early():
    """A few steps are enough to tell a spike here, and any loss from the third row on alarms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(averages, "JUDGED_AFTER", 2)
        patch.setattr(alarms, "FEWEST", 2)
        patch.setattr(alarms, "DEVIATIONS", -1e9)
        patch.setattr(alarms, "LEAST_RISE", -0.5)
        yield


@pytest.fixture(scope="module")
def finished(text, tmp_path_factory):
    """An uninterrupted run: (workdir, final metrics)."""
    workdir = tmp_path_factory.mktemp("finished")
    return workdir, electra_jax.train(settings(text), workdir)


def test_the_log_has_each_rate_by_its_name_and_in_its_shape(finished):
    """1 until half of the six steps, then 1 - sqrt(0), 1 - sqrt(1/3), 1 - sqrt(2/3)."""
    shape = np.array([1, 1, 1, 1, 1 - np.sqrt(1 / 3), 1 - np.sqrt(2 / 3)])
    train = [row for row in rows(finished[0]) if row["kind"] == "train"]
    for name, peak in (
        ("gen_learning_rate", 2e-6),
        ("disc_learning_rate", 1e-6),
        ("muon_learning_rate", 4e-6),
        ("disc_muon_learning_rate", 3e-6),
    ):
        np.testing.assert_allclose([row[name] for row in train], peak * shape, rtol=5e-4)
    assert "learning_rate" not in train[0]


def test_spikes_are_counted_in_the_log(finished):
    train = [row for row in rows(finished[0]) if row["kind"] == "train"]
    assert train[1]["skipped_steps"] == 0 < train[-1]["skipped_steps"] < 4
    log = (finished[0] / "log.txt").read_text()
    assert log.count("skipped: grad_norm is") == train[-1]["skipped_steps"]


def test_stopped_and_started_again_it_is_as_if_never_stopped(text, finished, tmp_path):
    electra_jax.train(settings(text), tmp_path, [StopAt(3)])
    # The evaluation at step 3 is not compiled yet, so the next start makes it.
    assert metadata.steps(f"{tmp_path}/checkpoints") == [3]
    assert electra_jax.train(settings(text), tmp_path) == finished[1]
    assert digest(tmp_path) == digest(finished[0])
    assert rows(tmp_path) == rows(finished[0])
    log = (tmp_path / "log.txt").read_text()
    for loss in ("loss", "gen_loss", "disc_loss"):  # each alarm once, over both starts
        assert log.count(f"alarm at step 3: {loss} jumped to") == 1
    assert log.count("alarm at step") == 3


def test_every_array_of_the_state_has_its_place_on_a_mesh(finished):
    names = digest(finished[0])
    assert {name.partition("/")[0] for name in names} >= {"ema", "norms", "optimizer"}
    for name in names:
        if not name.startswith("interval/"):
            assert sharding.spec_for(name) is not None
    of_ema = {name.removeprefix("ema/") for name in names if name.startswith("ema/")}
    of_params = {name.removeprefix("params/") for name in names if name.startswith("params/")}
    assert of_ema == of_params
    assert digest(finished[0])["ema/embeddings/token"] != names["params/embeddings/token"]


def test_the_averages_are_what_is_evaluated_and_the_row_says_so(finished):
    workdir, final = finished
    assert final["ema_decay"] == 0.9
    run = trained_run.open(_config(workdir), str(workdir))
    assert checkpoint.digest(run.params) == _part(workdir, "ema")


@pytest.mark.parametrize(("weights", "part"), [("auto", "ema"), ("ema", "ema"), ("raw", "params")])
def test_init_from_takes_the_averages_unless_told_otherwise(text, finished, weights, part):
    workdir, _ = finished
    config = settings(text)
    config.init["from"], config.init.weights = str(workdir), weights
    parsed = config_lib.parse(config)
    run = runs.start(_config(workdir), str(workdir))
    found = warm_start.state(beginning(parsed, run)).params
    assert checkpoint.digest(found) == _part(workdir, part)


def beginning(config, run):
    """A run with these settings that begins where the other one is now."""
    return starting_weights.FreshRun(
        config.init,
        config.optimizer.name,
        run.state,
        run.stage.objective.phases,
        run.vocabulary,
        run.mesh,
    )


def test_averages_that_are_not_there_are_refused(text, finished, tmp_path):
    workdir, _ = finished
    run = runs.start(_config(workdir), str(workdir))
    raw = saved_state.tree_of(run.state, run.interval)
    del raw["ema"]
    with checkpoint_series.Checkpoints(str(tmp_path / "checkpoints"), 1) as saved:
        saved.save(STEPS, raw, runs.metadata_of(run))
    config = settings(text)
    config.init["from"], config.init.weights = str(tmp_path), "ema"
    with pytest.raises(config_lib.ConfigError, match="holds no averages; use 'auto' or 'raw'"):
        warm_start.state(beginning(config_lib.parse(config), run))
    config.init.weights = "auto"
    found = warm_start.state(beginning(config_lib.parse(config), run)).params
    assert checkpoint.digest(found) == _part(workdir, "params")


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ({"muon_learning_rate": 0.02}, "optimizer.muon_learning_rate=0.02 does"),
        ({"disc_muon_learning_rate": 0.01}, "optimizer.disc_muon_learning_rate=0.01 does"),
        (
            {"muon_learning_rate": 0.02, "disc_muon_learning_rate": 0.01},
            "optimizer.muon_learning_rate=0.02 and optimizer.disc_muon_learning_rate=0.01 do",
        ),
    ],
)
def test_rates_that_nothing_takes_are_refused(rates, said):
    config = small_run("builtin", "", **{f"optimizer__{name}": x for name, x in rates.items()})
    with pytest.raises(config_lib.ConfigError, match=f"^{said} nothing with .*name='reference"):
        config_lib.parse(config)


def test_by_default_nothing_is_kept_beside_the_usual():
    extras = plans.make_extras(config_lib.parse(small_run("builtin", "")))
    assert (extras.ema_decay, extras.spike_factor, extras.timed, extras.logged_shares) == (
        0,
        0,
        False,
        None,
    )


def _config(workdir):
    return config_lib.parse(json.loads((workdir / "config.json").read_text()))


def _part(workdir, part):
    return {
        name.removeprefix(f"{part}/"): value
        for name, value in digest(workdir).items()
        if name.startswith(f"{part}/")
    }
