# SPDX-License-Identifier: Apache-2.0
"""Keeps compiled programs from one start of the program to the next."""

import os

import jax


def keep() -> None:
    """Stores compiled programs in the user's cache folder, unless jax was given another folder.

    On two cores a training step takes half a minute to compile and a second to load.
    """
    if not jax.config.jax_compilation_cache_dir:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        jax.config.update("jax_compilation_cache_dir", os.path.join(cache, "electra_jax", "xla"))
