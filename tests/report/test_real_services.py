# SPDX-License-Identifier: Apache-2.0
"""Weights & Biases, Trackio and MLflow themselves, without a network: what each one then holds.

Each test trains a short run, loses its last checkpoint and trains its end again. The service then
holds one run, with every row of metrics.jsonl once and the settings.
"""

import collections
import json
import shutil

import pytest

import electra_jax
from electra_jax.report import services, writers
from support import finetunings
from support.commands import complaint, free_port
from support.corpus import small_run

# Warnings of the packages are not this project's.
pytestmark = [pytest.mark.services, pytest.mark.filterwarnings("ignore")]


def trained_twice_to_its_end(text, workdir, service):
    """The rows of a run that was sent to a service, and its id there."""
    config = small_run(*text, logging__writers=service)
    electra_jax.train(config, workdir)
    known = json.loads((workdir / services.NOTES).read_text())[service]["id"]
    shutil.rmtree(workdir / "checkpoints" / "6")
    electra_jax.train(config, workdir)
    assert json.loads((workdir / services.NOTES).read_text())[service]["id"] == known
    return writers.read(workdir / "metrics.jsonl"), known


def check_rows(rows, held):
    """Compares metrics.jsonl with {(step, name): [value, ...]}; the last row was trained twice."""
    expected = {
        (row["step"], f"{row['kind']}/{name}"): value
        for row in rows
        for name, value in row.items()
        if name not in ("step", "kind") and value is not None
    }
    assert held.keys() == expected.keys() and len(expected) > 60
    for (step, name), values in held.items():
        assert len(values) == 1, f"{name} of step {step} is there {len(values)} times"
        if not any(speed in name for speed in ("per_second", "step_seconds", "mfu")):
            assert float(f"{values[0]:.7g}") == expected[step, name]


@pytest.fixture
def wandb(tmp_path, monkeypatch):
    """{name of a run: {(step, metric): [value, ...]}} of all runs here, and the records."""
    from support import wandb_files  # noqa: PLC0415 - the extra may be missing

    monkeypatch.setenv("WANDB_MODE", "offline")

    def held():
        found, records = collections.defaultdict(lambda: collections.defaultdict(list)), []
        for file in sorted(tmp_path.rglob("*.wandb")):
            records += (own := wandb_files.records_of(file))
            name = next(x.run.display_name for x in own if x.WhichOneof("record_type") == "run")
            for record in own:
                for item in record.history.item:
                    metric = item.key or "/".join(item.nested_key)
                    if not metric.startswith("_"):
                        at = record.history.step.num, metric
                        found[name][at].append(json.loads(item.value_json))
        return found, records

    return held


@pytest.fixture
def trackio(tmp_path, monkeypatch):
    """The same of all runs that it holds, by their names there, and the runs."""
    import trackio as package  # noqa: PLC0415 - the extra may be missing
    from trackio import sqlite_storage  # noqa: PLC0415 - as above

    (tmp_path / "trackio").mkdir()
    monkeypatch.setattr(package.utils, "TRACKIO_DIR", tmp_path / "trackio")
    monkeypatch.setattr(sqlite_storage, "TRACKIO_DIR", tmp_path / "trackio")

    def held():
        runs = list(package.Api().runs(services.PROJECT))
        found = {run.name: collections.defaultdict(list) for run in runs}
        for name, rows in found.items():
            for row in sqlite_storage.SQLiteStorage.get_logs(services.PROJECT, name):
                for metric, value in row.items():
                    if "/" in metric:
                        rows[row["step"], metric].append(value)
        return found, runs

    return held


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    """The same of all runs in a database, and the runs."""
    import mlflow as package  # noqa: PLC0415 - the extra may be missing

    address = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)

    def held():
        client = package.MlflowClient(address)
        experiment = client.get_experiment_by_name(services.PROJECT)
        runs = list(client.search_runs([experiment.experiment_id]))
        found = {run.info.run_name: collections.defaultdict(list) for run in runs}
        for run in runs:
            for metric in run.data.metrics:
                for point in client.get_metric_history(run.info.run_id, metric):
                    found[run.info.run_name][point.step, metric].append(point.value)
        return found, runs

    return held


def test_wandb_offline(text, tmp_path, wandb):
    rows, known = trained_twice_to_its_end(text, tmp_path / "run", "wandb")
    files = sorted((tmp_path / "run").glob("wandb/offline-run-*/*.wandb"))
    assert len(files) == 2 and {file.name for file in files} == {f"run-{known}.wandb"}

    found, records = wandb()
    settings = {}
    for record in records:
        if record.WhichOneof("record_type") == "run":
            assert (record.run.run_id, record.run.display_name) == (known, "run")
            assert record.run.project == services.PROJECT
            settings |= {x.key: x.value_json for x in record.run.config.update}
    check_rows(rows, found["run"])
    assert settings["schedule.steps"] == "6"


def test_trackio_in_its_own_folder(text, tmp_path, trackio):
    rows, known = trained_twice_to_its_end(text, tmp_path / "run", "trackio")
    found, (run,) = trackio()
    assert run.name == known and known.startswith("run-")
    assert run.config["schedule.steps"] == 6
    check_rows(rows, found[known])


def test_mlflow_in_a_database(text, tmp_path, mlflow):
    rows, known = trained_twice_to_its_end(text, tmp_path / "run", "mlflow")
    found, (run,) = mlflow()
    assert (run.info.run_id, run.info.run_name, run.info.status) == (known, "run", "FINISHED")
    assert run.data.params["schedule.steps"] == "6" and len(run.data.params) > 60
    check_rows(rows, found["run"])


@pytest.mark.parametrize("service", ["wandb", "trackio", "mlflow"])
def test_each_seed_of_a_fine_tuning_is_a_run(service, tmp_path, request):
    held = request.getfixturevalue(service)
    (tmp_path / "encoder").mkdir()
    places = finetunings.make_places(tmp_path / "encoder")
    results = finetunings.run(places, "sent", "classification", logging__writers=service)

    found, _ = held()
    if service == "trackio":  # its names end in characters of their own
        found = {name.rpartition("-")[0]: rows for name, rows in found.items()}
    seeds = results.tasks[0].seeds
    assert set(found) == {f"encoder/sent/custom/seed_{number}" for number in range(len(seeds))}
    for number, seed in enumerate(seeds):
        rows = found[f"encoder/sent/custom/seed_{number}"]
        for point in seed.curve:
            assert rows[point.step, "eval/accuracy"] == pytest.approx([point.scores["accuracy"]])
            assert rows[point.step, "train/loss"] == pytest.approx([point.loss])


def test_a_wrong_address_of_mlflow_is_refused_at_the_start(text, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nothing://here")
    with pytest.raises(electra_jax.config.ConfigError, match="mlflow cannot be opened.*MLFLOW_TRA"):
        electra_jax.train(small_run(*text, logging__writers="mlflow"), tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_wandb_without_a_login_is_refused_at_the_start(tmp_path, monkeypatch):
    for name, value in (
        ("WANDB_MODE", "online"),
        ("WANDB_BASE_URL", f"http://127.0.0.1:{free_port()}"),
        ("NETRC", str(tmp_path / "none")),
        ("HOME", str(tmp_path)),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    # In a process of its own, since wandb reads its variables once.
    line = complaint("--config=tiny", f"--workdir={tmp_path}/run", "--config.logging.writers=wandb")
    assert "wandb cannot be opened" in line and "wandb login" in line
    assert not (tmp_path / "run" / "checkpoints").exists()
