# SPDX-License-Identifier: Apache-2.0
"""The discriminator corrects what it takes for replaced, and keeps the rest."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from electra_jax.core import streams
from electra_jax.model import networks
from electra_jax.objectives import corrective_lm, masking
from support import odd

KEY = jax.random.key(2)


def make(head="token", **changes):
    shape = dataclasses.replace(odd.NETWORKS, discriminator_head=head, **changes)
    return odd.objective(corrective_lm.CorrectiveLM, networks=shape, mlm_weight=3.0)


def weights(objective):
    return odd.random_like(jax.eval_shape(objective.init, KEY))


@functools.cache
def seen(head="token"):
    """(objective, parameters, batch, its way through both networks).

    The generator is made to guess every second original.
    """
    objective, batch = make(head), odd.batch()
    params, keys = weights(objective), streams.keys(KEY, 0, batch.row_B, dropout=True)

    def run(params):
        corrupted = objective.generate(params, batch, keys, objective.knobs(0))
        originals_BN = masking.at(batch.ids_BL, corrupted.chosen)
        guessed_N = np.arange(odd.SLOTS) % 2 == 0
        sampled_BN = np.where(guessed_N, originals_BN, corrupted.sampled_BN)
        corrupted_BL = masking.write(batch.ids_BL, corrupted.chosen, sampled_BN)
        made = dataclasses.replace(
            corrupted,
            sampled_BN=sampled_BN,
            corrupted_BL=corrupted_BL,
            replaced_BL=masking.label(batch.ids_BL, corrupted_BL),
        )
        return objective.discriminate(params, batch, made, keys)

    return objective, params, batch, run(params)


def chance(params, vectors_D, id_):
    """p of one token by the softmax over the vocabulary, from the hidden state of a slot."""
    head = jax.tree.map(np.asarray, params["discriminator"]["correction"])
    x_E = np.asarray(
        jax.nn.gelu(vectors_D @ head["dense"]["kernel"] + head["dense"]["bias"], False)
    )
    x_E = (x_E - x_E.mean()) / np.sqrt(x_E.var() + 1e-12)
    x_E = x_E * head["norm"]["scale"] + head["norm"]["bias"]
    logits_V = np.asarray(params["embeddings"]["token"]) @ x_E + head["bias"]
    chances_V = np.exp(logits_V[: odd.NETWORKS.vocab_size])
    return chances_V[id_] / chances_V.sum()


@pytest.mark.parametrize("head", ["token", "own_layer"])
def test_the_loss_is_that_of_keeping_or_predicting(head):
    """-log of c [x = what it sees] + (1 - c) softmax, with c from detection."""
    objective, params, batch, found = seen(head)
    corrupted = dataclasses.replace(batch, ids_BL=found.corrupted_BL)
    hidden_BLD, logits_BL = networks.discriminator_outputs(objective.networks, params, corrupted)

    total, of_replaced, replaced, hits = 0.0, 0.0, 0, 0
    for row, slot in zip(*np.nonzero(np.asarray(found.chosen.used_BN))):
        place = found.chosen.slots_BN[row, slot]
        original, sees = int(batch.ids_BL[row, place]), int(found.corrupted_BL[row, place])
        keeps = 1 / (1 + np.exp(float(logits_BL[row, place])))
        p = chance(params, np.asarray(hidden_BLD[row, place]), original)
        loss = -np.log(keeps * (sees == original) + (1 - keeps) * p)
        total += loss
        of_replaced += loss * (sees != original)
        replaced += sees != original
        best = bool(found.correction_hits_BN[row, slot])
        hits += (sees == original) if keeps > 0.5 else best

    used = int(found.chosen.used_BN.sum())
    assert 0 < replaced < used

    measured = objective.measure(found, batch)
    assert np.asarray(measured["mlm_loss"]) == pytest.approx([total, used], rel=1e-5)
    assert np.asarray(measured["mlm_masked_loss"]) == pytest.approx([of_replaced, replaced])
    assert np.asarray(measured["mlm_accuracy"]) == pytest.approx([hits, used])


def test_what_is_shown_of_a_slot_are_the_likeliest_tokens_of_the_mixture():
    objective, params, batch, _ = seen()
    keys, knobs = streams.keys(KEY, 0, batch.row_B, dropout=False), objective.knobs(0)
    found = objective.intermediates(params, batch, keys, knobs)
    corrupted = dataclasses.replace(batch, ids_BL=found.corrupted_BL)
    hidden_BLD, logits_BL = networks.discriminator_outputs(objective.networks, params, corrupted)
    for row, slot in zip(*np.nonzero(np.asarray(found.chosen.used_BN))):
        place = found.chosen.slots_BN[row, slot]
        original, sees = int(batch.ids_BL[row, place]), int(found.corrupted_BL[row, place])
        keeps = 1 / (1 + np.exp(float(logits_BL[row, place])))
        ids_V = np.arange(odd.NETWORKS.vocab_size)
        softmax_V = chance(params, np.asarray(hidden_BLD[row, place]), ids_V)
        p_V = keeps * (ids_V == sees) + (1 - keeps) * softmax_V

        others = [id_ for id_ in np.argsort(-p_V) if id_ != original]
        offered = [original, *others[: corrective_lm.LIKELIEST]]
        assert found.offered_BNO[row, slot].tolist() == offered
        np.testing.assert_allclose(found.chances_BNO[row, slot], p_V[offered], rtol=1e-4)


def test_it_is_a_term_of_its_own_over_the_slots():
    objective, params, batch, _ = seen()
    keys, knobs = streams.keys(KEY, 0, batch.row_B, dropout=True), objective.knobs(0)
    sums, measured = odd.jit(lambda p: objective.loss(p, batch, keys, knobs))(params)
    assert sums["mlm"] == measured["mlm_loss"][0]
    assert objective.denominators(batch, knobs)["mlm"] == measured["mlm_loss"][1]
    assert objective.total({"mlm": 2.0}) == 6.0


def test_the_softmax_scores_highest_what_its_table_says():
    objective, params, batch, found = seen()
    corrupted = dataclasses.replace(batch, ids_BL=found.corrupted_BL)
    hidden_BLD, _ = networks.discriminator_outputs(objective.networks, params, corrupted)
    slots_BN = np.asarray(found.chosen.slots_BN)
    hidden_BND = np.take_along_axis(np.asarray(hidden_BLD), slots_BN[:, :, None], axis=1)
    vectors_BNE = networks.correction_vectors(objective.networks, params, hidden_BND)
    token_VE, bias_V = networks.correction_table(objective.networks, params)
    logits_BNV = np.asarray(vectors_BNE @ token_VE.T + bias_V)[..., : odd.NETWORKS.vocab_size]
    originals_BN = masking.at(batch.ids_BL, found.chosen)
    np.testing.assert_array_equal(
        found.correction_hits_BN, logits_BNV.argmax(-1) == np.asarray(originals_BN)
    )


TRUNK = ("embeddings", "projection", "encoder")
MOVED = {  # the head, a term of the loss -> what learns by it
    ("token", "disc"): (*TRUNK, "head"),
    ("token", "mlm"): (*TRUNK, "correction"),
    ("own_layer", "disc"): (*TRUNK, "detection", "head"),
    ("own_layer", "mlm"): (*TRUNK, "correction"),
}


@pytest.mark.parametrize(("head", "term"), MOVED)
def test_which_loss_moves_what(head, term):
    """Detection learns nothing by the correction, although its verdict is part of that loss."""
    objective, params, *_ = seen(head)
    assert odd.learning(odd.gradients(objective, params, term)) == set(MOVED[head, term])


def test_the_surer_detection_keeps_a_token_the_less_is_learnt_from_it():
    """The gradient at the head of a slot that shows the original is that of 1 - its weight."""
    objective, params, batch, found = seen()

    def gradient(logit):
        copied = dataclasses.replace(found, copy_BN=np.full_like(found.copy_BN, logit))
        kept = dataclasses.replace(copied, replaced_BL=np.zeros_like(found.replaced_BL))

        def total(losses_BN):
            return corrective_lm.correction_loss(
                dataclasses.replace(kept, correction_losses_BN=losses_BN)
            ).sum()

        return np.asarray(jax.grad(total)(found.correction_losses_BN))

    surely, hardly = gradient(9.0), gradient(-9.0)
    assert (surely < 1e-3).all() and (hardly > 0.5).all()
