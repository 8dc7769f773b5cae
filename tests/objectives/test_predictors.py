# SPDX-License-Identifier: Apache-2.0
"""Main networks that predict tokens: BERT, Replace MLM, All-Tokens MLM."""

import dataclasses

import numpy as np
import optax
import pytest
from jax import numpy as jnp

from electra_jax.model import networks
from electra_jax.objectives import all_tokens_mlm, masking
from support import odd
from support.small_objectives import keys, make, weights


def test_bert_sees_mask_and_replace_mlm_never_does():
    batch = odd.batch()
    for name in ("masked_lm", "replace_mlm", "all_tokens_mlm"):
        objective = make(name)
        made = odd.jit(objective.intermediates)(
            weights(objective), batch, keys(batch), objective.knobs(0.0)
        )
        assert (made.corrupted_BL == odd.MASK).any() == (name == "masked_lm")


def test_80_10_10():
    """4,000 rows of 20 candidates, 3 slots each."""
    ids_BL = np.full((4000, 20), 9)
    batch = odd.batch(ids_BL, np.where(np.arange(20) == 0, odd.D, 0) + 0 * ids_BL)
    objective = make("masked_lm", mask_token_rate=0.8, random_token_rate=0.1, mask_rate=0.15)
    chosen = objective.choose(batch, keys(batch), objective.knobs(0.0))
    seen = masking.at(objective.mask(batch, chosen, keys(batch)).ids_BL, chosen)
    counts = np.bincount(np.asarray(seen[chosen.used_BN]), minlength=37)
    total, random = counts.sum(), counts.sum() - counts[odd.MASK] - counts[9]
    assert total == 12_000
    assert counts[odd.MASK] / total == pytest.approx(0.8, abs=0.015)
    assert random / total == pytest.approx(0.1 * 32 / 33, abs=0.012)  # one in 33 draws the 9
    assert counts[[odd.PAD, odd.CLS, odd.SEP]].sum() == 0
    drawn = np.delete(counts, [odd.PAD, odd.CLS, odd.SEP, odd.MASK, 9])
    assert drawn.min() > 0.4 * drawn.mean()  # all words, about equally


def test_predicted_losses_are_those_of_the_whole_softmax():
    objective, batch = make("masked_lm"), odd.batch()
    params = weights(objective)
    config = objective.networks
    made, losses_BN, hits_BN = objective._mask_and_predict(
        params, batch, keys(batch), objective.knobs(0.0)
    )
    seen = dataclasses.replace(batch, ids_BL=made.masked_BL)
    vectors_BNE = networks.predictor_vectors(
        config, params, seen, made.chosen.slots_BN, keys(batch).discriminator_B
    )
    token_VE, bias_V = networks.predictor_table(config, params)
    logits_BNV = (vectors_BNE @ token_VE.T + bias_V)[..., : config.vocab_size]
    originals_BN = masking.at(batch.ids_BL, made.chosen)
    expected = optax.softmax_cross_entropy_with_integer_labels(logits_BNV, originals_BN)
    np.testing.assert_allclose(losses_BN, expected, rtol=1e-5)
    np.testing.assert_array_equal(hits_BN, logits_BNV.argmax(-1) == originals_BN)


def test_the_copy_gate_mixes_two_distributions():
    """D = 0.25 and p = 0.1: 0.25 + 0.75 x 0.1 where it sees the original, 0.75 x 0.1 elsewhere."""
    gate, losses = jnp.log(jnp.array(0.25 / 0.75)), -jnp.log(jnp.array(0.1))
    seen, other = (all_tokens_mlm.copied_loss(losses, gate, jnp.array(x)) for x in (True, False))
    assert jnp.exp(-seen) == pytest.approx(0.325, rel=1e-6)
    assert jnp.exp(-other) == pytest.approx(0.075, rel=1e-6)
    extreme = all_tokens_mlm.copied_loss(losses, jnp.float32(200), jnp.array([True, False]))
    assert extreme.tolist() == pytest.approx([0, 200 + float(losses)])
