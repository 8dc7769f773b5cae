# SPDX-License-Identifier: Apache-2.0
"""Metrics for the services that `logging.writers` names: Weights & Biases, Trackio, MLflow.

    step, kind, {name: value}  ->  Sender  ->  an open run of a service: KIND/NAME at the step

`service_wandb`, `service_trackio` and `service_mlflow` each open a run of one service. What they
share is here: the run's id and the last step that the service has are kept in WORKDIR/writers.json,
so that a run that continues from a checkpoint continues there too and sends no step a second time.
A service that fails never ends a run: what it did not take waits and is sent later.
"""

import contextlib
import dataclasses
import importlib
import importlib.util
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import jax
from absl import logging

from electra_jax import config as config_lib
from electra_jax.host import extras, processes, safe_files
from electra_jax.report import writers

NOTES = "writers.json"
PROJECT = "electra_jax"  # where a service groups runs, unless its own variable says otherwise
_PAUSES = (30.0, 600.0)  # seconds to the next attempt after a failure: first, and at most


@dataclasses.dataclass(frozen=True)
class About:
    """What a service is told about a run when it is opened."""

    workdir: str
    name: str
    id: str  # that of the run that continues; '' for a new one
    config: Mapping[str, Any]  # every setting by its path
    kept_in: str = writers.METRICS  # file in the workdir that has the same rows

    @classmethod
    def of(cls, config: config_lib.Config, workdir: str) -> "About":
        """Returns what is told about the run in a workdir, which has the folder's name."""
        workdir = os.path.abspath(workdir)
        return cls(workdir, os.path.basename(workdir), "", config_lib.flatten(config))


class OpenRun(Protocol):
    """A run that is open at a service. All methods may raise whatever the service raises."""

    id: str  # with which a later start opens the same run

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Adds values by their whole names, such as train/loss."""

    def finish(self, failed: bool) -> None:
        """Waits a bounded time until everything is there, and closes the run."""


class Notes:
    """WORKDIR/writers.json: for each service the id of the run, and the last step of each kind."""

    def __init__(self, workdir: str, continues: bool):
        self._path = os.path.join(workdir, NOTES)
        self._found = _read(self._path) if continues else {}

    def of(self, service: str) -> dict[str, Any]:
        """Returns the notes of one service; {} if it has none."""
        return dict(self._found.get(service, {}))

    def keep(self, service: str, about: Mapping[str, Any]) -> None:
        """Writes the notes of one service, beside those of the others."""
        self._found[service] = dict(about)
        safe_files.write(self._path, (json.dumps(self._found, indent=2) + "\n").encode())


class Sender:
    """A writer that sends metrics to a run of a service, and continues if the service fails.

    Args:
      service: its name.
      opens: opens the run, given the id of the one that continues or ''.
      notes: what earlier starts have sent.
      clock: seconds.
      kept_in: the file that has the same rows.
    """

    def __init__(
        self,
        service: str,
        opens: Callable[[str], OpenRun],
        notes: Notes,
        clock: Callable[[], float] = time.monotonic,
        kept_in: str = writers.METRICS,
    ):
        self._service, self._opens, self._notes, self._clock = service, opens, notes, clock
        self._kept_in = kept_in
        self._about = notes.of(service)
        self._run: OpenRun | None = None
        self._waiting: dict[tuple[int, str], dict[str, float]] = {}
        self._pause, self._not_before = 0.0, 0.0  # after a failure

    def begin(self) -> None:
        """Opens the run. Only for a new one may this raise; one that continues is opened later."""
        if self._about.get("id"):
            self._try_to_send()
        else:
            self._open()

    def write(self, step: int, kind: str, metrics: Mapping[str, writers.Number]) -> None:
        """Sends a row unless this step was sent before, since services cannot overwrite rows."""
        if step <= self._about.get(kind, -1):
            return

        self._waiting[int(step), kind] = {
            f"{kind}/{name}": number
            for name, value in metrics.items()
            if (number := _number(value)) is not None
        }
        if self._clock() >= self._not_before:
            self._try_to_send()

    def close(self) -> None:
        """Does nothing: `open_senders` ends the run, and says whether it failed."""

    def finish(self, failed: bool) -> None:
        """Sends what still waits and ends the run at the service; never raises."""
        if self._waiting:
            self._try_to_send()
        if self._waiting:
            logging.warning(
                "%s did not get the last %d rows; they are in %s",
                self._service, len(self._waiting), self._kept_in,
            )  # fmt: skip
        try:
            if self._run is not None:
                self._run.finish(failed)
        except Exception as error:  # whatever a service may raise
            logging.warning("%s: its run was not closed (%s)", self._service, reason(error))

    def _open(self):
        self._run = self._opens(self._about.get("id", ""))
        self._about["id"] = self._run.id
        self._notes.keep(self._service, self._about)

    def _try_to_send(self):
        """Sends all that waits; after a failure it waits on, and the next attempt comes later."""
        try:
            if self._run is None:
                self._open()
            for step, kind in sorted(self._waiting):
                self._run.log(step, self._waiting[step, kind])
                del self._waiting[step, kind]
                self._about[kind] = step
            self._notes.keep(self._service, self._about)
        except Exception as error:  # whatever a service may raise, and a full disk
            if not self._pause:
                logging.warning(
                    "%s takes no metrics (%s); the run continues, and they are sent when it does",
                    self._service, reason(error),
                )  # fmt: skip
            first, most = _PAUSES
            self._pause = min(2 * self._pause or first, most)
            self._not_before = self._clock() + self._pause
            return

        if self._pause:
            logging.info("%s takes metrics again", self._service)
        self._pause, self._not_before = 0.0, 0.0


@contextlib.contextmanager
def open_senders(names: str, about: About, continues: bool) -> Iterator[tuple[Sender, ...]]:
    """Opens a run at each service, on process 0; ends them with the block, as failed on an error.

    Args:
      names: those of the services, as in `logging.writers`.
      about: what they are told.
      continues: whether the run continues from a checkpoint, so that its runs there continue too.

    Raises ConfigError, on all processes, if a package is missing or a new run cannot be opened.
    """
    first = jax.process_index() == 0
    senders = processes.agree(
        lambda: _begun(names, about, continues) if first else (), config_lib.ConfigError
    )
    try:
        yield senders
    except BaseException:
        for sender in senders:
            sender.finish(failed=True)
        raise
    for sender in senders:
        sender.finish(failed=False)


def check_packages(names: str) -> None:
    """Raises ConfigError if the package of a service is not installed; imports none of them."""
    for name in _split(names):
        if importlib.util.find_spec(name) is None:
            raise config_lib.ConfigError(
                f"logging.writers={names!r}: the package {name} is not installed:"
                f" {extras.command(name)}, or leave {name} out"
            )


def reason(error: BaseException) -> str:
    """Returns an error in a part of a line."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 300 else text[:297] + "..."


def _begun(names, about, continues) -> tuple[Sender, ...]:
    """Returns a sender for each service, with its run opened."""
    check_packages(names)
    notes = Notes(about.workdir, continues)

    senders: list[Sender] = []
    for name in _split(names):
        service = importlib.import_module(f"electra_jax.report.service_{name}")
        opens = _opener(service.open, about)
        sender = Sender(name, opens, notes, kept_in=about.kept_in)
        try:
            sender.begin()
        except Exception as error:  # whatever a service may raise
            for other in senders:
                other.finish(failed=True)
            raise config_lib.ConfigError(
                f"logging.writers: {name} cannot be opened ({reason(error)}); {service.REMEDY}, or"
                f" leave {name} out"
            ) from error
        senders.append(sender)
    return tuple(senders)


def _opener(open_run, about):
    """Returns a function that opens a run at a service, given its id or ''."""
    return lambda known_id: open_run(dataclasses.replace(about, id=known_id))


def _number(value):
    """Returns a number of Python; None for one that is not finite, as in TensorBoard."""
    value = value.item() if hasattr(value, "item") else value
    return value if value is not None and math.isfinite(value) else None


def _split(names):
    return names.split(",") if names else []


def _read(path):
    """Returns the notes of a file; {} without one, and with a warning if it is damaged."""
    if not os.path.exists(path):
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        if not all(isinstance(about["id"], str) for about in found.values()):
            raise ValueError("an id is no text")
        return found
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        logging.warning(
            "%s cannot be used (%s); the services get a new run each", path, reason(error)
        )
        return {}
