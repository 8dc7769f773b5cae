# SPDX-License-Identifier: Apache-2.0
"""Electric: two towers that make noise, and an energy for each token."""

import dataclasses

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from electra_jax.core import streams
from electra_jax.model import networks
from support import odd
from support.small_objectives import KEY, make, weights


@pytest.fixture(scope="module")
def towers():
    """(objective, params, a jitted function from ids to the towers' vectors)."""
    objective = make("electric")
    params = weights(objective)

    @odd.jit
    def vectors(ids_BL):
        batch = dataclasses.replace(odd.batch(), ids_BL=ids_BL)
        return networks.towers(objective.networks, params, batch)

    return objective, params, vectors


def test_a_tower_guesses_a_token_from_all_others_of_its_document_and_never_from_itself(towers):
    """Row 0 is [CLS] 11 12 [SEP] 13 14 [SEP] | [CLS] 15 [SEP] [PAD]."""
    *_, vectors = towers
    ids_BL = jnp.asarray(odd.IDS_BL)
    before_LE = vectors(ids_BL)[0]
    after_LE = vectors(ids_BL.at[0, 4].set(30))[0]
    moved_L = np.abs(before_LE - after_LE).max(-1) > 1e-6
    #                        CLS   11    12    SEP   13     14    SEP
    assert moved_L[:7].tolist() == [True, True, True, True, False, True, True]
    assert moved_L[8].tolist() is False  # 15, in the other document


def test_the_logit_is_energy_plus_noise_plus_odds(towers):
    objective, params, vectors = towers
    batch, knobs = odd.batch(), objective.knobs(0.0)
    keys_ = streams.keys(KEY, 0, batch.row_B, dropout=False)
    detected = odd.jit(objective.intermediates)(params, batch, keys_, knobs)
    noised = dataclasses.replace(batch, ids_BL=detected.corrupted_BL)
    energy_BL = networks.discriminate(objective.networks, params, noised)
    token_VE, bias_V = networks.generator_table(objective.networks, params)
    logits_BLV = (vectors(batch.ids_BL) @ token_VE.T + bias_V)[..., :37]
    allowed_V = ~np.isin(np.arange(37), objective.special_ids)
    log_q_BLV = jax.nn.log_softmax(jnp.where(allowed_V, logits_BLV, -jnp.inf))
    used_BN, slots_BN = np.asarray(detected.chosen.used_BN), np.asarray(detected.chosen.slots_BN)
    words_BL = allowed_V[odd.IDS_BL] & (odd.IDS_BL != odd.PAD)
    checked = 0
    for row in range(len(odd.IDS_BL)):
        k, n = used_BN[row].sum(), words_BL[row].sum()
        noise = set(slots_BN[row][used_BN[row]].tolist())
        assert set(np.flatnonzero(detected.replaced_BL[row])) == noise
        for place in np.flatnonzero(words_BL[row]):
            id_ = int(detected.corrupted_BL[row, place])
            expected = energy_BL[row, place] + log_q_BLV[row, place, id_]
            expected += np.log(k / max(n - k, 1))
            assert detected.disc_logits_BL[row, place] == pytest.approx(float(expected), abs=1e-3)
            checked += 1
    assert checked == words_BL.sum()
