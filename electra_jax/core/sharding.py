# SPDX-License-Identifier: Apache-2.0
"""The device mesh, and one table that says how each parameter is split over it.

The mesh has three axes: `data` (parameters are copied), `fsdp` (parameters are split and gathered
when used) and `tensor` (matrix products are split). The rows of a batch are split over `data` and
`fsdp`. Where devices are of several slices, which only the network of the data centre connects,
`data` goes across the slices, and the other two axes stay inside one: gradients leave a slice once
a step, and what every layer exchanges does not. The table is matched against the paths of
parameters. The optimizer's moments have paths that end like those of their parameters, so they are
split in the same way.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from electra_jax.core import trees

AXES = ("data", "fsdp", "tensor")
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
    (r"head/bias", ("tensor",)),  # [V]
    (r"(copy|baseline)/kernel", ()),  # one output per vector
    (r"(bias|scale)", ()),
    (r"(step|rows_seen|tokens_seen|skipped_steps|count|norms|seconds|ns_coeffs)", ()),
)


def make_mesh(
    data: int = -1,
    fsdp: int = 1,
    tensor: int = 1,
    devices: Sequence[jax.Device] | None = None,
    slices: int = 0,
) -> Mesh:
    """Returns the mesh; `data=-1` takes all devices that remain after the other two axes.

    With several slices (see `count_slices`) the first copies of the model are those of the first
    slice, the next ones those of the second, and so on. Raises ValueError, one line, if the product
    of the sizes is not the number of devices, or if a copy of the model would lie in two slices.
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

    count = count_slices(devices, slices)
    if data % count:
        raise ValueError(
            f"mesh.fsdp={fsdp} x mesh.tensor={tensor} does not divide the {len(devices) // count}"
            f" devices of each of {count} slices, and a copy of the model must lie in one; let it"
            f" divide {len(devices) // count}"
        )

    # Axes of the mesh may be parts of an axis of the chips' torus, as 8 of 16.
    if count == 1:
        placed = mesh_utils.create_device_mesh(
            (data, fsdp, tensor), devices, allow_split_physical_axes=True
        )
    elif count == len(_slice_numbers(devices)):
        placed = mesh_utils.create_hybrid_device_mesh(
            (data // count, fsdp, tensor),
            (count, 1, 1),
            devices,
            allow_split_physical_axes=True,
        )
    else:  # as many groups as were asked for, in the order of the devices
        placed = np.asarray(devices).reshape(data, fsdp, tensor)

    # With Explicit axes, jax's newer default, the gathers here and in flax raise errors.
    return Mesh(placed, AXES, axis_types=(AxisType.Auto,) * 3)


def count_slices(devices: Sequence[jax.Device], asked: int = 0) -> int:
    """Returns the number of slices that the devices belong to.

    With `asked=0` the devices say it: chips of a TPU pod belong to a slice, GPUs to a machine or to
    what NVLink connects. Other devices than TPUs can be counted as `asked` equal groups instead.
    Raises ValueError, one line, if they cannot.
    """
    found = len(_slice_numbers(devices))
    if asked in (0, found):
        return found
    if devices[0].platform == "tpu":
        raise ValueError(
            f"mesh.slices={asked}, but these TPUs belong to"
            f" {found} slice{'s' if found > 1 else ''}; set mesh.slices=0, which asks the devices"
        )
    if len(devices) % asked:
        raise ValueError(
            f"mesh.slices={asked} does not divide {len(devices)} devices; try a divisor of"
            f" {len(devices)}, or 0, which asks the devices"
        )
    return asked


def _slice_numbers(devices):
    """The slices that the devices belong to; a device without a `slice_index` counts as slice 0."""
    return {getattr(device, "slice_index", 0) for device in devices}


def platform(mesh: Mesh | None) -> str:
    """'cpu', 'gpu' or 'tpu': the kind of the mesh's devices, or of this machine's without a mesh.

    The devices of a mesh may belong to another machine, for which a program is only compiled.
    """
    kind = jax.default_backend() if mesh is None else mesh.devices.flat[0].platform
    return "gpu" if kind in ("cuda", "rocm") else kind


def rows(mesh: Mesh) -> NamedSharding:
    """Returns the sharding of arrays whose first dimension is the rows of a batch."""
    return NamedSharding(mesh, ROWS)


def replicated(mesh: Mesh) -> NamedSharding:
    """Returns the sharding that gives every device a whole copy."""
    return NamedSharding(mesh, PartitionSpec())


def row_devices(mesh: Mesh) -> int:
    """Returns the number of parts that the rows are split into."""
    return mesh.shape["data"] * mesh.shape["fsdp"]


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
            if not _divides(mesh, size, axis):
                undivided.append(f"{name} ({size} over {axis}={mesh.shape[axis]})")
                axis = None
            axes.append(axis)
        return NamedSharding(mesh, PartitionSpec(*axes))

    result = jax.tree_util.tree_map_with_path(leaf, tree)
    if undivided:
        report(f"not divided by the mesh, kept whole: {', '.join(undivided)}")
    return result


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Copies:
    """An array of which each device that holds rows has a copy of its own, as the step uses it.

    Only `Placement.rowwise` reads it: its function gets the device's copy. The gradients of all
    uses are added up on each device and then summed over the devices once.
    """

    stacked: Any  # array of the copies along the first dimension (each device holds its own)


def while_used(mesh: Mesh, rows: PartitionSpec = ROWS) -> Callable[[dict], dict]:
    """Returns a function that gives each device its `Copies` of the embedding tables for a step.

    `rows` names the axes that split rows, and there is a copy for each place on them.

    The tables are read three times: by the look-ups of both networks, and by the generator's
    softmax. If XLA splits a look-up by itself, it merges the gradients of both into one scatter,
    for which it moves rows between devices, across slices too; and a table that is split along E
    would give activations that are split over the same mesh axis as their rows. Layers do not have
    these problems.
    """
    if mesh.size == 1:
        return lambda params: params

    def copied(path, x):
        if not re.search(r"(^|/)embeddings(_delta)?/", trees.path_name(path)):
            return x
        own = jax.shard_map(
            lambda x: x, mesh=mesh, in_specs=PartitionSpec(), out_specs=rows, check_vma=False
        )
        return Copies(own(x))

    return lambda params: jax.tree_util.tree_map_with_path(copied, params)


def spec_for(path: str) -> tuple[str | None, ...]:
    """Returns the mesh axes of one path. Raises KeyError if no line of the table matches."""
    for pattern, spec in TABLE:
        if re.search(rf"(^|/){pattern}$", path):
            return spec
    raise KeyError(f"no line of sharding.TABLE covers {path}")


@dataclasses.dataclass(frozen=True)
class Placement:
    """The devices that compute a batch: those of a mesh, or a single one (None).

    `placement` makes one.
    """

    mesh: Mesh | None = None
    split: PartitionSpec = ROWS  # the axes that split rows

    def keep_rows(self, hidden: jax.Array) -> jax.Array:
        """Constrains hidden states [B, ...] to be split by rows only.

        Without the constraint XLA splits the width of hidden states in scanned layers over `fsdp`,
        like the weights, and then gathers hidden states instead of weights.
        """
        if self.mesh is None:
            return hidden
        return jax.lax.with_sharding_constraint(hidden, NamedSharding(self.mesh, self.split))

    def rowwise(self, function: Callable, rows: tuple, shared: tuple = (), **settings: Any) -> Any:
        """Calls `function(*shared, *rows, **settings)` on each device with the rows that it holds.

        The first dimension of `rows` and of all results is the rows of the batch. `shared` are
        trees that every device gets whole; their gradients are summed over the devices once, and
        those of `Copies` not here but where the copies were made.
        """
        local = functools.partial(function, **settings)
        if self.mesh is None:
            return local(*shared, *rows)

        def own(*arguments):
            return local(*jax.tree.map(_own, arguments, is_leaf=_is_copies))

        def spec(x):
            return Copies(self.split) if _is_copies(x) else PartitionSpec()

        specs = (
            *(jax.tree.map(spec, tree, is_leaf=_is_copies) for tree in shared),
            *(self.split for _ in rows),
        )
        return self._on_each_device(own, specs, self.split)(*shared, *rows)

    def headwise(self, function: Callable) -> Callable:
        """Returns `function(query, key, value, *rows)` as each device runs it by itself.

        Arrays [B, L, H, K] are split by rows and by heads. Fused attention kernels need it, because
        XLA cannot split a kernel. If the `tensor` axis does not divide the heads, they stay whole.
        """
        if self.mesh is None:
            return function

        def run(query_BLHK, key_BLHK, value_BLHK, *rows):
            heads = "tensor" if _divides(self.mesh, query_BLHK.shape[2], "tensor") else None
            split = PartitionSpec(*self.split, None, heads)
            specs = (split, split, split, *(self.split for _ in rows))
            return self._on_each_device(function, specs, split)(
                query_BLHK, key_BLHK, value_BLHK, *rows
            )

        return run

    def _on_each_device(self, function, in_specs, out_specs):
        return jax.shard_map(
            function, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
        )


ONE_DEVICE = Placement()


def placement(mesh: Mesh | None) -> Placement:
    """The devices of a mesh; `ONE_DEVICE` if there is nothing to split."""
    return ONE_DEVICE if mesh is None or mesh.size == 1 else Placement(mesh)


@dataclasses.dataclass(frozen=True)
class Groups:
    """The places on the data axis: the devices of a group hold one copy of the model.

    A step of several micro-batches adds up the gradients of each group by itself, and sums them
    over the groups once, after the last micro-batch. Arrays of all groups have them as their first
    dimension G, which the data axis splits. Without a mesh there is one group and no G.
    """

    mesh: Mesh | None = None

    @property
    def placement(self) -> Placement:
        """The devices of one group."""
        return ONE_DEVICE if self.mesh is None else Placement(self.mesh, GROUP_ROWS)

    def rows(self, parts: Any) -> Any:
        """Splits micro-batches [A, B, ...] into [A, G, B / G, ...]; no row moves."""
        if self.mesh is None:
            return parts
        count, split = self.mesh.shape["data"], PartitionSpec(None, "data", *GROUP_ROWS)
        grouped = jax.tree.map(lambda x: x.reshape(x.shape[0], count, -1, *x.shape[2:]), parts)
        return jax.lax.with_sharding_constraint(grouped, NamedSharding(self.mesh, split))

    def shared(self, params: dict) -> dict:
        """Parameters that get no gradients, as all groups use them."""
        return params if self.mesh is None else while_used(self.mesh, GROUP_ROWS)(params)

    def own(self, params: dict) -> dict:
        """Parameters [...] as each group uses its own, [G, ...].

        Its transpose sums the gradients of all groups: this is the one exchange between them.
        """
        if self.mesh is None:
            return params
        shape = (self.mesh.shape["data"],)
        spread = jax.tree.map(lambda x: jnp.broadcast_to(x, shape + x.shape), params)
        places = jax.tree.map(self._each_group, shardings(params, self.mesh))
        spread = jax.lax.with_sharding_constraint(spread, places)
        return jax.vmap(while_used(self.mesh, GROUP_ROWS), spmd_axis_name="data")(spread)

    def each(self, loss: Callable) -> Callable:
        """Returns `loss(own, shared, *rows) -> (number, more)` of all groups: (sum, more of each).

        `loss` is that of one group, on `placement`.
        """
        if self.mesh is None:
            return loss

        def run(own, shared, *rows):
            axes = (0, None, *(0 for _ in rows))
            losses_G, more = jax.vmap(loss, axes, spmd_axis_name="data")(own, shared, *rows)
            return losses_G.sum(), more

        return run

    def summed(self, tree: Any) -> Any:
        """Sums [G, ...] over the groups."""
        return tree if self.mesh is None else jax.tree.map(lambda x: x.sum(0), tree)

    def _each_group(self, where):
        return NamedSharding(where.mesh, PartitionSpec("data", *where.spec))


ONE_GROUP = Groups()


def groups(mesh: Mesh) -> Groups:
    """The groups of a mesh; `ONE_GROUP` if there is nothing to split."""
    return ONE_GROUP if mesh.size == 1 else Groups(mesh)


def _is_copies(x):
    return isinstance(x, Copies)


def _own(x):
    return x.stacked if _is_copies(x) else x


def _divides(mesh, size, axis):
    return axis is None or size % mesh.shape[axis] == 0
