# SPDX-License-Identifier: Apache-2.0
"""The kernel that ends a branch on a GPU, interpreted by Pallas, against plain operations."""

import functools

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from electra_jax.model import layers, residual_norm
from support import odd

TRUNK = dict(positions="learned", norm_place="post", norm_kind="layer", biases=True)


@pytest.mark.parametrize(
    ("width", "bits", "dropout"),
    [
        (64, 8, 0.1),
        (48, 32, 0.2),  # 16 of 64 columns are beyond the width
        (48, 0, 0.0),
        (3000, 8, 0.1),  # wider than what a program has in its registers: a token at a time
    ],
)
def test_values_and_gradients_are_those_of_plain_operations(width, bits, dropout, monkeypatch):
    made = functools.partial(residual_norm.KernelSettings, interpret=True)
    monkeypatch.setattr(residual_norm, "KernelSettings", made)
    draw = np.random.default_rng(0)
    before_BLD, branch_BLD, direction_BLD = (
        jnp.array(draw.standard_normal((2, 64, width)), jnp.float32) for _ in range(3)
    )
    norm = {name: jnp.array(draw.standard_normal(width), jnp.float32) for name in ("scale", "bias")}
    bias_D = jnp.array(draw.standard_normal(width), jnp.float32)
    drawn_BLD = None
    if bits:
        dtype = {8: jnp.uint8, 32: jnp.uint32}[bits]
        drawn_BLD = jax.random.bits(jax.random.key(0), (2, 64, width), dtype)

    def plain(norm, bias_D, before_BLD, branch_BLD):
        dropped_BLD = layers.dropout(branch_BLD + bias_D, dropout, drawn_BLD)
        return layers.layer_norm(norm, before_BLD + dropped_BLD)

    def kernel(norm, bias_D, *rows):
        parameters_3D = jnp.stack([norm["scale"], norm["bias"], bias_D])
        return residual_norm.end_of_branch(parameters_3D, *rows, drawn_BLD, dropout=dropout)

    def value_and_gradients(function):
        value, back = jax.vjp(function, norm, bias_D, before_BLD, branch_BLD)
        return jax.tree.leaves((value, back(direction_BLD)))

    for found, expected in zip(
        jax.jit(value_and_gradients, static_argnums=0)(kernel),
        jax.jit(value_and_gradients, static_argnums=0)(plain),
    ):
        np.testing.assert_allclose(found, expected, atol=3e-5)


@pytest.mark.parametrize(
    ("length", "more", "in_kernel"),
    [
        (64, {}, True),
        (96, {}, True),
        (48, {}, False),  # no multiple of 32
        (64, dict(norm_place="pre"), False),
        (64, dict(norm_kind="rms"), False),
        (64, dict(biases=False), False),
        (64, dict(norms_in_kernel=False), False),
    ],
)
def test_it_is_for_the_trunk_of_bert(length, more, in_kernel):
    c = odd.trunk(2, 8, 2, 8, **dict(norms_in_kernel=True) | TRUNK | more)
    assert c.ends_in_kernel(length) == in_kernel
