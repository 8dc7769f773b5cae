# SPDX-License-Identifier: Apache-2.0
"""Packages that only some uses need: the command that installs an extra of setup.py."""

import functools
import re
from importlib import metadata


@functools.cache
def command(extra: str) -> str:
    """Returns what installs the packages of an extra: `pip install 'wandb>=0.31'`.

    The packages themselves are named, because pip can resolve `electra_jax[wandb]` only where an
    index has electra_jax.
    """
    asked = re.compile(rf"""extra == ['"]{re.escape(extra)}['"]""")
    try:
        lines = metadata.requires("electra_jax") or ()
    except metadata.PackageNotFoundError:  # the folder of a checkout is all there is
        lines = ()

    packages = [line.partition(";")[0].strip() for line in lines if asked.search(line)]
    return "pip install " + (" ".join(map(repr, packages)) or f"-e '.[{extra}]'")
