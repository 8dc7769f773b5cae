# SPDX-License-Identifier: Apache-2.0
"""One step of both trunks on several meshes of four devices; run by test_modern_trunk.py.

Prints a JSON object: {layout: {metric: [sum, weight]}}, and how far the fused kernel of a mesh,
alone and with large dropout, is from that of one device. There is no TPU and no GPU, so their
kernels are interpreted.
"""

import functools
import json

import jax
import numpy as np
from jax.experimental.pallas.ops.tpu import splash_attention

from electra_jax import config as config_lib
from electra_jax.core import meshes, placing
from electra_jax.model import (
    attention,
    blockwise_attention,
    fused_attention,
    layers,
    residual_norm,
)
from electra_jax.speed import synthetic
from support import corpus

LAYOUTS = {  # attention, then devices along data, fsdp, tensor, then dropout of probabilities
    "einsum, one": ("einsum", 1, 1, 1),
    "einsum, 1 x 2 x 2": ("einsum", 1, 2, 2),
    "splash, 1 x 2 x 2": ("splash", 1, 2, 2),
    "einsum with dropout, one": ("einsum", 1, 1, 1, 0.1),
    "fused with dropout, 1 x 2 x 2": ("fused", 1, 2, 2, 0.1),
}
CLASSIC_LAYOUTS = {  # the same of BERT's trunk, then micro-batches
    "classic, one": ("einsum", 1, 1, 1, 0.1),
    "kernels of GPUs, 2 x 1 x 2 in two parts": ("blockwise", 2, 1, 2, 0.1, 2),
}
CLASSIC = dict(model__max_positions=128)
MODERN = dict(
    model__positions="rotary",
    model__feed_forward_kind="geglu",
    model__norm_place="pre",
    model__norm_kind="rms",
    model__biases=False,
    model__local_window=30,
    model__global_every=2,
    model__scan="on",
)


def step(trunk, platform, way, data, fsdp, tensor, dropout=0.0, parts=1):
    """The sums of one update, as this platform computes it."""
    meshes.platform = lambda mesh: platform  # so that kernels are not refused
    meshes.runs_triton = lambda device: platform == "gpu"
    tree = corpus.small_run(
        "builtin",
        "",
        data__sequence_length=128,
        model__attention=way,
        model__attention_dropout=dropout,
        model__dtype="float32",
        schedule__accumulation=parts,
        mesh__data=data,
        mesh__fsdp=fsdp,
        mesh__tensor=tensor,
        **trunk,
    )
    tree.data.batch_size = 4
    tree.model.generator.heads = 1  # tensor=2 does not divide it, so it stays whole
    devices = jax.devices()[: data * fsdp * tensor]
    ready = synthetic.prepare(config_lib.parse(tree), 100, devices)
    _, measured = ready.update(ready.state(), ready.lanes())
    return {name: np.asarray(x).tolist() for name, x in measured.metric_sums.items()}


def kernel_apart():
    """The largest difference of mixed values; a head that takes another's words is far off."""
    draw, fused = np.random.default_rng(0), functools.partial(attention.fused, dropout=0.5)
    inputs = [np.float32(draw.standard_normal((4, 128, 4, 8))) for _ in "qkv"]
    words = draw.integers(0, 2**32, (4, 4, 32, 128), dtype=np.uint32)
    documents_BL = np.ones((4, 128), np.int32)

    split = placing.placement(meshes.make_mesh(1, 2, 2)).headwise(fused)
    found = jax.jit(lambda *x: split(*x, documents_BL, by_head=(words,)))(*inputs)
    return float(abs(found - fused(*inputs, documents_BL, words)).max())


if __name__ == "__main__":
    splash_attention.make_splash_mha = functools.partial(
        splash_attention.make_splash_mha, interpret=True
    )
    for kernel in (fused_attention, blockwise_attention, residual_norm):
        kernel.KernelSettings = functools.partial(kernel.KernelSettings, interpret=True)
    steps = {name: step(CLASSIC, "gpu", *layout) for name, layout in CLASSIC_LAYOUTS.items()}
    layers._beside_each_other = layers._in_quarters  # the order of bytes on a TPU
    steps |= {name: step(MODERN, "tpu", *layout) for name, layout in LAYOUTS.items()}
    print(json.dumps(steps | {"kernel apart": kernel_apart()}))
