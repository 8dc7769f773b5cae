# SPDX-License-Identifier: Apache-2.0
"""The log lines of a run: short, on the console and in a file.

Lines of this package are shown from INFO on. Libraries that use the same logger are shown from
WARNING on; saving one checkpoint would otherwise print forty lines.

At a terminal a line is only its message, so that all of its 80 columns are left to it; log.txt has
the times. Elsewhere, in a file or a notebook, the time stands before it. A record may have the
attribute COLOURS, a regular expression as `console_table.for_terminal` takes it:

    logging.info(text, extra={logs.COLOURS: r"(?P<red>worse)"})
"""

import contextlib
import logging as std_logging
import os
import sys
import time
import traceback
import warnings
from collections.abc import Iterator

from absl import logging

from electra_jax.host import console_table, error_causes, staging

COLOURS = "colours"
INTERRUPTED = "interrupted; the same command continues"
_files: list[str] = []  # the paths of the log files that are open

# Its name is no sign: a virtual environment may lie in a checkout that is called electra_jax.
_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")

# Each thread of a save, and the library that it asks for a bucket, logs the traceback of an error
# that it raises again. `weights.checkpoint_series` reports that error once, so these are not shown.
_TOLD_ELSEWHERE = tuple(
    f"/orbax/checkpoint/{name}.py"
    for name in (
        "_src/futures/future",
        "_src/metadata/checkpoint",
        "_src/checkpointers/async_checkpointer",
        "checkpoint_manager",
    )
) + ("/gcsfs/retry.py",)


def show() -> None:
    """Sets up the console, on standard error. May be called twice."""
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)
    logging.set_stderrthreshold("info")

    handler = logging.get_absl_handler()
    handler.setFormatter(
        _AtTerminal("%(message)s")
        if sys.stderr.isatty()
        else _Lines("%(asctime)s %(message)s", "%H:%M:%S")
    )
    if _ours not in handler.filters:
        handler.addFilter(_ours)

    if not isinstance(sys.unraisablehook, _WithoutLateWrites):
        sys.unraisablehook = _WithoutLateWrites(sys.unraisablehook)

    # Of arrays whose turn had not come when another one failed. Python says it when it has
    # collected them, perhaps after the last line of the run.
    warnings.filterwarnings("ignore", r"coroutine .* was never awaited", RuntimeWarning)


@contextlib.contextmanager
def file(path: str) -> Iterator[None]:
    """Copies the same lines into the file `path` while the block runs.

    If an error ends the block, it is the last line there: the console of a run that was started on
    another machine, or in the background, is mostly lost.
    """
    handler = std_logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(_Lines("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(_ours)

    logger = logging.get_absl_logger()
    # If the disk is full, the next writer of the run reports it once. The default would print a
    # traceback for each log line. As soon as there is space, lines are written again.
    handler.handleError = lambda record: None
    logger.addHandler(handler)
    _files.append(path)

    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        append(_words(error))
        raise
    finally:
        _files.remove(path)
        logger.removeHandler(handler)
        with contextlib.suppress(OSError):
            handler.close()


def append(text: str) -> None:
    """Writes the error that ends this process into all log files that are open.

    May be called in any thread. It takes no lock, because the process may end while another thread
    holds the one of a log file.
    """
    now = time.time()
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
    line = f"{when},{now % 1 * 1000:03.0f} ERROR {text}\n".encode()

    for path in list(_files):
        with contextlib.suppress(OSError):
            place = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            os.write(place, line)
            os.close(place)


def _words(error):
    """Returns an error as the console shows it: one line, or the traceback of a bug."""
    line = staging.named(" ".join(str(error).split()))
    if isinstance(error, KeyboardInterrupt):
        return line or INTERRUPTED
    if error_causes.written_for_user(error):
        return line
    return "".join(traceback.format_exception(error)).rstrip()


class _Lines(std_logging.Formatter):
    """Formats lines; a folder of a bucket has its address in them and not the path of its copy."""

    def format(self, record):
        return staging.named(super().format(record))


class _AtTerminal(_Lines):
    """Formats lines for a terminal, which can show colours."""

    def format(self, record):
        line, colours = super().format(record), getattr(record, COLOURS, None)
        return console_table.for_terminal(line, colours) if colours else line


class _WithoutLateWrites:
    """A `sys.unraisablehook` that hides the later errors of a save that has already failed.

    The first array that cannot be written ends the save and closes its event loop. Each array that
    is still being written then finds the loop closed, and tensorstore prints that from its threads:
    a screen of tracebacks for one full disk, which `weights.checkpoint_series` reports in one line.
    """

    def __init__(self, others):
        self._others = others

    def __call__(self, raised):
        late = isinstance(raised.exc_value, RuntimeError) and raised.object is None
        if not (late and str(raised.exc_value) == "Event loop is closed"):
            self._others(raised)


def _ours(record: std_logging.LogRecord) -> bool:
    """Returns whether a record is shown; a filter of the logging handlers."""
    if record.exc_info and record.pathname.replace("\\", "/").endswith(_TOLD_ELSEWHERE):
        return False
    # At the end of Python, of arrays that were being written when another one failed. This package
    # has no coroutines of its own.
    if record.name == "asyncio" and "exception was never retrieved" in record.getMessage():
        return False
    return record.levelno >= std_logging.WARNING or _is_of_package(record)


def _is_of_package(record):
    return os.path.abspath(record.pathname).startswith(_PACKAGE)
