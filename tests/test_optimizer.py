# SPDX-License-Identifier: Apache-2.0
"""The update rules in numbers, the decayed leaves in a list, rates and clips by network."""

import jax
import numpy as np
import odd
import optax
import pytest
from jax import numpy as jnp

from electra_jax import optimizer
from electra_jax.model import networks

DEFAULT = optimizer.AdamConfig()


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
        run(make(optimizer.AdamConfig(weight_decay=0)), {"kernel": jnp.zeros(1)},
            [{"kernel": gradient} for gradient in gradients])[-1]["kernel"]
        for make in (optimizer.reference_adamw, optimizer.adamw)
    )  # fmt: skip
    assert corrected[0] == pytest.approx(1, rel=1e-3)
    assert plain[0] / corrected[0] == pytest.approx(6.5, abs=0.05)


def test_the_clip_is_of_all_leaves_together():
    params = {"a": jnp.zeros(2), "b": jnp.zeros(1)}
    config = optimizer.AdamConfig(beta1=0, beta2=0, epsilon=1e9, weight_decay=0, clip_norm=1)
    gradients = {"a": jnp.array([1.0, 2.0]), "b": jnp.array([2.0])}  # norm 3
    (found,) = run(optimizer.reference_adamw(config), params, [gradients])
    np.testing.assert_allclose(1e9 * found["a"], [1 / 3, 2 / 3], rtol=1e-6)
    np.testing.assert_allclose(1e9 * found["b"], [2 / 3], rtol=1e-6)
    (unclipped,) = run(
        optimizer.reference_adamw(optimizer.AdamConfig(0, 0, 1e9, 0, clip_norm=0)),
        params,
        [gradients],
    )
    np.testing.assert_allclose(1e9 * unclipped["a"], [1, 2], rtol=1e-6)


def test_a_small_gradient_is_not_stretched_to_the_norm():
    config = optimizer.AdamConfig(beta1=0, beta2=0, epsilon=1e9, weight_decay=0, clip_norm=1)
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


def test_the_state_of_both_optimizers_carries_the_parameters_paths():
    shapes = jax.eval_shape(lambda: networks.init(odd.NETWORKS, jax.random.key(0)))
    for make in (optimizer.reference_adamw, optimizer.adamw):
        state = jax.eval_shape(make(DEFAULT).init, shapes)
        assert isinstance(make(DEFAULT), optax.GradientTransformation)
        paths = {jax.tree_util.keystr(p, simple=True, separator="/")
                 for p, _ in jax.tree_util.tree_leaves_with_path(state)}  # fmt: skip
        for path in odd.flat(jax.tree.map(lambda x: 0, shapes)):
            assert sum(other.endswith(path) for other in paths) == 2
