# SPDX-License-Identifier: Apache-2.0
"""One step of several objectives on one device and on eight; run by test_layouts.py.

Prints a JSON object: {objective: [{metric: [sum, weight]} on one device, the same on eight, what
the eight exchange along the data axis]}; see `across`.
"""

import json

import jax
import numpy as np

from electra_jax import config as config_lib
from electra_jax.speed import exchanges, synthetic
from support import corpus

OBJECTIVES = {  # name -> how the networks share; each has something that the others have not
    "decoupled_detection": "gdes",
    "adversarial_generator": "all",
    "electric": "embeddings",
    "multi_word_selection": "embeddings",
    "corrective_lm": "gdes",
}
MESHES = ((1, 1, 1), (2, 2, 2))


def step(name, sharing, mesh):
    """(sums of the second update, `across`); the learning rate of the first one is 0."""
    tree = corpus.small_run("builtin", "", objective__name=name, model__sharing=sharing)
    tree.data.batch_size = 16
    tree.schedule.accumulation = 2
    tree.objective.update(first_mask_rate=0.3, mask_unit="word")
    tree.model.update(scan="on", discriminator_head="cls_context")
    if sharing == "all":
        tree.model.generator = tree.model.discriminator.copy_and_resolve_references()
    if name == "multi_word_selection":
        one_shape = tree.model.discriminator.copy_and_resolve_references()
        tree.model.update(discriminator_head="own_layer", generator=one_shape, shared_layers=1)
    tree.mesh.data, tree.mesh.fsdp, tree.mesh.tensor = mesh
    devices = jax.devices()[: np.prod(mesh)]
    ready = synthetic.prepare(config_lib.parse(tree), 100, devices)
    state = ready.state()
    update = ready.update.lower(state, ready.lanes()).compile()
    exchanged = across(update.as_text(), mesh, state.params)
    state, _ = update(state, ready.lanes())
    _, measured = update(state, ready.lanes(1))
    return {key: np.asarray(x).tolist() for key, x in measured.metric_sums.items()}, exchanged


def across(text, mesh, params):
    """{kind of collective: bytes that a device sends along the data axis}, and its parameters'."""
    data, fsdp, tensor = mesh
    sent = exchanges.crossing(text, fsdp * tensor) if data > 1 else {}
    held = sum(x.addressable_shards[0].data.nbytes for x in jax.tree.leaves(params))
    return {kind: size for kind, (_, size) in sent.items()}, held


if __name__ == "__main__":
    found = {}
    for name, sharing in OBJECTIVES.items():
        (one, _), (eight, exchanged) = (step(name, sharing, mesh) for mesh in MESHES)
        found[name] = one, eight, exchanged
    print(json.dumps(found))
