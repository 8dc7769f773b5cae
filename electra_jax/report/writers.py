# SPDX-License-Identifier: Apache-2.0
"""Writers of metrics: a file of JSON lines, TensorBoard, the console.

    step, kind, {name: value}  ->  metrics.jsonl   {"step": 20, "kind": "train", "loss": 24.1, ...}
                               ->  events.*        tag train/loss
                               ->  the log         step  20/100  gen_masked_loss 6.214 ...

All writers have the same methods and write the same names. They work on the calling thread, so a
full disk raises an error at the step where it happens and never blocks a queue.
"""

import errno
import json
import math
import os
import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from absl import logging

from electra_jax.host import logs, safe_files
from electra_jax.report import console_lines

Number = float | int | None
METRICS = "metrics.jsonl"  # in the workdir
KINDS = ("train", "eval")


class Writer(Protocol):
    """What all writers can do. `write` takes the metrics of one step; see KINDS."""

    def write(self, step: int, kind: str, metrics: Mapping[str, Number]) -> None: ...

    def close(self) -> None: ...


class JsonLines:
    """Appends one JSON object per line to a file, and keeps the lines that are there already.

    A value that is not finite becomes null. Floats keep 7 significant digits, all that fp32 has.
    """

    def __init__(self, path: str | os.PathLike):
        self._path = os.fspath(path)
        # A run that was killed during a write leaves half a line. It is removed first, since the
        # next row would be appended to it.
        if os.path.exists(self._path) and not _ends_whole(self._path):
            self._rewrite(read(self._path))

    def write(self, step: int, kind: str, metrics: Mapping[str, Number]) -> None:
        _check(kind, metrics)
        row = {"step": int(step), "kind": kind}
        row |= {name: _plain(value) for name, value in metrics.items()}
        line = (json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n").encode()

        with open(self._path, "ab", buffering=0) as file:
            end = file.tell()
            try:
                written = file.write(line)
                if written != len(line):
                    why = f"{written} of {len(line)} bytes written; disk full"
                    raise OSError(errno.ENOSPC, why, self._path)
            except OSError:
                os.truncate(self._path, end)  # leaves no half line before the next row
                raise

    def drop_after(self, step: int) -> None:
        """Removes the rows after `step`, from which a run resumes, so that no step is repeated."""
        if os.path.exists(self._path):
            rows = {
                (row["step"], row["kind"]): row for row in read(self._path) if row["step"] <= step
            }
            self._rewrite(rows.values())

    def close(self) -> None:
        """Does nothing: the file is closed after each row."""

    def _rewrite(self, rows) -> None:
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        safe_files.write(self._path, lines.encode())


class TensorBoard:
    """Writes scalars `train/NAME` and `eval/NAME` into one event file of `directory`.

    Args:
      drop_after: the step from which a run continues. Where the directory has older event files, as
        of a start that was killed before its first checkpoint, TensorBoard hides later steps of
        them.
    """

    def __init__(self, directory: str | os.PathLike, drop_after: int = 0):
        # Where torch is installed, this imports it: nearly half of what a command imports.
        from tensorboardX import event_file_writer  # noqa: PLC0415 - only a run that trains needs it
        from tensorboardX.proto import event_pb2, summary_pb2  # noqa: PLC0415 - as above

        self._events, self._summaries = event_pb2, summary_pb2
        directory = os.fspath(directory)
        os.makedirs(directory, exist_ok=True)
        has_older = bool(os.listdir(directory))

        # The plain event writer of tensorboardX, not its SummaryWriter, which passes events to a
        # thread through a short queue: a full disk would end the thread and then block the run.
        # The suffix gives two starts within one second different files.
        self._file = event_file_writer.EventsWriter(
            os.path.join(directory, "events"), f".{os.getpid()}.{time.time_ns()}"
        )
        if has_older:
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._put(event_pb2.Event(step=drop_after + 1, session_log=start))

    def write(self, step: int, kind: str, metrics: Mapping[str, Number]) -> None:
        _check(kind, metrics)
        values = [
            self._summaries.Summary.Value(tag=f"{kind}/{name}", simple_value=value)
            for name, value in ((name, _plain(value)) for name, value in metrics.items())
            if value is not None
        ]
        summary = self._summaries.Summary(value=values)
        self._put(self._events.Event(step=int(step), summary=summary))

    def close(self) -> None:
        self._file.close()

    def _put(self, event) -> None:
        event.wall_time = time.time()
        self._file.write_event(event)
        self._file.flush()


class Console:
    """Logs one line for the training metrics of a step, and a table for an evaluation.

    Args:
      steps: the last step of the run; it is shown beside the step and gives the time left.
      earlier: the rows that earlier starts of the run have written.
    """

    def __init__(self, steps: int, earlier: Iterable[Mapping[str, Any]] = ()):
        self._steps = steps
        self._explained: set[str] = set()  # baselines; the first table that has one explains it
        for row in earlier:
            if row["kind"] == "eval":
                self._explained.update(console_lines.shown_baselines(row))

    def write(self, step: int, kind: str, metrics: Mapping[str, Number]) -> None:
        _check(kind, metrics)
        if kind == "train":
            logging.info("%s", console_lines.step_line(step, self._steps, metrics))
            return

        table = console_lines.evaluation_table(step, self._steps, metrics, self._explained)
        logging.info("%s", table, extra={logs.COLOURS: console_lines.COLOURS})
        self._explained.update(console_lines.shown_baselines(metrics))

    def close(self) -> None:
        """Does nothing: the log belongs to the program."""


def of_run(workdir: str | os.PathLike) -> list[dict]:
    """The rows of metrics.jsonl in a workdir, as `read`; none if there is no such file."""
    path = os.path.join(workdir, METRICS)
    return read(path) if os.path.exists(path) else []


def read(path: str | os.PathLike) -> list[dict]:
    """The rows of a metrics file in order. An incomplete last line is left out.

    Raises:
      ValueError: a line before the last one is not a row.
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().split("\n")
    while lines and not lines[-1].strip():
        lines.pop()

    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            if not (isinstance(row, dict) and isinstance(row.get("step"), int) and "kind" in row):
                raise ValueError("no step or no kind")
        except ValueError as error:
            if number == len(lines):
                break  # the writer was killed, or is just writing
            raise ValueError(
                f"{os.fspath(path)}, line {number}: not a row of metrics ({error}); delete the line"
            ) from None
        rows.append(row)
    return rows


def _check(kind: str, metrics: Mapping[str, Number]) -> None:
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r} is unknown; use one of {', '.join(KINDS)}")
    taken = {"step", "kind"} & metrics.keys()
    if taken:
        raise ValueError(f"a metric cannot be called {sorted(taken)[0]!r}; that names the row")


def _plain(value) -> Number:
    """A number that JSON can hold: no array scalar, and null for what is not finite."""
    value = value.item() if hasattr(value, "item") else value
    if value is None or isinstance(value, int):
        return value
    return float(f"{value:.7g}") if math.isfinite(value) else None


def _ends_whole(path: str) -> bool:
    """Whether a file is empty or ends with a complete line."""
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        if file.tell() == 0:
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
