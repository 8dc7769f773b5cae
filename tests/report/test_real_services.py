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


def test_wandb_offline(text, tmp_path, monkeypatch):
    from support import wandb_files  # noqa: PLC0415 - needs the package

    monkeypatch.setenv("WANDB_MODE", "offline")
    rows, known = trained_twice_to_its_end(text, tmp_path / "run", "wandb")

    held, settings = collections.defaultdict(list), {}
    files = sorted((tmp_path / "run").glob("wandb/offline-run-*/*.wandb"))
    assert len(files) == 2 and {file.name for file in files} == {f"run-{known}.wandb"}
    for record in (record for file in files for record in wandb_files.records_of(file)):
        if record.WhichOneof("record_type") == "run":
            assert (record.run.run_id, record.run.display_name) == (known, "run")
            assert record.run.project == services.PROJECT
            settings |= {x.key: x.value_json for x in record.run.config.update}
        for item in record.history.item:
            name = item.key or "/".join(item.nested_key)
            if not name.startswith("_"):
                held[record.history.step.num, name].append(json.loads(item.value_json))
    check_rows(rows, held)
    assert settings["schedule.steps"] == "6"


def test_trackio_in_its_own_folder(text, tmp_path, monkeypatch):
    import trackio  # noqa: PLC0415 - the extra may be missing
    from trackio import sqlite_storage  # noqa: PLC0415 - as above

    folder = tmp_path / "trackio"
    folder.mkdir()
    monkeypatch.setattr(trackio.utils, "TRACKIO_DIR", folder)
    monkeypatch.setattr(sqlite_storage, "TRACKIO_DIR", folder)
    rows, known = trained_twice_to_its_end(text, tmp_path / "run", "trackio")

    (run,) = trackio.Api().runs(services.PROJECT)
    assert run.name == known and known.startswith("run-")
    assert run.config["schedule.steps"] == 6
    held = collections.defaultdict(list)
    for row in sqlite_storage.SQLiteStorage.get_logs(services.PROJECT, known):
        for name, value in row.items():
            if "/" in name:
                held[row["step"], name].append(value)
    check_rows(rows, held)


def test_mlflow_in_a_database(text, tmp_path, monkeypatch):
    import mlflow  # noqa: PLC0415 - the extra may be missing

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    rows, known = trained_twice_to_its_end(text, tmp_path / "run", "mlflow")

    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.get_experiment_by_name(services.PROJECT)
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_id, run.info.run_name, run.info.status) == (known, "run", "FINISHED")
    assert run.data.params["schedule.steps"] == "6" and len(run.data.params) > 60
    held = collections.defaultdict(list)
    for name in run.data.metrics:
        for point in client.get_metric_history(known, name):
            held[point.step, name].append(point.value)
    check_rows(rows, held)


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


@pytest.mark.parametrize("service", ["wandb", "trackio", "mlflow"])
def test_each_seed_of_a_fine_tuning_is_a_run(service, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    folder = tmp_path / "trackio"
    folder.mkdir()
    if service == "trackio":
        import trackio  # noqa: PLC0415 - the extra may be missing
        from trackio import sqlite_storage  # noqa: PLC0415 - as above

        monkeypatch.setattr(trackio.utils, "TRACKIO_DIR", folder)
        monkeypatch.setattr(sqlite_storage, "TRACKIO_DIR", folder)

    (tmp_path / "encoder").mkdir()
    places = finetunings.make_places(tmp_path / "encoder")
    results = finetunings.run(places, "sent", "classification", logging__writers=service)
    curves = [
        {point.step: point.scores["accuracy"] for point in seed.curve}
        for seed in results.tasks[0].seeds
    ]
    assert _accuracies(service, tmp_path) == {
        f"encoder/sent/custom/seed_{number}": pytest.approx(curve)
        for number, curve in enumerate(curves)
    }


def _accuracies(service, folder):
    """{name of a run: {step: eval/accuracy}} of all runs that the service holds."""
    held = collections.defaultdict(dict)
    if service == "mlflow":
        import mlflow  # noqa: PLC0415 - the extra may be missing

        client = mlflow.MlflowClient(f"sqlite:///{folder}/mlflow.db")
        experiment = client.get_experiment_by_name(services.PROJECT)
        for run in client.search_runs([experiment.experiment_id]):
            points = client.get_metric_history(run.info.run_id, "eval/accuracy")
            held[run.info.run_name] = {point.step: point.value for point in points}
    elif service == "trackio":
        import trackio  # noqa: PLC0415 - the extra may be missing
        from trackio import sqlite_storage  # noqa: PLC0415 - as above

        for run in trackio.Api().runs(services.PROJECT):
            for row in sqlite_storage.SQLiteStorage.get_logs(services.PROJECT, run.name):
                if "eval/accuracy" in row:
                    held[run.name.rpartition("-")[0]][row["step"]] = row["eval/accuracy"]
    else:
        from support import wandb_files  # noqa: PLC0415 - needs the package

        for file in folder.rglob("*.wandb"):
            for record in wandb_files.records_of(file):
                if record.WhichOneof("record_type") == "run":
                    name = record.run.display_name
                for item in record.history.item:
                    if (item.key or "/".join(item.nested_key)) == "eval/accuracy":
                        held[name][record.history.step.num] = json.loads(item.value_json)
    return dict(held)
