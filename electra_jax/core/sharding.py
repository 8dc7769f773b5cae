# SPDX-License-Identifier: Apache-2.0
"""One table that says how each parameter is split over the mesh.

The table is matched against the paths of parameters. The optimizer's moments have paths that end
like those of their parameters, so they are split in the same way. The rows of a batch are split
over `data` and `fsdp`.
"""

import re
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from electra_jax.core import trees

ROWS = PartitionSpec(("data", "fsdp"))
GROUP_ROWS = PartitionSpec("fsdp")  # the same within one place on the data axis

TABLE = (  # end of a path -> a mesh axis or None per dimension; the first match wins
    (r"embeddings(_delta)?/token", ("tensor", "fsdp")),  # [V, E]
    (r"embeddings(_delta)?/(position|type)", (None, "fsdp")),
    (r"attention/(query|key|value)/kernel", (None, "fsdp", "tensor", None)),  # [layers, D, H, K]
    (r"attention/(query|key|value)/bias", (None, "tensor", None)),
    (r"attention/output/kernel", (None, "tensor", None, "fsdp")),  # [layers, H, K, D]
    (r"feed_forward/(in|gate)/kernel", (None, "fsdp", "tensor")),  # [layers, D, F]
    (r"feed_forward/(in|gate)/bias", (None, "tensor")),
    (r"feed_forward/out/kernel", (None, "tensor", "fsdp")),
    (r"projection/kernel", ("fsdp", "tensor")),
    (r"head/(end/|impossible/)?dense/kernel", ("fsdp", "tensor")),
    (r"head/((end/|impossible/)?output|start)/kernel", ("fsdp", None)),
    (r"(head|correction)/bias", ("tensor",)),  # [V]
    (r"(selection|correction)/dense/kernel", ("fsdp", "tensor")),
    (r"(copy|baseline)/kernel", ()),  # one output per vector
    (r"(bias|scale)", ()),
    (r"(step|rows_seen|tokens_seen|skipped_steps|count|norms|seconds|ns_coeffs)", ()),
)


def rows(mesh: Mesh) -> NamedSharding:
    """Returns the sharding of arrays whose first dimension is the rows of a batch."""
    return NamedSharding(mesh, ROWS)


def replicated(mesh: Mesh) -> NamedSharding:
    """Returns the sharding that gives every device a whole copy."""
    return NamedSharding(mesh, PartitionSpec())


def shardings(tree: Any, mesh: Mesh, report: Callable[[str], None] = lambda line: None) -> Any:
    """Returns the sharding of each array of a tree, as the table says.

    A dimension that its mesh axis does not divide stays whole, and `report` gets a message.
    Raises KeyError for a path that no line of the table matches.
    """
    undivided = []

    def leaf(path, x):
        name = trees.path_name(path)
        spec = spec_for(name)
        axes = []
        for size, axis in zip(x.shape, spec, strict=False):
            if not divides(mesh, size, axis):
                undivided.append(f"{name} ({size} over {axis}={mesh.shape[axis]})")
                axis = None
            axes.append(axis)
        return NamedSharding(mesh, PartitionSpec(*axes))

    result = jax.tree_util.tree_map_with_path(leaf, tree)
    if undivided:
        report(f"not divided by the mesh, kept whole: {', '.join(undivided)}")
    return result


def spec_for(path: str) -> tuple[str | None, ...]:
    """Returns the mesh axes of one path. Raises KeyError if no line of the table matches."""
    for pattern, spec in TABLE:
        if re.search(rf"(^|/){pattern}$", path):
            return spec
    raise KeyError(f"no line of sharding.TABLE covers {path}")


def divides(mesh: Mesh, size: int, axis: str | None) -> bool:
    """Whether the axis of the mesh divides a dimension of this size; None (no axis) always does."""
    return axis is None or size % mesh.shape[axis] == 0
