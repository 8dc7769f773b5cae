# SPDX-License-Identifier: Apache-2.0
"""The weights of any path, one network at a time, to compare them bit for bit."""

import jax

from electra_jax.core import trees
from electra_jax.weights import reading
from electra_jax.weights.formats import hugging_face


def flat(path, network="discriminator"):
    """One network's arrays by path, without the padded tail of the vocabulary."""
    found = reading.open(path)
    leaves = trees.flat(jax.device_get(found.alone(network).params))
    return {
        name: x[: found.vocabulary.size] if name.endswith(hugging_face.BY_TOKEN) else x
        for name, x in leaves.items()
    }


def equal(ours, theirs):
    """Fails unless both have the same paths with the same bytes."""
    assert set(ours) == set(theirs)
    for name, x in ours.items():
        assert x.tobytes() == theirs[name].tobytes(), name
