# SPDX-License-Identifier: Apache-2.0
"""Heads of fine-tuning: names and shapes, what they read, and the beam against plain search."""

import itertools

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from electra_jax.core import streams, trees
from electra_jax.model import networks, task_heads
from support import odd

WIDTH = 10


def head(kind, **changes):
    return task_heads.HeadConfig(kind, WIDTH, outputs=3, hidden=7, **changes)


@pytest.mark.parametrize(
    ("config", "leaves"),
    [
        (head("linear"), {"output": (10, 3)}),
        (head("two_layer"), {"dense": (10, 10), "output": (10, 3)}),
        (head("mean"), {"output": (10, 3)}),
        (head("matched_means"), {"output": (40, 3)}),
        (head("token"), {"output": (10, 3)}),
        (head("span_plain"), {"output": (10, 2)}),
        (head("span_joint"), {"start": (10, 1), "end/dense": (20, 7), "end/output": (7, 1)}),
        (
            head("span_joint", impossible=True),
            {"start": (10, 1), "end/dense": (20, 7), "end/output": (7, 1),
             "impossible/dense": (20, 7), "impossible/output": (7, 1)},
        ),
    ],
)  # fmt: skip
def test_heads_have_these_parameters(config, leaves):
    shapes = jax.eval_shape(lambda: task_heads.init(config, jax.random.key(0)))
    found = {path: x.shape for path, x in trees.flat(shapes).items()}
    assert found == {f"{name}/kernel": shape for name, shape in leaves.items()} | {
        f"{name}/bias": shape[1:] for name, shape in leaves.items()
    }


def test_output_layers_begin_glorot_uniform():
    config = task_heads.HeadConfig("linear", 200, outputs=100)
    kernel = task_heads.init(config, jax.random.key(0))["output"]["kernel"]
    bound = np.sqrt(6 / 300)
    assert abs(kernel).max() <= bound
    assert float(kernel.std()) == pytest.approx(bound / np.sqrt(3), rel=0.02)


def test_the_trunk_is_the_discriminator_without_its_head():
    params, batch = odd.weights(), odd.batch()
    _, hidden_BLD, _ = odd.forward()(params, batch)
    trunk = networks.main_trunk(odd.NETWORKS, params)
    assert set(trunk) == {"embeddings", "discriminator"}
    assert set(trunk["discriminator"]) == {"projection", "encoder"}
    found = odd.jit(lambda p: networks.hidden(odd.NETWORKS, p, batch))(trunk)
    np.testing.assert_allclose(found, hidden_BLD, atol=1e-6)


# Two rows of six places; of the second three are real.
IDS_BL = np.array([[odd.CLS, 6, 7, 8, 9, 10], [odd.CLS, 6, 7, odd.PAD, odd.PAD, odd.PAD]])
BATCH = odd.batch(IDS_BL, (IDS_BL == odd.CLS).astype(int))  # a mark where a row begins


@pytest.fixture(scope="module")
def hidden_BLD():
    return jnp.asarray(np.random.default_rng(0).standard_normal((2, 6, WIDTH)), jnp.float32)


@pytest.fixture(scope="module")
def keys_B():
    return streams.row_keys(jax.random.key(0), 0, jnp.arange(2))


@pytest.mark.parametrize("kind", ["linear", "two_layer"])
def test_a_row_is_judged_by_its_first_token_alone(kind, hidden_BLD):
    config = head(kind)
    params = task_heads.init(config, jax.random.key(1))
    apply = getattr(task_heads, kind)
    scores_BC = apply(config, params, hidden_BLD, BATCH, None)
    assert scores_BC.shape == (2, 3)
    others = hidden_BLD.at[:, 1:].set(7.0)
    np.testing.assert_array_equal(apply(config, params, others, BATCH, None), scores_BC)
    if kind == "linear":
        expected = hidden_BLD[:, 0] @ params["output"]["kernel"]
        np.testing.assert_allclose(scores_BC, expected, atol=1e-5)


def test_a_row_is_judged_by_the_mean_of_its_tokens_without_padding(hidden_BLD, keys_B):
    config = head("mean")
    params = task_heads.init(config, jax.random.key(1))
    means_BD = jnp.stack([hidden_BLD[0].mean(0), hidden_BLD[1, :3].mean(0)])
    found_BC = task_heads.mean(config, params, hidden_BLD, BATCH, None)
    np.testing.assert_allclose(found_BC, means_BD @ params["output"]["kernel"], atol=1e-5)

    padded = hidden_BLD.at[1, 3:].set(7.0)
    np.testing.assert_array_equal(task_heads.mean(config, params, padded, BATCH, None), found_BC)
    dropped_BC = task_heads.mean(config, params, hidden_BLD, BATCH, keys_B)
    assert (dropped_BC != found_BC).any()


def test_a_pair_is_judged_by_the_means_of_both_texts_matched(keys_B):
    batch = odd.batch(odd.IDS_BL[[4, 1]], odd.MARKS_BL[[4, 1]])  # the second has one text alone
    hidden_BLD = jax.random.normal(jax.random.key(2), (2, 11, WIDTH))
    config = head("matched_means", dropout=0.5)
    params = task_heads.init(config, jax.random.key(1))
    found_BC = task_heads.matched_means(config, params, hidden_BLD, batch, None)

    # [CLS] 5 6 7 [SEP] 8 9 10 [SEP] [PAD] [PAD]
    u, v = hidden_BLD[0, 1:5].mean(0), hidden_BLD[0, 5:9].mean(0)
    of_a_pair = jnp.concatenate([u, v, abs(u - v), u * v])
    # [CLS] and ten more
    u, v = hidden_BLD[1, 1:].mean(0), jnp.zeros(WIDTH)
    of_one_text = jnp.concatenate([u, v, abs(u), v])
    expected_BC = jnp.stack([of_a_pair, of_one_text]) @ params["output"]["kernel"]
    np.testing.assert_allclose(found_BC, expected_BC, atol=1e-5)

    dropped_BC = task_heads.matched_means(config, params, hidden_BLD, batch, keys_B)
    assert (dropped_BC != found_BC).any()


def test_two_means_that_are_close_keep_their_difference_in_bfloat16():
    batch = odd.batch(odd.IDS_BL[[4]], odd.MARKS_BL[[4]])
    # The next number above 1. Of the four tokens of the first text one has it, of the second none.
    hidden_BLD = jnp.ones((1, 11, WIDTH), jnp.bfloat16).at[0, 2].set(1 + 2**-7)
    differences_DC = jnp.zeros((4 * WIDTH, 3)).at[2 * WIDTH].set(1.0)
    params = {"output": {"kernel": differences_DC, "bias": jnp.zeros(3)}}
    found_BC = task_heads.matched_means(head("matched_means"), params, hidden_BLD, batch, None)
    np.testing.assert_array_equal(found_BC, np.full((1, 3), 2**-9))


@pytest.mark.parametrize("kind", ["linear", "two_layer", "token"])
def test_dropout_comes_with_keys_and_only_with_them(kind, hidden_BLD, keys_B):
    config, apply = head(kind), getattr(task_heads, kind)
    params = task_heads.init(config, jax.random.key(1))
    still = apply(config, params, hidden_BLD, BATCH, None)
    assert (apply(config, params, hidden_BLD, BATCH, keys_B) != still).any()
    none = head(kind, dropout=0.0)
    np.testing.assert_array_equal(apply(none, params, hidden_BLD, BATCH, keys_B), still)


# Questions

ALLOWED_BL = jnp.array([[1, 0, 0, 1, 1, 1], [1, 0, 1, 1, 0, 0]], bool)


@pytest.fixture(scope="module")
def joint():
    config = head("span_joint", impossible=True, beam=6)
    return config, odd.random_like(
        jax.eval_shape(lambda: task_heads.init(config, jax.random.key(0)))
    )


def test_the_end_is_scored_from_the_true_start_and_each_token(joint, hidden_BLD):
    """end = out(GELU(dense([start state, token state]))), one by one."""
    _, params = joint
    start_B = jnp.array([4, 2])
    start_BL, end_BL, _ = task_heads.span_joint(params, hidden_BLD, ALLOWED_BL, start_B)
    for row, place in itertools.product(range(2), range(6)):
        both = jnp.concatenate([hidden_BLD[row, start_B[row]], hidden_BLD[row, place]])
        inner = both @ params["end"]["dense"]["kernel"] + params["end"]["dense"]["bias"]
        inner = jax.nn.gelu(inner, approximate=False)
        score = inner @ params["end"]["output"]["kernel"] + params["end"]["output"]["bias"]
        hidden = 0 if ALLOWED_BL[row, place] else -1000
        assert float(end_BL[row, place]) == pytest.approx(float(score[0]) + hidden, abs=1e-3)
    plain = hidden_BLD @ params["start"]["kernel"] + params["start"]["bias"]
    np.testing.assert_allclose(start_BL[ALLOWED_BL], plain[..., 0][ALLOWED_BL], atol=1e-5)


def test_a_full_beam_finds_what_plain_search_finds(joint, hidden_BLD):
    config, params = joint
    beam = task_heads.span_beam(config, params, hidden_BLD, ALLOWED_BL)
    assert beam.end_BPT.shape == (2, 6, 6)
    for start in range(6):
        start_B = jnp.full(2, start)
        start_BL, end_BL, impossible_B = task_heads.span_joint(
            params, hidden_BLD, ALLOWED_BL, start_B
        )
        np.testing.assert_allclose(beam.impossible_B, impossible_B, atol=1e-6)
        for row in range(2):
            (place,) = np.flatnonzero(beam.start_BP[row] == start)
            expected = jax.nn.log_softmax(start_BL[row])[start]
            assert float(beam.start_log_BP[row, place]) == pytest.approx(float(expected), abs=1e-4)
            ends_L = jax.nn.log_softmax(end_BL[row])
            order = np.argsort(-ends_L, stable=True)
            allowed = int(ALLOWED_BL[row].sum())
            np.testing.assert_array_equal(beam.end_BPT[row, place][:allowed], order[:allowed])
            np.testing.assert_allclose(
                beam.end_log_BPT[row, place], ends_L[beam.end_BPT[row, place]], atol=1e-4
            )


def test_a_narrow_beam_is_the_top_of_a_full_one(joint, hidden_BLD):
    config, params = joint
    full = task_heads.span_beam(config, params, hidden_BLD, ALLOWED_BL)
    narrow = task_heads.HeadConfig("span_joint", WIDTH, hidden=7, impossible=True, beam=2)
    found = task_heads.span_beam(narrow, params, hidden_BLD, ALLOWED_BL)
    np.testing.assert_array_equal(found.start_BP, full.start_BP[:, :2])
    np.testing.assert_array_equal(found.end_BPT, full.end_BPT[:, :2, :2])
    assert (np.diff(found.start_log_BP, axis=1) <= 0).all()


def test_what_may_be_no_answer_comes_last(joint, hidden_BLD):
    config, params = joint
    beam = task_heads.span_beam(config, params, hidden_BLD, ALLOWED_BL)
    for row, allowed in enumerate(np.asarray(ALLOWED_BL)):
        count = int(allowed.sum())
        assert set(np.asarray(beam.start_BP[row, :count]).tolist()) == set(np.flatnonzero(allowed))
        assert (beam.start_log_BP[row, count:] < -900).all()
