# SPDX-License-Identifier: Apache-2.0
"""Trees of arrays: the path of each array as text, flat dicts by path, and shapes with a placement.

    {"embeddings": {"token": x}}    <->    {"embeddings/token": x}

The path of an array is its keys joined by slashes. Files, digests, messages and the sharding table
name arrays by these paths.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np


def path_name(path: tuple) -> str:
    """Returns the path of a leaf, given as jax's tuple of keys, as text: `embeddings/token`."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def flat(tree: Any) -> dict[str, Any]:
    """Returns the leaves of a tree as a dict from path to array."""
    return {path_name(path): x for path, x in jax.tree_util.tree_leaves_with_path(tree)}


def nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the nested dict of arrays that are given by path; the inverse of `flat` for dicts."""
    tree: dict[str, Any] = {}
    for path, x in leaves.items():
        *parents, last = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = x
    return tree


def shapes_at(shapes: Any, shardings: Any) -> Any:
    """Returns the shapes and dtypes of a tree, each with its sharding.

    Args:
      shapes: a tree of arrays or of shapes; only their shape and dtype are read.
      shardings: a tree of the same form, or one sharding for all.
    """
    return jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
        shapes,
        jax.tree.broadcast(shardings, shapes),
    )


def shapes_like(tree: Any) -> Any:
    """Returns the shapes, dtypes and shardings of a tree of arrays that are on devices."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree)


def placed_like(array: jax.Array, value: Any) -> jax.Array:
    """Returns a value of the same shape as an array with the array's dtype and sharding."""
    value = np.asarray(value, array.dtype)
    return jax.make_array_from_callback(array.shape, array.sharding, lambda index: value[index])
