# SPDX-License-Identifier: Apache-2.0
"""One checkpoint: loading it, verifying every array, and the digest that makes this possible.

A checkpoint is a folder that orbax writes: a plain dict of arrays plus JSON metadata. Orbax loads
weights with a flipped bit without an error. So every save carries a digest of each array, which is
the same on any mesh, and a digest of the metadata; every restore computes them again and compares.

    restore              loads the arrays that are asked for and compares their digests
    digest_on_disk       loads a whole checkpoint with little extra memory, for its digest alone
    digest               16 hex digits per array
    save_arrays          plain arrays for other programs, without digest and metadata
    load_arrays          reads them again

`checkpoint_series` saves and keeps the checkpoints of a run. These two modules are the only ones
that import orbax (its v1 interface).
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

from electra_jax.core import trees
from electra_jax.host import buckets, processes, safe_files, staging
from electra_jax.workdir import metadata

INTERVAL = "interval"  # the part with a run's metric sums since its last log line, by their names
_READ_BACK_BYTES = 1 << 28  # arrays that are read back at once, beside those of the run


@dataclasses.dataclass(frozen=True)
class Restored:
    """A verified checkpoint."""

    step: int
    tree: dict[str, Any]
    metadata: dict[str, Any]


def restore(path: str, abstract: dict[str, Any]) -> Restored:
    """Loads one checkpoint, or the part of it that `abstract` names, and verifies every array.

    All processes must call it at the same time; a failure on one of them is raised on all.

    Args:
      path: the folder of the checkpoint.
      abstract: the tree of shapes, dtypes and shardings to load; the arrays are placed so.

    A metric of `INTERVAL` that a checkpoint lacks starts at zero: versions differ in metrics.

    Raises CheckpointError, whatever is wrong.
    """
    own = processes.agree(lambda: metadata.read(path), *metadata.READ_ERRORS)
    # All processes follow the metadata of the first one: another copy may list other arrays.
    about = processes.of_first(lambda: own)

    abstract, new_metrics = _without_new_metrics(abstract, about["digest"])
    if missing := [name for name in trees.flat(abstract) if name not in about["digest"]]:
        raise metadata.CheckpointError(
            f"{path} lacks {len(missing)} of the arrays that are needed, the first is {missing[0]}"
        )

    tree = processes.agree(lambda: _load_checked(path, abstract), *metadata.READ_ERRORS)
    # All processes compute the digest together; each of them may have read another copy.
    found = digest(tree)
    processes.agree(functools.partial(check_digest, path, about, found), metadata.CheckpointError)
    if new_metrics:
        tree[INTERVAL] |= {name: _zeros(like) for name, like in new_metrics.items()}
    return Restored(about["step"], tree, about)


def _without_new_metrics(abstract, digest):
    """(the tree without metrics that this digest lacks, the shapes of those)."""
    asked = abstract.get(INTERVAL, {})
    new = {name: like for name, like in asked.items() if f"{INTERVAL}/{name}" not in digest}
    kept = {name: like for name, like in asked.items() if name not in new}
    # Without any metric in common the checkpoint is another one altogether, and refused.
    return (abstract | {INTERVAL: kept}, new) if kept and new else (abstract, {})


def _zeros(like):
    """An array of zeros of this shape, placed as it says."""
    return jax.jit(lambda: jnp.zeros(like.shape, like.dtype), out_shardings=like.sharding)()


def digest_on_disk(path: str, tree: Any) -> dict[str, str]:
    """Returns the digest of a whole checkpoint as it can be read, a few arrays at a time.

    Only those few arrays are in memory beside `tree`, whose shapes and shardings they have. All
    processes must call it at the same time. Raises CheckpointError.
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)

    parts: list[set[str]] = [set()]
    size = 0
    for at, x in leaves:
        if parts[-1] and size + x.nbytes > _READ_BACK_BYTES:
            parts.append(set())
            size = 0
        parts[-1].add(trees.path_name(at))
        size += x.nbytes

    found = {}
    for part in parts:
        load = functools.partial(_load_checked, path, _shapes_of(tree, part))
        loaded = processes.agree(load, *metadata.READ_ERRORS)
        if len(parts) > 1:
            loaded = {name: x for name, x in trees.flat(loaded).items() if x is not ...}
        found |= digest(loaded)
    return found


def _shapes_of(tree, part):
    """Returns shapes and shardings of the leaves named in `part`, and `...` for all others.

    Orbax does not load a leaf that is `...`.
    """
    # Weights that are only copied into a new workdir are numpy arrays and have no sharding.
    own = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])

    def shape(at, x):
        if trees.path_name(at) not in part:
            return ...
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=getattr(x, "sharding", own))

    return jax.tree_util.tree_map_with_path(shape, tree)


def digest(tree: Any) -> dict[str, str]:
    """Returns 16 hex digits per array, by path.

    They are sums that wrap around: equal on any mesh, and different after any single flipped bit.
    """
    sums = jax.device_get(_digest(tree))
    return {path: f"{int(x[0]):08x}{int(x[1]):08x}" for path, x in trees.flat(sums).items()}


def on_one_device(tree: Any) -> Any:
    """Returns the same tree of shapes, to be loaded onto one device of this process."""
    where = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return trees.shapes_at(tree, where)


def save_arrays(path: str, tree: Any) -> None:
    """Writes numpy arrays for other programs: without digest, metadata or sharding."""
    context = ocp.Context()
    context.array.saving.use_compression = False
    safe_files.check_path(path, "folder", metadata.CheckpointError)
    with context:
        ocp.save(LiteralPath(os.path.abspath(path)), tree)


def load_arrays(path: str) -> Any:
    """Loads what `save_arrays` wrote as numpy arrays. Raises CheckpointError."""
    return _load(path, None)


def orbax_path(path: str) -> epath.Path:
    """Returns a folder, or an address in a bucket, as orbax takes it."""
    path = staging.place(path)
    return epath.Path(path) if buckets.is_address(path) else LiteralPath(os.path.abspath(path))


class LiteralPath(type(epath.Path())):
    """A path whose own name is never read as a glob pattern.

    Orbax finds files by `path.glob(pattern)`, which also reads `lr=1e-3,bs=[8]` or `run*` in the
    path itself as patterns. It would then miss the files that a process wrote, or find those of
    another run.
    """

    def glob(self, pattern):
        """Returns the paths below this one that match; only `pattern` is a pattern."""
        escaped = os.path.join(glob.escape(os.fspath(self)), pattern)
        return (type(self)(found) for found in glob.glob(escaped))


def _load(path, abstract, partial=False):
    """Loads with orbax, but without waiting for other processes.

    If one process failed, the others would wait for ever. Orbax also numbers its calls, and later
    waits by these numbers. So all processes must have agreed, by reading the metadata, that the
    checkpoint is there before any of them calls this.
    """
    context = ocp.Context()
    context.pytree.loading.partial_load = partial
    me = jax.process_index()
    context.multiprocessing.primary_host, context.multiprocessing.active_processes = me, {me}
    try:
        with context:
            return ocp.load(orbax_path(path), abstract)
    except Exception as error:  # a damaged file makes orbax raise almost anything
        raise metadata.not_read(path, error) from error


def _load_checked(path, abstract):
    """Loads with orbax and checks tree, shapes, dtypes and shardings against `abstract`.

    A damaged checkpoint can make orbax return something else. Leaves that are `...` are not loaded.
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
                f"{path}: {trees.path_name(at)} is not an array as it was saved"
            )
    return tree


def _lies_at(x, sharding):
    return sharding is None or x.sharding.is_equivalent_to(sharding, x.ndim)


def check_digest(path, about, found):
    """Raises CheckpointError if the digest of an array differs from that in the metadata."""
    for name, value in found.items():
        if about["digest"].get(name) != value:
            raise metadata.CheckpointError(f"{path}: {name} is not what was saved (digest differs)")


@jax.jit
def _digest(tree):
    return jax.tree.map(_leaf_digest, tree)


def _leaf_digest(x):
    """Returns two uint32 [2]: the sum of all elements' bits, and a sum weighted by position."""
    bits = lax.bitcast_convert_type(x, f"uint{8 * x.dtype.itemsize}").astype(jnp.uint32)
    bits = bits.reshape(-1)
    odd = 2 * lax.iota(jnp.uint32, bits.size) + 1  # times an odd factor no bit is lost
    return jnp.stack([bits.sum(), (bits * (odd * jnp.uint32(2654435761))).sum()])
