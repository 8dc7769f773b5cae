# SPDX-License-Identifier: Apache-2.0
"""The folder of a fine-tuning: what is written there, and what is read back.

    WORKDIR/finetune/NAME/settings.json                 settings and encoder of all that follows
                         /TASK/seed_0/seed.json         the record of a finished seed
                                     /dev.jsonl         its predictions, one line per example
                         /TASK/weights/                 tuned weights, see `kept_weights.py`
                         /TASK/rate_0.0003_epochs_3/... the same per point, if there is a grid
                         /results.json, results.md, results.html, glue.zip, log.txt

A seed is finished when its seed.json exists, which is written last and atomically.
"""

import dataclasses
import glob
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from electra_jax import config as config_lib
from electra_jax.finetuning import config as finetuning_config
from electra_jax.finetuning.results import results_file, run_results, submission
from electra_jax.finetuning.tasks import built_in
from electra_jax.finetuning.tuning import datasets
from electra_jax.host import safe_files
from electra_jax.report import drawing
from electra_jax.workdir import metadata

_RESULTS = "results.json"
_GLUE_SPLITS = {"test": "", "test_matched": "_matched", "test_mismatched": "_mismatched"}


def folder_of(config: finetuning_config.Config, workdir: str) -> str:
    """The folder of a fine-tuning."""
    return os.path.join(workdir, "finetune", config.name)


def check_settings(
    folder: str, config: finetuning_config.Config, identity: str, step: int | None
) -> None:
    """Raises ConfigError if the folder holds results of other settings or another encoder.

    Settings that no finished seed was trained with may change. `identity` is the encoder's, and
    `step` that of its checkpoint, None if it has none.
    """
    old = _settings_of_results(folder)
    if old is None:
        return

    changed = finetuning_config.differences(finetuning_config.parse_saved(old["config"]), config)
    remedy = "choose another --config.name, or delete that folder"
    if old["encoder"] != identity:
        # The usual cause is that pre-training continued, and its newest checkpoint is a later one.
        old_step = old.get("step")
        if None not in (old_step, step) and old_step != step:
            if not changed and old_step in _steps_of(old, config, folder):
                remedy += (
                    f"; --config.encoder.step={old_step} continues with the weights of that step"
                )
            changed.append(f"the encoder's weights, of step {old_step} then and {step} now")
        else:
            changed.append("the encoder's weights")
    if changed:
        raise config_lib.ConfigError(
            f"{folder} holds results of other settings: {'; '.join(changed)}; {remedy}"
        )


def _steps_of(old, config, folder):
    """The checkpoints that the encoder's workdir still has; none if it was another place then."""
    if old["config"]["encoder"]["from"] != config.encoder.from_:
        return []
    workdir = config.encoder.from_ or os.path.dirname(os.path.dirname(folder))
    return metadata.steps(metadata.directory(workdir)) if os.path.isdir(workdir) else []


def write_settings(
    folder: str, config: finetuning_config.Config, identity: str, step: int | None, task: str
) -> None:
    """Writes settings.json once nothing can refuse the seeds that the folder has of this task.

    It has the number of seeds of each task too, those of other commands included: what a task
    reports stays what the last command with that task has reported.
    """
    old = _settings_of_results(folder) or {}
    seeds = old.get("seeds", {}) | {task: config.seeds}
    content = {
        "config": config_lib.to_tree(config),
        "encoder": identity,
        "step": step,
        "seeds": seeds,
    }
    _write(os.path.join(folder, "settings.json"), content)


def _settings_of_results(folder):
    """The settings.json of a folder that has finished seeds; None otherwise."""
    path = os.path.join(folder, "settings.json")
    if not os.path.exists(path):
        return None
    if not glob.glob(f"{glob.escape(folder)}/**/seed_*/seed.json", recursive=True):
        return None
    return _read(path)


def seed_folder(folder: str, seed: int) -> str:
    """The folder of a seed, inside that of a task or of a point of its grid."""
    return os.path.join(folder, f"seed_{seed}")


def finished(folder: str, seed: int, made_of: Mapping[str, str]) -> dict | None:
    """The record of a finished seed; None if the seed is not finished.

    Raises ConfigError if the record was made of other data, another encoder or in another dtype.
    """
    path = os.path.join(seed_folder(folder, seed), "seed.json")
    if not os.path.exists(path):
        return None

    record = _read(path)
    for name, what in (
        ("data", "files of the task"),
        ("encoder", "encoder that it starts from"),
        ("dtype", "dtype of the computation"),
    ):
        if record.get(name, made_of[name]) != made_of[name]:
            raise config_lib.ConfigError(
                f"{path}: the {what} changed since; choose another --config.name, or delete"
                f" {folder}"
            )
    return record


def records(folder: str) -> list[dict]:
    """The records of all finished seeds in the folder of a task or point, in order of the seeds."""
    found = glob.glob(f"{glob.escape(folder)}/seed_*/seed.json")
    return sorted((_read(path) for path in found), key=lambda record: record["seed"])


def reported(folder: str) -> list[dict]:
    """Those of `records` that count as the results of the task.

    A later command with fewer seeds leaves the other seeds in the folder, and does not report them.
    """
    numbers = reported_seeds(folder)
    if numbers is None:
        return records(folder)
    found = [os.path.join(seed_folder(folder, number), "seed.json") for number in numbers]
    return [_read(path) for path in found if os.path.exists(path)]


def reported_seeds(folder: str) -> range | None:
    """The numbers of the seeds that the last command with this task has reported.

    Args:
      folder: of a task, of a point of its grid, or of a seed.

    Returns None if that is not known: then all that are finished count.
    """
    known = settings(folder)
    if known is None:
        return None
    whole, content = known
    task = os.path.relpath(os.path.abspath(folder), whole).split(os.sep)[0]
    count = content.get("seeds", {}).get(task)
    if count is None:
        return None
    first = content["config"]["seed"]
    return range(first, first + count)


def settings(path: str) -> tuple[str, dict] | None:
    """(the fine-tuning's folder that `path` is or lies in, its settings.json), or None."""
    folder = os.path.abspath(path)
    for _ in range(5):  # at most TASK/rate_0.0001_epochs_3/seed_0/weights deep
        found = os.path.join(folder, "settings.json")
        if os.path.exists(found) and os.path.basename(os.path.dirname(folder)) == "finetune":
            return folder, _read(found)
        folder = os.path.dirname(folder)
    return None


def finish(folder: str, record: Mapping[str, Any]) -> None:
    """Writes the record of a seed, which marks it as finished: it is the seed's last file."""
    _write(os.path.join(seed_folder(folder, record["seed"]), "seed.json"), record)


def write_predictions(
    where: str,
    prepared: datasets.PreparedTask,
    parts: Mapping[str, datasets.PreparedSplit],
    predictions: Mapping[str, Any],
    threshold: float | None,
) -> None:
    """Writes a file of predictions per split, and for questions SQuAD's own files too."""
    os.makedirs(where, exist_ok=True)
    for split, part in parts.items():
        decided = datasets.decide(prepared, predictions[split], threshold)
        targets = None if part.targets is None else datasets.label_names(prepared, part.targets)
        if prepared.task.kind == "span":
            os.makedirs(os.path.join(where, split), exist_ok=True)
            submission.squad(os.path.join(where, split), part.ids, predictions[split], threshold)

        lanes = {}
        if prepared.task.kind in ("classification", "multi_label"):
            lanes["scores"] = predictions[split]
        if part.queries is not None:
            lanes["query"] = part.queries
        submission.lines(
            os.path.join(where, f"{split}.jsonl"),
            part.ids,
            datasets.label_names(prepared, decided),
            targets,
            **lanes,
        )


def earlier(folder: str) -> list[run_results.TaskResult]:
    """The results of earlier commands in the folder, of tasks whose seeds are still there."""
    path = os.path.join(folder, _RESULTS)
    try:
        tasks = results_file.load(path).tasks if os.path.exists(path) else ()
    except ValueError as error:
        logging.warning("%s; it is written anew", error)
        return []

    def has_seeds(task):
        escaped = glob.escape(os.path.join(folder, task.task))
        return glob.glob(f"{escaped}/**/seed_*/seed.json", recursive=True)

    return [task for task in tasks if has_seeds(task)]


def control(folder: str, asked: str, names: Sequence[str]) -> run_results.Results:
    """The results of another fine-tuning, to compare with.

    Args:
      folder: of the fine-tuning that is compared, WORKDIR/finetune/NAME.
      asked: the name of another one in the same workdir, or a folder with results.json.
      names: the tasks that are compared.

    Raises ConfigError, one line, if there are no results, or those of none of the tasks.
    """
    around = os.path.dirname(folder)
    if not asked:
        raise config_lib.ConfigError("--control= is empty; perhaps a shell variable is not set")
    safe_files.check_no_address(asked, "--control", config_lib.ConfigError)
    place = next((p for p in (os.path.join(around, asked), asked) if _has_results(p)), None)
    if place is None:
        found = sorted(glob.glob(f"{glob.escape(around)}/*/{_RESULTS}"))
        others = ", ".join(os.path.basename(os.path.dirname(path)) for path in found)
        known = f", which has {others}," if found else ""
        raise config_lib.ConfigError(
            f"--control={asked}: there are no results of that name in {around}{known} nor in a"
            " folder of that name; give the config.name of another fine-tuning of this workdir, or"
            " its folder"
        )
    if os.path.realpath(place) == os.path.realpath(folder):
        raise config_lib.ConfigError(
            f"--control={asked} is this fine-tuning itself; give another one as the control, or"
            " --config.name=OTHER to tune anew"
        )

    try:
        results = results_file.load(os.path.join(place, _RESULTS))
    except ValueError as error:
        raise config_lib.ConfigError(f"--control={asked}: {error}") from error
    tasks = [task.task for task in results.tasks]
    if not set(tasks) & set(names):
        raise config_lib.ConfigError(
            f"--control={asked} has results of {', '.join(tasks) or 'no task'}, and not of"
            f" {', '.join(names)}; tune the same tasks with both"
        )
    alike = results.name == os.path.basename(folder)
    return dataclasses.replace(results, name=place) if alike else results


def _has_results(folder):
    return os.path.exists(os.path.join(folder, _RESULTS))


def write_results(folder: str, whole: run_results.Results) -> None:
    """Writes results.json and results.md; results.html is `live_page.py`'s."""
    results_file.write(folder, whole)


def write_glue(folder: str, seeds: Mapping[str, str]) -> list[str]:
    """Writes glue.zip, which GLUE's site takes, if any of its tasks was predicted.

    Of tasks that are not in `seeds` it keeps what an earlier command has written, unless their
    folders are gone or the task whose model has answered them is in `seeds`.

    Args:
      seeds: {task: folder of the seed whose predictions go into the file}.

    Returns remarks, one line each: files that are missing or have an unexpected length, and tasks
    that are left out because their rows are not GLUE's or a prediction is not finite.
    """
    path_of_zip, found, remarks = os.path.join(folder, "glue.zip"), {}, []

    # What an earlier command has written, unless it is renewed now.
    for name, rows in submission.read_glue(path_of_zip).items():
        task = name.removesuffix("_matched").removesuffix("_mismatched")
        renewed = {task, built_in.named(task).model_of} & seeds.keys()
        if not renewed and os.path.isdir(os.path.join(folder, task)):
            found[name] = rows

    for task, where in seeds.items():
        for split, ending in _GLUE_SPLITS.items():
            path = os.path.join(where, f"{split}.jsonl")
            if task + ending not in submission.GLUE or not os.path.exists(path):
                continue
            with open(path, encoding="utf-8") as file:
                rows = _by_index(map(json.loads, file))
            if rows is None:
                remarks.append(f"{path} has no rows 0, 1, 2, ... as GLUE numbers them: left out")
            elif None in rows:
                remarks.append(f"{path} has predictions that are not finite: left out")
            else:
                found[task + ending] = rows

    if found:
        remarks += submission.glue(path_of_zip, found)
    return remarks


def _by_index(lines):
    """Predictions in the order of GLUE's own row numbers; TFDS stores the rows in another order.

    None if the rows do not have these numbers, as those of a part of a test set.
    """
    rows = {str(line["id"]): line["prediction"] for line in lines}
    numbers = [str(number) for number in range(len(rows))]
    return [rows[number] for number in numbers] if rows.keys() == {*numbers} else None


def _read(path):
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        if not isinstance(found, dict):
            raise ValueError(f"it holds a {type(found).__name__}")
    except (OSError, ValueError, RecursionError) as error:
        raise config_lib.ConfigError(
            f"{path} is damaged ({' '.join(str(error).split())}); move {os.path.dirname(path)} away"
            " and run the same finetune command again"
        ) from error
    return found


def _write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    drawing.write_whole(path, (json.dumps(content, indent=1) + "\n").encode())
