# SPDX-License-Identifier: Apache-2.0
"""The page of `section_3.py`."""

from collections.abc import Sequence

from benchmarks import equal_compute_page as pages

TITLES = {"electra": "ELECTRA"}


def write(found: pages.Found, page: str) -> None:
    """Writes the page and its picture."""
    pages.write(found, page, blocks)


def blocks(found: pages.Found, picture: str) -> Sequence[str]:
    """The page, block by block."""
    return []
