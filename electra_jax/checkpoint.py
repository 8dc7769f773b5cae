# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: saved behind the run's back, verified on the way in, never silently wrong.

`directory/STEP/` is an orbax checkpoint of a plain dict of arrays plus JSON metadata. Orbax loads
a flipped bit in weights without a word, so each save carries a digest of every leaf, the same on
any mesh, and each restore compares it. A step that cannot be read or does not match is renamed
STEP.corrupt and the one before it is used; of several processes all do the same, though only one
of them could not read it. The only room that knows orbax (its v1 interface).
"""

import contextlib
import dataclasses
import functools
import glob
import os
from collections.abc import Callable
from typing import Any

import jax
from absl import logging
from jax import lax
from jax import numpy as jnp
from orbax.checkpoint import v1 as ocp

from electra_jax import processes

CORRUPT = ".corrupt"
WEIGHTS = ".weights"  # of a checkpoint of weights alone, once a whole state took its place
WEIGHTS_ONLY = "weights_only"  # metadata of a checkpoint to begin from, not to resume from


class CheckpointError(ValueError):
    """No usable checkpoint where there should be one; the message is one line."""


@dataclasses.dataclass(frozen=True)
class Restored:
    """A verified checkpoint."""

    step: int
    tree: dict[str, Any]
    metadata: dict[str, Any]


class Checkpoints:
    """The checkpoints of one run; use as a context manager so that the last save completes."""

    def __init__(self, directory: str, keep_last: int, keep_every: int = 0):
        self._directory = os.path.abspath(directory)
        policies = ocp.training.preservation_policies
        keep = [policies.LatestN(keep_last)]
        if keep_every:
            keep.append(policies.EveryNSteps(keep_every))
        self._policy = policies.AnyPreservationPolicy(keep)
        self._orbax = None
        self._failed = False  # whether the last save did

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.close(quiet=kind is not None)

    def restore_latest(self, abstract: dict[str, Any], optional: str = "") -> Restored | None:
        """The newest good checkpoint, placed as `abstract` (shapes with shardings) says.

        Bad ones are renamed on the way. None where there is no checkpoint at all; CheckpointError
        where there are some and none is good, since starting over would look like going on.
        A checkpoint of weights alone is left where it is: `init.from` begins with it. Several
        processes try the steps that the first one sees, and one bad copy is bad for all.
        """
        found, aside = processes.of_first(self._found)
        for step in reversed(found):
            try:
                return restore(os.path.join(self._directory, str(step)), abstract, optional)
            except CheckpointError as error:
                logging.error("checkpoint %d is damaged and set aside: %s", step, error)
                processes.of_first(functools.partial(self._set_aside, step))
        if count := len(found) + aside:
            raise CheckpointError(
                f"none of the {count} checkpoints in {self._directory} can be read; they are"
                f" kept as STEP{CORRUPT}; restore a copy, or choose another --workdir"
            )
        return None

    def save(self, step: int, tree: dict[str, Any], metadata: dict[str, Any]) -> None:
        """Starts a save and returns; a failed one is logged and the next is tried as usual.

        A whole state takes the place of the weights that the run began with.
        """
        self.wait()  # else orbax would raise an earlier failure in place of this save
        processes.of_first(functools.partial(self._make_room, step))
        self._failed, leaves = False, digest(tree)
        try:
            self._open().save_async(
                step,
                tree,
                force=True,
                custom_metadata=metadata | {"digest": leaves, "step": step},
            )
        except (OSError, ValueError) as error:
            self._note_failure(error)

    def wait(self) -> None:
        """Blocks until the save under way is on disk; a failure is logged."""
        if self._orbax is None:
            return
        try:
            self._orbax.wait()
        except (OSError, ValueError) as error:
            self._note_failure(error)

    def reread(self, abstract: dict[str, Any], optional: str = "") -> Restored:
        """The newest good checkpoint once more, in the middle of a run that saves here."""
        self.close(quiet=True)
        restored = self.restore_latest(abstract, optional)
        if restored is None:
            raise CheckpointError(
                f"no checkpoint in {self._directory} to go back to; free some space and run the"
                " same command again"
            )
        return restored

    def close(self, quiet: bool = False) -> None:
        """Waits and lets go. Raises CheckpointError if the last save failed, unless `quiet`."""
        with contextlib.suppress(*([CheckpointError] if quiet else [])):
            self.wait()
        if self._orbax is not None:
            self._orbax.close()
            self._orbax = None
        if self._failed and not quiet:
            raise CheckpointError(
                f"the last checkpoint could not be saved in {self._directory}; free some space and"
                " run the same command again: it goes on from the newest good checkpoint"
            )

    def _open(self):
        """The orbax object, made after damaged steps were set aside: it keeps a list of steps."""
        if self._orbax is None:
            context = ocp.Context()
            context.array.saving.use_compression = False  # 5 times faster, 8 % larger
            self._orbax = ocp.training.Checkpointer(
                self._directory,
                preservation_policy=self._policy,
                cleanup_tmp_directories=True,
                context=context,
            )
        return self._orbax

    def _note_failure(self, error):
        self._failed = True
        if jax.process_count() > 1:  # the others may wait inside orbax for what this one cannot do
            raise CheckpointError(
                f"checkpoint not saved ({_reason(error)}); once its cause is mended, the same"
                " command goes on from the newest good checkpoint"
            ) from error
        logging.error(
            "checkpoint not saved (%s); training goes on and the next one is tried at its step",
            _reason(error),
        )

    def _found(self):
        """(steps to resume from, how many were set aside); asked and moved on one process only."""
        if not steps(self._directory):
            self._move(f"0{WEIGHTS}", "0")  # killed before the state was there
        found = [step for step in steps(self._directory) if not self._is_weights_only(step)]
        return found, len(glob.glob(f"{glob.escape(self._directory)}/*{CORRUPT}*"))

    def _make_room(self, step):
        if self._is_weights_only(step):
            self._move(str(step), f"{step}{WEIGHTS}")

    def _is_weights_only(self, step):
        try:
            return WEIGHTS_ONLY in metadata(os.path.join(self._directory, str(step)))
        except CheckpointError:
            return False

    def _move(self, name, other):
        """Renames a folder of the directory, if it is there and the other name is free."""
        source, target = (os.path.join(self._directory, one) for one in (name, other))
        if os.path.isdir(source) and not os.path.exists(target):
            os.rename(source, target)

    def _set_aside(self, step):
        source = os.path.join(self._directory, str(step))
        target, number = source + CORRUPT, 1
        while os.path.exists(target):
            target, number = f"{source}{CORRUPT}.{number}", number + 1
        os.rename(source, target)


def steps(directory: str) -> list[int]:
    """The finished steps in a directory, oldest first."""
    if not os.path.isdir(directory):
        return []
    return sorted(int(name) for name in os.listdir(directory) if name.isdecimal())


def metadata(path: str) -> dict[str, Any]:
    """The JSON metadata of one checkpoint. Raises CheckpointError where it cannot be read."""
    try:
        found = ocp.metadata(os.path.abspath(path)).custom_metadata  # orbax knows no other
    except Exception as error:  # whatever a damaged file makes orbax raise
        raise CheckpointError(f"{path} cannot be read: {_reason(error)}") from error
    if not found or "digest" not in found:
        raise CheckpointError(f"{path} has no digest, so its weights cannot be verified")
    return dict(found)


def restore(path: str, abstract: dict[str, Any], optional: str = "") -> Restored:
    """Loads one checkpoint, or the part of it that `abstract` names, and verifies every leaf.

    Of the dict `abstract[optional]` those are left out that were not saved. Called on all processes
    at once; what fails on one of them fails on all.
    """
    own = processes.agree(lambda: metadata(path), CheckpointError)
    about = processes.of_first(lambda: own)  # of another copy the leaves might be others
    if optional:
        there = about["digest"]
        kept = {n: x for n, x in abstract[optional].items() if f"{optional}/{n}" in there}
        abstract = abstract | {optional: kept}
    names = jax.tree_util.tree_leaves_with_path(abstract)
    if missing := [_name(leaf) for leaf, _ in names if _name(leaf) not in about["digest"]]:
        raise CheckpointError(f"{path} holds no {missing[0]} (and {len(missing)} such in all)")
    tree = processes.agree(lambda: _load(path, abstract), CheckpointError)
    found = digest(tree)  # a computation of all processes, each of which may hold another copy

    def verify():
        for name, value in found.items():
            if about["digest"].get(name) != value:
                raise CheckpointError(f"{path}: {name} is not what was saved (digest differs)")

    processes.agree(verify, CheckpointError)
    return Restored(about["step"], tree, about)


def digest(tree: Any) -> dict[str, str]:
    """16 hex digits a leaf, by path: wrapping sums, equal on any mesh, that see any flip."""
    sums = jax.device_get(_digest(tree))
    return {
        _name(path): f"{int(x[0]):08x}{int(x[1]):08x}"
        for path, x in jax.tree_util.tree_leaves_with_path(sums)
    }


def save_arrays(path: str, tree: Any) -> None:
    """Writes numpy arrays for others: no digest, no metadata, no device that a reader needs."""
    context = ocp.Context()
    context.array.saving.use_compression = False
    with context:
        ocp.save(os.path.abspath(path), tree)


def load_arrays(path: str) -> Any:
    """Loads what `save_arrays` wrote, as numpy arrays. Raises CheckpointError."""
    return _load(path, None)


def _load(path, abstract):
    """Orbax's load without its waiting for other processes: it would be for ever where one fails.

    It counts its calls to name what it waits for later, so the processes must agree before, by
    `metadata`, that the checkpoint is there: where it is not, no call is counted.
    """
    context = ocp.Context()
    context.pytree.loading.partial_load = abstract is not None
    me = jax.process_index()
    context.multiprocessing.primary_host, context.multiprocessing.active_processes = me, {me}
    try:
        with context:
            return ocp.load(os.path.abspath(path), abstract)
    except Exception as error:  # whatever a damaged file makes orbax raise
        raise CheckpointError(f"{path} cannot be read: {_reason(error)}") from error


def _name(path):
    return jax.tree_util.keystr(path, simple=True, separator="/")


@jax.jit
def _digest(tree):
    return jax.tree.map(_leaf_digest, tree)


def _leaf_digest(x):
    bits = lax.bitcast_convert_type(x, f"uint{8 * x.dtype.itemsize}").astype(jnp.uint32)
    bits = bits.reshape(-1)
    odd = 2 * lax.iota(jnp.uint32, bits.size) + 1  # odd factors: no single flip cancels out
    return jnp.stack([bits.sum(), (bits * (odd * jnp.uint32(2654435761))).sum()])


def _reason(error: BaseException) -> str:
    """The innermost cause in one line: orbax wraps what really happened several times."""
    chain: list[BaseException] = [error]
    follow: Callable = lambda e: e.__cause__ or e.__context__  # noqa: E731
    while follow(chain[-1]) is not None:
        chain.append(follow(chain[-1]))
    return " ".join(f"{type(chain[-1]).__name__}: {chain[-1]}".split())[:300]
