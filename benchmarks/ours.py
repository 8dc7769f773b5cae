# SPDX-License-Identifier: Apache-2.0
"""Our side of a comparison: trains a configuration's step on made-up rows, as a worker.

One line of JSON when it is ready, then for each line `N` on standard input N steps and one line of
JSON with their seconds. The code measured is the `electra_jax` that Python finds first, so with
PYTHONPATH set to another checkout it measures that one.
"""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1]))

if __name__ == "__main__":
    from electra_jax.host import huge_pages

    huge_pages.use_huge_pages()

import argparse
import functools
import importlib
import json
import time

import jax
from jax import numpy as jnp

from electra_jax import config as config_lib
from electra_jax.speed import synthetic


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="small", help="a file of configs/, without .py")
    parser.add_argument("--vocab_size", type=int, default=30522)
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_compilation_cache", False)
    tree = importlib.import_module(f"configs.{arguments.config}").get_config()
    for change in arguments.set:
        path, _, value = change.partition("=")
        *sections, name = path.split(".")
        node = tree
        for section in sections:
            node = node[section]
        node[name] = value if isinstance(node[name], str) else type(node[name])(float(value))
    rehearsed = synthetic.prepare(config_lib.parse(tree), arguments.vocab_size)
    state, batches = rehearsed.state(), [rehearsed.lanes(number) for number in range(4)]
    begun = time.perf_counter()
    step = rehearsed.update.lower(state, batches[0]).compile()
    compiled = time.perf_counter() - begun

    def run(state, count):
        seconds = []
        for number in range(count):
            begun = time.perf_counter()
            state, measured = step(state, batches[number % len(batches)])
            jax.block_until_ready(state)
            seconds.append(time.perf_counter() - begun)
        losses = [float(measured.checks[name]) for name in ("gen_loss", "disc_loss")]
        return state, seconds, losses

    state, _, _ = run(state, 2)
    device = jax.devices()[0]
    about = {"compile_seconds": compiled, "jax": jax.__version__}
    about["platform"] = "gpu" if device.platform in ("cuda", "rocm") else device.platform
    about["device"] = device.device_kind
    about["product_rate"] = product_rate(rehearsed.plan.objective.networks.dtype)
    print(json.dumps(about), flush=True)
    for line in sys.stdin:
        state, seconds, losses = run(state, int(line))
        print(json.dumps({"seconds": seconds, "losses": losses}), flush=True)


def product_rate(dtype):
    """FLOP/s of one large product of random numbers in the form of the step: float32 results.

    It needs nothing of the package, so that an older checkout measured beside this one has it too.
    """
    size, seconds = 2048 if jax.default_backend() == "cpu" else 8192, []
    x = jax.random.normal(jax.random.key(0), (size, size)).astype(dtype)
    product = jax.jit(functools.partial(jnp.dot, preferred_element_type=jnp.float32))
    for _ in range(6):
        begun = time.perf_counter()
        product(x, x).block_until_ready()
        seconds.append(time.perf_counter() - begun)
    return 2 * size**3 / min(seconds)


if __name__ == "__main__":
    main()
