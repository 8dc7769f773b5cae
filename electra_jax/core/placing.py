# SPDX-License-Identifier: Apache-2.0
"""Where a batch is computed: each device runs a function on the rows that it holds.

Placement          the devices of a mesh, or a single one: functions of rows run on each
with_table_copies  the embedding tables as a step uses them: a copy for each device with rows
Groups             the places on the data axis; each sums the gradients of its micro-batches

    micro-batches [A, B, ...]  ->  rows    ->  [A, G, B / G, ...]   G groups, no row moves
    parameters [...]           ->  copies  ->  [G, ...]             one for each group
    gradients [G, ...]         ->  its transpose -> [...]           summed over groups, once
"""

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Any

import jax
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from electra_jax.core import trees
from electra_jax.core.sharding import GROUP_ROWS, ROWS, divides, shardings


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Copies:
    """An array of which each device that holds rows has a copy of its own, as the step uses it.

    Only `Placement.rowwise` reads it: its function gets the device's copy. The gradients of all
    uses are added up on each device and then summed over the devices once.
    """

    stacked: Any  # array of the copies along the first dimension (each device holds its own)


def with_table_copies(mesh: Mesh, rows: PartitionSpec = ROWS) -> Callable[[dict], dict]:
    """Returns a function that gives each device its `Copies` of the embedding tables for a step.

    `rows` names the axes that split rows, and there is a copy for each place on them.

    The tables are read three times: by the look-ups of both networks, and by the generator's
    softmax; by `networks.selection_scores` once more. If XLA splits a look-up by itself, it merges
    the gradients of both into one scatter, for which it moves rows between devices, across slices
    too; and a table that is split along E would give activations that are split over the same mesh
    axis as their rows. Layers do not have these problems.
    """
    if mesh.size == 1:
        return lambda params: params

    def copied(path, x):
        if not re.search(r"(^|/)embeddings(_delta)?/", trees.path_name(path)):
            return x
        copy = jax.shard_map(
            lambda x: x, mesh=mesh, in_specs=PartitionSpec(), out_specs=rows, check_vma=False
        )
        return Copies(copy(x))

    return lambda params: jax.tree_util.tree_map_with_path(copied, params)


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
        those of `Copies` later, by the transpose of `with_table_copies`.
        """
        local = functools.partial(function, **settings)
        if self.mesh is None:
            return local(*shared, *rows)

        def run(*arguments):
            return local(*jax.tree.map(_local_copy, arguments, is_leaf=_is_copies))

        def spec(x):
            return Copies(self.split) if _is_copies(x) else PartitionSpec()

        specs = (
            *(jax.tree.map(spec, tree, is_leaf=_is_copies) for tree in shared),
            *(self.split for _ in rows),
        )
        return self._on_each_device(run, specs, self.split)(*shared, *rows)

    def headwise(self, function: Callable) -> Callable:
        """Returns `function(query, key, value, *rows, *by_head)` as each device runs it by itself.

        Arrays [B, L, H, K], and those of `by_head`, [B, H, ...], are split by rows and by heads.
        Kernels of attention need it, because XLA cannot split a kernel. If the `tensor` axis
        does not divide the heads, they stay whole.
        """
        mesh = self.mesh
        if mesh is None:
            return lambda *rows, by_head=(): function(*rows, *by_head)

        def run(query_BLHK, key_BLHK, value_BLHK, *rows, by_head=()):
            heads = "tensor" if divides(mesh, query_BLHK.shape[2], "tensor") else None
            split = PartitionSpec(*self.split, None, heads)
            of_heads = PartitionSpec(*self.split, heads)
            specs = [split] * 3 + [self.split] * len(rows) + [of_heads] * len(by_head)
            return self._on_each_device(function, tuple(specs), split)(
                query_BLHK, key_BLHK, value_BLHK, *rows, *by_head
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
        return params if self.mesh is None else with_table_copies(self.mesh, GROUP_ROWS)(params)

    def copies(self, params: dict) -> dict:
        """Parameters [...] as each group uses its own, [G, ...].

        Its transpose sums the gradients of all groups: this is the one exchange between them.
        """
        if self.mesh is None:
            return params
        shape = (self.mesh.shape["data"],)
        spread = jax.tree.map(lambda x: jnp.broadcast_to(x, shape + x.shape), params)
        places = jax.tree.map(self._each_group, shardings(params, self.mesh))
        spread = jax.lax.with_sharding_constraint(spread, places)
        return jax.vmap(with_table_copies(self.mesh, GROUP_ROWS), spmd_axis_name="data")(spread)

    def each(self, loss: Callable) -> Callable:
        """Returns (copies, shared, *rows) -> (sum of the losses, further outputs [G, ...]).

        It applies `loss` to each group. `loss` is computed on `placement` and returns (loss of one
        group, further outputs).
        """
        if self.mesh is None:
            return loss

        def run(copies, shared, *rows):
            axes = (0, None, *(0 for _ in rows))
            losses_G, more = jax.vmap(loss, axes, spmd_axis_name="data")(copies, shared, *rows)
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


def _local_copy(x):
    return x.stacked if _is_copies(x) else x
