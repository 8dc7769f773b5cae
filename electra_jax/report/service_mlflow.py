# SPDX-License-Identifier: Apache-2.0
"""A run in MLflow; `services` says when it is opened and what it gets.

Its own variables keep their meaning: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME, the credentials.
MLflow answers each row before training continues, so an attempt has a short limit of time here.
"""

import os
import re
import time
from collections.abc import Mapping

from electra_jax.report import services

REMEDY = "look at MLFLOW_TRACKING_URI and its credentials"
_LIMITS = {  # unless the user sets them; MLflow's own would stop training for minutes
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
}
_NOT_IN_A_NAME = re.compile(r"[^\w./ :-]")  # it refuses these characters
_PARAMETERS = 100  # the most in one request
_LONGEST_VALUE = 6000  # characters


class _Run:
    """See `services.OpenRun`."""

    def __init__(self, client, run_id: str):
        self._client, self.id = client, run_id

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Sends values; returns when they are stored."""
        from mlflow import entities  # noqa: PLC0415 - as in `open`

        now = time.time_ns() // 1_000_000
        metrics = [
            entities.Metric(_NOT_IN_A_NAME.sub("_", name), value, now, step)
            for name, value in values.items()
        ]
        self._client.log_batch(self.id, metrics=metrics)

    def finish(self, failed: bool) -> None:
        """Marks the run."""
        self._client.set_terminated(self.id, "FAILED" if failed else "FINISHED")


def open(about: services.About) -> services.OpenRun:
    """Opens the run with this id, or a new one if there is none or it is gone."""
    for name, limit in _LIMITS.items():
        os.environ.setdefault(name, limit)
    import mlflow  # noqa: PLC0415 - takes seconds, and only runs that log there have it

    client = mlflow.MlflowClient()
    if about.id:
        try:
            client.update_run(about.id, status="RUNNING")
            return _Run(client, about.id)
        except mlflow.MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise

    run = client.create_run(_experiment(client), run_name=about.name)
    _log_settings(client, run.info.run_id, about.config)
    return _Run(client, run.info.run_id)


def _experiment(client):
    """Returns the id of the experiment, which is made if it is not there."""
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or services.PROJECT
    found = client.get_experiment_by_name(name)
    return found.experiment_id if found else client.create_experiment(name)


def _log_settings(client, run_id, config):
    """Sends every setting as a parameter; MLflow takes each once and never changes it."""
    from mlflow import entities  # noqa: PLC0415 - as in `open`

    settings = [entities.Param(path, str(x)[:_LONGEST_VALUE]) for path, x in config.items()]
    for first in range(0, len(settings), _PARAMETERS):
        client.log_batch(run_id, params=settings[first : first + _PARAMETERS])
