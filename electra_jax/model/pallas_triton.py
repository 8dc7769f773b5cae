# SPDX-License-Identifier: Apache-2.0
"""The part of Pallas that compiles kernels for GPUs by Triton, or None in a jax without it.

jax warns that it will give this backend up. Without it attention and norms are XLA's.
"""

try:
    from jax.experimental.pallas import triton
except ImportError:
    triton = None


def missing() -> str:
    """Returns why there are no kernels for GPUs, or ''."""
    return "" if triton else "needs a jax whose Pallas compiles for GPUs by Triton"
