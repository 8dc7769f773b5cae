# SPDX-License-Identifier: Apache-2.0
"""Choosing, masking, sampling, writing back and labelling, each held to what it promises."""

import functools

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp
from scipy import stats

from electra_jax.core import batch as batch_lib
from electra_jax.core import streams
from electra_jax.objectives import masking
from support import odd, small_objectives

UNLIKELY = 1e-4  # seeds are fixed, so a p-value below it is a fault and not bad luck

choose = odd.jit(masking.choose, static_argnames=("n", "mask_token_rate"))
count = odd.jit(masking.count, static_argnums=3)


def row_keys(rows, seed=0):
    return streams.row_keys(jax.random.key(seed), 0, jnp.arange(rows, dtype=jnp.uint32))


def chosen(slots, used=None, masked=None):
    """A row's choice written down."""
    used = [True] * len(slots) if used is None else used
    masked = used if masked is None else masked
    return masking.Chosen(
        *(jnp.array([lane]) for lane in (slots, used, masked, [False] * len(used)))
    )


# How many


@pytest.mark.parametrize(
    ("rate", "length", "expected"), [(0.15, 128, 19), (0.15, 512, 79), (0.25, 512, 130)]
)
def test_slots_are_those_of_the_reference(rate, length, expected):
    assert masking.max_slots(rate, length) == expected


@pytest.mark.parametrize(
    ("percent", "length", "by_eye"),
    [
        (15, 128, {3: 1, 9: 1, 10: 2, 16: 2, 17: 3, 30: 4, 31: 5, 127: 19, 128: 19}),
        (15, 512, {128: 19, 129: 19, 130: 20, 511: 77, 512: 77}),
        (25, 512, {6: 2, 10: 2, 11: 3, 512: 128}),
    ],
)
def test_every_length_has_exactly_its_share_of_slots(percent, length, by_eye):
    """Rows of 0, 1, ... tokens, two of them special; float32 halves go to even (reference)."""
    places, tokens = np.arange(length), np.arange(length + 1)
    real_BL = places < tokens[:, None]
    candidates_BL = real_BL & (places > 0) & (places < tokens[:, None] - 1)
    n = masking.max_slots(percent / 100, length)
    count_B = count(jnp.array(candidates_BL), jnp.array(real_BL), percent / 100, n)
    share_B = np.maximum(1, np.round(np.float32(percent / 100) * tokens.astype(np.float32)))
    assert count_B.tolist() == np.minimum(share_B, np.maximum(0, tokens - 2)).tolist()
    assert {t: int(count_B[t]) for t in by_eye} == by_eye
    found = choose(
        row_keys(length + 1), jnp.array(candidates_BL), count_B, n=n, mask_token_rate=0.85
    )
    assert found.used_BN.sum(1).tolist() == count_B.tolist()


def test_no_row_has_more_slots_than_candidates_or_n():
    real_BL = jnp.ones((2, 20), bool)
    candidates_BL = jnp.arange(20) < jnp.array([[2], [20]])
    assert count(candidates_BL, real_BL, 0.5, 6).tolist() == [2, 6]


# Which


def test_candidates_are_words_and_nothing_else():
    #                [CLS] the [SEP] [MASK] cat [UNK] [SEP] [PAD]
    ids_BL = jnp.array([[2, 11, 3, 4, 12, 1, 3, 0]])
    found = masking.candidates(ids_BL, special_ids=(0, 2, 3, 4))
    assert found.tolist() == [[False, True, False, False, True, True, False, False]]


@pytest.fixture(scope="module")
def many():
    """4,000 rows of 23 tokens of which 15 may be chosen, 5 slots: (candidates, Chosen)."""
    candidates_L = np.array([0] + 8 * [1] + [0, 0] + 7 * [1] + 5 * [0], bool)
    candidates_BL = jnp.tile(candidates_L, (4000, 1))
    count_B = jnp.full(4000, 5)
    found = choose(row_keys(4000), candidates_BL, count_B, n=7, mask_token_rate=0.85)
    return candidates_L, jax.device_get(found)


def test_slots_are_distinct_used_or_not(many):
    _, found = many
    assert all(len(set(slots_N)) == 7 for slots_N in found.slots_BN.tolist())


def test_specials_and_padding_are_never_chosen(many):
    candidates_L, found = many
    assert candidates_L[found.slots_BN[found.used_BN]].all()


def test_every_candidate_is_as_likely_as_any_other(many):
    candidates_L, found = many
    counts = np.bincount(found.slots_BN[found.used_BN], minlength=23)[candidates_L]
    assert counts.sum() == 4000 * 5
    assert stats.chisquare(counts).pvalue > UNLIKELY
    pairs = {tuple(sorted(slots_N[:2])) for slots_N in found.slots_BN.tolist()}
    assert len(pairs) == 15 * 14 / 2  # and no two keep away from each other


def test_85_in_100_become_mask_wherever_they_stand(many):
    candidates_L, found = many
    assert not (found.masked_BN & ~found.used_BN).any()
    masked = np.bincount(found.slots_BN[found.masked_BN], minlength=23)[candidates_L]
    used = np.bincount(found.slots_BN[found.used_BN], minlength=23)[candidates_L]
    assert stats.binomtest(masked.sum(), used.sum(), 0.85).pvalue > UNLIKELY
    assert stats.chi2_contingency([masked, used - masked]).pvalue > UNLIKELY


@pytest.mark.parametrize(("rate", "share"), [(1.0, 1.0), (0.0, 0.0)])
def test_all_or_none_can_become_mask(rate, share):
    found = choose(
        row_keys(50), jnp.ones((50, 9), bool), jnp.full(50, 3), n=4, mask_token_rate=rate
    )
    assert found.masked_BN.sum() == share * found.used_BN.sum()


def test_a_row_without_candidates_gets_no_slot():
    real_BL = jnp.array([[True] * 6, [False] * 6])
    nothing_BL = jnp.zeros((2, 6), bool)
    count_B = count(nothing_BL, real_BL, 0.5, 3)
    found = choose(row_keys(2), nothing_BL, count_B, n=3, mask_token_rate=0.85)
    assert count_B.tolist() == [0, 0]
    assert not found.used_BN.any() and not found.masked_BN.any()
    ids_BL = jnp.array([[2, 3, 3, 3, 3, 3], [0] * 6])
    assert masking.mask(ids_BL, found, odd.MASK).tolist() == ids_BL.tolist()
    assert masking.write(ids_BL, found, jnp.full((2, 3), 9)).tolist() == ids_BL.tolist()


def test_a_row_decides_alone():
    """Its slots and samples are its own, whoever its neighbours are and wherever it stands."""
    rows = jnp.array([5, 0, 3, 1], jnp.uint32)
    draw = np.random.default_rng(0)
    candidates_BL, logits_BNV = draw.random((6, 11)) < 0.8, draw.standard_normal((6, 3, 128))

    def decide(row_B):
        keys = streams.keys(jax.random.key(3), 17, row_B, dropout=True)
        candidates_RL, count_R = jnp.array(candidates_BL)[row_B], jnp.full(len(row_B), 2)
        found = masking.choose(keys.mask_B, candidates_RL, count_R, n=3, mask_token_rate=0.5)
        sampled_BN = odd.sample(keys.sample_B, jnp.array(logits_BNV)[row_B], 1.0, ())
        return found, sampled_BN, jax.vmap(jax.random.bits)(keys.generator_B)

    whole, part = (odd.jit(decide)(row_B) for row_B in (jnp.arange(6, dtype=jnp.uint32), rows))
    for all_rows, some_rows in zip(jax.tree.leaves(whole), jax.tree.leaves(part)):
        assert all_rows[rows].tolist() == some_rows.tolist()


def test_streams_steps_rows_and_runs_have_keys_of_their_own():
    found = set()
    for seed, step in ((0, 0), (0, 1), (1, 0)):
        keys = streams.keys(
            jax.random.key(seed), step, jnp.arange(4, dtype=jnp.uint32), dropout=True
        )
        for keys_B in (keys.mask_B, keys.sample_B, keys.generator_B, keys.discriminator_B):
            found |= {tuple(words) for words in jax.random.key_data(keys_B).tolist()}
    assert len(found) == 3 * 4 * 4
    assert streams.keys(jax.random.key(0), 0, jnp.arange(4), dropout=False).generator_B is None


# Units of several tokens

D, B, W = batch_lib.DOCUMENT_START, batch_lib.SEGMENT_B_START, batch_lib.WORD_START


def test_a_unit_ends_with_its_document_its_segment_and_at_special_tokens():
    """x: a unit begins. Spans are endless here, so that nothing but a border ends one."""
    #      [CLS] the cat [MASK] ##s [SEP] it  sat ##s [SEP] [CLS] no ##w [SEP] [PAD]
    ids = [[2,    11, 12,   4,   13,   3, 14,  15, 13,   3,   2,  16, 17,   3,   0]]  # fmt: skip
    mark = [[D,   W,  W,    W,   0,    W, B,   W,   0,   W,   D,  W,  0,    W,   0]]  # fmt: skip
    expected = "x x   .     x    x     x  x    .    .    x    x   x   .     x    x"
    expected_L = [sign == "x" for sign in expected.split()]
    batch = odd.batch(np.array(ids), np.array(mark))
    candidates_BL = masking.candidates(batch.ids_BL, (0, 2, 3, 4))
    borders_BL = masking.borders(candidates_BL, batch)
    assert borders_BL[0].tolist() == expected_L
    spans_BL = masking.span_starts(row_keys(1), batch.word_starts_BL, borders_BL, 1e9)
    assert spans_BL[0].tolist() == expected_L


def test_texts_without_special_tokens_between_them_are_kept_apart_too():
    ids_BL = np.array([[11, 12, 13, 14, 15, 16, 17, 18]])
    marks_BL = np.array([[D, 0, B, 0, D, 0, 0, 0]])
    batch = odd.batch(ids_BL, marks_BL)
    borders_BL = masking.borders(jnp.ones((1, 8), bool), batch)
    assert borders_BL.astype(int).tolist() == [[1, 0, 1, 0, 1, 0, 0, 0]]


@pytest.mark.parametrize(
    ("middle", "second"), [([3], B), ([3, 2], D)], ids=["segments", "documents"]
)
def test_a_span_takes_tokens_of_one_text(middle, second):
    """Three words, then six of another text; endless spans; four slots.

    So a row has either all of the first text and one word of the second, or four of the second.
    """
    first, gap = 1, len(middle)
    ids_L = [2, 11, 12, 13, *middle, 21, 22, 23, 24, 25, 26, 3]
    marks_L = [D | W, *[W] * (len(ids_L) - 1)]
    marks_L[3 + gap if second == D else 4 + gap] |= second
    batch = odd.batch(np.tile(ids_L, (60, 1)), np.tile(marks_L, (60, 1)))
    objective = odd.objective(mask_unit="span", span_words=1e9, slots=4, mask_rate=0.36)
    keys = streams.keys(jax.random.key(0), 0, batch.row_B, dropout=False)
    found = odd.jit(objective.choose)(batch, keys, objective.knobs(0.0))
    assert found.used_BN.all()
    b = 4 + gap
    rows = {tuple(sorted(slots_N)) for slots_N in found.slots_BN.tolist()}
    assert rows == {(first, 2, 3, b), (b, b + 1, b + 2, b + 3)}


def test_words_are_chosen_whole():
    """Twelve tokens, words of 2, 1, 3, 1, 2 and 3; four slots. The last word may be cut."""
    starts_L = np.array([1, 0, 1, 1, 0, 0, 1, 1, 0, 1, 0, 0], bool)
    word_L = np.cumsum(starts_L)
    rows = 300
    chosen = masking.choose(
        row_keys(rows, seed=11), jnp.ones((rows, 12), bool), jnp.full(rows, 4),
        jnp.tile(starts_L, (rows, 1)), n=5, mask_token_rate=1.0,
    )  # fmt: skip
    sizes = np.bincount(word_L)
    for slots_N in np.asarray(chosen.slots_BN)[:, :4]:
        found = np.bincount(word_L[slots_N], minlength=7)
        cut = [word for word in range(1, 7) if 0 < found[word] < sizes[word]]
        assert len(cut) <= 1
        assert len(set(slots_N.tolist())) == 4
        for word in cut:  # from its start
            first = int(np.argmax(word_L == word))
            assert {first + i for i in range(found[word])} <= set(slots_N.tolist())


def test_spans_are_words_with_a_geometric_number_of_them():
    starts_BL = jnp.ones((400, 100), bool)
    borders_BL = jnp.zeros_like(starts_BL).at[:, 0].set(True)
    spans_BL = masking.span_starts(row_keys(400, seed=11), starts_BL, borders_BL, 3.8)
    assert float(spans_BL[:, 1:].mean()) == pytest.approx(1 / 3.8, abs=0.005)
    between = np.diff(np.flatnonzero(np.asarray(spans_BL).ravel()))
    assert (between == 1).mean() == pytest.approx(1 / 3.8, abs=0.01)
    assert (between == 3).mean() == pytest.approx((1 / 3.8) * (1 - 1 / 3.8) ** 2, abs=0.01)
    assert not (spans_BL & ~starts_BL).any()


def test_a_unit_that_is_not_known_is_refused():
    """It would have been taken for spans, without a word."""
    batch, objective = odd.batch(), small_objectives.make("masked_lm", mask_unit="sentence")
    with pytest.raises(ValueError, match="mask_unit='sentence' is none of 'token', 'word', 'span'"):
        objective.choose(batch, small_objectives.keys(batch), objective.knobs(0.0))


@pytest.mark.parametrize("unit", ["word", "span"])
def test_the_unit_reaches_the_step(unit):
    ids_BL = np.tile(np.arange(5, 25), (200, 1))
    marks_BL = np.tile(np.where(np.arange(20) % 2, 0, 4), (200, 1))  # words of two tokens
    batch = odd.batch(ids_BL, marks_BL)
    objective = small_objectives.make("masked_lm", mask_rate=0.2, slots=4, mask_unit=unit)
    chosen = objective.choose(batch, small_objectives.keys(batch), objective.knobs(0.0))
    for slots_N in np.sort(np.asarray(chosen.slots_BN)):
        assert {slot // 2 for slot in slots_N[::2]} == {slot // 2 for slot in slots_N[1::2]}


# Masking, writing back, labelling


def test_a_row_on_its_way():
    #         [CLS]  the cat sat on the mat [SEP]
    ids_BL = jnp.array([[2, 11, 12, 13, 14, 11, 15, 3]])
    slots = chosen([2, 5, 6], used=[True, True, False], masked=[True, False, False])
    masked_BL = masking.mask(ids_BL, slots, mask_id=4)
    assert masked_BL.tolist() == [[2, 11, 4, 13, 14, 11, 15, 3]]
    assert masking.at(ids_BL, slots).tolist() == [[12, 11, 15]]
    #                                            dog, and the by luck; the third slot is not used
    corrupted_BL = masking.write(ids_BL, slots, jnp.array([[16, 11, 17]]))
    assert corrupted_BL.tolist() == [[2, 11, 16, 13, 14, 11, 15, 3]]
    labels_BL = masking.label(ids_BL, corrupted_BL)
    assert labels_BL.astype(int).tolist() == [[0, 0, 1, 0, 0, 0, 0, 0]]


def test_a_sample_equal_to_the_original_is_real():
    ids_BL = jnp.array([[2, 11, 12, 3]])
    corrupted_BL = masking.write(ids_BL, chosen([1, 2]), jnp.array([[11, 12]]))
    assert not masking.label(ids_BL, corrupted_BL).any()


def test_writing_touches_the_used_slots_and_nothing_else(many):
    _, found = many
    found = jax.tree.map(jnp.asarray, found)
    ids_BL = jnp.array(np.random.default_rng(0).integers(5, 90, (4000, 23)))
    marked_BL = masking.write(jnp.zeros((4000, 23), int), found, jnp.ones((4000, 7))) > 0
    assert (marked_BL.sum(1) == 5).all()
    for new_BL, moved_BL in (
        (masking.write(ids_BL, found, jnp.full((4000, 7), 99)), marked_BL),
        (
            masking.mask(ids_BL, found, 99),
            masking.write(jnp.zeros((4000, 23), int), found, found.masked_BN) > 0,
        ),
    ):
        assert (jnp.where(moved_BL, 99, ids_BL) == new_BL).all()


# Sampling

V, SIZE = 640, 600  # five blocks, the last one with a padded tail
FORBIDDEN = (0, 2, 3, 4, 130, 599)


@functools.partial(odd.jit, static_argnums=(2, 3))
def draws(logits_V, temperature, rounds, method="inverse"):
    """4,096 draws a round, through the package or by adding Gumbel noise; flat."""
    logits_BNV = jnp.broadcast_to(logits_V, (256, 16, V))

    def one(number):
        keys_B = streams.row_keys(jax.random.key(5), number, jnp.arange(256, dtype=jnp.uint32))
        if method == "inverse":
            return odd.sample(keys_B, logits_BNV, temperature, FORBIDDEN)
        logits = logits_V.at[jnp.array(FORBIDDEN)].set(-jnp.inf) / temperature
        return jax.random.categorical(keys_B[0], logits, shape=(256, 16))

    return lax.map(one, jnp.arange(rounds)).reshape(-1)


def some_logits(spread=1.0):
    logits_V = spread * np.random.default_rng(0).standard_normal(V)
    logits_V[SIZE:] = -1e9  # as generator.logits leaves them
    logits_V[5], logits_V[SIZE - 2] = 4 * spread, 3 * spread
    return logits_V.astype(np.float32)


def probabilities(logits_V, temperature):
    logits_V = logits_V.astype(np.float64) / temperature
    logits_V[list(FORBIDDEN)] = -np.inf
    mass_V = np.exp(logits_V - logits_V.max())
    return mass_V / mass_V.sum()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_samples_follow_the_generator(temperature):
    logits_V = some_logits()
    counts_V = np.bincount(draws(jnp.array(logits_V), temperature, 50), minlength=V)
    expected_V = probabilities(logits_V, temperature) * counts_V.sum()
    assert counts_V.sum() == 204_800 and len(counts_V) == V
    assert not counts_V[list(FORBIDDEN)].any()
    assert not counts_V[SIZE:].any()
    rare_V = expected_V < 5
    assert (~rare_V).sum() > 500
    found, expected = (np.append(x[~rare_V], x[rare_V].sum()) for x in (counts_V, expected_V))
    kept = expected > 0
    assert stats.chisquare(found[kept], expected[kept]).pvalue > UNLIKELY


def test_samples_are_distributed_as_gumbel_draws_are():
    logits_V = jnp.array(some_logits())
    counts = [
        np.bincount(draws(logits_V, 1.0, 8, method), minlength=V)
        for method in ("inverse", "gumbel")
    ]
    often = np.sum(counts, 0) >= 10
    table = [np.append(counts_V[often], counts_V[~often].sum()) for counts_V in counts]
    assert often.sum() > 300
    assert stats.chi2_contingency(np.array(table)[:, np.sum(table, 0) > 0]).pvalue > UNLIKELY


@pytest.mark.parametrize("place", [1, 127, 128, 300, 512, 598])
def test_a_token_with_all_the_mass_is_always_drawn(place):
    for elsewhere in (-1e9, -80.0, np.log(1e-30)):
        logits_V = np.full(V, elsewhere, np.float32)
        logits_V[place] = 0
        assert set(draws(jnp.array(logits_V), 1.0, 2).tolist()) == {place}


def test_two_tokens_in_far_blocks_share_the_mass():
    logits_V = np.full(V, -1e9, np.float32)
    logits_V[7] = logits_V[590] = 300.0
    found = np.bincount(draws(jnp.array(logits_V), 1.0, 2), minlength=V)
    assert found[[7, 590]].sum() == 8192
    assert stats.binomtest(found[7], 8192, 0.5).pvalue > UNLIKELY


@pytest.mark.parametrize("shift", [-1e4, 0, 1e4])
def test_only_differences_of_logits_matter(shift):
    logits_V = np.round(some_logits() * 4) / 4  # exact in float32 when shifted
    moved_V = np.where(np.arange(V) < SIZE, logits_V + shift, -1e9).astype(np.float32)
    plain, moved = (draws(jnp.array(x, jnp.float32), 1.0, 2) for x in (logits_V, moved_V))
    assert plain.tolist() == moved.tolist()


@pytest.mark.parametrize(
    ("uniform", "expected"), [(0.0, 1), (1 - 2**-23, 598), (1 - 2**-24, 598), (1.0, 598)]
)
def test_the_ends_of_the_unit_interval_draw_ids_that_may_be_drawn(monkeypatch, uniform, expected):
    """Id 0 is forbidden and so is 599; the tail begins at 600. A 1 is what rounding may make."""
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape: jnp.full(shape, uniform))
    for logits_V in (np.zeros(V, np.float32), np.full(V, -30.0, np.float32)):
        logits_V[SIZE:] = -1e9
        logits_BNV = jnp.broadcast_to(jnp.array(logits_V), (1, 2, V))
        assert odd.sample(row_keys(1), logits_BNV, 1.0, FORBIDDEN).tolist() == [[expected] * 2]


def test_empty_blocks_are_stepped_over(monkeypatch):
    logits_V = np.full(V, -1e9, np.float32)
    logits_V[[200, 201]] = 0  # both in block 1 of five
    for uniform, expected in ((0.0, 200), (0.49, 200), (0.51, 201), (1 - 2**-24, 201)):
        monkeypatch.setattr(jax.random, "uniform", lambda key, shape, u=uniform: jnp.full(shape, u))
        found = odd.sample(row_keys(1), jnp.array(logits_V)[None, None], 1.0, ())
        assert found.tolist() == [[expected]]
