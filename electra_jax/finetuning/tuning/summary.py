# SPDX-License-Identifier: Apache-2.0
"""From the records of seeds to results: which seed and point are best, and what is said of them.

    records of all seeds, by point of the grid  ->  best_point  ->  task_result  ->  results
    some records, evaluations of other seeds    ->  unfinished  ->  with_points, for the page

Records are those of `seeds.py`. Dev decides: the main metric on the task's first dev split.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from electra_jax import config as config_lib
from electra_jax.finetuning.results import results_table, run_results, scores, statistics
from electra_jax.finetuning.tuning import choices, datasets, loop
from electra_jax.training import provenance

Records = Sequence[Mapping[str, Any]]  # one per seed


def best_seed(prepared: datasets.PreparedTask, records: Records) -> int:
    """The place in `records` of the best seed on the first dev split; the first of equals."""
    main, best = prepared.task.main, 0
    values = [record["scores"][prepared.first_dev][main] for record in records]
    for place, value in enumerate(values):
        if scores.better(main, value, values[best]):
            best = place
    return best


def best_point(
    prepared: datasets.PreparedTask, records_at: Mapping[choices.GridPoint, Records]
) -> choices.GridPoint:
    """The point with the best median over seeds on the first dev split; the first of equals."""
    best = None
    for point, records in records_at.items():
        value = _median(prepared, records)
        if best is None or scores.better(prepared.task.main, value, best[0]):
            best = value, point
    return best[1]


def task_result(
    session: choices.Session,
    prepared: datasets.PreparedTask,
    records_at: Mapping[choices.GridPoint, Records],
    chosen: choices.GridPoint,
    start_note: str,
) -> run_results.TaskResult:
    """The seeds at the chosen point, with the time that all points took together.

    Args:
      start_note: which tuned encoder the task starts from; '' if it is the pre-trained one.
    """
    records = records_at[chosen]
    notes = _notes(prepared) + ([start_note] if start_note else [])
    if len(records_at) > 1:
        notes.append(_grid_note(prepared, records_at, chosen))

    seconds = sum(record["seconds"] for record in records)
    tokens = sum(record["tokens"] for record in records)
    places = sum(record["places"] for record in records)
    return dataclasses.replace(
        _of_task(session, prepared, chosen),
        seeds=[_seed_result(record) for record in records],
        **_spent([record for found in records_at.values() for record in found]),
        tokens_per_second=tokens / seconds if seconds else None,
        padding_rate=1 - tokens / places if places else None,
        notes=notes,
    )


def unfinished(
    session: choices.Session,
    prepared: datasets.PreparedTask,
    point: choices.GridPoint,
    finished: Records,
    seeds: Sequence[int],
    at_other_points: Records,
) -> run_results.TaskResult:
    """A task that is trained at a point of the grid.

    It has the finished seeds of this point and, without scores, those in `seeds`, which are trained
    now. Its time is that of all finished seeds.
    """
    found = [_seed_result(record) for record in finished]
    found += [run_results.SeedResult(seed, {}) for seed in seeds]
    spent = _spent([*at_other_points, *finished])
    return dataclasses.replace(_of_task(session, prepared, point), seeds=found, **spent)


def with_points(
    task: run_results.TaskResult, split: str, latest: Mapping[int, loop.SeedEvaluation]
) -> run_results.TaskResult:
    """The task with one more point on the curves of some seeds: {seed: its evaluation}."""

    def one(seed):
        found = latest.get(seed.seed)
        if found is None:
            return seed
        point = run_results.CurvePoint(found.step, found.loss, found.scores[split])
        return dataclasses.replace(seed, curve=[*seed.curve, point])

    return dataclasses.replace(task, seeds=[one(seed) for seed in task.seeds])


def only_scored(task: run_results.TaskResult) -> run_results.TaskResult:
    """The task without the seeds that are still trained."""
    return dataclasses.replace(task, seeds=[seed for seed in task.seeds if seed.scores])


def _spent(records: Records) -> dict[str, float | None]:
    """The minutes of some seeds; those of devices are None if a record does not say how many."""
    minutes = [record["minutes"] for record in records]
    # Records of earlier versions do not say it.
    each = [record["minutes"] * record["devices"] for record in records if "devices" in record]
    known = len(each) == len(records)
    return {"minutes": sum(minutes), "device_minutes": sum(each) if known else None}


def _of_task(session, prepared, point) -> run_results.TaskResult:
    """A task without its seeds."""
    task = prepared.task
    return run_results.TaskResult(
        task=task.name,
        kind=task.kind,
        main=task.main,
        seeds=(),
        choice=session.config.evaluation.keep,
        examples=prepared.counts,
        baselines={
            split: scores.baseline(task.kind, task.metrics, part.targets, part.queries)
            for split, part in prepared.scored.items()
        },
        settings=settings(session, prepared, point),
    )


def settings(
    session: choices.Session, prepared: datasets.PreparedTask, point: choices.GridPoint
) -> dict[str, Any]:
    """The settings that a task was trained with; where 0 stood for a default, the default."""
    config, recipe = session.config, session.config.recipe
    return {
        "learning_rate": point.learning_rate,
        "epochs": point.epochs,
        "layer_decay": choices.layer_decay(config, session.encoder),
        "decay_rule": recipe.decay_rule,
        "loss": recipe.loss,
        "batch_size": recipe.batch_size,
        "sequence_length": prepared.length,
        "lengths": list(prepared.buckets),
        "head": choices.setup(config, session.encoder, prepared, 1).head.kind,
    }


def results(
    session: choices.Session, tasks: Sequence[run_results.TaskResult], minutes: float
) -> run_results.Results:
    """The tasks that are done, with what they share: encoder, device, settings."""
    device = session.mesh.devices.flat[0]
    return run_results.Results(
        name=session.config.name,
        tasks=tasks,
        encoder=session.encoder.about,
        device=f"{session.mesh.devices.size} x {device.device_kind}",
        minutes=minutes,
        environment=provenance.of_this_start(),
        settings=config_lib.flatten(session.config),
        control=session.control,
    )


def _median(prepared, records) -> float:
    values = [record["scores"][prepared.first_dev][prepared.task.main] for record in records]
    return statistics.summarise(prepared.task.main, values).median


def _notes(prepared) -> list[str]:
    """What reading the task has reported, less the task's name and the counts of examples.

    Both stand elsewhere in the results.
    """
    name = prepared.task.name
    lines = [
        # Other lines may begin with a path, whose first folder may have the name of the task.
        line.removeprefix(name).lstrip(": ") if line.startswith((f"{name}:", f"{name} ")) else line
        for line in prepared.report.lines()
    ]
    return [line for line in lines if not line.endswith(" examples")]


def _grid_note(prepared, records_at, chosen) -> str:
    main = prepared.task.main
    tried = ", ".join(
        f"{point.name} {results_table.shown(main, _median(prepared, records))}"
        for point, records in records_at.items()
    )
    return f"chosen on dev, which is optimistic: {chosen.name} of {tried} (medians of {main})"


def _seed_result(record) -> run_results.SeedResult:
    return run_results.SeedResult(
        seed=record["seed"],
        scores=record["scores"],
        by_label=record.get("by_label", {}),  # records of earlier versions have none
        curve=[run_results.CurvePoint(*point) for point in record["curve"]],
        chosen_step=record["chosen_step"],
        warnings=record["warnings"],
    )
