# SPDX-License-Identifier: Apache-2.0
"""One step of several objectives on one device and on eight; run by test_layouts.py.

Prints a JSON object: {objective: [{metric: [sum, weight]} on one device, the same on eight]}.
"""

import json

import jax
import numpy as np

from electra_jax import config as config_lib
from electra_jax.speed import synthetic
from support import corpus

OBJECTIVES = {  # name -> how the networks share; each has something that the others have not
    "decoupled_detection": "gdes",
    "adversarial_generator": "all",
    "electric": "embeddings",
}
MESHES = ((1, 1, 1), (2, 2, 2))


def step(name, sharing, mesh):
    """The sums of the second update; the learning rate of the first one is 0."""
    tree = corpus.small_run("builtin", "", objective__name=name, model__sharing=sharing)
    tree.data.batch_size = 16
    tree.schedule.accumulation = 2
    tree.objective.update(first_mask_rate=0.3, mask_unit="word")
    tree.model.update(scan="on", discriminator_head="cls_context")
    if sharing == "all":
        tree.model.generator = tree.model.discriminator.copy_and_resolve_references()
    tree.mesh.data, tree.mesh.fsdp, tree.mesh.tensor = mesh
    devices = jax.devices()[: np.prod(mesh)]
    ready = synthetic.prepare(config_lib.parse(tree), 100, devices)
    state, _ = ready.update(ready.state(), ready.lanes())
    _, measured = ready.update(state, ready.lanes(1))
    return {key: np.asarray(x).tolist() for key, x in measured.sums.items()}


if __name__ == "__main__":
    found = {
        name: [step(name, sharing, mesh) for mesh in MESHES] for name, sharing in OBJECTIVES.items()
    }
    print(json.dumps(found))
