# SPDX-License-Identifier: Apache-2.0
"""No gradient crosses from one loss into the other network; what is shared hears both."""

import dataclasses

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from electra_jax.core import streams
from support import odd

SHALLOW = dataclasses.replace(
    odd.NETWORKS,
    generator=dataclasses.replace(odd.NETWORKS.generator, layers=1),
    discriminator=dataclasses.replace(odd.NETWORKS.discriminator, layers=1),
)
TERMS = ("gen", "disc")


def largest_gradients(sharing: str) -> dict[str, dict[str, float]]:
    """{term: {path: the largest derivative of that term's sum}}."""
    config = dataclasses.replace(SHALLOW, sharing=sharing)
    if sharing == "all":  # networks of one shape
        config = dataclasses.replace(config, generator=config.discriminator)
    objective, batch = odd.objective(networks=config), odd.batch()
    keys = streams.keys(jax.random.key(0), 0, batch.row_B, dropout=True)

    @odd.jit
    def gradients(params, batch, keys):
        def sums(params):
            return objective.loss(params, batch, keys, objective.knobs(0))[0]

        found, back = jax.vjp(sums, params)
        return {
            term: back({other: jnp.float32(other == term) for other in found})[0] for term in TERMS
        }

    found = gradients(odd.weights(config), batch, keys)
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


# sharing -> what each loss moves; the other loss moves exactly none of it, unless both do.
#                 gen (L_MLM)                    disc (L_Disc)
MOVED = {
    "embeddings": (("embeddings", "generator"), ("embeddings", "discriminator")),
    "none": (("generator",), ("embeddings", "discriminator")),
    "gdes": (("embeddings", "generator"), ("discriminator",)),
    "all": (("embeddings", "encoder", "generator"), ("embeddings", "encoder", "discriminator")),
}


@pytest.mark.parametrize("sharing", MOVED)
def test_each_loss_moves_its_own_network_what_is_shared_and_nothing_else(sharing):
    gradients = largest_gradients(sharing)
    for term, moved in zip(TERMS, MOVED[sharing]):
        parts = {path.split("/")[0] for path in gradients[term]}
        assert min(within(gradients[term], moved).values()) > 0
        still = within(gradients[term], tuple(parts - set(moved)))
        assert max(still.values()) == 0  # exactly


def test_under_gdes_the_difference_hears_the_discriminator_alone():
    gradients = largest_gradients("gdes")
    delta = ("discriminator/embeddings_delta/",)
    assert max(within(gradients["gen"], delta).values()) == 0
    assert min(within(gradients["disc"], delta).values()) > 0
