# SPDX-License-Identifier: Apache-2.0
"""The learning rate of every leaf and layer in fine-tuning, under both rules."""

import math

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from electra_jax import config as config_lib
from electra_jax.core import trees
from electra_jax.finetuning import config as finetuning_config
from electra_jax.finetuning.tuning import choices, rates
from electra_jax.model import networks
from support import corpus, odd

HEAD = {"output": {"kernel": jnp.zeros((10, 2)), "bias": jnp.zeros(2)}}

POST = odd.pair(37, 6, 13, odd.NETWORKS.generator, odd.trunk(3, 10, 2, 14))
PRE = odd.pair(
    37, 6, 0, odd.NETWORKS.generator,
    odd.trunk(3, 10, 2, 14, norm_place="pre", positions="rotary"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "layers", "embeddings"),
    [
        ("paper", [0.125, 0.25, 0.5], 0.0625),  # layers 0, 1, 2 of three, decay 1/2
        ("released_code", [0.0625, 0.125, 0.25], 0.03125),  # the top layer has decay^2
    ],
)
@pytest.mark.parametrize("shape", [POST, PRE], ids=["post", "pre"])
def test_every_leaf_has_the_rate_of_its_depth(rule, layers, embeddings, shape):
    params = jax.eval_shape(lambda: networks.init_trunk(shape, jax.random.key(0)))
    params = params | {"head": HEAD}
    found = odd.flat(rates.factors(params, 0.5, rule))
    assert set(found) == set(trees.flat(params))
    for path, factor in found.items():
        if path.startswith("head/"):
            assert factor == 1, path
        elif "encoder/attention" in path or "encoder/feed_forward" in path:
            rank = trees.flat(params)[path].ndim
            assert factor.shape == (3, *[1] * (rank - 1)), path
            assert factor.reshape(-1).tolist() == layers, path
        elif "encoder/norm" in path:  # after the top layer of a pre-norm trunk
            assert factor == layers[-1], path
        else:
            assert path.startswith(("embeddings/", "discriminator/projection/")), path
            assert factor == embeddings, path


def test_the_table_says_the_same_in_words():
    assert rates.table(3, 0.5, "paper") == {
        "head": 1, "layer 2": 0.5, "layer 1": 0.25, "layer 0": 0.125, "embeddings": 0.0625,
    }  # fmt: skip
    assert rates.table(12, 0.8, "released_code")["layer 11"] == pytest.approx(0.64)
    assert rates.table(12, 0.8, "released_code")["embeddings"] == pytest.approx(0.8**14)


@pytest.mark.parametrize(
    ("frozen", "layers", "embeddings"),
    [(0, [0.125, 0.25, 0.5], 0.0625), (1, [0, 0.25, 0.5], 0), (3, [0, 0, 0], 0)],
)
def test_frozen_layers_and_what_is_below_have_no_rate(frozen, layers, embeddings):
    params = jax.eval_shape(lambda: networks.init_trunk(PRE, jax.random.key(0)))
    found = odd.flat(rates.factors(params | {"head": HEAD}, 0.5, "paper", frozen))
    assert found["discriminator/encoder/attention/query/kernel"].reshape(-1).tolist() == layers
    assert found["embeddings/token"] == embeddings
    assert found["discriminator/encoder/norm/scale"] == layers[-1]
    assert found["head/output/kernel"] == 1

    assert rates.table(3, 0.5, "paper", frozen) == {
        "head": 1, "layer 2": layers[2], "layer 1": layers[1], "layer 0": layers[0],
        "embeddings": embeddings,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("layers", "width", "rate", "decay"),
    [(2, 128, 3e-4, 0.8), (12, 256, 3e-4, 0.8), (12, 384, 1e-4, 0.8), (12, 768, 1e-4, 0.8),
     (24, 1024, 5e-5, 0.9), (24, 768, 5e-5, 0.9)],
)  # fmt: skip
def test_sizes_have_their_published_rates(layers, width, rate, decay):
    assert rates.published(layers, width) == rates.PublishedRecipe(rate, decay)


def test_the_rate_warms_up_while_it_falls():
    """peak (1 - s / 100) min(1, s / 10)."""
    found = [float(rates.rate(s, 0.5, 100, 10)) for s in (0, 1, 5, 10, 50, 100)]
    np.testing.assert_allclose(found, [0, 0.5 * 0.99 * 0.1, 0.5 * 0.95 * 0.5, 0.45, 0.25, 0])
    assert float(rates.rate(0, 0.5, 100, 0)) == 0.5  # no warmup


def test_different_rates_have_different_names():
    """They name the folders of a grid."""
    usual = (3e-4, 1e-4, 5e-5, 1e-7, 2, 1e-3)
    assert [rates.name(x) for x in usual] == ["0.0003", "0.0001", "5e-05", "1e-07", "2", "0.001"]
    near = (0.0001234, 0.0001233, 0.00012345)  # equal in three digits
    assert [rates.name(x) for x in near] == ["0.0001234", "0.0001233", "0.00012345"]


def test_a_point_of_a_grid_that_is_given_twice_is_one():
    tree = corpus.load_config("finetune")
    tree.grid.update(learning_rates=(0.0001234, 0.0001233, 0.0001234), epochs=(3, 3))
    found = choices.points(finetuning_config.parse(tree), encoder=None, epochs=10)
    assert [point.name for point in found] == [
        "rate_0.0001234_epochs_3", "rate_0.0001233_epochs_3",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (dict(learning_rates=(1e-3, 0.0)), r"grid.learning_rates=\(0.001, 0.0\) must hold numbers"),
        (dict(learning_rates=(math.nan,)), "above 0 and up to 10, or be"),
        (dict(learning_rates=(math.inf,)), "above 0 and up to 10, or be"),
        (dict(learning_rates=("1e-3",)), "above 0 and up to 10, or be"),
        (dict(epochs=(3, 20_000)), "above 0 and up to 10,000, or be"),
        (dict(epochs=(2.5,)), "must hold whole numbers above 0"),
    ],
)
def test_a_grid_holds_what_the_recipe_may_hold(grid, message):
    tree = corpus.load_config("finetune")
    tree.grid.update(**grid)
    with pytest.raises(config_lib.ConfigError, match=message) as refused:
        finetuning_config.parse(tree)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, []),
        ({"tasks": "cola,squad", "span.head": "plain"}, []),
        ({"tasks": "cola", "span.head": "plain"}, ["span.head='plain'"]),
        ({"tasks": "cola,squad", "recipe.head": "two_layer"}, []),
        ({"tasks": "chunking,squad", "recipe.head": "mean"}, ["recipe.head='mean'"]),
        (
            {"tasks": "cola", "custom.train": "my.tsv", "custom.kind": "classification"},
            ["custom.train='my.tsv'"],
        ),
        (
            {"grid.learning_rates": (1e-4,), "recipe.learning_rate": 5e-5},
            ["recipe.learning_rate=5e-05"],
        ),
        ({"grid.epochs": (3,), "recipe.epochs": 5}, ["recipe.epochs=5"]),
    ],
)
def test_a_setting_of_fine_tuning_that_changes_nothing_is_named(changed, said):
    tree = corpus.load_config("finetune")
    tree.update_from_flattened_dict(changed)
    lines = choices.unread(finetuning_config.parse(tree))
    assert [line.partition(" changes nothing: ")[0] for line in lines] == said


def test_a_task_that_is_described_and_not_named_is_asked_for():
    tree = corpus.load_config("finetune")
    tree.custom.update(train="my.tsv", kind="classification")
    with pytest.raises(config_lib.ConfigError, match="add --config.tasks=custom"):
        choices.tasks_in_order(finetuning_config.parse(tree))
