# SPDX-License-Identifier: Apache-2.0
"""How fast XLA multiplies on this CPU, by dtype and form: which forms use its bfloat16 units?

    python benchmarks/cpu_products.py

Products of a layer of `small` with 16 rows of 128: 2,048 rows, widths of 256 and 1,024. A form is
what the program asks for; the results are the same but for rounding. `layers.dense` asks for
results in the dtype of its inputs, `layers.wide_dense` for float32 ones.
"""

import argparse
import functools
import time

import jax
from jax import lax
from jax import numpy as jnp

ROWS, WIDTH, FEED_FORWARD = 2048, 256, 1024
FORWARD, OF_INPUT, OF_KERNEL = ((1,), (0,)), ((1,), (1,)), ((0,), (0,))
IN_PARTS = ((0, 1), (0, 1))


def main() -> None:
    """Prints a line a form."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=20, help="of each form; the fastest counts")
    calls = parser.parse_args().calls

    rows, wide = (ROWS, WIDTH), (ROWS, FEED_FORWARD)
    kernel = (WIDTH, FEED_FORWARD)
    parts = tuple((16, ROWS // 16, width) for width in (WIDTH, FEED_FORWARD))
    forms = {  # title -> (shapes of the factors, what is summed over)
        "x @ kernel": (rows, kernel, FORWARD),
        "gradient of x": (wide, kernel, OF_INPUT),
        "gradient of the kernel": (rows, wide, OF_KERNEL),
        "gradient of the kernel, rows in 16 parts": (*parts, IN_PARTS),
    }
    print(f"jax {jax.__version__}, GFLOP/s")
    print(f"{'':<42}{'float32':>10}{'bfloat16':>10}{'bfloat16 -> float32':>21}")
    for title, (left, right, summed) in forms.items():
        rates = [
            rate(left, right, summed, dtype, result, calls)
            for dtype, result in (
                (jnp.float32, None), (jnp.bfloat16, None), (jnp.bfloat16, jnp.float32),
            )
        ]  # fmt: skip
        print(f"{title:<42}{rates[0]:>10,.0f}{rates[1]:>10,.0f}{rates[2]:>21,.0f}")


def rate(left, right, summed, dtype, result, calls) -> float:
    """Returns 10^9 operations a second of the fastest of some calls."""
    a, b = jnp.ones(left, dtype), jnp.ones(right, dtype)
    product = jax.jit(
        functools.partial(
            lax.dot_general, dimension_numbers=(summed, ((), ())), preferred_element_type=result
        )
    )
    product(a, b).block_until_ready()
    seconds = []
    for _ in range(calls):
        begun = time.perf_counter()
        product(a, b).block_until_ready()
        seconds.append(time.perf_counter() - begun)
    return 2 * ROWS * WIDTH * FEED_FORWARD / min(seconds) / 1e9


if __name__ == "__main__":
    main()
