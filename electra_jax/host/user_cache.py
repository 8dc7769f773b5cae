# SPDX-License-Identifier: Apache-2.0
"""The user's cache folder, for files that can be made or downloaded again."""

import os


def folder(*parts: str) -> str:
    """Returns the folder ELECTRA_JAX_CACHE, or electra_jax in the user's caches, or a path below.

    The user's caches are in XDG_CACHE_HOME, or in ~/.cache.
    """
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    found = os.environ.get("ELECTRA_JAX_CACHE") or os.path.join(caches, "electra_jax")
    return os.path.join(os.path.abspath(os.path.expanduser(found)), *parts)
