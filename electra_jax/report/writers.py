# SPDX-License-Identifier: Apache-2.0
"""Writers of metrics: a file of JSON lines, TensorBoard, the console.

    step, kind, {name: value}  ->  metrics.jsonl   {"step": 20, "kind": "train", "loss": 24.1, ...}
                               ->  events.*        tag train/loss
                               ->  the log         step  20/100  loss 24.1 ...

All writers have the same methods and write the same names. They work on the calling thread, so a
full disk raises an error at the step where it happens and never blocks a queue.
"""

import errno
import json
import math
import os
import time
from collections.abc import Mapping
from typing import Protocol

from absl import logging
from tensorboardX import event_file_writer
from tensorboardX.proto import event_pb2, summary_pb2

from electra_jax.host import safe_files
from electra_jax.report import baselines, style

Number = float | int | None
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
      drop_after: the step from which a run resumes. TensorBoard then hides later steps of older
        event files in the directory.
    """

    def __init__(self, directory: str | os.PathLike, drop_after: int | None = None):
        directory = os.fspath(directory)
        os.makedirs(directory, exist_ok=True)

        # The plain event writer of tensorboardX, not its SummaryWriter, which passes events to a
        # thread through a short queue: a full disk would end the thread and then block the run.
        # The suffix gives two starts within one second different files.
        self._file = event_file_writer.EventsWriter(
            os.path.join(directory, "events"), f".{os.getpid()}.{time.time_ns()}"
        )
        if drop_after is not None:
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._put(event_pb2.Event(step=drop_after + 1, session_log=start))

    def write(self, step: int, kind: str, metrics: Mapping[str, Number]) -> None:
        _check(kind, metrics)
        values = [
            summary_pb2.Summary.Value(tag=f"{kind}/{name}", simple_value=value)
            for name, value in ((name, _plain(value)) for name, value in metrics.items())
            if value is not None
        ]
        self._put(event_pb2.Event(step=int(step), summary=summary_pb2.Summary(value=values)))

    def close(self) -> None:
        self._file.close()

    def _put(self, event) -> None:
        event.wall_time = time.time()
        self._file.write_event(event)
        self._file.flush()


class Console:
    """Logs one line for the training metrics of a step, and a block of lines for an evaluation.

    Args:
      steps: the last step of the run; it is shown beside the step and gives the time left.
    """

    def __init__(self, steps: int):
        self._steps = steps

    def write(self, step: int, kind: str, metrics: Mapping[str, Number]) -> None:
        _check(kind, metrics)
        if kind == "train":
            logging.info("%s", progress_line(step, self._steps, metrics))
        else:
            logging.info("%s", evaluation_block(step, self._steps, metrics))

    def close(self) -> None:
        """Does nothing: the log belongs to the program."""


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


def progress_line(step: int, steps: int, metrics: Mapping[str, Number]) -> str:
    """One line of training metrics, aligned with the lines before it.

    Metrics that the objective does not have are left out, without a gap.
    """
    parts = [f"step {_step(step, steps)}"]
    if "progress" in metrics:  # the budget is not a number of steps
        parts.append(f"progress {style.metric('progress', metrics['progress']):>7}")
    for name, width in _PROGRESS.items():
        if name in metrics:
            parts.append(f"{name} {style.metric(name, _plain(metrics[name])):>{width}}")

    if metrics.get("tokens_per_second") is not None:
        speed = style.metric("tokens_per_second", _plain(metrics["tokens_per_second"]))
        parts.append(f"tokens/s {speed:>5}")
    if metrics.get("padding_rate") is not None:
        parts.append(f"padding {style.metric('padding_rate', metrics['padding_rate']):>6}")

    left = baselines.seconds_left(step, steps, metrics)
    if left:
        parts.append(f"ETA {style.duration(left):>6}")
    if baselines.value(metrics, "skipped_steps"):
        parts.append(f"skipped_steps {metrics['skipped_steps']}")
    return "  ".join(parts)


def evaluation_block(step: int, steps: int, metrics: Mapping[str, Number]) -> str:
    """A few lines: the metrics that have a baseline, each beside it, then the others."""
    stems = (
        "gen_masked_loss", "mlm_masked_loss", "disc_loss", "disc_accuracy", "disc_auc",
        "disc_auc_unigram",
    )  # fmt: skip
    beside = sorted(
        (name for name in metrics if name.partition("/")[0] in stems),
        key=lambda name: (name.partition("/")[2], stems.index(name.partition("/")[0])),
    )
    width = max(map(len, beside), default=0)

    lines = [f"evaluation at step {_step(step, steps).strip()}"]
    for name in beside:
        value, baseline = _plain(metrics[name]), baselines.of(name, metrics)
        line = f"  {name:<{width}}  {style.metric(name, value):>8}"
        if value is not None and baseline is not None:
            trivial = style.metric(name, baseline.value)
            margin, side = style.difference(name, abs(baseline.margin(value))), baseline.side(value)
            mark = "" if baseline.margin(value) > 0 else "  (not learnt yet)"
            line += f"  {baseline.name:<15} {trivial:>8}  {margin:>11} {side}{mark}"
        lines.append(line)

    others = [
        f"{name} {style.metric(name, _plain(metrics[name]))}" for name in _ALONE if name in metrics
    ]
    if others:
        lines.append("  " + "  ".join(others))
    return "\n".join(lines)


# The width of each number, so that columns are aligned from line to line.
_PROGRESS = {
    "loss": 6,
    "gen_loss": 6,
    "mlm_loss": 6,
    "disc_loss": 6,
    "gen_accuracy": 6,
    "mlm_accuracy": 6,
    "disc_accuracy": 6,
    "disc_auc": 5,
    "learning_rate": 8,
    "gen_learning_rate": 8,
    "disc_learning_rate": 8,
    "muon_learning_rate": 8,
}
_ALONE = (
    "gen_masked_accuracy",
    "gen_sampled_accuracy",
    "gen_entropy",
    "mlm_masked_accuracy",
    "copy_rate",
    "disc_precision",
    "disc_recall",
    "disc_f1",
    "replaced_rate",
    "ema_decay",
)


def _step(step: int, steps: int) -> str:
    return f"{step:>{len(f'{steps:,}')},}/{steps:,}"


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
