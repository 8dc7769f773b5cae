# SPDX-License-Identifier: Apache-2.0
"""The checkpoints of one run: saved in the background, verified, never silently wrong.

Where a step cannot be read or does not match, the one before it is used, and the bad one is renamed
STEP.corrupt; of several processes all do the same, though only one of them could not read it. The
first save of a process is read back before any later one is trusted.
"""

import contextlib
import errno
import functools
import glob
import logging as std_logging
import os
from typing import Any

import jax
from absl import logging
from orbax.checkpoint import v1 as ocp

from electra_jax.host import peers, processes, safe_files
from electra_jax.weights import checkpoint
from electra_jax.workdir import metadata

CORRUPT = ".corrupt"
WEIGHTS = ".weights"  # of a checkpoint of weights alone, once a whole state took its place

_BACKGROUND_SAVE = "/orbax/checkpoint/_src/checkpointers/async_checkpointer.py"


class Checkpoints:
    """The checkpoints of one run; use as a context manager so that the last save completes."""

    def __init__(self, directory: str, keep_last: int, keep_every: int = 0):
        safe_files.check_path(directory, "the folder of checkpoints", metadata.CheckpointError)
        self._directory = os.path.abspath(directory)
        policies = ocp.training.preservation_policies
        keep = [policies.LatestN(keep_last)]
        if keep_every:
            keep.append(policies.EveryNSteps(keep_every))
        self._policy = policies.AnyPreservationPolicy(keep)
        self._orbax = None
        self._failure: BaseException | None = None  # of the last save
        self._trusted = False  # whether a save of this object was read back

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.close(quiet=kind is not None)

    def restore_latest(
        self, abstract: dict[str, Any], optional: str = ""
    ) -> checkpoint.Restored | None:
        """The newest good checkpoint, placed as `abstract` (shapes with shardings) says.

        Newer bad ones are renamed. None where there is no checkpoint at all; CheckpointError where
        there are some and none is good, since starting over would look like going on; all of them
        are left as they are, since what kept them from being read may be another thing (memory, a
        permission). A checkpoint of weights alone stays too: `init.from` begins with it. Several
        processes try the steps that the first one sees, and one bad copy is bad for all.
        """
        found, aside = processes.of_first(self._found)
        bad: list[int] = []

        for step in reversed(found):
            try:
                good = checkpoint.restore(
                    os.path.join(self._directory, str(step)), abstract, optional
                )
            except metadata.CheckpointError as error:
                logging.error("checkpoint %d cannot be used: %s", step, error)
                bad.append(step)
                continue
            for step in bad:
                logging.error("checkpoint %d is damaged and set aside", step)
                processes.of_first(functools.partial(self._set_aside, step))
            return good

        if count := len(found) + aside:
            raise metadata.CheckpointError(
                f"none of the {count} checkpoints in {self._directory} can be read; all are left as"
                " they are; restore a copy, or choose another --workdir"
            )
        return None

    def save(self, step: int, tree: dict[str, Any], about: dict[str, Any]) -> None:
        """Starts a save of a tree with its metadata and returns.

        A failed save is logged, and the next one is tried as usual.

        A whole state takes the place of the weights that the run began with. The first save is
        waited for and read back: where that does not give what was saved, no later one would.
        Raises CheckpointError then.
        """
        self.wait()  # else orbax would raise an earlier failure in place of this save
        processes.of_first(functools.partial(self._make_room, step))
        self._failure = None
        about = metadata.sealed(about | {"digest": checkpoint.digest(tree), "step": step})
        try:
            self._open().save_async(step, tree, force=True, custom_metadata=about)
        except (OSError, ValueError) as error:
            self._note_failure(error)

        if not self._trusted:
            self.wait()
            self._trusted = self._is_on_disk() and self._read_back(step, tree, about)

    def wait(self) -> None:
        """Blocks until the save under way is on disk; a failure is logged."""
        if self._orbax is None:
            return
        try:
            self._orbax.wait()
        except (OSError, ValueError) as error:
            self._note_failure(error)

    def reread(self, abstract: dict[str, Any], optional: str = "") -> checkpoint.Restored:
        """The newest good checkpoint once more, in the middle of a run that saves here."""
        self.close(quiet=True)
        restored = self.restore_latest(abstract, optional)
        if restored is None:
            raise metadata.CheckpointError(
                f"no checkpoint in {self._directory} to go back to; free some space and run the"
                " same command again"
            )
        return restored

    def close(self, quiet: bool = False) -> None:
        """Waits and lets go. Raises CheckpointError if the last save failed, unless `quiet`."""
        with contextlib.suppress(*([metadata.CheckpointError] if quiet else [])):
            self.wait()
        if self._orbax is not None:
            self._orbax.close()
            self._orbax = None
        if self._failure is not None and not quiet:
            raise metadata.CheckpointError(
                f"the last checkpoint could not be saved in {self._directory}; free some space and"
                " run the same command again: it goes on from the newest good checkpoint"
            )

    def _open(self):
        """The orbax object, made after damaged steps were set aside: it keeps a list of steps."""
        if self._orbax is None:
            logging.get_absl_logger().addFilter(_end_all_processes)
            context = ocp.Context()
            context.array.saving.use_compression = False  # 5 times faster, 8 % larger
            self._orbax = ocp.training.Checkpointer(
                checkpoint.LiteralPath(self._directory),
                preservation_policy=self._policy,
                cleanup_tmp_directories=True,
                context=context,
            )
        return self._orbax

    def _is_on_disk(self):
        """Whether the save that was waited for is, on all processes; False on a full disk.

        Space may come; whatever else kept the first save from being written would keep the others.
        Of several processes none comes here with a failure, which ends them (`_note_failure`); they
        only wait here until the first one has named the finished save.
        """

        def check():
            if self._failure is None:
                return
            if _is_full(self._failure):
                raise OSError(errno.ENOSPC, "no space left", self._directory)
            raise metadata.CheckpointError(
                f"the first checkpoint of this run could not be saved in {self._directory}, so the"
                f" run stops here: {metadata.reason(self._failure)}; mend that, or choose another"
                " --workdir"
            )

        try:
            processes.agree(check, OSError, metadata.CheckpointError)
        except OSError:
            return False
        return True

    def _read_back(self, step, tree, about):
        """True, or CheckpointError: the checkpoint is not what was saved."""
        path = os.path.join(self._directory, str(step))
        try:
            processes.agree(lambda: metadata.read(path), metadata.CheckpointError)
            found = checkpoint.restore_in_parts(path, tree)
            processes.agree(
                functools.partial(checkpoint.check_digest, path, about, found),
                metadata.CheckpointError,
            )
        except metadata.CheckpointError as error:
            raise metadata.CheckpointError(
                f"the first checkpoint of this run cannot be read back, so the run stops here:"
                f" {error}; choose a --workdir on another disk, or with a plainer name"
            ) from error
        return True

    def _note_failure(self, error):
        self._failure = error
        if jax.process_count() > 1:  # the others may wait inside orbax for what this one cannot do
            raise metadata.CheckpointError(_not_saved(error)) from error
        logging.error(
            "checkpoint not saved (%s); training goes on and the next one is tried at its step",
            metadata.reason(error),
        )

    def _found(self):
        """(steps to resume from, how many were set aside); asked and moved on one process only."""
        if not metadata.steps(self._directory):
            self._move(f"0{WEIGHTS}", "0")  # killed before the state was there
        found = [
            step for step in metadata.steps(self._directory) if not self._is_weights_only(step)
        ]
        return found, len(glob.glob(f"{glob.escape(self._directory)}/*{CORRUPT}*"))

    def _make_room(self, step):
        if self._is_weights_only(step):
            self._move(str(step), f"{step}{WEIGHTS}")

    def _is_weights_only(self, step):
        try:
            return metadata.WEIGHTS_ONLY in metadata.read(os.path.join(self._directory, str(step)))
        except metadata.CheckpointError:
            return False

    def _move(self, name, other):
        """Renames a folder of the directory, if it is there and the other name is free."""
        source, target = (os.path.join(self._directory, one) for one in (name, other))
        if os.path.isdir(source) and not os.path.exists(target):
            os.rename(source, target)

    def _set_aside(self, step):
        safe_files.move_aside(os.path.join(self._directory, str(step)), CORRUPT.lstrip("."))


def _end_all_processes(record: std_logging.LogRecord) -> bool:
    """Ends all processes where this one alone cannot write its part of a checkpoint.

    A filter of the logger that orbax writes to, which lets every record pass: orbax's background
    thread logs the failure and then waits, in this process and in the others, at barriers that
    none of them leaves for twenty minutes. Nothing is raised before.
    """
    failed = record.exc_info and record.pathname.replace("\\", "/").endswith(_BACKGROUND_SAVE)
    if failed and peers.group() is not None:
        peers.group().failing(_not_saved(record.exc_info[1]))
    return True


def _not_saved(error):
    return (
        f"checkpoint not saved ({metadata.reason(error)}); once its cause is mended, the same"
        " command goes on from the newest good checkpoint"
    )


def _is_full(error: BaseException) -> bool:
    """Whether a disk or a quota was; tensorstore has no error number, only the words."""
    full = (errno.ENOSPC, errno.EDQUOT)
    return any(
        getattr(cause, "errno", None) in full or any(os.strerror(n) in str(cause) for n in full)
        for cause in metadata.causes(error)
    )
