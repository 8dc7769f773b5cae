# SPDX-License-Identifier: Apache-2.0
"""The update rules in numbers, the decayed leaves in a list, rates and clips by network."""

import dataclasses
import json
import os
import subprocess
import sys

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp

from electra_jax.core import trees
from electra_jax.model import networks
from electra_jax.step import optimizer
from support import odd
from support.corpus import ROOT

DEFAULT = optimizer.Settings()


def run(transformation, params, gradients):
    """The updates after each gradient; parameters stay where they are."""
    state, update, found = transformation.init(params), jax.jit(transformation.update), []
    for gradient in gradients:
        updates, state = update(gradient, state, params)
        found.append(jax.device_get(updates))
    return found


def test_uncorrected_adam_is_plain_moving_averages():
    draw = np.random.default_rng(0)
    gradients = 10.0 ** draw.uniform(-8, 2, (12, 5)) * draw.choice([-1, 1], (12, 5))
    adam = optimizer.scale_by_uncorrected_adam(0.9, 0.999, 1e-6)
    found = run(adam, jnp.zeros(5), list(jnp.asarray(gradients, jnp.float32)))
    m = v = 0
    for gradient, update in zip(gradients, found):
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        np.testing.assert_allclose(update, m / (np.sqrt(v) + 1e-6), rtol=2e-5)


def test_without_correction_early_updates_are_larger():
    """6.5 times at the tenth step: (1 - 0.9^10) / sqrt(1 - 0.999^10)."""
    gradients = [jnp.full(1, 1e-2)] * 10  # so small that it is not clipped
    plain, corrected = (
        run(make(optimizer.Settings(weight_decay=0)), {"kernel": jnp.zeros(1)},
            [{"kernel": gradient} for gradient in gradients])[-1]["kernel"]
        for make in (optimizer.reference_adamw, optimizer.adamw)
    )  # fmt: skip
    assert corrected[0] == pytest.approx(1, rel=1e-3)
    assert plain[0] / corrected[0] == pytest.approx(6.5, abs=0.05)


@pytest.mark.parametrize(
    "make", [optimizer.reference_adamw, optimizer.adamw, optimizer.muon, optimizer.lamb]
)
def test_moments_stay_where_a_step_is_not_applied(make):
    transformation = make(DEFAULT)
    kernel = {
        "discriminator": {"encoder": {"feed_forward": {"in": {"kernel": jnp.ones((1, 2, 3))}}}}
    }
    params = kernel | {"generator": {"head": {"bias": jnp.ones(3)}}}
    _, state = transformation.update(params, transformation.init(params), params)
    bad = jax.tree.map(lambda x: jnp.nan * x, params)
    _, held = transformation.update(bad, state, params, applied=jnp.array(False))
    assert odd.flat(jax.device_get(held)).keys() == odd.flat(jax.device_get(state)).keys()
    jax.tree.map(np.testing.assert_array_equal, held, state)


def test_the_clip_is_of_all_leaves_together():
    params = {"a": jnp.zeros(2), "b": jnp.zeros(1)}
    config = optimizer.Settings(beta1=0, beta2=0, epsilon=1e9, weight_decay=0, clip_norm=1)
    gradients = {"a": jnp.array([1.0, 2.0]), "b": jnp.array([2.0])}  # norm 3
    (found,) = run(optimizer.reference_adamw(config), params, [gradients])
    np.testing.assert_allclose(1e9 * found["a"], [1 / 3, 2 / 3], rtol=1e-6)
    np.testing.assert_allclose(1e9 * found["b"], [2 / 3], rtol=1e-6)
    (unclipped,) = run(
        optimizer.reference_adamw(
            optimizer.Settings(beta1=0, beta2=0, epsilon=1e9, weight_decay=0, clip_norm=0)
        ),
        params,
        [gradients],
    )
    np.testing.assert_allclose(1e9 * unclipped["a"], [1, 2], rtol=1e-6)


def test_a_small_gradient_is_not_stretched_to_the_norm():
    config = optimizer.Settings(beta1=0, beta2=0, epsilon=1e9, weight_decay=0, clip_norm=1)
    (found,) = run(
        optimizer.reference_adamw(config), {"a": jnp.zeros(1)}, [{"a": jnp.full(1, 0.5)}]
    )
    np.testing.assert_allclose(1e9 * found["a"], [0.5], rtol=1e-6)


@pytest.mark.parametrize("make", [optimizer.reference_adamw, optimizer.adamw])
def test_decay_is_decoupled_and_spares_biases_and_norms(make):
    params = {"kernel": jnp.full(1, 3.0), "head": {"bias": jnp.full(1, 3.0)}}
    zeros = jax.tree.map(jnp.zeros_like, params)
    (found,) = run(make(DEFAULT), params, [zeros])
    assert found["kernel"].tolist() == pytest.approx([0.03])
    assert found["head"]["bias"].tolist() == [0]


def test_these_leaves_decay_and_no_others():
    mask = odd.flat(optimizer.decay_mask(jax.eval_shape(odd.weights)))
    layer = ["attention/query", "attention/key", "attention/value", "attention/output"]
    layer += ["feed_forward/in", "feed_forward/out"]
    decayed = ["embeddings/token", "embeddings/position", "embeddings/type"]
    for network in ("generator", "discriminator"):
        decayed += [f"{network}/{name}/kernel" for name in ("projection", "head/dense")]
        decayed += [f"{network}/encoder/{name}/kernel" for name in layer]
    decayed += ["discriminator/head/output/kernel"]
    assert sorted(path for path, decays in mask.items() if decays) == sorted(decayed)
    spared = [path for path, decays in mask.items() if not decays]
    assert all(path.endswith(("/bias", "/norm/scale")) for path in spared)


def test_the_state_of_every_adam_carries_the_parameters_paths():
    shapes = jax.eval_shape(lambda: networks.init(odd.NETWORKS, jax.random.key(0)))
    for make in (optimizer.reference_adamw, optimizer.adamw, optimizer.lamb):
        state = jax.eval_shape(make(DEFAULT).init, shapes)
        assert isinstance(make(DEFAULT), optax.GradientTransformation)
        paths = set(trees.flat(state))
        for path in trees.flat(shapes):
            assert sum(other.endswith(path) for other in paths) == 2


def newton_schulz(matrix):
    """Five quintic steps towards the nearest orthogonal matrix, as Jordan's page writes them."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / np.linalg.norm(x)
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


LAYER = "generator/encoder/"
KERNELS = {  # shape of two layers, and of the matrix that one of them is
    f"{LAYER}attention/query/kernel": ((2, 6, 2, 4), (6, 8)),
    f"{LAYER}attention/output/kernel": ((2, 2, 4, 6), (8, 6)),
    f"{LAYER}feed_forward/in/kernel": ((2, 6, 5), (6, 5)),
    f"{LAYER}feed_forward/out/kernel": ((2, 5, 6), (5, 6)),
}
NO_MATRICES = {
    "embeddings/token": (7, 6),  # an array of two axes, but no matrix of a layer
    "generator/head/dense/kernel": (6, 6),
    f"{LAYER}attention/query/bias": (2, 2, 4),
    f"{LAYER}feed_forward/norm/scale": (2, 6),
}


def test_muon_takes_each_layer_as_one_matrix_and_adam_the_rest():
    """Two steps of Nesterov momentum 0.95, against a few lines of NumPy."""
    draw = np.random.default_rng(0)
    shapes = {path: shape for path, (shape, _) in KERNELS.items()} | NO_MATRICES
    params = {path: np.float32(draw.standard_normal(shape)) for path, shape in shapes.items()}
    steps = [
        {path: np.float32(1e-3 * draw.standard_normal(x.shape)) for path, x in params.items()}
        for _ in range(2)
    ]
    config = optimizer.Settings(weight_decay=0, peaks=optimizer.PeakRates(1.0, 1.0, (1.0, 1.0)))
    gradients = [trees.nested(step) for step in steps]
    found = [
        odd.flat(updates)
        for updates in run(optimizer.muon(config), trees.nested(params), gradients)
    ]
    adam = [odd.flat(updates) for updates in run(
        optimizer.adamw(dataclasses.replace(config, peaks=optimizer.PeakRates(1.0, 1.0))),
        trees.nested(params), gradients)]  # fmt: skip
    for path, (_, (rows, columns)) in KERNELS.items():
        average = 0
        for number, step in enumerate(steps, 1):
            average = 0.95 * average + 0.05 * step[path]
            ahead = 0.95 * average / (1 - 0.95 ** (number + 1))
            ahead += 0.05 * step[path] / (1 - 0.95**number)
            size = 0.2 * np.sqrt(max(rows, columns))
            for layer in range(2):
                want = size * newton_schulz(ahead[layer].reshape(rows, columns))
                got = found[number - 1][path][layer].reshape(rows, columns)
                np.testing.assert_allclose(got, want, atol=1e-5)
                # As large as Adam's: that is what lets it have Adam's rate.
                assert 0.1 < np.sqrt(np.mean(got**2)) < 0.3
    for path in NO_MATRICES:
        for got, want in zip(found, adam):
            np.testing.assert_array_equal(got[path], want[path])


def test_muon_takes_these_arrays_of_the_networks_and_no_others():
    taken = {path for path in odd.flat(jax.eval_shape(odd.weights)) if optimizer.matrix_axes(path)}
    assert optimizer.matrix_axes("encoder/feed_forward/gate/kernel") == ((1,), (2,))  # of GeGLU
    assert optimizer.matrix_axes("encoder/projection/kernel") is None  # a shared trunk
    assert taken == {
        f"{network}/encoder/{name}/kernel"
        for network in ("generator", "discriminator")
        for name in ("attention/query", "attention/key", "attention/value", "attention/output",
                     "feed_forward/in", "feed_forward/out")
    }  # fmt: skip


def test_a_new_kernel_of_a_layer_asks_for_its_line():
    with pytest.raises(KeyError, match="no line of optimizer.MATRICES covers a/encoder/new/kernel"):
        optimizer.matrix_axes("a/encoder/new/kernel")
    assert optimizer.matrix_axes("encoder/feed_forward/in/kernel")  # one encoder for both networks
    for layers in ("discriminator/detection", "generator/upper_layers"):  # those of TEAMS
        assert optimizer.matrix_axes(f"{layers}/feed_forward/out/kernel") == ((1,), (2,))
    assert optimizer.matrix_axes("discriminator/selection/dense/kernel") is None


def test_lamb_has_a_ratio_for_each_layer_of_a_kernel_and_for_every_other_array_that_decays():
    """Two steps against a few lines of NumPy. The second layer's weights are ten times as large."""
    draw = np.random.default_rng(0)
    shapes = {path: shape for path, (shape, _) in KERNELS.items()} | NO_MATRICES
    params = {path: np.float32(draw.standard_normal(shape)) for path, shape in shapes.items()}
    for path in KERNELS:
        params[path][1] *= 10
    steps = [
        {path: np.float32(1e-3 * draw.standard_normal(x.shape)) for path, x in params.items()}
        for _ in range(2)
    ]
    config = optimizer.Settings(weight_decay=0.5, clip_norm=0)
    found = run(optimizer.lamb(config), trees.nested(params), [trees.nested(x) for x in steps])
    for path, weights in params.items():
        m = v = 0
        for number, step in enumerate(steps, 1):
            m, v = 0.9 * m + 0.1 * step[path], 0.999 * v + 0.001 * step[path] ** 2
            adam = m / (1 - 0.9**number) / (np.sqrt(v / (1 - 0.999**number)) + 1e-6)
            decayed = adam + 0.5 * weights

            if path.endswith(("/bias", "/norm/scale")):
                want = adam
            elif path in KERNELS:
                want = np.stack([trusted(decayed[layer], weights[layer]) for layer in range(2)])
            else:
                want = trusted(decayed, weights)
            got, largest = odd.flat(found[number - 1])[path], np.abs(want).max()
            np.testing.assert_allclose(got, want, rtol=0, atol=2e-5 * largest, err_msg=path)


def trusted(update, weights):
    """The update, as large as the weights."""
    return update * np.linalg.norm(weights) / np.linalg.norm(update)


def test_lamb_updates_every_layer_of_the_networks_by_the_norm_of_its_weights():
    """So it is for arrays that decay: at a rate of 0.01 each moves by a hundredth of its norm."""
    params = odd.weights()
    gradients = jax.tree.map(lambda x: jnp.cos(7 * x), params)
    (found,) = run(optimizer.lamb(DEFAULT), params, [gradients])
    weights, scaled = odd.flat(params), 0
    for path, update in odd.flat(found).items():
        stack = "/encoder/" in path
        norms, expected = (
            np.linalg.norm(x.reshape(len(x) if stack else 1, -1), axis=1)
            for x in (update, weights[path])
        )
        if optimizer.decays(path):
            np.testing.assert_allclose(norms, expected, rtol=1e-5, err_msg=path)
            scaled += len(norms)
        else:
            np.testing.assert_allclose(np.abs(update), 1, rtol=1e-2, err_msg=path)  # as Adam's
    assert scaled == 3 + 2 * (6 * 2) + 2 + 2 + 1  # tables, layers, projections, heads, output


def test_lambs_ratio_is_one_where_weights_or_updates_are_zero():
    """A learned difference begins at 0, and a table of which no row was read has no gradient."""
    params = {"generator": {"kernel": jnp.zeros(2)}, "embeddings": {"type": jnp.array([3.0, 4.0])}}
    gradients = {"generator": {"kernel": jnp.ones(2)}, "embeddings": {"type": jnp.zeros(2)}}
    config = optimizer.Settings(weight_decay=0, clip_norm=0)
    (found,) = run(optimizer.lamb(config), params, [gradients])
    np.testing.assert_allclose(found["generator"]["kernel"], [1, 1], rtol=1e-5)
    assert found["embeddings"]["type"].tolist() == [0, 0]


def test_rows_of_a_table_without_a_gradient_stay_under_lamb_and_count_in_its_norm():
    """Those that pad the vocabulary. Norms: of the weights 13, of Adam's update sqrt(2)."""
    params = {"embeddings": {"token": jnp.array([[3.0, 4.0], [12.0, 0.0]])}}
    gradients = {"embeddings": {"token": jnp.array([[1.0, 1.0], [0.0, 0.0]])}}
    config = optimizer.Settings(weight_decay=0, clip_norm=0)
    (found,) = run(optimizer.lamb(config), params, [gradients])
    moved, padding = found["embeddings"]["token"]
    np.testing.assert_allclose(moved, [13 / np.sqrt(2)] * 2, rtol=1e-5)
    assert padding.tolist() == [0, 0]


def test_lamb_applies_the_rate_of_each_network_after_the_ratio():
    """A ratio that came last would take every factor before it out again."""
    tree = {name: {"kernel": jnp.array([3.0, 4.0])} for name in ("generator", "discriminator")}
    apart = dataclasses.replace(DEFAULT, peaks=optimizer.PeakRates(1.0, 4.0))
    (found,) = run(optimizer.lamb(apart), tree, [tree])
    norms = {name: float(optax.tree.norm(updates)) for name, updates in found.items()}
    assert norms == pytest.approx({"generator": 5 / 4, "discriminator": 5})


@pytest.mark.slow
def test_lambs_norms_are_those_of_whole_arrays_however_they_are_split():
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
    }
    command = [sys.executable, str(ROOT / "tests" / "workers" / "lamb_worker.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    one, four = json.loads(done.stdout.splitlines()[-1])
    split = [path for path, (_, is_split) in four.items() if is_split]
    assert f"{LAYER}attention/query/kernel" in split and "embeddings/token" in split
    assert not any(is_split for _, is_split in one.values())
    for path, (update, _) in one.items():
        np.testing.assert_allclose(four[path][0], update, rtol=1e-5, atol=1e-6, err_msg=path)


ONES = {
    "embeddings/token": 1.0,
    "generator/encoder/feed_forward/in/kernel": 1.0,
    "generator/head/bias": 1.0,
    "discriminator/encoder/feed_forward/in/kernel": 1.0,
    "discriminator/embeddings_delta": 1.0,
}


@pytest.mark.parametrize(
    ("rates", "shares", "named"),
    [
        (optimizer.PeakRates(2e-4, 2e-4), [1, 1, 1, 1, 1], {"learning_rate": 1}),
        (
            optimizer.PeakRates(1e-4, 4e-4),
            [0.25, 0.25, 0.25, 1, 1],
            {"gen_learning_rate": 0.25, "disc_learning_rate": 1},
        ),
        (
            optimizer.PeakRates(2e-4, 2e-4, (8e-4, 8e-4)),
            [0.25, 1, 0.25, 1, 0.25],
            {"learning_rate": 0.25, "muon_learning_rate": 1},
        ),
        (
            optimizer.PeakRates(4e-4, 2e-4, (1e-4, 1e-4)),
            [1, 0.25, 1, 0.25, 0.5],
            {"gen_learning_rate": 1, "disc_learning_rate": 0.5, "muon_learning_rate": 0.25},
        ),
        (
            optimizer.PeakRates(2e-4, 2e-4, (8e-4, 4e-4)),
            [0.25, 1, 0.25, 0.5, 0.25],
            {"learning_rate": 0.25, "muon_learning_rate": 1, "disc_muon_learning_rate": 0.5},
        ),
        (  # Muon's two rates are those of the networks, so no value is new
            optimizer.PeakRates(4e-4, 2e-4, (2e-4, 4e-4)),
            [1, 0.5, 1, 1, 0.5],
            {
                "gen_learning_rate": 1,
                "disc_learning_rate": 0.5,
                "muon_learning_rate": 0.5,
                "disc_muon_learning_rate": 1,
            },
        ),
        (  # embeddings that no generator reads
            optimizer.PeakRates(1e-4, 4e-4, tables="discriminator"),
            [1, 0.25, 0.25, 1, 1],
            {"gen_learning_rate": 0.25, "disc_learning_rate": 1},
        ),
        (optimizer.PeakRates(0.0, 0.0), [1, 1, 1, 1, 1], {"learning_rate": 1}),
    ],
)
def test_every_parameter_has_its_rate_by_its_path(rates, shares, named):
    assert [rates.share(path) for path in ONES] == pytest.approx(shares)
    assert rates.named() == pytest.approx(named)
    config = optimizer.Settings(beta1=0, beta2=0, epsilon=1, weight_decay=1, clip_norm=0)
    config = dataclasses.replace(config, peaks=rates)
    tree = {path: jnp.ones(1) for path in ONES}  # Adam gives 1 / (1 + 1), decay adds 1
    (found,) = run(optimizer.reference_adamw(config), trees.nested(tree), [trees.nested(tree)])
    bias = [0.5 if path.endswith("bias") else 1.5 for path in ONES]
    expected = {path: b * s for path, b, s in zip(ONES, bias, shares)}
    assert {p: float(x[0]) for p, x in odd.flat(found).items()} == pytest.approx(expected)


def test_one_rate_for_all_adds_nothing_to_the_optimizer():
    assert len(optimizer.adamw(DEFAULT).init({"kernel": jnp.zeros(1)})) == 3
    apart = dataclasses.replace(DEFAULT, peaks=optimizer.PeakRates(1.0, 2.0))
    assert len(optimizer.adamw(apart).init({"kernel": jnp.zeros(1)})) == 4


@pytest.mark.parametrize(
    ("tables", "clipped"),
    [("generator", [0.5, 0.6, 0.8]), ("discriminator", [0.5 / 3.0413813, 3 / 3.0413813, 1.0])],
)
def test_networks_can_be_clipped_each_for_itself(tables, clipped):
    """Norms: embeddings 3, generator 4, discriminator 0.5; all 5.02.

    With the generator the embeddings have 5, with the discriminator 3.04.
    """
    gradients = {
        "embeddings": {"token": jnp.array([3.0])},
        "generator": {"kernel": jnp.array([4.0])},
        "discriminator": {"kernel": jnp.array([0.5])},
    }
    params = jax.tree.map(jnp.zeros_like, gradients)
    found = {}
    for clip in ("joint", "per_network"):
        config = optimizer.Settings(
            beta1=0, beta2=0, epsilon=1e9, weight_decay=0, clip=clip,
            peaks=optimizer.PeakRates(1.0, 1.0, tables=tables),
        )  # fmt: skip
        (updates,) = run(optimizer.reference_adamw(config), params, [gradients])
        found[clip] = [1e9 * float(x[0]) for x in odd.flat(updates).values()]
    whole = np.sqrt(25.25)
    assert found["joint"] == pytest.approx([0.5 / whole, 3 / whole, 4 / whole])
    assert found["per_network"] == pytest.approx(clipped)
