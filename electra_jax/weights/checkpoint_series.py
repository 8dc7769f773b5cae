# SPDX-License-Identifier: Apache-2.0
"""All checkpoints of one run: saving in the background, keeping, setting aside, going back.

    DIRECTORY/STEP/           a checkpoint (`checkpoint` describes what is in it and verifies it)
    DIRECTORY/STEP.corrupt    a checkpoint that could not be used, renamed
    DIRECTORY/0.weights       the weights that a run began with, once a whole state is saved at 0

DIRECTORY is a folder or the address of one in a bucket.

If the newest checkpoint cannot be read or does not match its digest, the one before it is used.
With several processes all of them decide the same, even if only one could not read its copy. The
first save of a process is read back, so that a disk that damages data stops the run early. A save
that is not complete in time (`save_time`) has failed.
"""

import contextlib
import dataclasses
import errno
import functools
import glob
import logging as std_logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
from absl import logging
from orbax.checkpoint import v1 as ocp

from electra_jax.host import buckets, error_causes, peers, processes, safe_files
from electra_jax.weights import checkpoint, save_time
from electra_jax.workdir import metadata

CORRUPT = ".corrupt"
WEIGHTS = ".weights"  # ending of a checkpoint that holds weights only and was replaced

_LEFT_OUT = 3  # saves that are not begun while an earlier one hangs, until the run ends
_BACKGROUND_SAVE = "/orbax/checkpoint/_src/checkpointers/async_checkpointer.py"


class Checkpoints:
    """The checkpoints of one run; use as a context manager so that the last save completes."""

    def __init__(self, directory: str, keep_last: int, keep_every: int = 0):
        """Opens nothing yet.

        Args:
          directory: the folder that holds one subfolder per step.
          keep_last: how many of the newest checkpoints are kept.
          keep_every: checkpoints at multiples of this step are kept for ever; 0 for none.

        Raises CheckpointError if the path is unusable as a folder.
        """
        what = "the folder of checkpoints"
        self._in_bucket = buckets.is_address(directory)
        if self._in_bucket:
            buckets.check(directory, what, metadata.CheckpointError)
            self._directory = directory
        else:
            safe_files.check_path(directory, what, metadata.CheckpointError)
            self._directory = os.path.abspath(directory)
        # Clients of buckets have errors of many kinds, which are no OSErrors.
        self._save_errors = (Exception,) if self._in_bucket else (OSError, ValueError)
        policies = ocp.training.preservation_policies
        self._best: int | None = None  # the step that was given to the last save
        keep = [policies.LatestN(keep_last), _KeepStep(lambda: self._best)]
        if keep_every:
            keep.append(policies.EveryNSteps(keep_every))

        self._policy = policies.AnyPreservationPolicy(keep)
        self._orbax = None
        self._response: Any = None  # what orbax answered to the last save
        self._failure: BaseException | None = None  # the error of the last save
        self._left_out = 0  # saves that were not begun, one after the other
        self._trusted = False  # True after one save of this object was read back correctly
        self.time = save_time.SaveTime(self._directory)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.close(quiet=kind is not None)

    def restore_latest(self, abstract: dict[str, Any]) -> checkpoint.Restored | None:
        """Returns the newest good checkpoint, or None if there is no checkpoint at all.

        Bad checkpoints that are newer than the good one are read once more, since what kept them
        from being read may have passed; those that are still bad are renamed. A checkpoint that
        holds weights only is not considered and stays: `init.from` begins with it. All processes
        try the steps that the first one sees, and a copy that is bad on one process is bad for all.

        Args:
          abstract: the tree of shapes, dtypes and shardings to load; the arrays are placed so.

        Raises CheckpointError if there are checkpoints and none is good: starting over would look
        like resuming. They keep their names then, since the cause may lie elsewhere (memory, a
        permission). It is a NotRead if the cause may pass.
        """

        def read(path):
            return checkpoint.restore(path, abstract)

        found, aside = processes.of_first(self._found)
        newest = metadata.newest_good(self._directory, found, read)
        if newest is not None and newest[1]:
            with contextlib.suppress(metadata.NotRead):
                newest = metadata.newest_good(self._directory, newest[1][::-1], read) or newest
        if newest is not None:
            good, bad = newest
            # Only now, since an older one could be read: the newer ones must be damaged.
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

    def save(
        self,
        step: int,
        tree: dict[str, Any],
        about: dict[str, Any],
        best: Callable[[], int | None] = lambda: None,
    ) -> None:
        """Starts to save a tree with its metadata in the background and returns.

        The checkpoint of the step that `best` returns is kept, however old it is, until another one
        is returned. It is called when the save before this one has ended; an OSError of it is a
        failed save.

        A failed save is logged, and the next one is tried as usual; none is begun while an earlier
        one still hangs. If the weights that the run began with have the same step, they are renamed
        first.

        Raises NotSaved for the third save that is not begun: what hangs in this process may never
        end, and the next start can save again.

        The first save is waited for and read back: if that does not give what was saved, no later
        save would either. Raises NotSaved in that case.
        """
        self.wait()  # otherwise orbax would raise an earlier failure in place of this save
        if self.time.hangs():
            self._left_out += 1
            if self._left_out == _LEFT_OUT:
                raise metadata.NotSaved(self.time.last_words(self._failure))
            return
        self._left_out = 0
        processes.of_first(functools.partial(self._make_room, step))
        self._failure = None
        try:
            self._best = best()
        except OSError as error:  # the bucket does not answer, and what is saved must not go
            self._note_failure(error)
            return

        about = metadata.sealed(about | {"digest": checkpoint.digest(tree), "step": step})
        self.time.begins(step, tree)
        try:
            orbax = self._open()
            self._response = self.time.run(
                lambda: orbax.save_async(step, tree, force=True, custom_metadata=about)
            )
        except self._save_errors as error:
            self._note_failure(error)

        if not self._trusted:
            self.wait()
            self._trusted = self._is_on_disk() and self._read_back(step, tree, about)

    def wait(self) -> bool:
        """Blocks until the save in progress is on disk; returns whether it is. Logs a failure."""
        handled = sys.exception()
        if self._orbax is not None:
            response, self._response = self._response, None
            try:
                self.time.run(functools.partial(_wait, self._orbax, response))
            except self._save_errors as error:
                self._note_failure(error, handled)
            if self._failure is None:
                self.time.is_complete()
        return self._failure is None

    def reread(self, abstract: dict[str, Any]) -> checkpoint.Restored:
        """Returns the newest good checkpoint again, in the middle of a run that saves here.

        Raises NotSaved if there is none, CheckpointError if none is good.
        """
        # Closed, since orbax keeps the list of steps that it made when it was opened.
        self.close(quiet=True)
        restored = self.restore_latest(abstract)
        if restored is None:
            raise metadata.NotSaved(
                f"no checkpoint in {self._directory} to go back to; free some space and run the"
                " same command again"
            )
        return restored

    def close(self, quiet: bool = False) -> None:
        """Waits for the last save and closes orbax.

        Raises NotSaved if the last save failed, unless `quiet`.
        """
        handled = sys.exception()
        try:
            with contextlib.suppress(*([metadata.NotSaved] if quiet else [])):
                self.wait()
        finally:
            self.time.end()
        if self._orbax is not None:
            try:
                if not self.time.hangs():
                    self._orbax.close()
            except self._save_errors as error:
                # Orbax may raise the error of an earlier save again; that one is noted already.
                if self._failure is None:
                    self._note_failure(error, handled)
            self._orbax = None

        if isinstance(self._failure, save_time.NotInTime) and not quiet:
            raise metadata.NotSaved(self.time.last_words(self._failure))
        if self._failure is not None and not quiet:
            raise metadata.NotSaved(
                f"the last checkpoint could not be saved in {self._directory}; free some space and"
                " run the same command again: it continues from the newest good checkpoint"
            )

    def _open(self):
        """Returns the orbax checkpointer, made at the first save.

        It lists the steps when it is made, so damaged ones must have been renamed before.
        """
        if self._orbax is None:
            logging.get_absl_logger().addFilter(_end_all_processes)
            context = ocp.Context()
            # Saving is 5 times faster without compression, and files are 8 % larger.
            context.array.saving.use_compression = False
            self._orbax = ocp.training.Checkpointer(
                checkpoint.orbax_path(self._directory),
                preservation_policy=self._policy,
                cleanup_tmp_directories=True,
                context=context,
            )
        return self._orbax

    def _is_on_disk(self):
        """Returns True if the awaited first save is on disk on all processes, False on a full disk.

        Space may become free later. Any other cause would stop all later saves too, so it raises
        NotSaved. With several processes no process arrives here with a failure, because
        `_note_failure` ends them; they only wait until the first process has named the finished
        save.
        """

        def check():
            if self._failure is None:
                return
            if error_causes.disk_full(self._failure):
                raise OSError(errno.ENOSPC, "no space left", self._directory)
            raise metadata.NotSaved(
                f"the first checkpoint of this run could not be saved in {self._directory}, so the"
                f" run stops here: {metadata.reason(self._failure)}; mend that, or choose another"
                " --workdir"
            )

        try:
            processes.agree(check, OSError, metadata.NotSaved)
        except OSError:
            return False
        return True

    def _read_back(self, step, tree, about):
        """Returns True. Raises NotSaved if the checkpoint is not what was saved."""
        path = os.path.join(self._directory, str(step))
        try:
            # The metadata first: orbax may be called only if all processes have the checkpoint.
            processes.agree(lambda: metadata.read(path), metadata.CheckpointError)
            self.time.begins(step, tree, "read back")
            found = self.time.run(lambda: checkpoint.digest_on_disk(path, tree))
            processes.agree(
                functools.partial(checkpoint.check_digest, path, about, found),
                metadata.CheckpointError,
            )
        except (metadata.CheckpointError, save_time.NotInTime) as error:
            raise metadata.NotSaved(
                f"the first checkpoint of this run cannot be read back, so the run stops here:"
                f" {error}; choose a --workdir on another disk, or with a plainer name"
            ) from error
        return True

    def _note_failure(self, error, handled=None):
        """Remembers and logs a failed save; with several processes it ends this one."""
        self._failure = error
        if jax.process_count() > 1:  # the others may wait inside orbax for this process
            raise metadata.NotSaved(_not_saved(error, handled)) from error

        # Where another error ends the run already, there is no next one.
        goes_on = "; training continues and the next one is tried at its step"
        logging.error(
            "checkpoint not saved (%s)%s",
            metadata.reason(error, handled),
            goes_on if handled is None else "",
        )

    def _found(self):
        """Returns (steps to resume from, number of checkpoints that were set aside).

        Called on the first process only, since it may rename a folder.
        """
        if not metadata.steps(self._directory):
            # A run that was killed before its first whole state was on disk.
            self._move(f"0{WEIGHTS}", "0")

        found = [
            step for step in metadata.steps(self._directory) if not self._is_weights_only(step)
        ]
        return found, sum(CORRUPT in name for name in self._names())

    def _make_room(self, step):
        """Renames the weights that the run began with if they have the step to be saved."""
        if self._is_weights_only(step):
            self._move(str(step), f"{step}{WEIGHTS}")

    def _is_weights_only(self, step):
        try:
            return metadata.WEIGHTS_ONLY in metadata.read(os.path.join(self._directory, str(step)))
        except metadata.CheckpointError:
            return False

    def _move(self, name, other):
        """Renames a subfolder of the directory if it exists and the new name is free."""
        source, target = (os.path.join(self._directory, one) for one in (name, other))
        names = self._names()
        if name in names and other not in names:
            (buckets.rename_folder if self._in_bucket else os.rename)(source, target)

    def _set_aside(self, step):
        path = os.path.join(self._directory, str(step))
        if not self._in_bucket:
            safe_files.move_aside(path, CORRUPT.lstrip("."))
            return

        taken = sum(name.startswith(f"{step}{CORRUPT}") for name in self._names())
        buckets.rename_folder(path, f"{path}{CORRUPT}{f'.{taken}' if taken else ''}")

    def _names(self):
        """The names of all folders in the directory."""
        if self._in_bucket:
            return buckets.folders(self._directory)
        found = glob.glob(f"{glob.escape(self._directory)}/*/")
        return [os.path.basename(os.path.dirname(one)) for one in found]


@dataclasses.dataclass(frozen=True)
class _KeepStep:
    """Orbax's policy that keeps the checkpoint of one step, which may be another at each save."""

    step: Callable[[], int | None]

    def should_preserve(self, checkpoints: Sequence, *, context: Any) -> list[bool]:
        return [found.step == self.step() for found in checkpoints]


def _wait(orbax, response):
    """Waits for the last save; raises its error."""
    try:
        if response is not None:
            # Orbax waits in a thread of its own for each save, which ends only when it is asked.
            response.result()
    finally:
        orbax.wait()


def _end_all_processes(record: std_logging.LogRecord) -> bool:
    """Ends all processes if this one alone cannot write its part of a checkpoint.

    This is a filter of the logger that orbax writes to; it lets every record pass. Orbax's
    background thread only logs the failure. It then waits, in this process and in the others, at
    barriers that nobody leaves for twenty minutes, and nothing is raised before that.
    """
    failed = record.exc_info and record.pathname.replace("\\", "/").endswith(_BACKGROUND_SAVE)
    if failed and peers.group() is not None:
        peers.group().failing(_not_saved(record.exc_info[1]))
    return True


def _not_saved(error, handled=None):
    return (
        f"checkpoint not saved ({metadata.reason(error, handled)}); once its cause is mended, the"
        " same command continues from the newest good checkpoint"
    )
