# SPDX-License-Identifier: Apache-2.0
"""The seeds of one task at one point of the grid: trained, scored, predicted, written.

    finished seeds  ->  their records are read
    missing seeds   ->  `loop.train`, scored on dev  ->  predictions of every dev and test split
                    ->  record (scores, curve, warnings, time) and the weights that are kept

A record is the content of a seed's seed.json. It is written last, since it marks the seed as
finished.
"""

import dataclasses
import functools
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from absl import logging

from electra_jax import config as config_lib
from electra_jax.finetuning.results import results_table, scores, statistics
from electra_jax.finetuning.tuning import (
    choices,
    datasets,
    encoders,
    kept_weights,
    live_page,
    loop,
    run_folder,
    service_runs,
    summary,
    tuning_step,
)
from electra_jax.host import staging


def check_finished(session: choices.Session, folder: str, made_of: Mapping[str, str]) -> None:
    """Raises ConfigError if a finished seed was made of other data, another encoder or dtype."""
    for number in _numbers(session.config):
        run_folder.finished(folder, number, made_of)


def _numbers(config):
    return range(config.seed, config.seed + config.seeds)


def train_missing(
    session: choices.Session,
    page: live_page.LivePage,
    prepared: datasets.PreparedTask,
    start: encoders.Start,
    point: choices.GridPoint,
    folder: str,
    made_of: Mapping[str, str],
) -> list[dict]:
    """Trains the seeds that have no record yet; returns the records of all seeds, in order.

    Args:
      page: is told which seeds are trained, and how far they are.
      folder: of this point of the grid.
      made_of: what a record depends on beside the settings (data, encoder, dtype). A finished seed
        whose record says otherwise raises ConfigError.
    """
    config = session.config
    numbers = _numbers(config)
    found = {number: run_folder.finished(folder, number, made_of) for number in numbers}
    pending = [number for number in numbers if found[number] is None]
    page.seeds_done(len(numbers) - len(pending))

    together = choices.seeds_together(config, session.encoder, session.mesh)
    while pending:
        group = pending[:together]
        finished = [found[number] for number in numbers if found[number] is not None]
        page.trains(prepared, point, finished, group)
        try:
            trained = _train(session, page, prepared, start, point, folder, group, made_of)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            if len(group) == 1:
                raise config_lib.ConfigError(_too_large(config)) from error
            together = len(group) // 2
            logging.warning(
                "%d seeds in one program do not fit into the device's memory; %d at a time now",
                len(group), together,
            )  # fmt: skip
            continue
        found |= dict(zip(group, trained))
        pending = pending[len(group) :]
        page.seeds_done(len(group))
        staging.push(session.workdir)

    done = [found[number] for number in numbers]
    page.point_done(done)
    return done


def _too_large(config):
    return (
        f"{config.micro_batch_size} rows at a time do not fit into the device's memory; raise"
        f" run.accumulation={config.run.accumulation}, or set run.remat='full' (docs/finetuning.md)"
    )


def predictions(
    session: choices.Session,
    programs: tuning_step.Programs,
    prepared: datasets.PreparedTask,
    part: datasets.PreparedSplit,
    params: dict,
) -> list:
    """Per seed the predictions for the examples of a split, from `datasets.decode_outputs`."""
    config = session.config
    outputs = loop.predict(
        programs,
        params,
        part.rows,
        prepared.buckets,
        config.micro_batch_size,
        session.encoder.vocabulary.pad_id,
    )
    return [datasets.decode_outputs(prepared, part, one, config.span) for one in outputs]


def _train(session, page, prepared, start, point, folder, seeds, made_of) -> list[dict]:
    """Trains some seeds in one program; writes and returns their records."""
    begun = time.perf_counter()
    setup = choices.setup(session.config, session.encoder, prepared, len(seeds))
    programs = tuning_step.programs(setup, session.mesh)
    keys_Z = tuning_step.keys(seeds)
    if start.trunk is None:
        state = programs.begin_fresh(keys_Z)
    else:
        state = programs.begin(start.trunk, keys_Z)

    with service_runs.followed(session, prepared, point, folder, seeds) as told:

        def report(step, steps, latest):
            _log_evaluations(prepared, point, seeds, step, steps, latest)
            page.reported(prepared, point, seeds, step, steps, latest)
            told(step, latest)

        tuned = loop.train(
            programs,
            state,
            keys_Z,
            seeds,
            prepared.train.rows,
            plan=_plan(session.config, prepared, point),
            pad_id=setup.pad_id,
            score=functools.partial(_score_dev, session, programs, prepared, len(seeds)),
            better=functools.partial(_is_better, prepared),
            report=report,
        )

    outcomes = _write_outcomes(session, programs, prepared, folder, seeds, tuned)
    cost = {"devices": session.mesh.devices.size}
    cost |= _cost_per_seed(tuned, time.perf_counter() - begun, len(seeds))
    records = [made_of | {"seed": seed} | outcome | cost for seed, outcome in zip(seeds, outcomes)]

    # Records come last: a seed that is interrupted before has none and is trained again.
    _save_weights(session, prepared, point, folder, tuned, records)
    for record in records:
        run_folder.finish(folder, record)
    return records


def _score_dev(session, programs, prepared, seeds, params) -> list[dict]:
    """The scores of each of so many seeds on all dev sets."""
    found, thresholds = _predict(session, programs, prepared, params, prepared.dev)
    return [
        {
            split: _scores(prepared, part, found[split][place], thresholds[place])
            for split, part in prepared.dev.items()
        }
        for place in range(seeds)
    ]


def _is_better(prepared, left, right) -> bool:
    """Whether the first scores are better than the second, by the main metric on the first dev."""
    main, split = prepared.task.main, prepared.first_dev
    return scores.better(main, left[split][main], right[split][main])


def _log_evaluations(prepared, point, seeds, step, steps, latest):
    """Logs a line for the newest evaluation of each seed."""
    task, split = prepared.task, prepared.first_dev
    for seed, one in zip(seeds, latest):
        logging.info(
            "%s %s, seed %d: step %d of %d, loss %.4f, %s %s",
            task.name, point.name, seed, step, steps, one.loss, task.main,
            results_table.shown(task.main, one.scores[split][task.main]),
        )  # fmt: skip


def _write_outcomes(session, programs, prepared, folder, seeds, tuned) -> list[dict]:
    """Writes the predictions of each seed for all dev and test sets; returns their outcomes."""
    parts = dict(prepared.dev) | dict(prepared.test)
    found, thresholds = _predict(session, programs, prepared, tuned.params, parts)
    outcomes = []
    for place, seed in enumerate(seeds):
        own = {split: of_seeds[place] for split, of_seeds in found.items()}
        where = run_folder.seed_folder(folder, seed)
        run_folder.write_predictions(where, prepared, parts, own, thresholds[place])
        outcomes.append(_outcome(prepared, tuned, place, own, thresholds[place]))
    return outcomes


def _cost_per_seed(tuned, seconds, seeds):
    """What each of the seeds cost that were trained together in so many seconds."""
    return {
        "seconds": tuned.seconds / seeds,
        "tokens": tuned.tokens / seeds,
        "places": tuned.places / seeds,
        "compile_seconds": tuned.compile_seconds / seeds,
        "minutes": seconds / 60 / seeds,
    }


def _plan(config, prepared, point) -> loop.TuningPlan:
    return loop.TuningPlan(
        peak=point.learning_rate,
        epochs=point.epochs,
        batch_size=config.recipe.batch_size,
        warmup_share=config.recipe.warmup_share,
        buckets=prepared.buckets,
        shared_seed=config.seed,
        evaluate_times=config.evaluation.times,
        keep=config.evaluation.keep,
    )


def _predict(session, programs, prepared, params, parts) -> tuple[dict[str, list], list]:
    """({split: predictions per seed}, a null threshold per seed).

    The thresholds are found on the first dev split and are used on all splits.
    """
    found = {
        split: predictions(session, programs, prepared, part, params)
        for split, part in parts.items()
    }
    first = prepared.first_dev
    thresholds = [
        datasets.best_threshold(prepared, prepared.dev[first], one) for one in found[first]
    ]
    return found, thresholds


def _outcome(prepared, tuned, place, predictions, threshold) -> dict[str, Any]:
    """The part of a seed's record that says how well it did; `place`: of the seed in `tuned`."""
    evaluations = tuned.evaluations[place]
    first = prepared.first_dev
    return {
        "scores": {
            split: _scores(prepared, part, predictions[split], threshold)
            for split, part in prepared.scored.items()
        },
        "by_label": {
            split: _by_label(prepared, part, predictions[split], threshold)
            for split, part in prepared.scored.items()
        },
        "curve": [[one.step, one.loss, one.scores[first]] for one in evaluations],
        "chosen_step": evaluations[tuned.chosen[place]].step,
        "warnings": _warnings(prepared, predictions[first], threshold, tuned, place),
        "threshold": threshold,
    }


def _scores(prepared, part, predictions, threshold) -> dict[str, float]:
    decided = datasets.decide(prepared, predictions, threshold)
    ranked = datasets.ranked(prepared, part, predictions)
    return scores.compute(prepared.task.metrics, decided, part.targets, ranked)


def _by_label(prepared, part, predictions, threshold) -> dict[str, dict[str, float]]:
    task, decided = prepared.task, datasets.decide(prepared, predictions, threshold)
    found = scores.by_label(task.kind, task.metrics, decided, part.targets, task.labels)
    return {label: score._asdict() for label, score in found.items()}


def _warnings(prepared, predictions, threshold, tuned, place) -> list[str]:
    part = prepared.dev[prepared.first_dev]
    task, decided = prepared.task, datasets.decide(prepared, predictions, threshold)
    ranked = datasets.ranked(prepared, part, predictions)
    warnings = statistics.degenerate(
        task.kind, task.main, decided, part.targets, task.labels, ranked
    )
    if tuned.skipped[place]:
        warnings.append(f"{tuned.skipped[place]} steps were not finite and not applied")
    return warnings


def _save_weights(
    session: choices.Session,
    prepared: datasets.PreparedTask,
    point: choices.GridPoint,
    folder: str,
    tuned: loop.TrainedSeeds,
    records: Sequence[Mapping[str, Any]],
) -> None:
    """Saves what run.save asks for: the best seed on dev so far, every seed too, or none."""
    config, main = session.config, prepared.task.main
    save = config.run.save
    if save == "none":
        return

    def one(place):
        record = records[place]
        about = {
            "task": prepared.task.name,
            "kind": prepared.task.kind,
            "labels": list(prepared.task.labels),
            "scale": list(prepared.scale),
            "head": dataclasses.asdict(choices.setup(config, session.encoder, prepared, 1).head),
            "settings": summary.settings(session, prepared, point),
            "encoder": dict(session.encoder.about),
            "seed": record["seed"],
            "main": main,
            "score": record["scores"][prepared.first_dev][main],
            "config": config_lib.to_tree(config),
            "vocabulary": session.encoder.vocabulary.sha256,
        }
        return jax.tree.map(lambda leaf: leaf[place], tuned.params), about

    for place in range(len(records)) if save == "all" else ():
        where = run_folder.seed_folder(folder, records[place]["seed"])
        kept_weights.save_weights(os.path.join(where, "weights"), *one(place))

    best = one(summary.best_seed(prepared, records))
    finished = [record["seed"] for record in run_folder.reported(folder)]
    kept_weights.save_if_better(os.path.join(folder, "weights"), *best, finished)
