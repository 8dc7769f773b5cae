# SPDX-License-Identifier: Apache-2.0
"""The folder of this user in which copies of what lies elsewhere are kept between starts."""

import os


def folder(*parts: str) -> str:
    """Returns the folder ELECTRA_JAX_CACHE, or ~/.cache/electra_jax, or a path below it."""
    found = os.environ.get("ELECTRA_JAX_CACHE") or os.path.join("~", ".cache", "electra_jax")
    return os.path.join(os.path.abspath(os.path.expanduser(found)), *parts)
