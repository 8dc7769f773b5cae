# SPDX-License-Identifier: Apache-2.0
"""One step of the modern trunk on several meshes of four devices; run by test_modern_trunk.py.

Prints a JSON object: {layout: {metric: [sum, weight]}}. There is no TPU, so splash is interpreted.
"""

import functools
import json

import jax
import numpy as np
from jax.experimental.pallas.ops.tpu import splash_attention

from electra_jax import config as config_lib
from electra_jax.core import meshes
from electra_jax.speed import synthetic
from support import corpus

LAYOUTS = {  # attention, then devices along data, fsdp, tensor
    "einsum, one": ("einsum", 1, 1, 1),
    "einsum, 1 x 2 x 2": ("einsum", 1, 2, 2),
    "splash, 1 x 2 x 2": ("splash", 1, 2, 2),
}


def step(way, data, fsdp, tensor):
    """The sums of one update."""
    tree = corpus.small_run(
        "builtin",
        "",
        data__sequence_length=128,
        model__attention=way,
        model__attention_dropout=0.0,
        model__positions="rotary",
        model__feed_forward_kind="geglu",
        model__norm_place="pre",
        model__norm_kind="rms",
        model__biases=False,
        model__local_window=30,
        model__global_every=2,
        model__dtype="float32",
        model__scan="on",
        mesh__data=data,
        mesh__fsdp=fsdp,
        mesh__tensor=tensor,
    )
    tree.data.batch_size = 4
    tree.model.generator.heads = 1  # tensor=2 does not divide it, so it stays whole
    devices = jax.devices()[: data * fsdp * tensor]
    ready = synthetic.prepare(config_lib.parse(tree), 100, devices)
    _, measured = ready.update(ready.state(), ready.lanes())
    return {name: np.asarray(x).tolist() for name, x in measured.sums.items()}


if __name__ == "__main__":
    splash_attention.make_splash_mha = functools.partial(
        splash_attention.make_splash_mha, interpret=True
    )
    meshes.platform = lambda mesh: "tpu"  # so that splash is not refused
    print(json.dumps({name: step(*layout) for name, layout in LAYOUTS.items()}))
