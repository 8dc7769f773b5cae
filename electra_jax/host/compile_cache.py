# SPDX-License-Identifier: Apache-2.0
"""Keeps compiled programs from one start of the program to the next."""

import contextlib
import json
import os
import secrets

import jax
from absl import logging

from electra_jax.host import processes, user_cache


def keep() -> None:
    """Stores compiled programs in the user's cache folder, unless jax was given another folder.

    On two cores a training step takes half a minute to compile and a second to load. Several
    processes keep them only in a folder that all of them see: jax writes on the first one alone, so
    that otherwise only that one would find a program, and the others would compile without it,
    while on GPUs each waits for the part of the kernels that another one tries out.
    """
    # A variable may be set on one host and not on another; all have to ask the same questions.
    given = processes.gather(json.dumps(bool(jax.config.jax_compilation_cache_dir)))
    if any(json.loads(one) for one in given):
        return

    folder = user_cache.folder("xla")
    if processes.is_alone() or _all_see(folder):
        jax.config.update("jax_compilation_cache_dir", folder)
    else:
        logging.info(
            "compiled programs are not kept, since not all processes see the same %s; set"
            " ELECTRA_JAX_CACHE to a folder that all see",
            folder,
        )


def _all_see(folder):
    """Whether this is one folder on all processes. False if the first one cannot write there."""
    name = processes.of_first(lambda: _marked(folder))
    path = os.path.join(folder, name)
    answers = processes.gather(json.dumps(bool(name) and os.path.exists(path)))
    if name and processes.is_first():
        with contextlib.suppress(OSError):
            os.remove(path)
    return all(json.loads(answer) for answer in answers)


def _marked(folder):
    """The name of a new, empty file in the folder; '' if there can be none."""
    name = f"{secrets.token_hex(8)}.seen"
    try:
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, name), "w"):
            return name
    except OSError:
        return ""
