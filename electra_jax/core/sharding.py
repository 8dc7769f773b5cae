# SPDX-License-Identifier: Apache-2.0
"""The mesh, and one table that says where every parameter lives.

Three named axes: `data` (copies), `fsdp` (parameters split, gathered when used), `tensor` (matrix
products split). Rows of a batch lie over `data` and `fsdp`. The table goes by path; the optimizer's
moments carry the paths of their parameters and so follow them.
"""

import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

AXES = ("data", "fsdp", "tensor")
ROWS = PartitionSpec(("data", "fsdp"))

TABLE = (  # the end of a path -> one mesh axis (or None) a dimension; the first match wins
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
    (r"head/bias", ("tensor",)),  # [V]
    (r"(copy|baseline)/kernel", ()),  # one number a vector
    (r"(bias|scale)", ()),
    (r"(step|rows_seen|tokens_seen|skipped_steps|count|norms|seconds|ns_coeffs)", ()),
)


def make_mesh(
    data: int = -1,
    fsdp: int = 1,
    tensor: int = 1,
    devices: Sequence[jax.Device] | None = None,
) -> Mesh:
    """Returns the mesh; -1 for `data` takes the devices that the other two leave.

    Raises ValueError where the product is not the number of devices.
    """
    devices = jax.devices() if devices is None else devices
    if fsdp < 1 or tensor < 1 or (data < 1 and data != -1):
        raise ValueError(
            f"mesh sizes data={data}, fsdp={fsdp}, tensor={tensor} must be positive"
            " (data may be -1: what is left)"
        )
    if data == -1:
        data = max(1, len(devices) // (fsdp * tensor))
    if data * fsdp * tensor != len(devices):
        raise ValueError(
            f"mesh of data={data} x fsdp={fsdp} x tensor={tensor} = {data * fsdp * tensor} does"
            f" not fit {len(devices)} devices; set mesh.data=-1 and let fsdp x tensor divide"
            f" {len(devices)}"
        )
    # Auto axes: under Explicit ones, jax's newer default, flax's and our gathers are refused.
    return jax.make_mesh(
        (data, fsdp, tensor), AXES, devices=devices, axis_types=(AxisType.Auto,) * 3
    )


def rows(mesh: Mesh) -> NamedSharding:
    """Where the rows of a batch lie."""
    return NamedSharding(mesh, ROWS)


def replicated(mesh: Mesh) -> NamedSharding:
    """The same everywhere."""
    return NamedSharding(mesh, PartitionSpec())


def row_devices(mesh: Mesh) -> int:
    """How many ways the rows are split."""
    return mesh.shape["data"] * mesh.shape["fsdp"]


def shardings(tree: Any, mesh: Mesh, report: Callable[[str], None] = lambda line: None) -> Any:
    """The table applied to a tree of arrays; a dimension that its axis does not divide stays whole.

    Raises KeyError for a path that no line of the table covers.
    """
    undivided = []

    def leaf(path, x):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        spec = spec_for(name)
        axes = []
        for size, axis in zip(x.shape, spec, strict=False):
            if not _divides(mesh, size, axis):
                undivided.append(f"{name} ({size} over {axis}={mesh.shape[axis]})")
                axis = None
            axes.append(axis)
        return NamedSharding(mesh, PartitionSpec(*axes))

    result = jax.tree_util.tree_map_with_path(leaf, tree)
    if undivided:
        report(f"not divided by the mesh, kept whole: {', '.join(undivided)}")
    return result


def while_used(mesh: Mesh) -> Callable[[dict], dict]:
    """How parameters lie while a step uses them: the embedding tables gathered over `fsdp`.

    A look-up in a table split along E would give activations split over the axis that their rows
    lie on, which XLA can only undo by gathering the activations. Layers need no such help.
    """
    if mesh.shape["fsdp"] == 1:
        return lambda params: params

    def gathered(path, x):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if not re.search(r"(^|/)embeddings(_delta)?/", name):
            return x
        spec = spec_for(name)
        axes = [axis if axis != "fsdp" and _divides(mesh, n, axis) else None
                for n, axis in zip(x.shape, spec, strict=False)]  # fmt: skip
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec(*axes)))

    return lambda params: jax.tree_util.tree_map_with_path(gathered, params)


def spec_for(path: str) -> tuple[str | None, ...]:
    """The table's line for one path."""
    for pattern, spec in TABLE:
        if re.search(rf"(^|/){pattern}$", path):
            return spec
    raise KeyError(f"no line of sharding.TABLE covers {path}")


def keep_rows(mesh: Mesh) -> Callable[[jax.Array], jax.Array]:
    """Says of hidden states [B, ...] that their rows are split and nothing else.

    Left to itself XLA splits the widths of scanned layers over `fsdp`, as their weights are, and
    gathers hidden states instead of weights.
    """
    if math.prod(mesh.shape.values()) == 1:
        return as_they_are
    return lambda hidden: jax.lax.with_sharding_constraint(hidden, rows(mesh))


def as_they_are(x: Any) -> Any:
    """What `keep_rows` and `headwise` are on one device."""
    return x


def rowwise(mesh: Mesh) -> Callable:
    """Returns `run(function, rows, shared=(), **settings)`, which calls
    `function(*shared, *rows, **settings)` on the devices that hold the rows, so that no row moves.

    `rows` and all results have the rows as their first dimension. `shared` are trees that every
    device gets whole, and whose gradients are summed over the devices once.
    """
    if math.prod(mesh.shape.values()) == 1:
        return on_one_device

    def run(function, rows, shared=(), **settings):
        specs = (*(PartitionSpec() for _ in shared), *(ROWS for _ in rows))
        local = functools.partial(function, **settings)
        placed = jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=ROWS, check_vma=False)
        return placed(*shared, *rows)

    return run


def on_one_device(function: Callable, rows: tuple, shared: tuple = (), **settings: Any) -> Any:
    """What `rowwise` returns on one device: a plain call."""
    return function(*shared, *rows, **settings)


def headwise(mesh: Mesh) -> Callable[[Callable], Callable]:
    """Runs `function(query, key, value, *rows)` where the rows and heads of [B, L, H, K] are.

    For kernels, which XLA cannot split by itself. Heads that `tensor` does not divide stay whole.
    """
    if math.prod(mesh.shape.values()) == 1:
        return as_they_are

    def lift(function):
        def run(query_BLHK, key_BLHK, value_BLHK, *rows):
            heads = "tensor" if _divides(mesh, query_BLHK.shape[2], "tensor") else None
            split = PartitionSpec(*ROWS, None, heads)
            specs = (split, split, split, *(ROWS for _ in rows))
            return jax.shard_map(
                function, mesh=mesh, in_specs=specs, out_specs=split, check_vma=False
            )(query_BLHK, key_BLHK, value_BLHK, *rows)

        return run

    return lift


def _divides(mesh, size, axis):
    return axis is None or size % mesh.shape[axis] == 0
