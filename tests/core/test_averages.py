# SPDX-License-Identifier: Apache-2.0
"""Averaged weights and the mean of gradient norms, by hand."""

import numpy as np
import pytest
from jax import numpy as jnp

from electra_jax.core import averages


def test_the_first_averages_forget_the_first_weights():
    """Decays 0.1, 2/11, 3/12 and then the one that was asked for: 0.3, not 4/13."""
    ema = {"w": jnp.array(8.0)}
    expected = 8.0
    for updates, (decay, weight) in enumerate([(0.1, 2.0), (2 / 11, 4.0), (0.25, 0.0), (0.3, 1.0)]):
        ema = averages.weights(ema, {"w": jnp.array(weight)}, 0.3, jnp.int32(updates))
        expected = decay * expected + (1 - decay) * weight
        assert float(ema["w"]) == pytest.approx(expected)
    assert 8 * 0.1 * 2 / 11 * 0.25 * 0.3 < 0.011  # what is left of the first weight


def test_the_mean_of_norms_is_weighed_and_a_spike_counts_as_its_limit(monkeypatch):
    monkeypatch.setattr(averages, "NORM_DECAY", 0.5)
    monkeypatch.setattr(averages, "JUDGED_AFTER", 2)
    norms = averages.no_norms()
    assert averages.limit(norms, 3.0) == np.inf
    norms = averages.with_norm(norms, jnp.float32(4), averages.limit(norms, 3.0))
    assert norms.tolist() == [2, 0.5, 1]  # a mean of 4
    assert averages.limit(norms, 3.0) == np.inf  # too young to judge
    norms = averages.with_norm(norms, jnp.float32(1), averages.limit(norms, 3.0))
    assert norms.tolist() == [1.5, 0.75, 2]  # a mean of 2
    assert averages.limit(norms, 3.0) == 6
    norms = averages.with_norm(norms, jnp.float32(1000), jnp.float32(6))
    assert norms.tolist() == [0.75 + 3, 0.875, 3]


def test_a_lasting_rise_is_accepted_after_a_while():
    norms = jnp.array([1.0, 1.0, 500.0])
    for steps in range(1000):  # noqa: B007 - counted
        limit = averages.limit(norms, 5.0)
        if limit >= 100:
            break
        norms = averages.with_norm(norms, jnp.float32(100), limit)
    assert 50 < steps < 120
