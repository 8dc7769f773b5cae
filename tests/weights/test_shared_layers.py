# SPDX-License-Identifier: Apache-2.0
"""A generator whose lowest layers are the discriminator's goes on where they are its own."""

import dataclasses

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from electra_jax import config as config_lib
from electra_jax.core import batch as batch_lib
from electra_jax.core import trees
from electra_jax.model import networks
from electra_jax.step import plans
from electra_jax.weights import starting_checks, starting_weights, warm_start
from support import workdirs

SHAPE = dict(width=32, heads=2, feed_forward=64)
SHARING = workdirs.TEAMS | {"model__discriminator": dict(layers=2, **SHAPE)}
SETTINGS = ("init.from", "init.generator_from")


def apart(layers):
    """Settings of a run whose generator has so many layers, all its own."""
    return SHARING | {
        "objective__name": "replaced_token_detection",
        "model__discriminator_head": "token",
        "model__generator": dict(layers=layers, **SHAPE),
        "model__shared_layers": 0,
    }


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return workdirs.small_vocabulary(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module", params=[32, 16], ids=["as_wide", "projected"])
def size(request):
    """Of the embeddings: with and without a projection below the layers."""
    return {"model__embedding_size": request.param}


@pytest.fixture(scope="module")
def trained(words, size, tmp_path_factory):
    """Makes a workdir of random weights: (path, shapes, parameters)."""

    def make(settings):
        path = tmp_path_factory.mktemp("trained") / "run"
        config, params = workdirs.made(path, words, **settings | size)
        return str(path), plans.networks_config(config, words.size), params

    return make


@pytest.fixture(scope="module")
def sharing(trained):
    return trained(SHARING)


def begun(words, settings, setting, path):
    """(shapes, parameters before, after) of a run that begins with the weights at the path."""
    config = workdirs.recipe(**settings)
    name = {"init.from": "from_", "init.generator_from": "generator_from"}[setting]
    config = dataclasses.replace(config, init=dataclasses.replace(config.init, **{name: path}))
    starting_checks.check_shapes(config)

    mesh = plans.make_mesh(config)
    plan = plans.make_plan(config, words, mesh=mesh)
    fresh = jax.jit(plan.init, out_shardings=plan.state_shardings)()
    run = starting_weights.FreshRun(
        config.init, config.optimizer.name, fresh, plan.objective.phases, words, mesh,
        plan.networks.shared_layers,
    )  # fmt: skip
    return plan.networks, fresh.params, warm_start.state(run).params


def predictions(shape, params):
    """The generator's logits at two places of a row."""
    ids_BL, marks_BL = jnp.arange(16)[None] + 5, jnp.ones((1, 16), jnp.uint8)
    batch = batch_lib.from_lanes(ids_BL, marks_BL, jnp.arange(1), 0)
    return np.asarray(networks.generator_logits(shape, params, batch, jnp.array([[3, 7]])))


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_generator_gets_copies_of_the_layers_that_it_shared(words, size, sharing, setting):
    path, theirs, before = sharing
    shape, _, params = begun(words, apart(2) | size, setting, path)
    np.testing.assert_allclose(predictions(shape, params), predictions(theirs, before), atol=1e-5)
    # A training step donates the memory of each array once.
    arrays = [x.unsafe_buffer_pointer() for x in jax.tree.leaves(params)]
    assert len(set(arrays)) == len(arrays)


def test_its_own_layers_alone_are_no_generator(words, size, sharing):
    _, fresh, params = begun(words, apart(1) | size, "init.from", sharing[0])
    for path, x in trees.flat(params["generator"]).items():
        np.testing.assert_array_equal(x, trees.flat(fresh["generator"])[path], err_msg=path)
    with pytest.raises(config_lib.ConfigError, match="no generator of this shape: .* here .1, "):
        begun(words, apart(1) | size, "init.generator_from", sharing[0])


def test_a_generators_lowest_layer_becomes_none_above_shared_ones(words, size, trained):
    path, *_ = trained(apart(1))
    _, fresh, params = begun(words, SHARING | size, "init.from", path)
    for part in ("upper_layers", "head"):
        for name, x in trees.flat(params["generator"][part]).items():
            np.testing.assert_array_equal(x, trees.flat(fresh["generator"][part])[name])


def test_a_run_that_shares_as_many_takes_all(words, size, sharing):
    path, _, before = sharing
    _, _, params = begun(words, SHARING | size, "init.from", path)
    for name, x in trees.flat(params).items():
        np.testing.assert_array_equal(x, trees.flat(before)[name], err_msg=name)


def test_a_run_that_shares_fewer_gets_copies_of_those_between(words, size, trained):
    deeper = dict(layers=3, **SHAPE)
    three = SHARING | {"model__discriminator": deeper, "model__generator": deeper}
    path, theirs, before = trained(three | {"model__shared_layers": 2})
    shape, _, params = begun(words, three | size, "init.from", path)
    assert (theirs.shared_layers, shape.shared_layers) == (2, 1)
    np.testing.assert_allclose(predictions(shape, params), predictions(theirs, before), atol=1e-5)
