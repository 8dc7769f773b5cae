# SPDX-License-Identifier: Apache-2.0
"""No gradient crosses from one loss into the other network; the shared tables hear both.

The objective itself is under test. Where the networks are to share nothing, its generator is
handed a copy of the embeddings that stands beside the trees as `own`.
"""

import dataclasses

import jax
import numpy as np
import odd
import pytest
from jax import numpy as jnp

from electra_jax import streams
from electra_jax.model import networks

SHALLOW = dataclasses.replace(
    odd.NETWORKS,
    generator=dataclasses.replace(odd.NETWORKS.generator, layers=1),
    discriminator=dataclasses.replace(odd.NETWORKS.discriminator, layers=1),
)
TERMS = ("gen", "disc")
GENERATOR = ("own", "generator")
DISCRIMINATOR = ("embeddings", "discriminator")


def largest_gradients(params: dict) -> dict[str, dict[str, float]]:
    """{term: {path: the largest derivative of that term's sum}}."""
    objective, batch = odd.objective(networks=SHALLOW), odd.batch()
    keys = streams.keys(jax.random.key(0), 0, batch.row_B, dropout=True)

    @odd.jit
    def gradients(params, batch, keys):
        def sums(params):
            return objective.loss(params, batch, keys, objective.knobs(0))[0]

        found, back = jax.vjp(sums, params)
        return {
            term: back({other: jnp.float32(other == term) for other in found})[0] for term in TERMS
        }

    found = gradients(params, batch, keys)
    return {
        term: {path: np.abs(x).max() for path, x in odd.flat(found[term]).items()} for term in TERMS
    }


def within(gradients: dict[str, float], parts: tuple[str, ...]) -> dict[str, float]:
    """Those of the named subtrees. A key's bias is left out: its true derivative is 0."""
    return {
        path: x
        for path, x in gradients.items()
        if path.startswith(parts) and not path.endswith("key/bias")
    }


@pytest.fixture
def apart(monkeypatch):
    generate, table = networks.generate, networks.generator_table

    def own(params):
        return params | {"embeddings": params["own"]}

    monkeypatch.setattr(
        networks, "generate", lambda c, params, *rest: generate(c, own(params), *rest)
    )
    monkeypatch.setattr(networks, "generator_table", lambda params: table(own(params)))
    params = odd.weights(SHALLOW)
    return largest_gradients(params | {"own": jax.tree.map(jnp.copy, params["embeddings"])})


def test_with_nothing_shared_each_loss_trains_its_own_network_alone(apart):
    for term, mine, others in (
        ("gen", GENERATOR, DISCRIMINATOR),
        ("disc", DISCRIMINATOR, GENERATOR),
    ):
        assert min(within(apart[term], mine).values()) > 0
        assert max(within(apart[term], others).values()) == 0  # exactly


def test_with_shared_tables_the_losses_meet_there_and_nowhere_else():
    tied = largest_gradients(odd.weights(SHALLOW))
    assert max(within(tied["disc"], ("generator",)).values()) == 0
    assert max(within(tied["gen"], ("discriminator",)).values()) == 0
    for term in TERMS:
        assert min(within(tied[term], ("embeddings",)).values()) > 0
