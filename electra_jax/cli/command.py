# SPDX-License-Identifier: Apache-2.0
"""Runs a command: parses the command line, calls the command's `main`, handles errors.

`run(main)` defines --config and --workdir, parses, starts jax.distributed if there are several
processes, and calls `main(config, workdir)`. `run_on_paths(main)` is for a command without a
configuration: it calls `main(paths)`. Both turn an error that is written for the user into one line
on standard error; an error that is a bug keeps its traceback.

| exit code | what it says | a launcher |
|---|---|---|
| 0 | done; or saved and ended on request, without --stopped_code | |
| --stopped_code | a run saved and ended on request before its last step | begins it again |
| 1 | it failed, and the same command may succeed later; or a bug | begins it a few times again |
| 2 | refused: a flag, a setting or a file must be corrected first | ends |
| 130, 143 | ended on request, unsaved or with nothing to save: `host/signals.py` | |

Of errors for the user, a ValueError is 2 unless `error_causes.may_pass`; an OSError or RuntimeError
is 1. `check` also returns 1 if a check fails, and `compile` if the configuration does not fit.
"""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import jax
from absl import app, flags
from ml_collections import ConfigDict

from electra_jax import config as config_lib
from electra_jax.cli import config_flag, distributed, explanation
from electra_jax.host import (
    buckets,
    error_causes,
    logs,
    peers,
    process_exit,
    processes,
    safe_files,
    signals,
    staging,
)

_WORKDIR = flags.DEFINE_string(
    "workdir", None, "The folder of a run; default: runs/NAME, with the configuration's name."
)
_STOP_TIMEOUT = flags.DEFINE_float(
    "stop_timeout",
    signals.STOP_SECONDS,
    "Seconds that a run has after SIGTERM or Ctrl-C to end its step, or a last save that has begun;"
    " a run that hangs longer ends without saving. A second signal ends it at once.",
    lower_bound=1,
)

_STOPPED_CODE = flags.DEFINE_integer(
    "stopped_code",
    0,
    "Exit code of a run that saved and ended before its last step, at SIGTERM or Ctrl-C. Launchers"
    " set 75, and start the run again if it ends with this code.",
    lower_bound=0,
    upper_bound=125,
)

_REFUSALS = (flags.Error, AttributeError, KeyError, TypeError, ValueError, OSError)
_BAD_INPUT = 2  # exit codes, see the table
_FAILED = 1
_INTERRUPTED = 130  # a KeyboardInterrupt that `signals` did not raise


def run(
    main: Callable[[Any, str], int | None],
    argv: Sequence[str] | None = None,
    config_needed: bool = True,
    config_file: str = "",
    parse: Callable[[ConfigDict], Any] | None = None,
) -> None:
    """Runs a command and exits.

    Args:
      main: takes the parsed configuration and the workdir; returns an exit code or None.
      argv: the command line; sys.argv if it is None.
      config_needed: if False and no argument names a configuration or a workdir, `main` gets None
        for both.
      config_file: the default of --config, for a command that can run without that flag. It is not
        used if the workdir has a saved configuration, unless `parse` is given.
      parse: turns the tree of settings into the configuration, for a command whose configuration is
        of another type than the config.json of a workdir.
    """
    argv = list(sys.argv if argv is None else argv)

    app.define_help_flags()
    for flag in (_WORKDIR, *distributed.FLAGS, _STOP_TIMEOUT, _STOPPED_CODE):
        # Without this --help would show only the flags that the command itself defines.
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS[flag.name])

    try:
        config_flag.check_values(argv)
        if (
            config_file
            and not config_flag.given_config(argv)
            and (parse or config_flag.config_of_workdir(argv) is None)
        ):
            argv.insert(1, f"--config={config_file}")
        argv = config_flag.with_file(argv)
        if config_needed or config_flag.names_a_run(argv):
            config_flag.define_config(argv)
        config, workdir = _parsed(argv, parse or config_lib.parse)
    except Exception as error:  # a configuration file may raise anything
        if not (isinstance(error, _REFUSALS) or explanation.in_config_file(error, argv)):
            raise
        may_pass = error_causes.may_pass(error) or isinstance(error, buckets.BucketError)
        _exit_with_error(explanation.explain(error, argv), _FAILED if may_pass else _BAD_INPUT)

    def work():
        distributed.start_processes()
        with staging.open_workdir(workdir or "", writes=processes.is_first()) as here:
            return main(config, here or None)

    _run(work, argv)


def _parsed(argv: Sequence[str], parse: Callable[[ConfigDict], Any]) -> tuple[Any, str | None]:
    """Parses the flags; returns the configuration and the workdir, or two Nones without --config.

    Raises ConfigError, or whatever absl, ml_collections or the configuration file raise.
    """
    given, keywords = config_flag.without_keywords(argv)
    # ml_collections reads sys.argv by itself.
    sys.argv[:], _ = config_flag.without_keywords(config_flag.with_file(sys.argv))
    rest = flags.FLAGS(given)
    if len(rest) > 1:
        meant = f"write --{rest[1].lstrip('-')}" if "=" in rest[1] else "--help lists the flags"
        raise config_lib.ConfigError(f"{rest[1]!r} is not a flag; {meant}")

    if "config" not in flags.FLAGS:
        return None, None

    if _WORKDIR.value == "":
        raise config_lib.ConfigError("--workdir= is empty; perhaps a shell variable is not set")
    config_flag.check_overrides(given, flags.FLAGS["config"].value)
    config_flag.override(flags.FLAGS["config"].value, keywords)
    config = parse(flags.FLAGS["config"].value)
    workdir = _WORKDIR.value or os.path.join("runs", config.name)
    check = buckets.check if buckets.is_address(workdir) else safe_files.check_path
    check(workdir, "--workdir", config_lib.ConfigError)
    return config, workdir


def run_on_paths(main: Callable[[Sequence[str]], int | None]) -> None:
    """Runs a command whose arguments, other than flags, are paths; then exits."""
    argv = list(sys.argv)
    app.define_help_flags()

    try:
        config_flag.check_values(argv)
        paths = flags.FLAGS(argv)[1:]
        if _WORKDIR.present:
            raise config_lib.ConfigError(f"write {_WORKDIR.value} without --workdir=")
    except (flags.Error, config_lib.ConfigError) as error:
        _exit_with_error(explanation.explain(error, argv), _BAD_INPUT)

    _run(lambda: main(paths), argv)


def check_alone(name: str) -> None:
    """Raises ConfigError if several processes run a command that one process runs alone."""
    if not processes.is_alone():  # opens no device
        raise config_lib.ConfigError(
            f"{name} runs in one process, here are {jax.process_count()}; start it on one host"
        )


def _run(work: Callable[[], int | None], argv: Sequence[str]) -> None:
    """Does the work and exits.

    An error that is written for the user becomes one line. Any other error is a bug: its traceback
    is printed, by Python itself if this is the only process.
    """

    def guarded(_):
        signals.guard(_STOP_TIMEOUT.value, _STOPPED_CODE.value)
        try:
            with peers.telling():
                code = work()
        except KeyboardInterrupt as error:
            code = getattr(error, "code", _INTERRUPTED)
            _print_error(str(error) or logs.INTERRUPTED)
        except Exception as error:
            written = error_causes.written_for_user(error)
            if not written and peers.group() is None:
                raise
            code = _code_of(error)
            if written:
                _print_error(str(error))
            else:
                traceback.print_exc()

        # The others may still need this process: it ends when they do.
        if peers.group() is not None:
            peers.group().leave(code or 0)
        process_exit.leave(code or (_STOPPED_CODE.value if signals.ended_early() else 0))

    logs.show()
    app.run(guarded, argv=argv[:1], flags_parser=lambda args: args)


def _code_of(error: BaseException) -> int:
    """The exit code of an error that ended the work."""
    refused = isinstance(error, ValueError) and error_causes.written_for_user(error)
    return _BAD_INPUT if refused and not error_causes.may_pass(error) else _FAILED


def _exit_with_error(message: str, code: int) -> None:
    _print_error(message)
    sys.exit(code)


def _print_error(message: str) -> None:
    """Prints one line on standard error; a copy of a bucket's folder is named by its address."""
    line = staging.named(" ".join(message.split()))
    print(f"error: {line}", file=sys.stderr, flush=True)
