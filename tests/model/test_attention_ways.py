# SPDX-License-Identifier: Apache-2.0
"""The ways to compute attention: each against plain products, and which one a device gets."""

import functools
import types

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.experimental.pallas.ops.tpu import splash_attention

from electra_jax import config as config_lib
from electra_jax.core import meshes
from electra_jax.model import (
    attention,
    attention_ways,
    blockwise_attention,
    encoder,
    fused_attention,
    layers,
    pallas_triton,
    residual_norm,
)
from electra_jax.step import attention_choice, plans
from electra_jax.training import run_facts
from support import corpus, odd


def rows_of(documents, heads=2, size=8, seed=0):
    """(query, key, value), documents_BL and a direction for gradients, zero at padding."""
    documents_BL = jnp.asarray(documents, jnp.int32)
    draw = np.random.default_rng(seed)
    shape = (*documents_BL.shape, heads, size)
    *inputs, direction = (jnp.array(draw.standard_normal(shape), jnp.float32) for _ in range(4))
    return inputs, documents_BL, direction * (documents_BL > 0)[:, :, None, None]


def value_and_gradients(mix, inputs, direction):
    @jax.jit
    def run(inputs):
        mixed, back = jax.vjp(mix, *inputs)
        return mixed, back(direction)

    return run(inputs)


@pytest.fixture
def interpreted(monkeypatch):
    """Kernels of TPUs and GPUs on a CPU."""
    made = functools.partial(splash_attention.make_splash_mha, interpret=True)
    monkeypatch.setattr(splash_attention, "make_splash_mha", made)
    for kernel in (fused_attention, blockwise_attention, residual_norm):
        interpreted = functools.partial(kernel.KernelSettings, interpret=True)
        monkeypatch.setattr(kernel, "KernelSettings", interpreted)


DOCUMENTS = [  # (document, tokens) along a row of 384: three blocks of 128
    [(1, 100), (2, 200), (3, 60), (0, 24)],
    [(1, 384)],
    [(1, 130), (0, 254)],
    [(0, 384)],
]
DOCUMENTS_BL = [[n for n, count in row for _ in range(count)] for row in DOCUMENTS]


@pytest.mark.parametrize("window", [0, 20])
def test_splash_agrees_with_einsum_on_every_real_token(interpreted, window):
    inputs, documents_BL, direction = rows_of(DOCUMENTS_BL)
    visible_BLM = attention.visible(documents_BL)
    if window:
        visible_BLM &= attention.near(384, window)
    plain = value_and_gradients(lambda *x: attention.einsum(*x, visible_BLM), inputs, direction)
    fused = value_and_gradients(
        lambda *x: attention.splash(*x, documents_BL, window=window), inputs, direction
    )
    real_BL = documents_BL > 0
    assert np.isfinite(fused[0]).all()
    np.testing.assert_allclose(fused[0][real_BL], plain[0][real_BL], atol=2e-6)
    for found, expected in zip(fused[1], plain[1]):
        np.testing.assert_allclose(found, expected, atol=2e-5)
        assert not found[~real_BL].any()  # nothing comes back to padding


QUARTERS = {8: lambda words: layers._quarters(words, -2), 32: lambda words: words}


@pytest.mark.parametrize(
    ("heads", "size", "settings"),
    [
        (2, 8, {}),
        (2, 8, dict(window=20)),
        (2, 8, dict(direction="left_to_right")),
        (2, 8, dict(direction="right_to_left", bits=32, dropout=0.2)),
        (2, 8, dict(bits=8, dropout=0.1)),
        (4, 64, dict(bits=8, dropout=0.1)),  # two heads a program
    ],
)
def test_fused_agrees_with_einsum_and_drops_the_same_probabilities(
    heads, size, settings, interpreted
):
    inputs, documents_BL, direction = rows_of(DOCUMENTS_BL, heads, size)
    visible_BLM = attention.visible(documents_BL)
    if "window" in settings:
        visible_BLM &= attention.near(384, settings["window"])
    if "direction" in settings:
        visible_BLM &= attention_ways.DIRECTIONS[settings["direction"]](jnp.ones((384, 384), bool))
    words = drawn_BHLM = None
    if "bits" in settings:
        rows = 384 * settings["bits"] // 32
        words = jax.random.bits(jax.random.key(0), (4, heads, rows, 384), jnp.uint32)
        drawn_BHLM = QUARTERS[settings["bits"]](words)

    plain = value_and_gradients(
        lambda *x: attention.einsum(
            *x, visible_BLM, dropout=settings.get("dropout", 0.0), drawn_BHLM=drawn_BHLM
        ),
        inputs,
        direction,
    )
    fused = value_and_gradients(
        lambda *x: attention.fused(*x, documents_BL, words, **settings), inputs, direction
    )
    # A padded query sees the same in both, too.
    for found, expected in zip(jax.tree.leaves(fused), jax.tree.leaves(plain)):
        np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize(
    ("size", "settings"),
    [
        (16, {}),
        (64, dict(bits=8, dropout=0.1)),
        (16, dict(window=20, bits=8, dropout=0.1)),  # the first block sees two of six
        (16, dict(direction="left_to_right")),
        (16, dict(direction="right_to_left", bits=32, dropout=0.2)),
    ],
)
def test_blockwise_agrees_with_einsum_on_every_real_token_and_drops_the_same(
    size, settings, interpreted
):
    inputs, documents_BL, direction = rows_of(DOCUMENTS_BL, 2, size)
    visible_BLM = attention.visible(documents_BL)
    if "window" in settings:
        visible_BLM &= attention.near(384, settings["window"])
    if "direction" in settings:
        visible_BLM &= attention_ways.DIRECTIONS[settings["direction"]](jnp.ones((384, 384), bool))
    dtype = {None: None, 8: jnp.uint8, 32: jnp.uint32}[settings.get("bits")]
    drawn_BHLM = dtype and jax.random.bits(jax.random.key(0), (4, 2, 384, 384), dtype)
    dropout = settings.get("dropout", 0.0)
    shape = {name: x for name, x in settings.items() if name in ("window", "direction")}

    plain = value_and_gradients(
        lambda *x: attention.einsum(*x, visible_BLM, dropout=dropout, drawn_BHLM=drawn_BHLM),
        inputs,
        direction,
    )
    blockwise = value_and_gradients(
        lambda *x: attention.blockwise(*x, documents_BL, drawn_BHLM, dropout=dropout, **shape),
        inputs,
        direction,
    )
    real_BL = documents_BL > 0
    assert np.isfinite(blockwise[0]).all()
    np.testing.assert_allclose(blockwise[0][real_BL], plain[0][real_BL], atol=2e-6)
    for found, expected in zip(blockwise[1], plain[1]):
        np.testing.assert_allclose(found, expected, atol=2e-5)
        assert not found[~real_BL].any()  # nothing comes back to padding


def test_what_drops_nothing_gets_the_blocks_that_were_fastest():
    fastest = blockwise_attention.Blocks(stages=2), blockwise_attention.Blocks()
    assert (
        blockwise_attention.fastest_blocks(128, 0)
        == blockwise_attention.fastest_blocks(128, 8)
        == fastest
    )
    assert blockwise_attention.fastest_blocks(128, 32) != fastest


def test_rows_with_more_pairs_than_triton_counts_go_in_parts(interpreted, monkeypatch):
    inputs, documents_BL, direction = rows_of([[1] * 64] * 5, 2, 16)
    drawn_BHLM = jax.random.bits(jax.random.key(0), (5, 2, 64, 64), jnp.uint8)

    def run():
        mix = functools.partial(attention.blockwise, dropout=0.1)
        return value_and_gradients(lambda *x: mix(*x, documents_BL, drawn_BHLM), inputs, direction)

    at_once = run()
    monkeypatch.setattr(attention, "_MOST_PAIRS", 2 * 2 * 64 * 64 + 1)  # two rows, and a last one
    for found, expected in zip(jax.tree.leaves(run()), jax.tree.leaves(at_once)):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("held", "step", "backward"),
    [(64, 128, 64), (128, 32, 128), (128, 64, 32)],  # the whole row is one block, or two
)
def test_the_size_of_blocks_changes_nothing(held, step, backward):
    (query, key, value), documents_BL, direction = rows_of([[1] * 90 + [2] * 38], 2, 16)
    joined_BL3HK = jnp.stack([query, key, value], axis=2)
    drawn_BHLM = jax.random.bits(jax.random.key(0), (1, 2, 128, 128), jnp.uint8)

    def with_blocks(**given):
        settings = blockwise_attention.KernelSettings(drop_below=26, interpret=True, **given)
        attend = functools.partial(blockwise_attention.attend, settings)
        return value_and_gradients(
            lambda x: attend(x, documents_BL, drawn_BHLM), [joined_BL3HK], direction
        )

    usual = with_blocks()
    other = with_blocks(
        forward=blockwise_attention.Blocks(held, step),
        backward=blockwise_attention.Blocks(backward, 32),
    )
    for found, expected in zip(jax.tree.leaves(other), jax.tree.leaves(usual)):
        np.testing.assert_allclose(found, expected, atol=5e-6)


@pytest.mark.parametrize(
    ("heads", "size", "together"),
    [(12, 64, 2), (4, 32, 4), (1, 64, 1), (2, 128, 1), (16, 48, 8), (6, 32, 6), (3, 256, 1)],
)
def test_a_program_has_the_fewest_heads_that_fill_the_lanes_or_all(heads, size, together):
    """12 heads of 64: 2 x 64 = 128. Of 6 heads of 32 no 4 divide the 6."""
    assert fused_attention.heads_together(heads, size) == together


@pytest.mark.parametrize(
    ("heads", "size", "bits", "fits"),
    [
        *[(8, 32, 8, True), (4, 48, 8, False)],  # 4 a program: 128 lanes, 192
        *[(3, 64, 8, True), (2, 96, 32, True), (1, 256, 32, True)],  # 192, 192, 256
        *[(8, 16, 8, False), (7, 32, 8, False), (5, 48, 8, False)],  # 8, 7 and 5 a program
        *[(12, 64, 32, True), (8, 32, 32, False)],  # words of 32 bits for 2 heads, for 4
    ],
)
def test_what_some_compiler_has_no_memory_for_is_refused(heads, size, bits, fits):
    """Asked of those of v4, v5e, v5p and v6e, with rows of 512 in float32."""
    assert (fused_attention.refused(512, [(heads, size)], bits) == "") == fits


def encoder_of(way, scan, **more):
    """A modern encoder over a row of 256 tokens: hidden states and gradients."""
    settings = odd.MODERN | dict(local_window=40, dropout=0, attention_dropout=0) | more
    c = odd.trunk(2, 8, 2, 8, **settings, attention=way, scan=scan)
    documents_BL = jnp.asarray([[1] * 150 + [2] * 90 + [0] * 16], jnp.int32)
    draw = np.random.default_rng(0)
    x_BLD = jnp.array(draw.standard_normal((1, 256, 8)), jnp.float32)
    direction_BLD = jnp.array(draw.standard_normal((1, 256, 8))) * (documents_BL > 0)[..., None]
    params = encoder.Encoder(c).init(jax.random.key(0), x_BLD, documents_BL, None)
    params = jax.tree.map(lambda x: x + 0.3 * draw.standard_normal(x.shape), params)

    keys_B = jax.random.split(jax.random.key(1), 1) if more else None

    @jax.jit
    def run(params, x_BLD):
        hidden_BLD, back = jax.vjp(
            lambda p, x: encoder.Encoder(c).apply(p, x, documents_BL, keys_B)[0], params, x_BLD
        )
        return hidden_BLD * (documents_BL > 0)[..., None], back(direction_BLD)

    return odd.flat(run(params, x_BLD))


DROPPED = dict(dropout=0.1, attention_dropout=0.2)
BERTS = dict(  # what `residual_norm` has a kernel for
    positions="learned", norm_place="post", norm_kind="layer", biases=True, local_window=0
)


@pytest.mark.parametrize(
    ("way", "scan", "more", "of_kernel"),
    [
        ("splash", False, {}, {}),
        ("splash", True, {}, {}),
        ("fused", False, DROPPED, {}),
        ("fused", True, DROPPED, {}),
        ("blockwise", False, DROPPED, dict(joined_projections=True)),
        ("blockwise", True, DROPPED, {}),
        ("blockwise", False, DROPPED | BERTS, dict(joined_projections=True, norms_in_kernel=True)),
        ("einsum", True, DROPPED | BERTS, dict(norms_in_kernel=True)),
    ],
)
def test_layers_with_a_kernel_are_those_without(
    way, scan, more, of_kernel, interpreted, monkeypatch
):
    if way == "fused":
        monkeypatch.setattr(layers, "_beside_each_other", layers._in_quarters)  # as on a TPU
    plain = encoder_of("einsum", scan, **more)
    fused = encoder_of(way, scan, **more | of_kernel)
    for path, x in fused.items():
        assert abs(x - plain[path]).max() <= 2e-5 * max(1, abs(plain[path]).max()), path


def test_a_kernel_without_dropout_never_drops_in_silence():
    with pytest.raises(ValueError, match="attention='splash' drops no probabilities, but"):
        odd.trunk(1, 8, 2, 4, attention="splash", attention_dropout=0.1)


# Which one a device gets


@pytest.mark.parametrize(
    ("device", "runs"),
    [
        *[(dict(compute_capability="9.0"), True), (dict(compute_capability="8.0"), True)],
        *[(dict(compute_capability="12.0"), True), (dict(compute_capability="7.5"), False)],
        *[(dict(compute_capability="gfx942"), False), ({}, False)],  # AMD's; a CPU, a TPU
    ],
)
def test_triton_is_for_gpus_of_nvidia_that_are_not_old(device, runs):
    assert meshes.runs_triton(types.SimpleNamespace(**device)) == runs


@pytest.mark.parametrize(
    ("device", "runs"),
    [
        *[(dict(device_kind="TPU v2"), False), (dict(device_kind="TPU v3"), False)],
        *[(dict(device_kind="TPU v4"), True), (dict(device_kind="TPU v5 lite"), True)],
        *[(dict(device_kind="TPU v6 lite"), True), (dict(device_kind="cpu"), True), ({}, True)],
    ],
)
def test_mosaic_is_for_tpus_that_are_not_old(device, runs):
    assert meshes.runs_mosaic(types.SimpleNamespace(**device)) == runs


def test_without_triton_or_if_asked_a_gpu_gets_plain_attention_and_norms(monkeypatch):
    assert settled("gpu", monkeypatch, **HEADS_OF_16) == "blockwise"
    assert not residual_norm.refused(512)
    plain = asked("gpu", monkeypatch, **HEADS_OF_16, model__residual_norm="plain")
    assert plans.networks_config(asked("gpu", monkeypatch), 100).generator.norms_in_kernel
    assert not plans.networks_config(plain, 100).generator.norms_in_kernel
    monkeypatch.setattr(pallas_triton, "triton", None)
    assert settled("gpu", monkeypatch, **HEADS_OF_16) == "einsum"
    assert "needs a jax whose Pallas" in residual_norm.refused(512)


def asked(device, monkeypatch, **overrides):
    """A run on a device: its configuration, rows of 512 without attention dropout."""
    monkeypatch.setattr(meshes, "platform", lambda mesh: device.removeprefix("old "))
    monkeypatch.setattr(meshes, "runs_triton", lambda _: device == "gpu")
    monkeypatch.setattr(meshes, "runs_mosaic", lambda _: device != "old tpu")
    long = dict(data__sequence_length=512, model__max_positions=512, model__attention_dropout=0.0)
    return config_lib.parse(corpus.small_run("builtin", "", **long | overrides))


def settled(device, monkeypatch, **overrides):
    """How attention is computed on a device."""
    config = asked(device, monkeypatch, **overrides)
    return plans.networks_config(config, 100).discriminator.attention


HEADS_OF_16 = dict(model__generator__width=32)
LONGER = dict(data__sequence_length=2048, model__max_positions=2048)


@pytest.mark.parametrize(
    ("platform", "overrides", "way"),
    [
        ("tpu", {}, "splash"),
        ("tpu", dict(model__attention_dropout=0.1), "fused"),
        ("tpu", dict(data__sequence_length=384), "fused"),  # splash has nothing to leave out
        ("tpu", dict(data__sequence_length=500), "einsum"),
        ("tpu", LONGER | dict(model__attention_dropout=0.1), "einsum"),
        ("tpu", LONGER, "splash"),
        ("tpu", dict(model__attention="einsum"), "einsum"),
        ("old tpu", {}, "einsum"),
        ("old tpu", dict(model__attention_dropout=0.1), "einsum"),
        ("tpu", dict(model__attention="splash", data__sequence_length=128), "splash"),
        ("gpu", HEADS_OF_16, "blockwise"),
        ("gpu", HEADS_OF_16 | dict(model__attention_dropout=0.1), "blockwise"),
        ("gpu", HEADS_OF_16 | LONGER, "blockwise"),
        ("gpu", HEADS_OF_16 | dict(data__sequence_length=480), "einsum"),  # no multiple of 64
        ("gpu", {}, "einsum"),  # heads of 8
        ("old gpu", HEADS_OF_16, "einsum"),
        ("gpu", HEADS_OF_16 | dict(model__attention="einsum"), "einsum"),
        ("gpu", dict(objective__name="masked_lm"), "blockwise"),  # reads no generator
        ("cpu", {}, "einsum"),
    ],
)
def test_auto_is_a_kernel_where_there_is_one(platform, overrides, way, monkeypatch):
    assert settled(platform, monkeypatch, **overrides) == way


@pytest.mark.parametrize(
    ("platform", "overrides", "reason"),
    [
        ("gpu", {}, "blockwise needs heads of 16, 32, 64 or 128, not of 8 and 16"),
        (
            "gpu",
            HEADS_OF_16 | dict(data__sequence_length=480),
            "blockwise needs rows of a multiple of 64 tokens, not of 480",
        ),
        (
            "old gpu",
            HEADS_OF_16,
            "blockwise needs an NVIDIA GPU of compute capability 8.0 or newer",
        ),
        (
            "tpu",
            dict(data__sequence_length=500),
            "fused needs rows of a multiple of 128 tokens, at most 512, not of 500",
        ),
        ("old tpu", {}, "fused needs a TPU v4 or newer"),
        ("tpu", {}, ""),
        ("gpu", HEADS_OF_16, ""),
        ("gpu", dict(model__attention="einsum"), ""),  # as was asked for
        ("cpu", {}, ""),
    ],
)
def test_a_run_says_why_an_accelerator_gets_no_kernel(platform, overrides, reason, monkeypatch):
    config = asked(platform, monkeypatch, **overrides)
    length = config.data.sequence_length
    assert attention_choice.why_no_kernel(config, None, length) == reason
    run = types.SimpleNamespace(
        config=config, mesh=None, stages=[types.SimpleNamespace(sequence_length=length)] * 2
    )
    lines = run_facts.attention_notes(run)
    assert len(lines) == (1 if reason else 0)
    assert all(line.endswith(reason) and f"rows of {length} tokens" in line for line in lines)


@pytest.mark.parametrize(
    ("platform", "overrides", "message"),
    [
        (
            "cpu",
            dict(model__attention="splash"),
            "'splash' needs a TPU, not a CPU; try model.att",
        ),
        (
            "gpu",
            dict(model__attention="splash"),
            "'splash' needs a TPU, not a GPU; try model.att",
        ),
        (
            "cpu",
            dict(model__attention="blockwise"),
            "'blockwise' needs a GPU, not a CPU; try model.att",
        ),
        (
            "tpu",
            dict(model__attention="splash", data__sequence_length=500),
            "needs rows of a multiple of 128 tokens, not of 500; try model.attention=einsum",
        ),
        (
            "gpu",
            dict(model__attention="fused"),
            "'fused' needs a TPU, not a GPU; try model.att",
        ),
        (
            "tpu",
            dict(model__attention="fused", data__sequence_length=500),
            "needs rows of a multiple of 128 tokens, at most 512, not of 500; try model.att",
        ),
        (
            "tpu",
            LONGER | dict(model__attention="fused"),
            "needs rows of a multiple of 128 tokens, at most 512, not of 2048; try model.att",
        ),
        (
            "tpu",
            dict(
                model__attention="fused",
                model__discriminator__width=33 * 12,
                model__discriminator__heads=33,
            ),
            "needs heads of which one to four fill 128 lanes, such as 2 of 64, not 33 heads of 12",
        ),
        (
            "tpu",
            dict(
                model__attention="fused",
                model__dropout_bits=32,
                model__discriminator__width=4 * 32,
                model__discriminator__heads=4,
            ),
            "needs model.dropout_bits=8 for 4 heads of 32, 4 of which it computes together, not 32",
        ),
        (
            "tpu",
            dict(model__attention="blockwise"),
            "'blockwise' needs a GPU, not a TPU; try model.att",
        ),
        (
            "old tpu",
            dict(model__attention="splash"),
            "model.attention='splash' needs a TPU v4 or newer; try model.attention=einsum",
        ),
        (
            "old gpu",
            HEADS_OF_16 | dict(model__attention="blockwise"),
            "needs an NVIDIA GPU of compute capability 8.0 or newer; try model.attention=einsum",
        ),
        (
            "gpu",
            HEADS_OF_16 | dict(model__attention="blockwise", data__sequence_length=480),
            "needs rows of a multiple of 64 tokens, not of 480",
        ),
        (
            "gpu",
            dict(model__attention="blockwise", model__generator__width=24),
            "needs heads of 16, 32, 64 or 128, not of 12 and 16",
        ),
    ],
)
def test_what_a_device_cannot_compute_is_refused(platform, overrides, message, monkeypatch):
    with pytest.raises(config_lib.ConfigError) as error:
        settled(platform, monkeypatch, **overrides)
    assert message in str(error.value) and "\n" not in str(error.value)
