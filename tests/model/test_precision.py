# SPDX-License-Identifier: Apache-2.0
"""What stays float32 where the networks compute in bfloat16, held against numpy in float64."""

import functools
import re

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from electra_jax import config as config_lib
from electra_jax.core import meshes
from electra_jax.model import attention, layers, networks
from electra_jax.step import plans
from support import odd
from support.corpus import small_run

SIZE = 32  # of a head, and tokens of a row: the identity as values mixes into the softmax
ROUNDED = 2.0**-8  # the largest relative error of rounding once to bfloat16


@functools.cache
def queries_and_keys():
    """bfloat16 [1, L, 1, K] each; scores of a query run from 17 to 41."""
    draw = np.random.default_rng(0)
    along = np.sign(draw.standard_normal(SIZE))
    wanted_L = np.linspace(17, 41, SIZE) / np.sqrt(SIZE)
    query_LK = along * (1 + 0.1 * draw.standard_normal((SIZE, SIZE)))
    key_LK = along * wanted_L[:, None] * (1 + 0.02 * draw.standard_normal((SIZE, SIZE)))
    return tuple(jnp.asarray(x[None, :, None], jnp.bfloat16) for x in (query_LK, key_LK))


def exact(query_BLHK, key_BLHK):
    """(scores, softmax) in float64 of the same bfloat16 numbers, [L, M] each."""
    query_LK, key_MK = (np.asarray(x, np.float64)[0, :, 0] for x in (query_BLHK, key_BLHK))
    scores_LM = query_LK @ key_MK.T / np.sqrt(SIZE)
    chances_LM = np.exp(scores_LM - scores_LM.max(-1, keepdims=True))
    return scores_LM, chances_LM / chances_LM.sum(-1, keepdims=True)


def test_probabilities_are_rounded_once_and_after_the_softmax():
    """Scores that were rounded before it made them up to 14 % wrong."""
    query_BLHK, key_BLHK = queries_and_keys()
    scores_LM, wanted_LM = exact(query_BLHK, key_BLHK)
    assert scores_LM.min() < 18 and scores_LM.max() > 40
    values_BMHK = jnp.eye(SIZE, dtype=jnp.bfloat16)[None, :, None]
    seen_BLM = jnp.ones((1, SIZE, SIZE), bool)
    found_LM = odd.jit(attention.einsum)(query_BLHK, key_BLHK, values_BMHK, seen_BLM)
    assert found_LM.dtype == jnp.bfloat16
    found_LM = np.asarray(found_LM, np.float64)[0, :, 0]
    assert abs(found_LM / wanted_LM - 1).max() < 1.01 * ROUNDED


def test_dropout_keeps_the_mean_in_bfloat16():
    """1 / 0.898 is 1.1130; in bfloat16 it would be 1.1094, a third of a percent of everything."""
    draw = np.random.default_rng(1)
    x = jnp.asarray(1 + draw.random((64, 1024)), jnp.bfloat16)
    drawn = jnp.asarray(draw.integers(0, 256, x.shape), jnp.uint8)
    kept, share = layers.keeps(0.1, drawn)
    wanted = np.where(kept, np.asarray(x, np.float64) / share, 0)
    found = odd.jit(layers.dropout, static_argnums=1)(x, 0.1, drawn)
    assert found.dtype == jnp.bfloat16
    assert abs(np.asarray(found, np.float64).mean() / wanted.mean() - 1) < 1e-4


def test_attention_keeps_the_mean_of_its_probabilities_in_bfloat16():
    query_BLHK, key_BLHK = queries_and_keys()
    values_BMHK = jnp.eye(SIZE, dtype=jnp.bfloat16)[None, :, None]
    seen_BLM = jnp.ones((1, SIZE, SIZE), bool)
    drawn = np.random.default_rng(2).integers(0, 256, (1, 1, SIZE, SIZE))
    run = odd.jit(functools.partial(attention.einsum, dropout=0.1))
    drawn_BHLM = jnp.asarray(drawn, jnp.uint8)
    found_LM = run(query_BLHK, key_BLHK, values_BMHK, seen_BLM, drawn_BHLM=drawn_BHLM)
    found_LM = np.asarray(found_LM, np.float64)[0, :, 0]
    kept_LM = found_LM > 0
    wanted_LM = exact(query_BLHK, key_BLHK)[1] * 256 / 230
    assert 0.8 < kept_LM.mean() < 0.95
    assert abs((found_LM / wanted_LM)[kept_LM].mean() - 1) < 1e-3


def test_the_one_number_of_a_gate_is_not_rounded():
    """The logit of the copy gate and the baseline of a reward, which say that they are float32."""
    draw = np.random.default_rng(3)
    kernel_E1, vectors_BNE = draw.random((64, 1)), draw.random((2, 3, 64))
    params = {"kernel": jnp.asarray(kernel_E1, jnp.float32), "bias": jnp.full((1,), 0.3)}
    vectors_BNE = jnp.asarray(vectors_BNE, jnp.bfloat16)
    found_BN = odd.jit(networks.gate)(params, vectors_BNE)
    rounded_E = np.asarray(jnp.asarray(kernel_E1[:, 0], jnp.bfloat16), np.float64)
    wanted_BN = np.asarray(vectors_BNE, np.float64) @ rounded_E + 0.3
    assert found_BN.dtype == jnp.float32
    np.testing.assert_allclose(found_BN, wanted_BN, rtol=1e-6)


def dense_and_gradients(dense, params, x, seen):
    """Outputs and gradients of kernel, bias and x, in float64."""

    def value(params, x):
        y = dense(params, x)
        return (y.astype(jnp.float32) * seen).sum(), y

    run = jax.value_and_grad(value, argnums=(0, 1), has_aux=True)
    (_, y), (of_params, of_x) = odd.jit(run)(params, x)
    assert y.dtype == of_x.dtype == x.dtype
    return {name: np.asarray(a, np.float64) for name, a in {"y": y, "x": of_x, **of_params}.items()}


@pytest.mark.parametrize(
    ("rows", "width", "biased"),
    [((4, 24), 48, True), ((5, 7), 48, True), ((4, 24), 80, True), ((4, 24), 48, False)],
)
def test_sums_on_a_cpu_are_rounded_once(rows, width, biased):
    """The same products as those of `dense`, and never further from the exact ones."""
    draw = np.random.default_rng(5)
    x, seen = draw.standard_normal((*rows, 64)), draw.standard_normal((*rows, width))
    params = {"kernel": draw.standard_normal((64, width))}
    if biased:
        params["bias"] = draw.standard_normal(width)
    x, seen, params = jax.tree.map(lambda a: jnp.asarray(a, jnp.bfloat16), (x, seen, params))

    x_SD, seen_SF, kernel_DF = (
        np.asarray(a, np.float64).reshape(-1, a.shape[-1]) for a in (x, seen, params["kernel"])
    )
    wanted = {
        "y": (x_SD @ kernel_DF + np.asarray(params.get("bias", 0.0), np.float64)),
        "x": seen_SF @ kernel_DF.T,
        "kernel": x_SD.T @ seen_SF,
        "bias": seen_SF.sum(0),
    }
    found = dense_and_gradients(layers.cpu_dense, params, x, seen)
    plain = dense_and_gradients(layers.dense, params, x, seen)
    assert found.keys() == plain.keys() == {"y", "x", *params}
    for name, value in found.items():
        exact_ = wanted[name].reshape(value.shape)
        error = abs(value - exact_)
        assert (error <= 1.01 * ROUNDED * abs(exact_) + 1e-4).all(), name
        # `dense` adds a rounded bias to a rounded product.
        assert error.mean() <= 1.01 * abs(plain[name] - exact_).mean(), name


def test_products_on_a_cpu_have_float32_results_only():
    """What the units for bfloat16 of a CPU are used for, by XLA."""
    rows = jnp.ones((2, 16, 32), jnp.bfloat16)
    params = {"kernel": jnp.ones((32, 48)), "bias": jnp.ones(48)}
    heads = rows.reshape(2, 16, 4, 8)
    seen_BLM = jnp.ones((2, 16, 16), bool)
    einsum = functools.partial(attention.einsum, accumulate_in=jnp.float32)
    products = {
        "dense": (lambda params, x: layers.cpu_dense(params, x), (params, rows), 3),
        "attention": (lambda *x: einsum(*x, seen_BLM), (heads, heads, heads), 6),
    }
    for name, (function, inputs, count) in products.items():

        def total(inputs, function=function):
            return function(*inputs).astype(jnp.float32).sum()

        text = jax.jit(jax.value_and_grad(total)).lower(inputs).as_text()
        found = re.findall(r"dot_general.*: \((.*), (.*)\) -> (.*)", text)
        assert len(found) == count, name
        for left, right, result in found:
            assert "xbf16>" in left and "xbf16>" in right and "xf32>" in result, name


@pytest.mark.parametrize(
    ("platform", "dtype", "products"),
    [("cpu", "bfloat16", "cpu"), ("cpu", "float32", "cpu"), ("tpu", "auto", "default")],
)
def test_a_cpu_has_products_of_its_own(monkeypatch, platform, dtype, products):
    monkeypatch.setattr(meshes, "platform", lambda mesh: platform)
    config = config_lib.parse(small_run("builtin", "", model__dtype=dtype))
    found = plans.networks_config(config, 100)
    assert found.discriminator.products == found.generator.products == products


@pytest.mark.parametrize(
    ("platform", "fsdp", "tensor", "joined"),
    [("gpu", 1, 1, True), ("tpu", 1, 1, True), ("tpu", 4, 1, False), ("gpu", 1, 2, False),
     ("cpu", 1, 1, False)],
)  # fmt: skip
def test_projections_are_one_product_where_no_weights_are_split(
    monkeypatch, platform, fsdp, tensor, joined
):
    monkeypatch.setattr(meshes, "platform", lambda mesh: platform)
    settings = dict(mesh__fsdp=fsdp, mesh__tensor=tensor, model__dtype="float32")
    config = config_lib.parse(small_run("builtin", "", **settings))
    found = plans.networks_config(config, 100)
    assert found.discriminator.joined_projections == found.generator.joined_projections == joined
