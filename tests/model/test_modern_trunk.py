# SPDX-License-Identifier: Apache-2.0
"""The trunk's settings against NumPy."""

import dataclasses
import functools
import json
import math
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from electra_jax import config as config_lib
from electra_jax.core import batch as batch_lib
from electra_jax.core import sharding, streams, trees
from electra_jax.model import accounting, attention, encoder, networks
from electra_jax.step import optimizer, plans
from support import corpus, odd

PLAIN = dict(dropout=0, attention_dropout=0)


def with_trunk(**settings):
    """Networks of odd sizes and even heads; three layers, so that a local one has a neighbour."""
    return odd.pair(
        vocab_size=37,
        embedding_size=6,
        max_positions=0 if settings.get("positions") == "rotary" else 13,
        generator=odd.trunk(3, 8, 2, 10, **PLAIN | settings),
        discriminator=odd.trunk(3, 12, 2, 14, **PLAIN | settings),
    )


# Against NumPy


def gelu(x):
    return x * np.vectorize(math.erfc)(-x / math.sqrt(2)) / 2


def norm(kind, params, x):
    if kind == "layer":
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x**2).mean(-1, keepdims=True)) * params["scale"] + params["bias"]
    return x / np.sqrt((x**2).mean(-1, keepdims=True)) * params["scale"]


def turned(x_LHK, base):
    """Channels i and i + K / 2 as one complex number, turned by place x base^(-2i / K)."""
    length, _, size = x_LHK.shape
    half = size // 2
    angle = np.arange(length)[:, None] * np.array([base ** (-2 * i / size) for i in range(half)])
    z = (x_LHK[..., :half] + 1j * x_LHK[..., half:]) * np.exp(1j * angle)[:, None]
    return np.concatenate([z.real, z.imag], -1)


def attended(c, p, x_LD, window):
    def product(name):
        y = np.einsum("LD,DHK->LHK", x_LD, p[name]["kernel"])
        return y + p[name]["bias"] if c.biases else y

    query, key, value = map(product, ("query", "key", "value"))
    if c.positions == "rotary":
        query, key = turned(query, c.rotary_base), turned(key, c.rotary_base)
    mixed = np.zeros_like(value)
    for i in range(len(x_LD)):
        for head in range(c.heads):
            seen = [j for j in range(len(x_LD)) if window is None or abs(i - j) <= window]
            scores = [query[i, head] @ key[j, head] / math.sqrt(c.head_size) for j in seen]
            weights = np.exp(scores) / np.exp(scores).sum()
            mixed[i, head] = weights @ value[seen, head]
    out = np.einsum("LHK,HKD->LD", mixed, p["output"]["kernel"])
    return out + p["output"]["bias"] if c.biases else out


def fed(c, p, x_LD):
    def product(name, x):
        return x @ p[name]["kernel"] + (p[name]["bias"] if c.biases else 0)

    if c.feed_forward_kind == "geglu":
        return product("out", gelu(product("gate", x_LD)) * product("in", x_LD))
    return product("out", gelu(product("in", x_LD)))


def encoded(c, params, x_LD):
    """One document alone, in float64, one number after another."""
    for number in range(c.layers):
        p = jax.tree.map(lambda x, n=number: x[n], {k: params[k] for k in params if k != "norm"})
        whole = not c.local_window or number % c.global_every == 0
        window = None if whole else c.local_window
        for part, branch in (
            ("attention", functools.partial(attended, window=window)),
            ("feed_forward", fed),
        ):
            here = functools.partial(norm, c.norm_kind, p[part]["norm"])
            if c.norm_place == "pre":
                x_LD = x_LD + branch(c, p[part], here(x_LD))
            else:
                x_LD = here(x_LD + branch(c, p[part], x_LD))
    return norm(c.norm_kind, params["norm"], x_LD) if c.norm_place == "pre" else x_LD


SWITCHES = {
    "as BERT": {},
    "rotary": dict(positions="rotary"),
    "another base": dict(positions="rotary", rotary_base=20.0),
    "geglu": dict(feed_forward_kind="geglu"),
    "pre-norm": dict(norm_place="pre"),
    "rms": dict(norm_kind="rms"),
    "no biases": dict(biases=False),
    "local": dict(local_window=2),
    "local, every second whole": dict(local_window=2, global_every=2),
    "a narrower window": dict(local_window=1),
    "all": odd.MODERN,
}


@pytest.fixture(scope="module")
def answers():
    """{switch: (ours, NumPy's)} of one encoder over rows of several documents, real tokens."""
    draw = np.random.default_rng(0)
    batch = odd.batch()
    hidden_BLD = draw.standard_normal((*batch.ids_BL.shape, 12)).astype(np.float32)
    found = {}
    for name, settings in SWITCHES.items():
        c = with_trunk(**settings).discriminator
        params = odd.weights(with_trunk(**settings))["discriminator"]["encoder"]
        run = odd.jit(lambda p, x, c=c: encoder.Encoder(c).apply(p, x, batch.documents_BL, None)[0])
        ours_BLD = np.asarray(run({"params": params}, hidden_BLD))
        exact = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
        ours, theirs = [], []
        for row, documents_L in enumerate(np.asarray(batch.documents_BL)):
            for number in sorted(set(documents_L) - {0}):
                ours.append(ours_BLD[row, documents_L == number])
                alone_LD = hidden_BLD[row, documents_L == number].astype(np.float64)
                theirs.append(encoded(c, exact, alone_LD))
        found[name] = np.concatenate(ours), np.concatenate(theirs)
    return found


@pytest.mark.parametrize("name", SWITCHES)
def test_every_switch_computes_what_numpy_does_for_each_document_alone(answers, name):
    ours, theirs = answers[name]
    np.testing.assert_allclose(ours, theirs, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in SWITCHES if name != "as BERT"])
def test_no_switch_changes_nothing(answers, name):
    for other in SWITCHES:
        if other != name:
            assert abs(answers[name][0] - answers[other][0]).max() > 1e-3, other


# Rotary positions


def test_a_looked_up_rotation_is_the_one_that_is_computed():
    positions_BL = jnp.array([[0, 1, 2, 3, 4, 5], [0, 1, 0, 1, 2, 0]])  # two rows, three documents
    computed, looked_up = (
        rotation(positions_BL, 8, 10_000.0)
        for rotation in (attention.rotation, attention.rotation_looked_up)
    )
    for expected_BLK, found_BLK in zip(computed, looked_up):
        assert found_BLK.shape == (2, 6, 4) and found_BLK.dtype == jnp.float32
        np.testing.assert_allclose(found_BLK, expected_BLK, atol=1e-6)


def test_a_pair_of_channels_turns_by_its_position():
    """Positions 0, 1, 2 of one head of two channels that begins as (1, 0)."""
    rotation = attention.rotation(jnp.array([[0, 1, 2]]), 2, 10_000.0)
    found = attention.rotate(jnp.tile(jnp.array([1.0, 0.0]), (1, 3, 1, 1)), rotation)[0, :, 0]
    expected = [(math.cos(angle), math.sin(angle)) for angle in (0, 1, 2)]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_only_the_distance_of_two_tokens_counts():
    draw = np.random.default_rng(0)
    query, key = (jnp.array(draw.standard_normal((1, 5, 2, 8)), jnp.float32) for _ in range(2))

    def scores(shift):
        rotation = attention.rotation(jnp.arange(5)[None] + shift, 8, 10_000.0)
        turned = (attention.rotate(x, rotation) for x in (query, key))
        return jnp.einsum("BLHK,BMHK->BHLM", *turned)

    np.testing.assert_allclose(scores(0), scores(300), atol=1e-4)
    assert abs(scores(0) - jnp.einsum("BLHK,BMHK->BHLM", query, key)).max() > 0.5


def test_places_restart_with_each_document():
    documents_BL = jnp.array([[1, 1, 1, 2, 2, 0], [0, 0, 0, 0, 0, 0], [1, 2, 3, 3, 3, 3]])
    expected = [[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 2, 3]]
    assert batch_lib.positions_in_documents(documents_BL).tolist() == expected
    batch = odd.batch()
    found_BL = batch_lib.positions_in_documents(batch.documents_BL)
    assert (found_BL == batch.positions_BL)[batch.real_BL].all()


# Local attention


def reached(window, layers, every=9, cut=True):
    """[from, to]: which of nine tokens of one document feel another; the first layer may be cut."""
    c = odd.trunk(
        layers, 4, 1, 4, **PLAIN, local_window=window, global_every=every, norm_place="pre"
    )
    documents_BL = jnp.ones((1, 9), jnp.int32)
    module, draw = encoder.Encoder(c), np.random.default_rng(0)
    x_BLD = jnp.array(draw.standard_normal((1, 9, 4)), jnp.float32)
    params = module.init(jax.random.key(1), x_BLD, documents_BL, None)["params"]
    params = jax.tree.map(lambda x: x + 0.3 * draw.standard_normal(x.shape), params)
    if cut:
        off = jax.tree.map(lambda x: x.at[0].set(0), params)
        params = off | {"norm": params["norm"]}

    @odd.jit
    def jacobian(x_BLD):
        return jax.jacobian(lambda x: module.apply({"params": params}, x, documents_BL, None)[0])(
            x_BLD
        )

    return (abs(jacobian(x_BLD)[0, :, :, 0]).sum((1, 3)) > 0).T.astype(int).tolist()


def test_information_does_not_travel_further_than_the_window_in_one_layer():
    """A window of two; the layer before it, which is global, is cut off."""
    assert reached(window=2, layers=2) == [
        [1, 1, 1, 0, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 0, 0, 0, 0],
        [0, 1, 1, 1, 1, 1, 0, 0, 0],
        [0, 0, 1, 1, 1, 1, 1, 0, 0],
        [0, 0, 0, 1, 1, 1, 1, 1, 0],
        [0, 0, 0, 0, 1, 1, 1, 1, 1],
        [0, 0, 0, 0, 0, 1, 1, 1, 1],
        [0, 0, 0, 0, 0, 0, 1, 1, 1],
    ]


def test_two_local_layers_reach_twice_as_far_and_a_global_one_everywhere():
    assert reached(window=1, layers=3)[4] == [0, 0, 1, 1, 1, 1, 1, 0, 0]
    assert reached(window=1, layers=3, every=2)[4] == [1] * 9  # layer 2 is global again


def test_which_layers_are_global():
    def of(**settings):
        c = odd.trunk(7, 4, 1, 4, **settings)
        return c.global_layers.astype(int).tolist()

    assert of() == [1, 1, 1, 1, 1, 1, 1]
    assert of(local_window=5) == [1, 0, 0, 1, 0, 0, 1]
    assert of(local_window=5, global_every=1) == [1, 1, 1, 1, 1, 1, 1]
    assert of(local_window=5, global_every=9) == [1, 0, 0, 0, 0, 0, 0]


# Whole networks


@pytest.fixture(scope="module")
def judge():
    """Runs the modern discriminator forward and backward, with dropout: (logits, gradients)."""
    config, batch = with_trunk(**odd.MODERN), odd.batch()
    params = odd.weights(config)
    keys_B = streams.row_keys(jax.random.key(0), 0, batch.row_B)
    direction_BL = jnp.array(np.random.default_rng(0).standard_normal((6, 11)), jnp.float32)

    def run(scan, remat, joined=False):
        shape = dataclasses.replace(
            config.discriminator, scan=scan, remat=remat, joined_projections=joined,
            dropout=0.1, attention_dropout=0.2,
        )  # fmt: skip
        changed = dataclasses.replace(config, discriminator=shape)

        @odd.jit
        def both(params):
            logits_BL, back = jax.vjp(
                lambda params: networks.discriminate(changed, params, batch, keys_B), params
            )
            return logits_BL, back(direction_BL)[0]

        return odd.flat(both({part: params[part] for part in ("embeddings", "discriminator")}))

    return run


@pytest.fixture(scope="module")
def unrolled(judge):
    return judge(False, "none")


@pytest.mark.parametrize(
    ("scan", "remat", "joined"),
    [(True, "none", True), (True, "full", False), (False, "dots", False)],
)
def test_settings_of_speed_change_nothing(judge, unrolled, scan, remat, joined):
    """Here without biases, and with positions that turn queries and keys."""
    for path, x in judge(scan, remat, joined).items():
        want = unrolled[path]
        assert abs(x - want).max() <= 2e-5 * max(1, abs(want).max()), path


def test_every_parameter_learns(unrolled):
    assert [path for path, x in unrolled.items() if not x.any()] == []


def test_packed_documents_run_as_if_alone():
    """Row 0 holds two documents; here each has a row of its own, generator included."""
    config = with_trunk(**odd.MODERN)
    params, packed = odd.weights(config), odd.forward(config)(odd.weights(config), odd.batch())
    ids_BL, marks_BL = np.zeros((2, 6, 11), int)
    for row, (start, stop) in enumerate([(0, 7), (7, 10)]):
        ids_BL[row, : stop - start] = odd.IDS_BL[0, start:stop]
        marks_BL[row, : stop - start] = odd.MARKS_BL[0, start:stop]
    alone = odd.forward(config)(params, odd.batch(ids_BL, marks_BL))
    for row, (start, stop) in enumerate([(0, 7), (7, 10)]):
        for together, single in zip(packed, alone):
            assert np.isfinite(together).all()
            np.testing.assert_allclose(
                together[0, start:stop], single[row, : stop - start], atol=5e-6
            )


def test_the_tree_of_the_modern_trunk():
    config = with_trunk(**odd.MODERN)
    shapes = jax.eval_shape(lambda: networks.init(config, jax.random.key(0)))
    found = {path: x.shape for path, x in trees.flat(shapes).items()}
    assert {p.removeprefix("embeddings/") for p in found if p.startswith("embeddings/")} == {
        "token",
        "type",
        "norm/scale",
        "norm/bias",
    }
    start = "discriminator/encoder/"
    assert {p.removeprefix(start): s for p, s in found.items() if p.startswith(start)} == {
        "attention/query/kernel": (3, 12, 2, 6),
        "attention/key/kernel": (3, 12, 2, 6),
        "attention/value/kernel": (3, 12, 2, 6),
        "attention/output/kernel": (3, 2, 6, 12),
        "attention/norm/scale": (3, 12),
        "feed_forward/in/kernel": (3, 12, 14),
        "feed_forward/gate/kernel": (3, 12, 14),
        "feed_forward/out/kernel": (3, 14, 12),
        "feed_forward/norm/scale": (3, 12),
        "norm/scale": (12,),
    }
    assert sharding.spec_for(f"{start}feed_forward/gate/kernel") == (None, "fsdp", "tensor")
    assert sharding.spec_for(f"{start}feed_forward/gate/bias") == (None, "tensor")
    assert sharding.spec_for(f"{start}norm/scale") == ()
    assert optimizer.decays(f"{start}feed_forward/gate/kernel")
    assert not optimizer.decays(f"{start}norm/scale")


def test_operations_of_gates_and_windows():
    """A row of 5 tokens, width 4, feed-forward 6: by hand."""

    def of(**settings):
        shape = odd.trunk(2, 4, 1, 6, **settings)
        config = odd.pair(37, 4, 13, shape, shape)
        return accounting.with_generator(accounting.Flops(0), config, 5, 1).generator

    products = 2 * 5 * 4 * (4 * 4 + 2 * 6)  # of a layer: query, key, value, output; in, out
    assert of() == 2 * (products + 4 * 4 * 25)
    assert of(feed_forward_kind="geglu") == of() + 2 * 2 * 5 * 4 * 6
    seen = 2 + 3 + 3 + 3 + 2  # within one place
    assert of(local_window=1) == 2 * products + 4 * 4 * (25 + seen)
    assert of(local_window=64) == of()
    assert of(local_window=1, global_every=1) == of()


@pytest.fixture(scope="module")
def over_meshes():
    """{layout: {metric: [sum, weight]}} of one step, four devices in a process of their own."""
    folders = [str(corpus.ROOT), str(corpus.ROOT / "tests")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(folders),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
    }
    command = [sys.executable, str(corpus.ROOT / "tests" / "workers" / "trunk_worker.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "one"),
    [
        ("einsum, 1 x 2 x 2", "einsum, one"),
        ("splash, 1 x 2 x 2", "einsum, one"),
        ("fused with dropout, 1 x 2 x 2", "einsum with dropout, one"),
        ("kernels of GPUs, 2 x 1 x 2 in two parts", "classic, one"),
    ],
)
def test_a_step_is_the_same_on_every_mesh(over_meshes, name, one):
    for metric, expected in over_meshes[one].items():
        found = over_meshes[name][metric]
        np.testing.assert_allclose(found, expected, rtol=3e-5, atol=1e-6, err_msg=metric)


@pytest.mark.slow
def test_each_head_of_a_mesh_has_its_own_random_words(over_meshes):
    assert over_meshes["kernel apart"] < 1e-6


# Settings


def parsed(**overrides):
    return config_lib.parse(corpus.small_run("builtin", "", **overrides))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            dict(model__attention="splash"),
            "model.attention='splash' cannot drop attention probabilities, but"
            " model.attention_dropout=0.1; set it to 0 or try model.attention=auto",
        ),
        (dict(model__attention="flash"), "model.attention='flash' is not one of 'auto', 'einsum'"),
        (dict(model__positions="none"), "model.positions='none' is not one of 'learned', 'rotary'"),
        (
            dict(model__positions="rotary", model__generator__width=18),
            "turns channels in pairs, but heads of model.generator have 9; change width or heads",
        ),
        (dict(model__local_window=-1), "model.local_window=-1 is outside [0, 65536]"),
        (dict(model__global_every=0), "model.global_every=0 is outside [1, 65536]"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(overrides, message):
    with pytest.raises(config_lib.ConfigError) as error:
        parsed(**overrides)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_the_settings_reach_both_networks():
    settings = {f"model__{name}": value for name, value in odd.MODERN.items()}
    config = plans.networks_config(parsed(**settings, model__max_positions=8), 100)
    for network in (config.generator, config.discriminator):
        assert {name: getattr(network, name) for name in odd.MODERN} == odd.MODERN
    assert config.max_positions == 0  # no table, so no row is too long for it


def test_a_run_may_go_on_with_another_attention_but_not_another_trunk():
    old = parsed(model__attention_dropout=0.0)
    allowed, refused = config_lib.differences(
        old,
        parsed(model__attention="einsum", model__attention_dropout=0.1, model__norm_place="pre"),
    )
    assert allowed == ["model.attention: 'auto' -> 'einsum'"]
    assert refused == [
        "model.attention_dropout: 0.0 -> 0.1",
        "model.norm_place: 'post' -> 'pre'",
    ]
