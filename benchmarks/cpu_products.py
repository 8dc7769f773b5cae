# SPDX-License-Identifier: Apache-2.0
"""How fast XLA multiplies on this CPU, by dtype and form: which forms use its bfloat16 units?

    python benchmarks/cpu_products.py

Products of a layer of `small` with 16 rows of 128: 2,048 rows, widths of 256 and 1,024; and of its
softmax with 16 rows, 304 chosen slots, by 2,048 ids of the vocabulary. A form is what the program
asks for; the results are the same but for rounding. `layers.dense` asks for results in the dtype of
its inputs, `layers.cpu_dense` for float32 ones.

The first factor of a gradient is multiplied by two first, as in a training step, where it comes out
of other operations: XLA may do that and the copy into another order in one loop.
"""

import argparse
import time
from collections.abc import Callable

import jax
from jax import lax
from jax import numpy as jnp

ROWS, WIDTH, FEED_FORWARD = 2048, 256, 1024
SLOTS, IDS, EMBEDDING = 304, 2048, 128
PARTS = 16


def main() -> None:
    """Prints a line a form."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=20, help="of each form; the fastest counts")
    calls = parser.parse_args().calls

    rows, wide, kernel = (ROWS, WIDTH), (ROWS, FEED_FORWARD), (WIDTH, FEED_FORWARD)
    slots, scores, table = (SLOTS, EMBEDDING), (SLOTS, IDS), (IDS, EMBEDDING)
    forms = (  # title, function of two factors, their shapes
        ("x @ kernel", plain, rows, kernel),
        ("gradient of x", over_last, wide, kernel),
        ("gradient of a kernel that widens", over_rows, rows, wide),
        ("  rows in 16 parts", over_parts, rows, wide),
        ("gradient of a kernel that narrows", over_rows, wide, rows),
        ("  rows in 16 parts", over_parts, wide, rows),
        ("  rows in 16 parts, turned", turned, wide, rows),
        ("vectors @ table.T", transposed, slots, table),
        ("  summed over both last dimensions", over_last, slots, table),
        ("gradient of the table", over_rows, scores, slots),
        ("  slots in 16 parts", over_parts, scores, slots),
        ("  slots in 16 parts, turned", turned, scores, slots),
    )
    print(f"jax {jax.__version__}, GFLOP/s")
    print(f"{'':<42}{'float32':>10}{'bfloat16':>10}{'bfloat16 -> float32':>21}")
    for title, form, left, right in forms:
        rates = [
            rate(form, left, right, dtype, result, calls)
            for dtype, result in (
                (jnp.float32, None), (jnp.bfloat16, None), (jnp.bfloat16, jnp.float32),
            )
        ]  # fmt: skip
        print(f"{title:<42}{rates[0]:>10,.0f}{rates[1]:>10,.0f}{rates[2]:>21,.0f}")


def plain(a, b, result):
    """[S, D] x [D, F] -> [S, F]."""
    return product(a, b, ((1,), (0,)), result)


def transposed(a, b, result):
    """[S, D] x [F, D] -> [S, F], as the product with the transposed second factor."""
    return product(a, b.T, ((1,), (0,)), result)


def over_last(a, b, result):
    """[S, D] x [F, D] -> [S, F]."""
    return product(a, b, ((1,), (1,)), result)


def over_rows(a, b, result):
    """[S, D] x [S, F] -> [D, F]."""
    return product(2 * a, b, ((0,), (0,)), result)


def over_parts(a, b, result):
    """The same, summed over two dimensions."""
    a, b = ((x.reshape(PARTS, -1, x.shape[1])) for x in (2 * a, b))
    return product(a, b, ((0, 1), (0, 1)), result)


def turned(a, b, result):
    """The same with the second factor first, and the result transposed."""
    return lax.optimization_barrier(over_parts(b, 2 * a, result)).T


def product(a, b, summed, result):
    """A product as XLA is asked for it; `result` is its dtype, or None for that of the factors."""
    return lax.dot_general(a, b, (summed, ((), ())), preferred_element_type=result)


def rate(form: Callable, left, right, dtype, result, calls) -> float:
    """Returns 10^9 operations a second of the fastest of some calls."""
    a, b = jnp.ones(left, dtype), jnp.ones(right, dtype)
    run = jax.jit(lambda a, b: form(a, b, result))
    operations = 2 * a.size * run(a, b).block_until_ready().size / _kept(form, left)
    seconds = []
    for _ in range(calls):
        begun = time.perf_counter()
        run(a, b).block_until_ready()
        seconds.append(time.perf_counter() - begun)
    return operations / min(seconds) / 1e9


def _kept(form, left):
    """The first factor's dimension that the result has too."""
    return left[1] if form in (over_rows, over_parts, turned) else left[0]


if __name__ == "__main__":
    main()
