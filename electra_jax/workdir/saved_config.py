# SPDX-License-Identifier: Apache-2.0
"""Writes, reads and compares the config.json of a workdir; nothing else touches that file.

The metadata of every checkpoint contain the same settings, so nothing is lost if the file is
damaged or gone: `of_run` then takes them from the newest checkpoint. `check_continuation` compares
both with the settings that a run is about to continue with.
"""

import json
import os

from absl import logging

from electra_jax import config as config_lib
from electra_jax.host import buckets, safe_files
from electra_jax.workdir import metadata, prepared_data, starts

NAME = "config.json"


class DamagedError(config_lib.ConfigError):
    """The file is there but does not hold a configuration."""


def write(workdir: str, config: config_lib.Config) -> None:
    """Writes config.json, complete or not at all; it is on the disk when this returns."""
    safe_files.write(os.path.join(workdir, NAME), config_lib.to_json(config).encode())


def read(workdir: str) -> config_lib.Config | None:
    """Returns the configuration in config.json; None if there is no such file.

    Raises:
      DamagedError: the file holds no configuration; one line that says what to do.
      ConfigError: this user may not read the file, or it is Hugging Face's.
    """
    path = os.path.join(workdir, NAME)
    if not os.path.lexists(path):
        return None

    try:
        with open(path, encoding="utf-8") as file:
            tree = json.load(file)
        if not isinstance(tree, dict):
            raise ValueError(f"it holds a {type(tree).__name__}, not settings")
        if "model_type" not in tree:
            return config_lib.parse_saved(tree)
    except PermissionError as error:
        raise config_lib.ConfigError(
            f"{path} may not be read by this user; give yourself the right to: chmod u+r {path}"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedError(
            f"{path} cannot be used ({_why(path, error)}); {_remedy(workdir)}"
        ) from error
    raise config_lib.ConfigError(
        f"{workdir} is no workdir of a run: its {NAME} is that of weights in Hugging Face's format;"
        f" give another folder, or begin a run with them: --config.init.from={workdir}"
    )


def of_run(workdir: str) -> config_lib.Config | None:
    """Returns the configuration in config.json or, without that file, in the newest checkpoint.

    Returns None if there is neither. Raises as `read` does.
    """
    found = read(workdir)
    if found is not None:
        return found

    step, config = of_newest_checkpoint(workdir)
    if config is not None:
        logging.warning(
            "%s has no %s; its settings are those of checkpoint %d", workdir, NAME, step
        )

    return config


def of_newest_checkpoint(workdir: str) -> tuple[int, config_lib.Config | None]:
    """Returns (step, settings) of the newest checkpoint that can be read; (0, None) without one.

    Weights that a run only begins with do not count as a checkpoint of the run. Starts no device.
    """
    directory = metadata.directory(workdir)

    for step, about in metadata.readable(directory):
        if metadata.WEIGHTS_ONLY in about or "config" not in about:
            continue
        try:
            return step, config_lib.parse_saved(about["config"])
        except config_lib.ConfigError:
            continue

    return 0, None


def check_continuation(config: config_lib.Config, workdir: str) -> list[str]:
    """Checks that a run with these settings may continue in the workdir; returns what changed.

    The changes are texts for the log; there are settings that may change between two starts of a
    run (`config.differences`). A damaged config.json is renamed, and the caller writes a new one.
    If no data was prepared and nothing was trained, as after a source that could not be read, there
    is nothing to compare with. Raises ConfigError if the workdir holds a run with other settings.
    """
    try:
        old = read(workdir)
    except DamagedError:
        kept = safe_files.move_aside(os.path.join(workdir, NAME), "damaged")
        logging.warning("%s/%s is damaged: kept as %s, and written anew", workdir, NAME, kept)
        old = None

    if not has_begun(workdir):
        return []

    # A file that contradicts a checkpoint is wrong if the checkpoint agrees with these settings.
    changed, refused = [], []
    step, saved = of_newest_checkpoint(workdir)
    if old is not None:
        changed, refused = config_lib.differences(old, config)
    if refused and saved is not None and not config_lib.differences(saved, config)[1]:
        logging.warning(
            "%s/%s says otherwise than checkpoint %d (%s); it is written anew",
            workdir, NAME, step, "; ".join(refused),
        )  # fmt: skip
        changed, refused = [], []

    if refused:
        refuse_other(old, config, workdir)

    # Without this a lost config.json, or one with a flipped digit, would silently change the run.
    refused = config_lib.differences(saved, config)[1] if saved is not None else []
    if refused:
        raise config_lib.ConfigError(
            f"checkpoint {step} of workdir {workdir} was made with other settings:"
            f" {'; '.join(refused)}; delete {os.path.join(workdir, NAME)} and leave --config out to"
            " continue with its own, or choose another --workdir"
        )

    return changed


def refuse_other(old: config_lib.Config | None, config: config_lib.Config, workdir: str) -> None:
    """Raises ConfigError, with what to do instead, if a run cannot continue with these settings."""
    refused = config_lib.differences(old, config)[1] if old is not None else []
    if refused:
        raise config_lib.ConfigError(
            f"workdir {workdir} holds a run with other settings: {'; '.join(refused)};"
            f" {_instead(workdir, refused)}"
        )


def _instead(workdir, refused):
    """Returns what to do about settings with which a run cannot continue, as a part of a line."""
    if not metadata.steps(metadata.directory(workdir)):
        return (
            f"it has saved no step, so delete {os.path.join(workdir, NAME)} to begin with these"
            " settings, on the text that is prepared there if they read the same, or choose another"
            " --workdir"
        )

    other_sizes = any(change.startswith("model.") for change in refused)
    weights = "" if other_sizes else f", and --config.init.from={workdir} to take its weights"
    return f"choose another --workdir{weights}"


def has_begun(workdir):
    """Whether a run has left anything here that depends on its settings."""
    directory = metadata.directory(workdir)
    if buckets.is_address(directory):
        saved = buckets.folders(directory)
    else:
        saved = os.listdir(directory) if os.path.isdir(directory) else []
    files = [os.path.join(workdir, name) for name in (prepared_data.RECORD, starts.NAME)]
    return bool(saved) or any(os.path.lexists(path) for path in files)


def _why(path, error):
    """Returns why config.json cannot be used, as a part of a line."""
    if os.path.isdir(path):
        return "it is a folder"
    if os.path.isfile(path) and not os.path.getsize(path):
        return "it is empty"
    if isinstance(error, config_lib.ConfigError) or type(error) is ValueError:
        return str(error)
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return f"it is no JSON: {error}"


def _remedy(workdir):
    """Returns what to do about a damaged config.json, as a part of a line."""
    step, config = of_newest_checkpoint(workdir)
    if config is None:
        return "delete it and give --config=FILE with the settings of the run"
    return (
        f"delete it: the same settings are in checkpoint {step}, and the same command takes them"
        " from there"
    )
