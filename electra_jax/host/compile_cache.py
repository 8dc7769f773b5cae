# SPDX-License-Identifier: Apache-2.0
"""Keeps compiled programs from one start of the program to the next."""

import jax

from electra_jax.host import user_cache


def keep() -> None:
    """Stores compiled programs in the user's cache folder, unless jax was given another folder.

    On two cores a training step takes half a minute to compile and a second to load.
    """
    if not jax.config.jax_compilation_cache_dir:
        jax.config.update("jax_compilation_cache_dir", user_cache.folder("xla"))
