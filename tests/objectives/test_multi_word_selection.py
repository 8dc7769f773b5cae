# SPDX-License-Identifier: Apache-2.0
"""Selection of the original among a few tokens, and the layer that detection has beside it."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from electra_jax.core import streams
from electra_jax.model import networks
from electra_jax.objectives import multi_word_selection as selection
from support import odd

OFFERED = 5
HEADS = ("token", "own_layer")
KEY = jax.random.key(2)


def make(head="own_layer", **changes):
    shape = dataclasses.replace(odd.NETWORKS, discriminator_head=head, **changes)
    return odd.objective(
        selection.MultiWordSelection, networks=shape, selection_size=OFFERED, selection_weight=2.0
    )


def weights(objective):
    return odd.random_like(jax.eval_shape(objective.init, KEY))


@functools.cache
def seen(head):
    """(objective, parameters, batch, its way through both networks)."""
    objective, batch = make(head), odd.batch()
    params, keys = weights(objective), streams.keys(KEY, 0, batch.row_B, dropout=True)
    run = odd.jit(lambda params: objective.intermediates(params, batch, keys, objective.knobs(0)))
    return objective, params, batch, run(params)


def by_hand(params, vectors_D, ids):
    """The scores of some tokens at one slot, from the hidden state there."""
    head = jax.tree.map(np.asarray, params["discriminator"]["selection"])
    x_E = np.asarray(
        jax.nn.gelu(vectors_D @ head["dense"]["kernel"] + head["dense"]["bias"], False)
    )
    x_E = (x_E - x_E.mean()) / np.sqrt(x_E.var() + 1e-12)
    x_E = x_E * head["norm"]["scale"] + head["norm"]["bias"]
    return np.asarray(params["embeddings"]["token"])[ids] @ x_E


@pytest.mark.parametrize("head", HEADS)
def test_scores_are_products_of_the_slots_vector_with_the_tokens_embeddings(head):
    objective, params, batch, found = seen(head)
    corrupted = dataclasses.replace(batch, ids_BL=found.corrupted_BL)
    hidden_BLD, _ = networks.discriminator_outputs(objective.networks, params, corrupted)
    for row, slot in zip(*np.nonzero(np.asarray(found.chosen.used_BN))):
        place = found.chosen.slots_BN[row, slot]
        ids = np.asarray(found.offered_BNO[row, slot])
        assert ids[0] == batch.ids_BL[row, place]
        expected = by_hand(params, np.asarray(hidden_BLD[row, place]), ids)
        np.testing.assert_allclose(found.selection_scores_BNO[row, slot], expected, rtol=2e-5)


@pytest.mark.parametrize("head", HEADS)
def test_the_loss_is_that_of_one_choice_among_all_that_is_offered(head):
    objective, params, batch, found = seen(head)
    used_BN = np.asarray(found.chosen.used_BN)
    scores_SO = np.asarray(found.selection_scores_BNO)[used_BN]
    chances_SO = np.exp(scores_SO) / np.exp(scores_SO).sum(-1, keepdims=True)

    keys, knobs = streams.keys(KEY, 0, batch.row_B, dropout=True), objective.knobs(0)
    sums, measured = odd.jit(lambda p: objective.loss(p, batch, keys, knobs))(params)
    expected = -np.log(chances_SO[:, 0]).sum()
    assert float(sums["selection"]) == pytest.approx(expected, rel=1e-5)
    assert np.asarray(measured["selection_loss"]) == pytest.approx([expected, used_BN.sum()])
    hits = (scores_SO.argmax(-1) == 0).sum()
    assert np.asarray(measured["selection_accuracy"]) == pytest.approx([hits, used_BN.sum()])
    assert objective.denominators(batch, knobs)["selection"] == used_BN.sum()
    assert objective.total({"selection": 3.0}) == 6.0


def test_a_tie_is_no_hit():
    objective, _, batch, found = seen("token")
    level = dataclasses.replace(
        found, selection_scores_BNO=jnp.zeros_like(found.selection_scores_BNO)
    )
    measured = objective.measure(level, batch)
    assert measured["selection_accuracy"][0] == 0
    loss = measured["selection_loss"][0] / measured["selection_loss"][1]
    assert float(loss) == pytest.approx(np.log(OFFERED))


TRUNK = ("embeddings", "projection", "encoder")
MOVED = {  # the head, a term of the loss -> what learns by it
    ("token", "disc"): (*TRUNK, "head"),
    ("token", "selection"): (*TRUNK, "selection"),
    ("own_layer", "disc"): (*TRUNK, "detection", "head"),
    ("own_layer", "selection"): (*TRUNK, "selection"),
}


@pytest.mark.parametrize(("head", "term"), MOVED)
def test_which_loss_moves_what(head, term):
    objective, params, *_ = seen(head)
    gradients = odd.gradients(objective, params, term)
    assert odd.learning(gradients) == set(MOVED[head, term])

    # The last layer of the encoder is the selection's where detection has a layer of its own.
    last = gradients["discriminator/encoder/feed_forward/in/kernel"][-1]
    assert np.any(last != 0) == ((head, term) != ("own_layer", "disc"))


MODERN = dict(
    generator=odd.trunk(2, 8, 2, 12, **odd.MODERN),
    discriminator=odd.trunk(2, 12, 2, 14, **odd.MODERN | dict(local_window=0)),
    max_positions=0,
)


@pytest.mark.parametrize("shape", [{}, MODERN], ids=["published", "modern"])
def test_the_layer_of_detection_stands_where_the_last_of_the_encoder_does(shape):
    """So a network whose last layer it is gives the same logits, and keeps the hidden states."""
    forked, plain = make("own_layer", **shape).networks, make("token", **shape).networks
    params, batch = weights(make("own_layer", **shape)), odd.batch()
    hidden_BLD, logits_BL = networks.discriminator_outputs(forked, params, batch)

    own = params["discriminator"]
    expected_BLD, _ = networks.discriminator_outputs(plain, params, batch)
    np.testing.assert_allclose(hidden_BLD, expected_BLD, rtol=1e-6)

    replaced = {
        name: jax.tree.map(lambda x, y: jnp.concatenate([x[:-1], y]), part, own["detection"][name])
        if name != "norm"
        else own["detection"]["norm"]
        for name, part in own["encoder"].items()
    }
    other = params | {"discriminator": own | {"encoder": replaced}}
    expected_BL = networks.discriminate(plain, other, batch)
    np.testing.assert_allclose(logits_BL, expected_BL, rtol=1e-5, atol=1e-6)
    assert abs(expected_BL - networks.discriminate(plain, params, batch)).max() > 0.01


def test_the_layer_of_detection_has_dropout_of_its_own():
    dropping = dataclasses.replace(odd.NETWORKS.discriminator, layers=1, dropout=0.4)
    objective = make("own_layer", discriminator=dropping)
    params, batch = weights(objective), odd.batch()
    own = params["discriminator"]
    same = params | {
        "discriminator": own | {"detection": own["encoder"], "head": own["head"]},
    }
    keys_B = streams.keys(KEY, 0, batch.row_B, dropout=True).discriminator_B
    plain = make("token", discriminator=dropping).networks
    of_both = [networks.discriminate(x, same, batch, keys_B) for x in (objective.networks, plain)]
    without = [networks.discriminate(x, same, batch) for x in (objective.networks, plain)]
    np.testing.assert_allclose(*without, rtol=1e-5, atol=1e-6)  # one layer, the same weights
    assert abs(of_both[0] - of_both[1]).max() > 0.01
