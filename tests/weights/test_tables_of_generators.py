# SPDX-License-Identifier: Apache-2.0
"""A generator that is taken keeps the tables it was trained with, and so does the main network.

init.from  ->  with tables of its own, where the source shared them
init.from and init.generator_from  ->  main network of the one, generator of the other
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from electra_jax import config as config_lib
from electra_jax.core import batch as batch_lib
from electra_jax.core import trees
from electra_jax.model import networks
from electra_jax.step import plans
from electra_jax.weights import exporting, reading, starting_checks, starting_weights, warm_start
from support import workdirs

DETECTION = "replaced_token_detection"
ALIKE = {  # generator and main network of one shape, so that either can become a generator
    "model__generator__layers": 1,
    "model__generator__width": 32,
    "model__generator__feed_forward": 64,
    "model__discriminator__layers": 1,
}


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return workdirs.small_vocabulary(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def made(words, tmp_path_factory):
    """Makes a workdir of random weights: (path, shapes, parameters)."""

    def make(name, sharing, **changes):
        path = tmp_path_factory.mktemp(name) / "run"
        settings = ALIKE | dict(objective__name=name, model__sharing=sharing) | changes
        config, params = workdirs.made(path, words, **settings)
        return str(path), plans.networks_config(config, words.size), params

    return make


@pytest.fixture(scope="module")
def detector(made):
    return made(DETECTION, "embeddings")


@pytest.fixture(scope="module")
def predictor(made):
    return made("masked_lm", "embeddings")


def begun(words, sharing, **init):
    """(shapes, parameters) of a detection run that has begun with these weights."""
    # Sources are looked at when the weights are read, so the settings may name them afterwards.
    config = workdirs.recipe(**ALIKE, objective__name=DETECTION, model__sharing=sharing)
    config = dataclasses.replace(config, init=dataclasses.replace(config.init, **init))
    mesh = plans.make_mesh(config)
    plan = plans.make_plan(config, words, mesh=mesh)
    fresh = jax.jit(plan.init, out_shardings=plan.state_shardings)()
    phases = plan.objective.phases
    run = starting_weights.FreshRun(config.init, config.optimizer.name, fresh, phases, words, mesh)
    return plan.networks, warm_start.state(run).params


def predictions(shape, params):
    """The generator's logits at two places of a row."""
    ids_BL, marks_BL = jnp.arange(16)[None] + 5, jnp.ones((1, 16), jnp.uint8)
    batch = batch_lib.from_lanes(ids_BL, marks_BL, jnp.arange(1), 0)
    return np.asarray(networks.generator_logits(shape, params, batch, jnp.array([[3, 7]])))


def main_trunk(shape, params):
    return trees.flat(networks.main_trunk(shape, params))


def test_a_generator_whose_tables_were_shared_gets_them_as_its_own(words, detector):
    path, theirs, before = detector
    shape, params = begun(words, "none", from_=path)
    np.testing.assert_allclose(predictions(shape, params), predictions(theirs, before), atol=1e-5)
    # Two arrays, since a training step donates the memory of each once.
    assert params["generator"]["embeddings"]["token"] is not params["embeddings"]["token"]


def test_with_gdes_deltas_take_up_what_the_generators_tables_change(words, detector, predictor):
    shape, params = begun(words, "gdes", from_=detector[0], generator_from=predictor[0])
    mine, theirs = main_trunk(shape, params), main_trunk(*detector[1:])
    for path, x in theirs.items():
        np.testing.assert_allclose(mine[path], x, atol=1e-6, err_msg=path)
    np.testing.assert_array_equal(
        params["embeddings"]["token"], predictor[2]["embeddings"]["token"]
    )


def test_without_deltas_a_warning_says_whose_tables_are_lost(words, detector, predictor, caplog):
    begun(words, "embeddings", from_=detector[0], generator_from=predictor[0])
    (said,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert "embeddings/token" in said and "replaces that of init.from" in said

    caplog.clear()  # of one source nothing is lost
    begun(words, "embeddings", from_=detector[0], generator_from=detector[0])
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (dict(model__sharing="all"), "model.sharing='all' has no place"),
        (dict(objective__name="masked_lm"), "objective.name='masked_lm' does not train"),
        (dict(objective__name="unigram_generator"), "'unigram_generator' does not train"),
    ],
)
def test_a_generator_without_a_place_is_refused(settings, reason):
    with pytest.raises(config_lib.ConfigError, match=reason):
        workdirs.recipe(**ALIKE, init__generator_from="there", **settings)


def test_an_export_of_a_run_with_gdes_begins_such_a_run_whole(words, made, tmp_path, caplog):
    caplog.set_level("INFO")
    path, theirs, before = made(DETECTION, "gdes")
    exporting.to_hugging_face(reading.open(path), str(tmp_path / "hf"))
    shape, params = begun(words, "gdes", from_=str(tmp_path / "hf"))
    np.testing.assert_allclose(predictions(shape, params), predictions(theirs, before), atol=1e-5)
    mine, whole = main_trunk(shape, params), main_trunk(theirs, before)
    for name, x in whole.items():
        rows = words.size if name == "embeddings/token" else None  # without padding
        np.testing.assert_allclose(mine[name][:rows], x[:rows], atol=1e-6, err_msg=name)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    assert f"starting from the weights of init.from={str(tmp_path / 'hf')!r}" in caplog.messages


def test_a_generator_of_the_lowest_layers_is_not_called_fresh(words, detector, tmp_path, caplog):
    caplog.set_level("INFO")
    exporting.to_hugging_face(reading.open(detector[0]), str(tmp_path / "hf"), "discriminator")
    source = str(tmp_path / "hf")
    begun(words, "embeddings", from_=source, missing_generator="discriminator")
    (line,) = [x for x in caplog.messages if x.startswith("starting from")]
    assert line == f"starting from the weights of init.from={source!r}; fresh: generator/head"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rotary_base": 100.0}, "model.rotary_base=10,000.0, and this run has 100.0"),
        ({"local_window": 2}, "model.local_window=0, and this run has 2"),
        ({"global_every": 5}, None),  # without a window all layers see the whole document
        ({}, None),
    ],
)
def test_layers_that_see_other_places_than_before_are_named(words, made, caplog, change, said):
    rotary = ALIKE | dict(objective__name=DETECTION, model__positions="rotary")
    path, *_ = made(DETECTION, "embeddings", model__positions="rotary")
    config = workdirs.recipe(**rotary, **{f"model__{name}": x for name, x in change.items()})
    config = dataclasses.replace(config, init=dataclasses.replace(config.init, from_=path))
    starting_checks.check_shapes(config)
    warnings = [x.getMessage() for x in caplog.records if x.levelname == "WARNING"]
    assert len(warnings) == bool(said) and all(said in line for line in warnings)
