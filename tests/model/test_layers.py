# SPDX-License-Identifier: Apache-2.0
"""The small parts against float64 and against what they promise."""

import math

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from electra_jax.core import streams
from electra_jax.model import attention, layers


def row_keys(rows, seed=0):
    return streams.row_keys(jax.random.key(seed), 0, jnp.asarray(rows, jnp.uint32))


# Dropout


def dropped(x, rate, keys_B, bits=8):
    (drawn,) = layers.draw(keys_B, [(rate, x.shape[1:])], bits)
    return layers.dropout(x, rate, drawn)


@pytest.mark.parametrize(
    ("rate", "bits", "share"),
    [(0.1, 8, 26 / 256), (0.5, 8, 0.5), (0.25, 8, 0.25), (0.1, 32, round(0.1 * 2**32) / 2**32)],
)
def test_dropout_drops_its_share_and_scales_the_rest(rate, bits, share):
    x = jnp.full((8, 125, 101), 3.0)
    found = np.asarray(dropped(x, rate, row_keys(range(8)), bits))
    assert np.unique(found) == pytest.approx([0, 3 / (1 - share)], rel=1e-6)
    deviation = math.sqrt(share * (1 - share) / x.size)
    assert abs((found == 0).mean() - share) < 4 * deviation
    places = (found == 0).mean((0, 1))  # no column is dropped more than another
    assert abs(places - share).max() < 5 * deviation * math.sqrt(places.size)


def test_dropout_keeps_the_mean():
    found = dropped(jnp.ones((4, 50_001)), 0.1, row_keys(range(4)))
    assert float(found.mean()) == pytest.approx(1, abs=3e-3)


def test_without_keys_or_rate_nothing_is_dropped():
    assert layers.draw(None, [(0.5, (3,))], 8) == [None]
    assert layers.draw(row_keys(range(2)), [(0.0, (3,))], 8) == [None]
    x = jnp.arange(6.0).reshape(2, 3)
    assert layers.dropout(x, 0.5, None) is x


SITES = [(0.1, (2, 4)), (0.0, (9,)), (0.1, (5,)), (0.1, (3, 8, 2))]  # the second drops nothing


def test_one_draw_is_cut_into_places_that_share_nothing():
    one, none, two, three = layers.draw(row_keys([5]), SITES, 32)
    (whole,) = layers.draw(row_keys([5]), [(0.1, (8 + 5 + 48,))], 32)
    assert none is None and (one.shape, two.shape) == ((1, 2, 4), (1, 5))
    found = [*one.reshape(-1).tolist(), *two[0].tolist(), *three.reshape(-1).tolist()]
    assert found == whole[0].tolist()


def bytes_of(words_W):
    """The four bytes of each word, the lowest first: [4, W]."""
    return np.array([(words_W >> 8 * n) & 255 for n in range(4)])


def test_on_a_cpu_the_bytes_of_a_word_are_numbers_beside_each_other():
    """2 x 4 and 5 numbers take two words each, 3 x 8 x 2 take 12."""
    one, none, two, three = layers.draw(row_keys([5]), SITES, 8)
    (words_1W,) = layers.draw(row_keys([5]), [(0.1, (2 + 2 + 12,))], 32)
    numbers = bytes_of(words_1W[0]).T.reshape(-1)
    assert none is None
    assert one.reshape(-1).tolist() == numbers[:8].tolist()
    assert two[0].tolist() == numbers[8:13].tolist()
    assert three.reshape(-1).tolist() == numbers[16:].tolist()


def test_a_kernel_gets_the_words_whose_bytes_others_get():
    """2 x 8 x 3 numbers in 2 x 2 x 3 words, behind those of the sites before."""
    drawn_BRC = jax.random.bits(jax.random.key(0), (2, 4, 4), jnp.uint32)
    uncut = layers._uncut(drawn_BRC, 4, (2, 8, 3))
    assert uncut.shape == (2, 2, 2, 3)
    assert uncut[1].reshape(-1).tolist() == drawn_BRC[1].reshape(-1)[4:].tolist()
    for n, quarter in enumerate(jnp.split(layers._in_quarters(drawn_BRC, 4, (2, 8, 3)), 4, 2)):
        assert quarter.tolist() == ((uncut >> 8 * n) & 255).tolist()

    # The other sites keep the numbers that they have without it.
    *_, words = layers.draw(row_keys([5]), SITES, 8, as_words=(3,))
    one, *_ = layers.draw(row_keys([5]), SITES, 8)
    assert words.dtype == jnp.uint32 and words.shape == (1, 3, 2, 2)
    assert layers.draw(row_keys([5]), SITES, 8, as_words=(3,))[0].tolist() == one.tolist()


def test_elsewhere_the_bytes_of_a_word_are_numbers_in_the_quarters_of_the_rows():
    """Or of all numbers, where four do not divide the rows."""
    drawn_BRC = jax.random.bits(jax.random.key(0), (2, 4, 4), jnp.uint32)
    for row in range(2):
        bytes_4W = bytes_of(np.asarray(drawn_BRC)[row].reshape(-1))
        rows = layers._in_quarters(drawn_BRC, 4, (3, 8, 2))[row]
        quarters = [quarter.reshape(3, 2, 2) for quarter in bytes_4W[:, 4:]]
        assert rows.tolist() == np.concatenate(quarters, 1).tolist()
        flat = layers._in_quarters(drawn_BRC, 2, (5,))[row]
        assert flat.tolist() == bytes_4W[:, 2:4].reshape(-1)[:5].tolist()


def test_a_row_is_dropped_alike_in_every_batch():
    x = jnp.ones((6, 5, 7))
    whole = dropped(x, 0.4, row_keys(range(6)))
    part = dropped(x[:2], 0.4, row_keys([4, 1]))
    assert part.tolist() == whole[jnp.array([4, 1])].tolist()
    assert len({str(row) for row in whole.tolist()}) == 6


def test_dropout_keeps_the_dtype():
    assert dropped(jnp.ones((1, 5), jnp.bfloat16), 0.1, row_keys([0])).dtype == jnp.bfloat16


def test_dropout_passes_gradients_where_it_passes_values():
    x, keys_B = jnp.ones((2, 40)), row_keys([0, 1])
    found = jax.grad(lambda x: dropped(x, 0.3, keys_B).sum())(x)
    assert found.tolist() == dropped(x, 0.3, keys_B).tolist()


# GELU

GRID = np.concatenate([np.linspace(-12, 12, 2001), [0.0, -1e4, 1e4, 1e-20]])


def test_gelu_is_the_exact_one():
    below = np.array([math.erfc(-x / math.sqrt(2)) / 2 for x in GRID])
    found = layers.gelu(jnp.array(GRID, jnp.float32))
    np.testing.assert_allclose(found, GRID * below, atol=1e-6, rtol=1e-6)


def test_so_is_its_derivative():
    below = np.array([math.erfc(-x / math.sqrt(2)) / 2 for x in GRID])
    density = np.exp(-0.5 * GRID**2) / math.sqrt(2 * math.pi)
    found = jax.vmap(jax.grad(layers.gelu))(jnp.array(GRID, jnp.float32))
    np.testing.assert_allclose(found, below + GRID * density, atol=1e-6)


def test_gelu_in_bfloat16_is_computed_in_float32():
    x = jnp.linspace(-6, 6, 301, dtype=jnp.bfloat16)
    exact = layers.gelu(x.astype(jnp.float32)).astype(jnp.bfloat16)
    assert layers.gelu(x).tolist() == exact.tolist()


# Layer norm


def norm_of(x, scale=1.0, bias=0.0):
    width = np.shape(x)[-1]
    return layers.layer_norm(
        {"scale": jnp.full(width, scale), "bias": jnp.full(width, bias)}, jnp.asarray(x)
    )


def test_layer_norm_by_eye():
    assert norm_of([[1.0, 3.0], [8.0, 4.0]]).tolist() == [[-1, 1], [1, -1]]
    assert norm_of([[1.0, 3.0]], scale=2.0, bias=10.0).tolist() == [[8, 12]]


def test_layer_norm_against_float64():
    x = (5 + 3 * np.random.default_rng(0).standard_normal((4, 7, 33))).astype(np.float32)
    y = x.astype(np.float64)
    expected = (y - y.mean(-1, keepdims=True)) / y.std(-1, keepdims=True)
    np.testing.assert_allclose(norm_of(x), expected, atol=2e-6)


def test_the_epsilon_is_that_of_bert():
    """At a variance of 1e-12 it halves what is divided by; flax's 1e-6 would leave nothing."""
    found = norm_of([[1e-6, -1e-6]])
    np.testing.assert_allclose(found, [[math.sqrt(0.5), -math.sqrt(0.5)]], rtol=1e-5)


def test_a_constant_row_becomes_the_bias():
    assert norm_of([[7.0, 7.0, 7.0]], bias=0.5).tolist() == [[0.5, 0.5, 0.5]]


def test_statistics_of_bfloat16_are_taken_in_float32():
    """The mean of 257.5 is no bfloat16: it would become 258 and the last three would vanish."""
    found = norm_of(jnp.array([[256, 258, 258, 258]], jnp.bfloat16))
    assert found.dtype == jnp.bfloat16
    expected = [[-math.sqrt(3), *[1 / math.sqrt(3)] * 3]]
    np.testing.assert_allclose(found.astype(jnp.float32), expected, rtol=4e-3)


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_gradients_of_norms_are_those_of_their_formulas(kind):
    draw = np.random.default_rng(0)
    x, direction = (5 + 3 * draw.standard_normal((2, 4, 7, 33))).astype(np.float32)
    params = {"scale": 1 + draw.standard_normal(33), "bias": draw.standard_normal(33)}
    params = {name: jnp.asarray(p, jnp.float32) for name, p in params.items()}
    if kind == "rms":
        del params["bias"]

    def plainly(params, x):
        centred = x - x.mean(-1, keepdims=True) if kind == "layer" else x
        square = (centred**2).mean(-1, keepdims=True)
        return centred / jnp.sqrt(square + 1e-12) * params["scale"] + params.get("bias", 0)

    norm = {"layer": layers.layer_norm, "rms": layers.rms_norm}[kind]
    found, expected = (
        jax.grad(lambda p, x, function=function: (function(p, x) * direction).sum(), (0, 1))(
            params, x
        )
        for function in (norm, plainly)
    )
    jax.tree.map(
        lambda f, e: np.testing.assert_allclose(f, e, rtol=2e-5, atol=2e-5), found, expected
    )


# Products and first weights


def test_dense_takes_any_leading_dimensions():
    draw = np.random.default_rng(0)
    x, kernel, bias = (draw.standard_normal(s) for s in ((2, 3, 5), (5, 4), (4,)))
    found = layers.dense({"kernel": jnp.array(kernel), "bias": jnp.array(bias)}, jnp.array(x))
    np.testing.assert_allclose(found, np.einsum("BLD,DF->BLF", x, kernel) + bias, atol=1e-5)


def test_kernels_begin_as_truncated_normals():
    found = layers.init_dense(jax.random.key(0), (400, 300), (300,), 0.02)
    kernel = np.asarray(found["kernel"])
    assert abs(kernel).max() <= 0.04
    assert kernel.std() == pytest.approx(0.02 * 0.8796, rel=0.01)  # of what lies within two
    assert not found["bias"].any()


def test_projections_begin_as_glorot_uniform():
    kernel = np.asarray(layers.init_glorot(jax.random.key(0), 200, 100)["kernel"])
    bound = math.sqrt(6 / 300)
    assert 0.99 * bound < abs(kernel).max() <= bound
    assert kernel.std() == pytest.approx(bound / math.sqrt(3), rel=0.02)


def test_a_token_sees_its_document():
    found = attention.visible(jnp.array([[1, 1, 2, 0]]))
    assert found.astype(int).tolist() == [[[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [1, 1, 1, 0]]]


@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_the_gradient_of_attention_is_that_of_its_formula(rate):
    """Dropped probabilities and hidden keys included: 3 and 4 tokens of two documents, padding."""
    draw = np.random.default_rng(0)
    *inputs, direction = jnp.asarray(draw.standard_normal((4, 2, 8, 2, 4)), jnp.float32)
    visible_BLM = attention.visible(jnp.array([[1, 1, 1, 2, 2, 2, 2, 0], [1] * 8]))
    (drawn,) = layers.draw(row_keys([0, 1]), [(rate, (2, 8, 8))], 8)

    def plainly(query, key, value):
        scores = jnp.einsum("BLHK,BMHK->BHLM", query, key) / 2
        chances = jax.nn.softmax(jnp.where(visible_BLM[:, None], scores, -1e9))
        return jnp.einsum("BHLM,BMHK->BLHK", layers.dropout(chances, rate, drawn), value)

    def ours(*inputs):
        return attention.einsum(*inputs, visible_BLM, dropout=rate, drawn_BHLM=drawn)

    np.testing.assert_allclose(ours(*inputs), plainly(*inputs), atol=1e-6)
    found, expected = (
        jax.grad(lambda *x, run=run: (run(*x) * direction).sum(), (0, 1, 2))(*inputs)
        for run in (ours, plainly)
    )
    for ours_, theirs in zip(found, expected):
        np.testing.assert_allclose(ours_, theirs, atol=2e-6)
