# SPDX-License-Identifier: Apache-2.0
"""The walk over the vocabulary gives what the whole table of scores would, and never holds it."""

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp

from electra_jax.model import generator
from electra_jax.objectives import vocabulary_softmax
from support import odd

B, N, E, SIZE, V = 5, 7, 4, 600, 640  # five blocks of 128, the last with a tail that is not used
FORBIDDEN = (0, 3, 130, 599)
PIECES = [128, 256, 384, 640, 10_000]  # 5, 3 (ragged), 2 (ragged), 1 and 1 pieces


def inputs(dtype=jnp.float32):
    draw = np.random.default_rng(1)
    vectors_BNE = jnp.asarray(draw.standard_normal((B, N, E)), dtype)
    table_VE = jnp.asarray(draw.standard_normal((V, E)), jnp.float32)
    bias_V = jnp.asarray(draw.standard_normal(V), jnp.float32)
    originals_BN = jnp.asarray(draw.integers(0, SIZE, (B, N)))
    return vectors_BNE, table_VE, bias_V, originals_BN


KEYS_B = jax.random.split(jax.random.key(2), B)


def scanned(piece, temperature=1.0, dtype=jnp.float32, products="default"):
    """(gradients of a weighted sum of losses, what was predicted)."""
    *trained, originals_BN = inputs(dtype)

    def loss(vectors_BNE, table_VE, bias_V):
        predicted = vocabulary_softmax.predict_and_sample(
            table_VE, bias_V, jnp.float32(temperature), vectors_BNE, originals_BN, KEYS_B,
            size=SIZE, forbidden_ids=FORBIDDEN, piece=piece, products=products,
        )  # fmt: skip
        return (predicted.losses_BN * jnp.arange(B * N).reshape(B, N)).sum(), predicted

    return jax.grad(loss, (0, 1, 2), has_aux=True)(*trained)


def whole(temperature=1.0, dtype=jnp.float32):
    """The same from all scores at once."""
    *trained, originals_BN = inputs(dtype)

    def loss(vectors_BNE, table_VE, bias_V):
        logits_BNV = generator.logits(vectors_BNE, table_VE, bias_V, SIZE)
        losses_BN = optax.softmax_cross_entropy_with_integer_labels(logits_BNV, originals_BN)
        sampled_BN = odd.sample(KEYS_B, logits_BNV, temperature, FORBIDDEN)
        chances_BNV = jax.nn.softmax(logits_BNV)
        entropies_BN = -(chances_BNV * jax.nn.log_softmax(logits_BNV)).sum(-1)
        hits_BN = logits_BNV.argmax(-1) == originals_BN
        predicted = vocabulary_softmax.SlotPredictions(losses_BN, hits_BN, sampled_BN, entropies_BN)
        return (losses_BN * jnp.arange(B * N).reshape(B, N)).sum(), predicted

    return jax.grad(loss, (0, 1, 2), has_aux=True)(*trained)


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_losses_hits_samples_and_entropies_are_those_of_all_scores(piece, temperature):
    (_, predicted), (_, expected) = scanned(piece, temperature), whole(temperature)
    np.testing.assert_allclose(predicted.losses_BN, expected.losses_BN, rtol=1e-5)
    np.testing.assert_array_equal(predicted.hits_BN, expected.hits_BN)
    np.testing.assert_array_equal(predicted.sampled_BN, expected.sampled_BN)
    np.testing.assert_allclose(predicted.entropies_BN, expected.entropies_BN, rtol=2e-5)


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("products", ["default", "cpu"])
def test_gradients_are_those_of_all_scores(piece, products):
    for found, expected in zip(scanned(piece, products=products)[0], whole()[0]):
        scale = abs(expected).max()
        np.testing.assert_allclose(found / scale, expected / scale, atol=2e-6)


@pytest.mark.parametrize("products", ["default", "cpu"])
def test_gradients_come_in_the_dtype_of_what_they_belong_to(products):
    gradients, _ = scanned(256, dtype=jnp.bfloat16, products=products)
    assert [x.dtype for x in gradients] == [jnp.bfloat16, jnp.float32, jnp.float32]
    for found, expected in zip(gradients, whole(dtype=jnp.bfloat16)[0]):
        scale = np.abs(np.asarray(expected, np.float32)).max()
        np.testing.assert_allclose(found / scale, expected / scale, atol=0.01)  # 2^-8, bfloat16's


def test_an_original_that_is_the_best_is_a_hit():
    vectors_BNE, table_VE, bias_V, _ = inputs()
    best_BN = generator.logits(vectors_BNE, table_VE, bias_V, SIZE).argmax(-1)
    for originals_BN, expected in ((best_BN, True), ((best_BN + 1) % SIZE, False)):
        predicted = vocabulary_softmax.predict_and_sample(
            table_VE, bias_V, jnp.float32(1), vectors_BNE, originals_BN, KEYS_B,
            size=SIZE, forbidden_ids=FORBIDDEN, piece=256,
        )  # fmt: skip
        assert (predicted.hits_BN == expected).all()


@pytest.mark.parametrize("piece", PIECES)
def test_a_tie_is_no_hit(piece):
    """Also between two tokens of different pieces; among all tokens it is that of new networks."""
    vectors_BNE, table_VE, _, _ = inputs()
    originals_BN = jnp.full((B, N), 3)
    for ties, expected in (((3,), True), ((3, 5), False), ((3, SIZE - 1), False), ((), False)):
        bias_V = jnp.zeros(V).at[jnp.array(ties, int)].set(1.0)
        _, hits_BN = vocabulary_softmax.score(
            0 * table_VE, bias_V, vectors_BNE, originals_BN, size=SIZE, piece=piece
        )
        assert (hits_BN == expected).all(), ties


def test_a_block_of_forbidden_ids_is_never_drawn():
    vectors_BNE, table_VE, bias_V, originals_BN = inputs()
    predicted = vocabulary_softmax.predict_and_sample(
        table_VE, bias_V.at[:512].add(1000.0), jnp.float32(1), vectors_BNE, originals_BN, KEYS_B,
        size=SIZE, forbidden_ids=tuple(range(512)), piece=128,
    )  # fmt: skip
    assert (predicted.sampled_BN >= 512).all() and (predicted.sampled_BN < SIZE).all()


def arrays_of(jaxpr):
    """Every array that a program makes, those of its loops and branches too."""
    for equation in jaxpr.eqns:
        yield from (variable.aval for variable in equation.outvars)
        for value in equation.params.values():
            for inner in value if isinstance(value, list | tuple) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from arrays_of(inner)


@pytest.mark.parametrize(("program", "holds"), [(lambda: scanned(128), False), (whole, True)])
def test_no_array_holds_all_scores(program, holds):
    largest = max(aval.size for aval in arrays_of(jax.make_jaxpr(program)().jaxpr))
    assert (largest >= B * N * V) == holds


# What the samples are drawn from

DRAWS = [(1.0, False), (2.0, False), (2.0, True), (0.5, True)]  # temperature, disallow_correct


def drawn_from(vectors_BNE, table_VE, bias_V, originals_BN, temperature, disallow_correct):
    """log q of all ids, [B, N, V], written down: softmax(scores / T) over what may be drawn."""
    logits_BNV = generator.logits(vectors_BNE, table_VE, bias_V, SIZE) / temperature
    barred_BNV = jnp.isin(jnp.arange(V), jnp.array(FORBIDDEN)) | (jnp.arange(V) >= SIZE)
    if disallow_correct:
        barred_BNV = barred_BNV | (jnp.arange(V) == originals_BN[..., None])
    return jax.nn.log_softmax(jnp.where(barred_BNV, -jnp.inf, logits_BNV))


@pytest.mark.parametrize("piece", [256, 640])
@pytest.mark.parametrize(("temperature", "disallow_correct"), DRAWS)
def test_what_was_drawn_is_scored_by_what_it_was_drawn_from(temperature, disallow_correct, piece):
    *trained, originals_BN = inputs()
    settings = dict(
        size=SIZE, forbidden_ids=FORBIDDEN, disallow_correct=disallow_correct, piece=piece
    )
    heat = jnp.float32(temperature)
    vectors_BNE, *table = trained
    predicted = vocabulary_softmax.predict_and_sample(
        *table, heat, vectors_BNE, originals_BN, KEYS_B, **settings
    )
    weights_BN = 1 + jnp.arange(B * N).reshape(B, N)

    def found(vectors_BNE, *table):
        losses_BN = vocabulary_softmax.score_sampled(
            *table, heat, vectors_BNE, predicted.sampled_BN, originals_BN, **settings
        )
        return (losses_BN * weights_BN).sum(), losses_BN

    def expected(*trained):
        log_q_BNV = drawn_from(*trained, originals_BN, temperature, disallow_correct)
        losses_BN = -jnp.take_along_axis(log_q_BNV, predicted.sampled_BN[..., None], 2)[..., 0]
        return (losses_BN * weights_BN).sum(), losses_BN

    sides = [jax.grad(side, (0, 1, 2), has_aux=True)(*trained) for side in (found, expected)]
    np.testing.assert_allclose(sides[0][1], sides[1][1], rtol=2e-5, atol=1e-5)
    for ours, theirs in zip(sides[0][0], sides[1][0]):
        scale = abs(theirs).max()
        np.testing.assert_allclose(ours / scale, theirs / scale, atol=5e-6)


@pytest.mark.parametrize(("temperature", "disallow_correct"), DRAWS)
def test_the_mean_gradient_of_the_log_probability_of_a_draw_is_zero(temperature, disallow_correct):
    """Exactly, over all ids of a vocabulary; of another distribution's log p it is not."""
    *trained, originals_BN = inputs()
    settings = dict(size=SIZE, forbidden_ids=FORBIDDEN)
    log_q_BNV = drawn_from(*trained, originals_BN, temperature, disallow_correct)
    every_BNV = jnp.broadcast_to(jnp.arange(V), log_q_BNV.shape)
    q_BNV = jnp.exp(log_q_BNV)

    def mean(score):  # of minus log p, with q held
        def of(*trained):
            losses_VBN = jax.lax.map(lambda drawn_BN: score(*trained, drawn_BN), every_VBN)
            return (jnp.moveaxis(losses_VBN, 0, -1) * q_BNV)[q_BNV > 0].sum()

        every_VBN = jnp.moveaxis(every_BNV, -1, 0)
        return max(abs(x).max() for x in jax.grad(of, (0, 1, 2))(*trained))

    def as_drawn(vectors_BNE, table_VE, bias_V, drawn_BN):
        return vocabulary_softmax.score_sampled(
            table_VE, bias_V, temperature, vectors_BNE, drawn_BN, originals_BN,
            disallow_correct=disallow_correct, **settings,
        )  # fmt: skip

    def as_softmax(vectors_BNE, table_VE, bias_V, drawn_BN):
        return vocabulary_softmax.score(table_VE, bias_V, vectors_BNE, drawn_BN, size=SIZE)[0]

    assert mean(as_drawn) < 1e-5
    assert mean(as_softmax) > 0.02  # special tokens are not drawn


def offered(vectors_BNE, table_VE, bias_V, originals_BN, keys_B, **settings):
    """Five ids for each slot, the original first."""
    given = dict(size=SIZE, forbidden_ids=FORBIDDEN, offered=5) | settings
    temperature = jnp.float32(given.pop("temperature", 1.0))
    predicted = vocabulary_softmax.predict_sample_and_offer(
        table_VE, bias_V, temperature, vectors_BNE, originals_BN, keys_B, keys_B, **given
    )
    return np.asarray(predicted.offered_BNO)


@pytest.mark.parametrize("disallow_correct", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.002])  # the colder one leaves a single likely id
def test_what_is_offered_is_the_original_and_four_other_ids_that_exist(
    temperature, disallow_correct
):
    vectors_BNE, table_VE, bias_V, originals_BN = inputs()
    best_BN = np.asarray(generator.logits(vectors_BNE, table_VE, bias_V, SIZE).argmax(-1))
    settings = dict(temperature=temperature, disallow_correct=disallow_correct)
    for originals in (originals_BN, best_BN):  # also where nothing but the original is likely
        found_BNO = offered(vectors_BNE, table_VE, bias_V, originals, KEYS_B, **settings)
        np.testing.assert_array_equal(found_BNO[..., 0], originals)
        others = found_BNO[..., 1:]
        assert ((others >= 0) & (others < SIZE) & ~np.isin(others, FORBIDDEN)).all()
        assert (np.diff(np.sort(found_BNO, axis=-1)) > 0).all()


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_others_are_drawn_one_after_the_other_from_what_is_left(temperature):
    """P(a, then b) = q_a / (1 - q_o) x q_b / (1 - q_o - q_a), with ids in two blocks."""
    rows, original = 40_000, 3
    scores = {1: 1.0, 2: 0.2, original: 2.0, 127: -0.5, 128: 0.7, 200: 0.0}
    bias_V = np.full(256, -40.0, np.float32)
    bias_V[list(scores)] = list(scores.values())

    found_BNO = offered(
        jnp.zeros((rows, 1, E)), jnp.zeros((256, E)), bias_V, np.full((rows, 1), original),
        jax.random.split(jax.random.key(5), rows),
        size=256, forbidden_ids=(0,), offered=3, temperature=temperature,
    )  # fmt: skip
    pairs, counts = np.unique(found_BNO[:, 0, 1:], axis=0, return_counts=True)
    shares = {tuple(map(int, pair)): n / rows for pair, n in zip(pairs, counts)}

    mass = {i: np.exp(score / temperature) for i, score in scores.items() if i != original}
    whole = sum(mass.values())
    expected = {
        (a, b): mass[a] / whole * mass[b] / (whole - mass[a]) for a in mass for b in mass if a != b
    }
    assert shares.keys() == expected.keys()
    for pair, p in expected.items():
        assert shares[pair] == pytest.approx(p, abs=4.5 * np.sqrt(p * (1 - p) / rows)), pair


def test_what_is_offered_does_not_depend_on_the_rows_beside_it():
    vectors_BNE, table_VE, bias_V, originals_BN = inputs()
    together = offered(vectors_BNE, table_VE, bias_V, originals_BN, KEYS_B)
    alone = offered(vectors_BNE[2:3], table_VE, bias_V, originals_BN[2:3], KEYS_B[2:3])
    np.testing.assert_array_equal(together[2:3], alone)


@pytest.mark.parametrize(
    ("size", "likely", "original", "count"),
    [
        (128, range(128), 127, 5),  # one block, which the steepest scores leave nearly empty
        (256, range(256), 255, 64),  # two, from which more are drawn than blocks are there
        (257, (256,), 256, 5),  # the last block has one id, which is the original
        (257, (256,), 5, 5),  # or is drawn first
        (66, (1,), 1, 64),  # all that there is but one
    ],
)
@pytest.mark.parametrize("disallow_correct", [False, True])
def test_steep_scores_leave_no_hole_that_padding_or_no_id_at_all_falls_into(
    size, likely, original, count, disallow_correct
):
    rows, padded = 200, -(-size // 128) * 128
    bias_V = np.zeros(padded, np.float32)
    bias_V[list(likely)] = 200.0 * (1 + np.arange(len(likely)))
    found_BNO = offered(
        jnp.zeros((rows, 1, E)), jnp.zeros((padded, E)), bias_V, np.full((rows, 1), original),
        jax.random.split(jax.random.key(6), rows),
        size=size, forbidden_ids=(0,), offered=count, disallow_correct=disallow_correct,
    )  # fmt: skip
    others = found_BNO[..., 1:]
    assert ((others > 0) & (others < size)).all()
    assert (np.diff(np.sort(found_BNO, axis=-1)) > 0).all()


def test_what_is_offered_leaves_nothing_for_the_backward_pass():
    """The masses of all blocks after each draw would be [O, B, N, G]."""
    vectors_BNE, table_VE, bias_V, originals_BN = inputs()

    def loss(vectors_BNE, count):
        predicted = vocabulary_softmax.predict_sample_and_offer(
            table_VE, bias_V, jnp.float32(1), vectors_BNE, originals_BN, KEYS_B, KEYS_B,
            size=SIZE, forbidden_ids=FORBIDDEN, offered=count,
        )  # fmt: skip
        return predicted.losses_BN.sum(), predicted.offered_BNO

    program = jax.make_jaxpr(jax.grad(lambda x: loss(x, 5), has_aux=True))(vectors_BNE)
    shapes = [x.aval.shape for line in program.eqns for x in line.outvars]
    assert (B, N, V // 128) in shapes  # of one draw
    assert (4, B, N, V // 128) not in shapes


def test_score_is_predict_and_sample_without_the_draw():
    draw = np.random.default_rng(0)
    vectors_BNE = jnp.asarray(draw.standard_normal((2, 3, 4)), jnp.float32)
    table_VE = jnp.asarray(draw.standard_normal((256, 4)), jnp.float32)
    bias_V, targets_BN = jnp.zeros(256), jnp.asarray(draw.integers(0, 200, (2, 3)))
    row_keys = jax.random.split(jax.random.key(11), 2)
    predicted = vocabulary_softmax.predict_and_sample(
        table_VE, bias_V, jnp.float32(1), vectors_BNE, targets_BN, row_keys, size=200,
        forbidden_ids=(),
    )  # fmt: skip
    losses_BN, hits_BN = vocabulary_softmax.score(
        table_VE, bias_V, vectors_BNE, targets_BN, size=200
    )
    np.testing.assert_array_equal(losses_BN, predicted.losses_BN)
    np.testing.assert_array_equal(hits_BN, predicted.hits_BN)
