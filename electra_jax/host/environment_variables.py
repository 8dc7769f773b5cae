# SPDX-License-Identifier: Apache-2.0
"""Environment variables for as long as a block lasts."""

import contextlib
import os
from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def set_during(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables, also of processes that start in the block, and sets them back."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
