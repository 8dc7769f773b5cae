# SPDX-License-Identifier: Apache-2.0
"""Trees of arrays as flat dicts and back; an array's path is its keys, joined by slashes.

    {"embeddings": {"token": x}}    <->    {"embeddings/token": x}

Files, digests and messages name arrays by these paths.
"""

from collections.abc import Mapping
from typing import Any

import jax


def name(path: tuple) -> str:
    """The path of a leaf, as jax gives it, as text: `embeddings/token`."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def flat(tree: Any) -> dict[str, Any]:
    """A tree as a dict from path to array."""
    return {name(path): x for path, x in jax.tree_util.tree_leaves_with_path(tree)}


def nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """The nested dict of arrays that are given by path; the inverse of `flat` for dicts."""
    tree: dict[str, Any] = {}
    for path, x in leaves.items():
        *parents, last = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = x
    return tree
