# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: saved behind the run's back, verified on the way in, never silently wrong.

`directory/STEP/` is an orbax checkpoint of a plain dict of arrays plus JSON metadata. Orbax loads
a flipped bit in weights without a word, so each save carries a digest of every leaf, the same on
any mesh, and one of the metadata itself, and each restore compares them. Where a step cannot be
read or does not match, the one before it is used, and the bad one is renamed STEP.corrupt; of
several processes all do the same, though only one of them could not read it. The first save of a
process is read back before any later one is trusted. The only module that knows orbax (its v1
interface).
"""

import dataclasses
import functools
import glob
import os
from typing import Any

import jax
from etils import epath
from jax import lax
from jax import numpy as jnp
from orbax.checkpoint import v1 as ocp

from electra_jax.host import processes, safe_files
from electra_jax.weights import trees
from electra_jax.workdir import metadata

_READ_BACK_BYTES = 1 << 28  # of arrays that are read back at once, beside those of the run


@dataclasses.dataclass(frozen=True)
class Restored:
    """A verified checkpoint."""

    step: int
    tree: dict[str, Any]
    metadata: dict[str, Any]


def restore(path: str, abstract: dict[str, Any], optional: str = "") -> Restored:
    """Loads one checkpoint, or the part of it that `abstract` names, and verifies every leaf.

    Of the dict `abstract[optional]` those are left out that were not saved. Called on all processes
    at once; what fails on one of them fails on all. Raises CheckpointError, whatever is wrong.
    """
    own = processes.agree(lambda: metadata.read(path), metadata.CheckpointError)
    about = processes.of_first(lambda: own)  # of another copy the leaves might be others
    if optional:
        there = about["digest"]
        kept = {n: x for n, x in abstract[optional].items() if f"{optional}/{n}" in there}
        abstract = abstract | {optional: kept}
    if missing := [name for name in trees.flat(abstract) if name not in about["digest"]]:
        raise metadata.CheckpointError(
            f"{path} holds no {missing[0]} (and {len(missing)} such in all)"
        )

    tree = processes.agree(lambda: _load_checked(path, abstract), metadata.CheckpointError)
    found = digest(tree)  # a computation of all processes, each of which may hold another copy
    processes.agree(functools.partial(check_digest, path, about, found), metadata.CheckpointError)
    return Restored(about["step"], tree, about)


def restore_in_parts(path: str, tree: Any) -> dict[str, str]:
    """Loads the leaves of a whole checkpoint, a few at a time, and returns their digest.

    Beside the arrays of `tree`, whose shapes and places they have, only those few are in memory.
    Called on all processes at once. Raises CheckpointError.
    """
    paths = jax.tree_util.tree_leaves_with_path(tree)
    parts: list[set[str]] = [set()]
    size = 0
    for at, x in paths:
        if parts[-1] and size + x.nbytes > _READ_BACK_BYTES:
            parts.append(set())
            size = 0
        parts[-1].add(trees.name(at))
        size += x.nbytes

    found = {}
    for part in parts:
        load = functools.partial(_load_checked, path, _shapes_of(tree, part))
        loaded = processes.agree(load, metadata.CheckpointError)
        if len(parts) > 1:
            loaded = {name: x for name, x in trees.flat(loaded).items() if x is not ...}
        found |= digest(loaded)
    return found


def _shapes_of(tree, part):
    """The shapes and places of the leaves that `part` names; `...`, which orbax leaves out, for the
    others."""
    # Weights that are only handed on are arrays of numpy, which lie on no device.
    own = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])

    def shape(at, x):
        if trees.name(at) not in part:
            return ...
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=getattr(x, "sharding", own))

    return jax.tree_util.tree_map_with_path(shape, tree)


def digest(tree: Any) -> dict[str, str]:
    """16 hex digits a leaf, by path: wrapping sums, equal on any mesh, that see any flip."""
    sums = jax.device_get(_digest(tree))
    return {path: f"{int(x[0]):08x}{int(x[1]):08x}" for path, x in trees.flat(sums).items()}


def on_one_device(tree: Any) -> Any:
    """The same shapes, to be loaded onto one device."""
    where = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where), tree)


def save_arrays(path: str, tree: Any) -> None:
    """Writes numpy arrays for others: no digest, no metadata, no device that a reader needs."""
    context = ocp.Context()
    context.array.saving.use_compression = False
    safe_files.check_path(path, "the folder of arrays", metadata.CheckpointError)
    with context:
        ocp.save(LiteralPath(os.path.abspath(path)), tree)


def load_arrays(path: str) -> Any:
    """Loads what `save_arrays` wrote, as numpy arrays. Raises CheckpointError."""
    return _load(path, None)


class LiteralPath(type(epath.Path())):
    """A path whose own name is no pattern.

    Orbax looks for files by `path.glob(pattern)`, which reads `lr=1e-3,bs=[8]` and `run*` in the
    path itself as patterns too: what a process wrote is then not found, or that of another run is.
    """

    def glob(self, pattern):
        """The same with the path taken as it is."""
        escaped = os.path.join(glob.escape(os.fspath(self)), pattern)
        return (type(self)(found) for found in glob.glob(escaped))


def _load(path, abstract, partial=False):
    """Orbax's load without its waiting for other processes: it would be for ever where one fails.

    It counts its calls to name what it waits for later, so the processes must agree before, by
    `metadata`, that the checkpoint is there: where it is not, no call is counted.
    """
    context = ocp.Context()
    context.pytree.loading.partial_load = partial
    me = jax.process_index()
    context.multiprocessing.primary_host, context.multiprocessing.active_processes = me, {me}
    try:
        with context:
            return ocp.load(LiteralPath(os.path.abspath(path)), abstract)
    except Exception as error:  # whatever a damaged file makes orbax raise
        raise metadata.CheckpointError(
            f"{path} cannot be read: {metadata.reason(error)}"
        ) from error


def _load_checked(path, abstract):
    """The same, and what comes has the form that was asked for: damage may make orbax give another.

    A leaf that is `...` is left out.
    """
    leaves, form = jax.tree_util.tree_flatten_with_path(abstract)
    partial = not any(x is ... for _, x in leaves)
    tree = _load(path, abstract, partial)
    found, its_form = jax.tree.flatten(tree)
    if its_form != form:
        raise metadata.CheckpointError(f"{path} holds another tree of arrays than was saved")
    for (at, wanted), x in zip(leaves, found, strict=True):
        if wanted is ...:
            continue
        same = isinstance(x, jax.Array) and (x.shape, x.dtype) == (wanted.shape, wanted.dtype)
        if not same or not _lies_at(x, wanted.sharding):
            raise metadata.CheckpointError(
                f"{path}: {trees.name(at)} is not an array as it was saved"
            )
    return tree


def _lies_at(x, sharding):
    return sharding is None or x.sharding.is_equivalent_to(sharding, x.ndim)


def check_digest(path, about, found):
    """Raises CheckpointError where the digest of a leaf is not what the metadata say."""
    for name, value in found.items():
        if about["digest"].get(name) != value:
            raise metadata.CheckpointError(f"{path}: {name} is not what was saved (digest differs)")


@jax.jit
def _digest(tree):
    return jax.tree.map(_leaf_digest, tree)


def _leaf_digest(x):
    bits = lax.bitcast_convert_type(x, f"uint{8 * x.dtype.itemsize}").astype(jnp.uint32)
    bits = bits.reshape(-1)
    odd = 2 * lax.iota(jnp.uint32, bits.size) + 1  # odd factors: no single flip cancels out
    return jnp.stack([bits.sum(), (bits * (odd * jnp.uint32(2654435761))).sum()])
