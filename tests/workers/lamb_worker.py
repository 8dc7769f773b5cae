# SPDX-License-Identifier: Apache-2.0
"""One update of LAMB on one device and on 1 x 2 x 2; run by test_optimizer.py, with four devices.

Prints a JSON list with {path: [update, whether devices have parts of it]} of each mesh.
"""

import json

import jax
import numpy as np
from jax import numpy as jnp

from electra_jax.core import meshes, sharding, trees
from electra_jax.step import optimizer
from support import odd

MESHES = ((1, 1, 1), (1, 2, 2))  # devices along data, fsdp, tensor


def updated(data, fsdp, tensor):
    """The update of every parameter of the networks, and whether it is split."""
    devices = jax.devices()[: data * fsdp * tensor]
    params, lamb = odd.weights(), optimizer.lamb(optimizer.Settings())
    places = sharding.shardings(params, meshes.make_mesh(data, fsdp, tensor, devices))

    def update(gradients, params):
        return lamb.update(gradients, lamb.init(params), params)[0]

    gradients = jax.tree.map(lambda x: jnp.cos(7 * x), params)
    jitted = jax.jit(update, in_shardings=(places, places), out_shardings=places)
    found = trees.flat(jitted(gradients, params))
    return {
        path: (np.asarray(x).tolist(), not x.sharding.is_fully_replicated)
        for path, x in found.items()
    }


if __name__ == "__main__":
    print(json.dumps([updated(*mesh) for mesh in MESHES]))
