# SPDX-License-Identifier: Apache-2.0
"""Whether a device computes what the CPU of the same machine computes: the first thing to know.

    python benchmarks/canary.py

A few computations that training is made of run on both. It prints one JSON object, and ends with
exit code 1 and one line if any differs by more than its tolerance. Such devices exist: issue 40633
of jax-ml/jax reports an RTX A6000 on which jax 0.11.0 and 0.11.1 computed single operations wrongly
(1 + 1 was 513), and on which a training step gave NaN.

Errors are the largest difference as a share of the largest value of the CPU.
"""

import argparse
import functools
import json
import math
import pathlib
import sys

import jax
import numpy as np
from jax import numpy as jnp

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from electra_jax import config as config_lib  # noqa: E402 - runs from a checkout
from electra_jax.configs import tiny_paper  # noqa: E402 - as above
from electra_jax.core import meshes  # noqa: E402 - as above
from electra_jax.model import attention  # noqa: E402 - as above
from electra_jax.objectives import vocabulary_softmax  # noqa: E402 - as above
from electra_jax.speed import synthetic  # noqa: E402 - as above

WIDTH, FACTORS = 512, 8  # of the chain of products
VOCABULARY, PADDED, EMBEDDING = 30_522, 30_592, 128  # as in small


def single_operations(_) -> list:
    """A root, a sum and draws, each operation a program of its own."""
    key = jax.random.key(0)
    with jax.disable_jit():
        numbers = jnp.sqrt(jnp.float32(512)), jnp.ones(4) + 1, jnp.exp(jnp.linspace(-5, 5, 4096))
        return [*numbers, jax.random.uniform(key, (4096,)), jax.random.normal(key, (4096,))]


def random_bits(_) -> list:
    """Bits of the generator from which masks, samples and dropout come: equal on all devices."""
    return [jax.jit(lambda: jax.random.bits(jax.random.key(7), (1 << 16,)))()]


def products(dtype, _) -> list:
    """A chain of products of random matrices with float32 sums, rounded to the dtype each time."""
    draw = np.random.default_rng(0)
    x, *factors = (
        jnp.asarray(draw.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5, dtype)
        for _ in range(FACTORS + 1)
    )

    @jax.jit
    def chain(x, factors):
        for factor in factors:
            x = jnp.dot(x, factor, preferred_element_type=jnp.float32).astype(dtype)
        return x

    return [chain(x, factors)]


def softmax_over_the_vocabulary(_) -> list:
    """Losses [B, N] of random vectors, and the gradients of vectors and table."""
    draw = np.random.default_rng(0)
    vectors_BNE = jnp.asarray(draw.standard_normal((8, 19, EMBEDDING)), jnp.float32)
    table_VE = jnp.asarray(0.2 * draw.standard_normal((PADDED, EMBEDDING)), jnp.float32)
    targets_BN = jnp.asarray(draw.integers(0, VOCABULARY, (8, 19)), jnp.int32)

    @functools.partial(jax.value_and_grad, argnums=(0, 1), has_aux=True)
    def loss(vectors_BNE, table_VE):
        losses_BN, _ = vocabulary_softmax.score(
            table_VE, jnp.zeros(PADDED), vectors_BNE, targets_BN, size=VOCABULARY
        )
        return losses_BN.sum(), losses_BN

    (_, losses_BN), gradients = jax.jit(loss)(vectors_BNE, table_VE)
    return [losses_BN, *gradients]


def attention_with_dropout(device) -> list:
    """Mixed values and the gradients of query, key and value; on a TPU or a GPU by its kernel."""
    draw = np.random.default_rng(0)
    *inputs, direction = (
        jnp.asarray(draw.standard_normal((2, 128, 2, 64)), jnp.float32) for _ in range(4)
    )
    documents_BL = jnp.asarray([[1] * 70 + [2] * 40 + [0] * 18, [1] * 128], jnp.int32)
    words_BHLM = jax.random.bits(jax.random.key(0), (2, 2, 128, 128), jnp.uint32)
    real_BL11 = (documents_BL > 0)[:, :, None, None]  # ways differ in what padding sees

    def einsum(*inputs):
        seen_BLM = attention.visible(documents_BL)
        return attention.einsum(*inputs, seen_BLM, dropout=0.1, drawn_BHLM=words_BHLM)

    def fused(*inputs):
        return attention.fused(*inputs, documents_BL, words_BHLM, dropout=0.1, bits=32)

    def blockwise(*inputs):
        return attention.blockwise(*inputs, documents_BL, words_BHLM, dropout=0.1)

    triton = meshes.runs_triton(device)
    mix = fused if device.platform == "tpu" and meshes.runs_mosaic(device) else einsum
    if not attention.refused("blockwise", device.platform, 128, [(2, 64)], triton=triton):
        mix = blockwise

    @jax.jit
    def run(inputs):
        mixed_BLHK, back = jax.vjp(mix, *inputs)
        return mixed_BLHK * real_BL11, *back(direction * real_BL11)

    return list(run(inputs))


def training_step(device) -> list:
    """Losses, moments and weights after one step of tiny networks, with dropout and samples.

    The first moments are the gradients times a constant. On each device the step has the form that
    a run there takes.
    """
    tree = tiny_paper.get_config()
    tree.data.batch_size = 8
    # A TPU reads the bytes of a random word in an order of its own; whole words have none.
    tree.model.update(dtype="float32", dropout=0.1, attention_dropout=0.1, dropout_bits=32)
    rehearsed = synthetic.prepare(config_lib.parse(tree), 2048, [device])
    state, measured = rehearsed.update(rehearsed.state(), rehearsed.lanes())
    whole = [_joined(state.optimizer), _joined(state.params)]
    return [*measured.checks.values(), *whole]


COMPUTATIONS = {  # name -> (what is computed, the largest error that is allowed)
    "single operations": (single_operations, 1e-5),
    "random bits": (random_bits, 0.0),
    "float32 products": (functools.partial(products, jnp.float32), 1e-4),  # TF32 would not pass
    "bfloat16 products": (functools.partial(products, jnp.bfloat16), 2e-2),
    "softmax over the vocabulary": (softmax_over_the_vocabulary, 1e-4),
    "attention with dropout": (attention_with_dropout, 1e-4),
    "training step": (training_step, 1e-2),
}


def on(device, compute) -> list[np.ndarray]:
    """What a computation comes to on a device, with products of whole float32 numbers."""
    with jax.default_device(device), jax.default_matmul_precision("highest"):
        return [np.asarray(x).astype(np.float64) for x in compute(device)]


def error_of(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """The largest error of any array; infinite if one of them has numbers that are not finite."""
    worst = 0.0
    for x, y in zip(found, expected, strict=True):
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            return math.inf
        worst = max(worst, float(abs(x - y).max() / (abs(y).max() or 1.0)))
    return worst


def main() -> None:
    """Compares the first device that jax finds with the CPU."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    device, cpu = jax.devices()[0], jax.devices("cpu")[0]
    found = {"device": device.device_kind, "jax": jax.__version__, "computations": {}}
    for name, (compute, tolerance) in COMPUTATIONS.items():
        error = error_of(on(device, compute), on(cpu, compute))
        found["computations"][name] = {
            "error": error if math.isfinite(error) else None,
            "tolerance": tolerance,
            "agrees": error <= tolerance,
        }
    print(json.dumps(found))

    wrong = [name for name, it in found["computations"].items() if not it["agrees"]]
    if wrong:
        sys.exit(
            f"{device.device_kind}, jax {jax.__version__}: {', '.join(wrong)} differ from the CPU's"
            " results by more than rounding; trust no figure of this device"
        )


def _joined(tree) -> np.ndarray:
    """All float32 leaves of a tree in one array, so that tiny gradients count as tiny."""
    leaves = [np.asarray(leaf).ravel() for leaf in jax.tree.leaves(tree)]
    return np.concatenate([leaf for leaf in leaves if leaf.dtype == np.float32])


if __name__ == "__main__":
    main()
