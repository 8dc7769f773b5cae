# SPDX-License-Identifier: Apache-2.0
"""Checks before a run begins, and a readable error for a full disk.

The checks, in this order: the settings that name the text and the vocabulary are well formed, and
so are the workdir's address and the caller's writers; the workdir can be written; a new run finds
the weights that it starts from; all processes have the same settings; the settings fit the run that
the workdir already holds. `loop.train` calls them, all but the last two before anything is written.
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterable, Iterator

from absl import logging

from electra_jax import config as config_lib
from electra_jax.config import fields
from electra_jax.data import planning
from electra_jax.host import buckets, error_causes, lock, processes, safe_files, staging
from electra_jax.report import writers
from electra_jax.training import errors
from electra_jax.weights import starting_checks
from electra_jax.workdir import metadata, prepared_data, saved_config, starts


@contextlib.contextmanager
def alone_in(workdir: str) -> Iterator[None]:
    """Process 0 holds the lock of the workdir while the block runs, so no other run writes there.

    Raises error_causes.MayPass, one line, if another run holds it.
    """
    with contextlib.ExitStack() as stack:
        if processes.is_first():
            path, what = os.path.join(workdir, staging.LOCK), f"workdir {staging.place(workdir)}"
            stack.enter_context(lock.hold(path, what))
            stack.enter_context(staging.locked(workdir, workdir, what))
        yield


@contextlib.contextmanager
def explained_full_disk(workdir: str) -> Iterator[None]:
    """Turns the error of a full disk into a TrainingError of one line with the remedy."""
    try:
        yield
    except OSError as error:
        if not error_causes.disk_full(error):
            raise
        raise errors.TrainingError(
            f"no space left for {error.filename or workdir}; free some and run the same command"
            " again: it continues from the newest checkpoint"
        ) from error


def compare_and_write_settings(config: config_lib.Config, workdir: str) -> config_lib.Config:
    """Compares the settings with those of the run in the workdir, and writes config.json.

    Returns the settings to continue with. These are the given ones, except that the section `init`
    of a run with a checkpoint keeps the values that the run started with: it has no effect on a
    later start. Raises ConfigError for settings with which this run cannot be continued.
    """

    def compare_and_write():
        kept, without_effect = _as_it_began(config, workdir)
        changed = saved_config.check_continuation(kept, workdir)
        saved_config.write(workdir, kept)
        return [config_lib.to_tree(kept), changed, without_effect]

    tree, changed, without_effect = processes.of_first(compare_and_write)
    for change in changed:
        logging.info("changed since the last start: %s", change)
    for change in without_effect:
        logging.warning("%s changes nothing: this run continues from its checkpoint", change)
    return config_lib.parse(tree)


def _as_it_began(config, workdir):
    """The settings with the `init` of the newest checkpoint, and the given ones it overrides."""
    _, saved = saved_config.of_newest_checkpoint(workdir)
    if saved is None:
        return config, []
    kept = dataclasses.replace(config, init=saved.init)
    return kept, config_lib.differences(kept, config)[0]


def check_names(section: fields.Data) -> None:
    """Raises ValueError, one line, if a setting that names text or a vocabulary is malformed.

    Looks at no file and asks no server.
    """
    prepared_data.check_folder(section)
    planning.parse_sources(section)
    if section.vocab.startswith("train:"):
        planning.trained_kind(section.vocab)


def check_address(workdir: str | os.PathLike) -> None:
    """Raises ConfigError, one line, if the workdir is an address that cannot be used.

    Asks no server; the command has done the same with its flag.
    """
    staging.check(workdir, "--workdir", config_lib.ConfigError)


def checked_writers(given: Iterable[writers.Writer]) -> tuple[writers.Writer, ...]:
    """Returns the writers of the program that trains.

    Raises ConfigError, one line, for one that stands alone and for what is none. The run would come
    to that only when its text is prepared, or at its first log line.
    """
    try:
        found = iter(given)
    except TypeError:
        raise config_lib.ConfigError(
            f"extra_writers is one {type(given).__name__}; give a list: [writer]"
        ) from None

    found = tuple(found)
    for number, writer in enumerate(found):
        if not all(callable(getattr(writer, name, None)) for name in ("write", "close")):
            raise config_lib.ConfigError(
                f"extra_writers[{number}], {type(writer).__name__}, is no writer; give an object"
                " with write(step, kind, metrics) and close()"
            )
    return found


def check_places(workdir: str) -> None:
    """Raises ConfigError if the workdir cannot be written, before any file is created.

    In a bucket orbax needs more than other writers. Raises BucketError if that does not answer.
    """
    safe_files.check_path(workdir, "--workdir", config_lib.ConfigError)
    if address := staging.address(workdir):
        try:
            buckets.ask_as_orbax(address)
        except buckets.NotAllowed as error:
            raise config_lib.ConfigError(f"--workdir={address}: {error}") from error

    for name in ("", staging.CHECKPOINTS, "tensorboard"):
        path = os.path.join(workdir, name) if name else workdir
        if os.path.lexists(path) and not os.path.isdir(path):
            raise config_lib.ConfigError(
                f"{path} is not a folder, and the run keeps one there; move it away, or choose"
                " another --workdir"
            )
        _check_writable(path)

    for name in (staging.LOCK, "log.txt", writers.METRICS, starts.NAME):
        path = os.path.join(workdir, name)
        if os.path.isdir(path):
            raise config_lib.ConfigError(
                f"{path} is a folder, and the run keeps a file there; move it away, or choose"
                " another --workdir"
            )
        _check_writable(path)


def check_starting_weights(config: config_lib.Config, workdir: str) -> None:
    """Raises an error on all processes if a new run cannot find what it starts from.

    That is the address of its vocabulary and the weights that the section `init` names: with
    averages or moments if it asks for them, and with encoders of the run's shapes and vocabulary. A
    run that has a checkpoint needs none of this.
    """
    if processes.of_first(lambda: metadata.steps(metadata.directory(workdir))):
        return

    def look():
        staging.check(config.data.vocab, "data.vocab", config_lib.ConfigError)
        starting_checks.check(config)

    processes.agree(look, ValueError, OSError, metadata.CheckpointError)


def _check_writable(path: str) -> None:
    """Raises ConfigError if the file or folder exists and this user may not write it."""
    if os.path.exists(path) and not os.access(path, os.W_OK):
        raise config_lib.ConfigError(
            f"{path} may not be written by this user, or its disk not at all; make it writable, or"
            " choose another --workdir"
        )


def check_same_everywhere(config: config_lib.Config) -> None:
    """Raises ConfigError, on every process, if any two processes have different settings."""
    trees = [json.loads(text) for text in processes.gather(config_lib.to_json(config))]
    first, *others = (config_lib.parse(tree) for tree in trees)

    for number, other in enumerate(others, 1):
        before, after = config_lib.flatten(first), config_lib.flatten(other)
        unlike = [
            f"{path} is {before[path]!r} on process 0 and {after[path]!r} on process {number}"
            for path in before
            if before[path] != after[path]
        ]
        if unlike:
            raise config_lib.ConfigError(
                f"the processes were started with different settings: {'; '.join(unlike)}; start"
                " all with the same command but for --process_id"
            )
