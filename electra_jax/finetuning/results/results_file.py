# SPDX-License-Identifier: Apache-2.0
"""Results as files: results.json, which is read back, and results.md.

    Results  ->  write  ->  results.json  ->  load  ->  Results
                        ->  results.md

docs/finetuning.md describes results.json. Scores in it are shares in 0..1 and correlations in
-1..1.
"""

import json
import math
import os
from collections.abc import Mapping

from electra_jax.finetuning.results import results_table, run_results
from electra_jax.report import drawing

VERSION = 1  # of the format of results.json, docs/finetuning.md


def to_json(results: run_results.Results) -> dict:
    """The content of results.json; a number that is not finite becomes null."""
    return _plain(
        {
            "version": VERSION,
            "name": results.name,
            "encoder": results.encoder,
            "device": results.device,
            "minutes": results.minutes,
            "device_hours": results.device_hours,
            "environment": results.environment,
            "glue_average": results.glue_average,
            "settings": results.settings,
            "notes": results.notes,
            "tasks": [_task_to_json(task) for task in results.tasks],
        }
    )


def from_json(tree: Mapping) -> run_results.Results:
    """The inverse of `to_json`. Statistics are not read, since they are computed from the seeds."""
    if tree.get("version") != VERSION:
        raise ValueError(
            f"results of version {tree.get('version')!r}; this program reads version {VERSION}"
        )

    return run_results.Results(
        name=tree["name"],
        tasks=[_task_from_json(task) for task in tree["tasks"]],
        encoder=tree["encoder"],
        device=tree["device"],
        minutes=tree["minutes"],
        environment=tree.get("environment", {}),
        settings=tree["settings"],
        notes=tree["notes"],
    )


def _task_from_json(tree: Mapping) -> run_results.TaskResult:
    """The inverse of `_task_to_json`; of `dev` only the scores of a constant guess are read."""
    baselines = {
        split: {
            metric: entry["guess"]
            for metric, entry in entries.items()
            if entry["guess"] is not None
        }
        for split, entries in tree["dev"].items()
    }
    return run_results.TaskResult(
        task=tree["task"],
        kind=tree["kind"],
        main=tree["main"],
        seeds=[_seed_from_json(seed) for seed in tree["seeds"]],
        choice=tree["choice"],
        examples=tree["examples"],
        baselines=baselines,
        minutes=tree["minutes"],
        device_minutes=tree.get("device_minutes"),
        tokens_per_second=tree["tokens_per_second"],
        padding_rate=tree["padding_rate"],
        settings=tree["settings"],
        notes=tree["notes"],
    )


def _seed_from_json(tree: Mapping) -> run_results.SeedResult:
    """The result of a seed in a task's entry."""
    return run_results.SeedResult(
        seed=tree["seed"],
        scores={split: _finite(values) for split, values in tree["scores"].items()},
        curve=[
            run_results.CurvePoint(point["step"], point["loss"], _finite(point["scores"]))
            for point in tree["curve"]
        ],
        chosen_step=tree["chosen_step"],
        by_label=tree.get("by_label", {}),
        warnings=tree["warnings"],
    )


def write(folder: str, results: run_results.Results) -> list[str]:
    """Writes results.json and results.md, each atomically; returns their paths."""
    for task in results.tasks:
        if task.choice not in run_results.CHOICES:
            raise ValueError(
                f"{task.task}: choice {task.choice!r} is none of {run_results.CHOICES}"
            )

    tree = json.dumps(to_json(results), ensure_ascii=False, indent=1, allow_nan=False) + "\n"
    paths = []
    for name, content in (("results.json", tree), ("results.md", results_table.markdown(results))):
        paths.append(os.path.join(folder, name))
        drawing.write_whole(paths[-1], content.encode())
    return paths


def load(path: str) -> run_results.Results:
    """Reads a results.json. Raises ValueError, one line, if the file is not one."""
    try:
        with open(path, encoding="utf-8") as file:
            return from_json(json.load(file))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no results.json: {error!r}") from error


def _task_to_json(task: run_results.TaskResult) -> dict:
    """A task's entry; `dev` has the statistics, which readers of the file may want."""
    dev = {}
    for split in task.splits:
        dev[split] = {}
        for metric in task.metrics(split):
            found = task.summary(split, metric)
            dev[split][metric] = {
                "median": found.median,
                "mean": found.mean,
                "sd": found.sd,
                "standard_error": found.error,
                "best": found.best,
                "n": found.count,
                "failed": found.failed,
                "guess": task.baseline(split, metric),
                "values": task.values(split, metric),
            }

    return {
        "task": task.task,
        "kind": task.kind,
        "main": task.main,
        "choice": task.choice,
        "examples": task.examples,
        "minutes": task.minutes,
        "device_minutes": task.device_minutes,
        "tokens_per_second": task.tokens_per_second,
        "padding_rate": task.padding_rate,
        "settings": task.settings,
        "notes": task.notes,
        "warnings": [{"seed": seed, "warning": words} for seed, words in task.warnings],
        "dev": dev,
        "seeds": [
            {
                "seed": seed.seed,
                "chosen_step": seed.chosen_step,
                "scores": seed.scores,
                "by_label": seed.by_label,
                "warnings": seed.warnings,
                "curve": [point._asdict() for point in seed.curve],
            }
            for seed in task.seeds
        ],
    }


def _plain(value):
    """The value in types that JSON has; numpy is unwrapped, not finite numbers are null."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _finite(values: Mapping[str, float | None]) -> dict[str, float]:
    """Turns null back into nan: the seed has this value, but it is not a finite number."""
    return {name: math.nan if value is None else value for name, value in values.items()}
