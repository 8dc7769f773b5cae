# SPDX-License-Identifier: Apache-2.0
"""Fused attention against plain products, bfloat16: how far apart, how fast, how much memory.

    python benchmarks/fused_attention.py --rows=64 --length=512 --heads=12 --size=64

`fused` and splash on a TPU, `blockwise` on a GPU, and on a CPU interpreted, which shows that the
script works. Nothing is dropped. Rows hold three documents and padding. Prints one JSON object;
errors are those of bfloat16 against float32, on real tokens, as a share of the largest value.
"""

import argparse
import functools
import json
import pathlib
import statistics
import sys
import time

import jax
import numpy as np
from jax import numpy as jnp

sys.path.append(str(pathlib.Path(__file__).parents[1]))

from electra_jax.core import meshes  # noqa: E402 - runs from a checkout
from electra_jax.model import attention, blockwise_attention  # noqa: E402 - runs from a checkout


def rows_of(rows, length, heads, size):
    """Query, key, value and a direction for gradients [B, L, H, K] in float32; documents [B, L]."""
    draw = np.random.default_rng(0)
    *arrays, direction = (
        jnp.array(draw.standard_normal((rows, length, heads, size)), jnp.float32) for _ in range(4)
    )
    cuts = np.sort(draw.integers(1, length - length // 8, (rows, 2)), axis=1)
    place_L = np.arange(length)
    documents_BL = 1 + (place_L >= cuts[:, :1]) + (place_L >= cuts[:, 1:])
    documents_BL[:, length - length // 16 :] = 0
    documents_BL = jnp.array(documents_BL, jnp.int32)
    return arrays, documents_BL, direction * (documents_BL > 0)[:, :, None, None]


def ways(length, heads, size):
    """{as model.attention names it: (query, key, value, documents) -> mixed}, `einsum` first."""
    device = jax.devices()[0]
    if device.platform == "cpu":
        interpreted = functools.partial(blockwise_attention.KernelSettings, interpret=True)
        blockwise_attention.KernelSettings = interpreted
    found = {
        "einsum": lambda *x: attention.einsum(*x[:3], attention.visible(x[3])),
        "fused": attention.fused,
        "splash": attention.splash,
        "blockwise": attention.blockwise,
    }
    here = ("fused", "splash") if device.platform == "tpu" else ("blockwise",)
    if device.platform == "gpu":
        given = device.platform, length, [(heads, size)]
        reason = attention.refused("blockwise", *given, triton=meshes.runs_triton(device))
        if reason:
            sys.exit(f"blockwise {reason}")
    return {name: found[name] for name in ("einsum", *here)}


@functools.partial(jax.jit, static_argnums=0)
def forward_and_backward(mix, arrays, documents_BL, direction):
    """Mixed values and the gradients of query, key and value."""
    # The documents are no constant, from which the compiler could make the mask in advance.
    mixed, back = jax.vjp(lambda *x: mix(*x, documents_BL), *arrays)
    return mixed, *back(direction)


def measure(mix, arrays, documents_BL, direction, steps):
    """Seconds of each call, by the clock, the first left out."""
    jax.block_until_ready(forward_and_backward(mix, arrays, documents_BL, direction))
    seconds = []
    for _ in range(steps):
        begun = time.perf_counter()
        jax.block_until_ready(forward_and_backward(mix, arrays, documents_BL, direction))
        seconds.append(time.perf_counter() - begun)
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("rows", 64), ("length", 512), ("heads", 12), ("size", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--steps", type=int, default=20)
    a = parser.parse_args()
    arrays, documents_BL, direction = rows_of(a.rows, a.length, a.heads, a.size)
    mixes = ways(a.length, a.heads, a.size)
    real_BL = documents_BL > 0
    with jax.default_matmul_precision("highest"):
        exact = forward_and_backward(mixes["einsum"], arrays, documents_BL, direction)
    halves, half = [x.astype(jnp.bfloat16) for x in arrays], direction.astype(jnp.bfloat16)
    found = {"device": jax.devices()[0].device_kind, "shape": list(arrays[0].shape), "ways": {}}
    for name, mix in mixes.items():
        rounded = forward_and_backward(mix, halves, documents_BL, half)
        errors = [
            float(abs(x.astype(jnp.float32) - y)[real_BL].max() / abs(y).max())
            for x, y in zip(rounded, exact)
        ]
        program = forward_and_backward.lower(mix, halves, documents_BL, half).compile()
        found["ways"][name] = {
            "errors": dict(zip(("mixed", "query", "key", "value"), errors)),
            "temporary_mib": program.memory_analysis().temp_size_in_bytes / 2**20,
        }
    for turn in range(4):  # by turns, so that a slow minute hits both
        for name in list(mixes)[:: 1 if turn % 2 else -1]:
            seconds = measure(mixes[name], halves, documents_BL, half, a.steps)
            found["ways"][name].setdefault("seconds", []).extend(seconds)
    for it in found["ways"].values():
        it["seconds"] = statistics.median(it["seconds"])
    worst = {name: max(it["errors"].values()) for name, it in found["ways"].items()}
    found["agree"] = max(worst.values()) < 3 * worst["einsum"]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
