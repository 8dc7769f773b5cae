# SPDX-License-Identifier: Apache-2.0
"""All fine-tunings of one command: task by task, point by point of a grid, seed by seed.

    read the task -> for the seeds that are not finished: train, look at dev, predict, keep
                  -> the best point on dev -> what it came to

`run_folder.py` says what is written where. The same command again trains what is not finished and
nothing else; what is there keeps its numbers.
"""

import contextlib
import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from absl import logging
from jax.sharding import Mesh

from electra_jax import config as config_lib
from electra_jax.finetuning import config as finetuning_config
from electra_jax.finetuning.results import results_table, run_results, scores, statistics
from electra_jax.finetuning.tasks import datasets
from electra_jax.finetuning.tuning import choices, encoders, loop, run_folder, tuning_step
from electra_jax.host import compile_cache, lock, logs, safe_files


@dataclasses.dataclass(frozen=True)
class Session:
    """What all tasks of a command share."""

    config: finetuning_config.Config
    folder: str
    mesh: Mesh
    encoder: encoders.Encoder


@dataclasses.dataclass(frozen=True)
class Start:
    """What the seeds of a task start from."""

    trunk: dict | None  # None: fresh, by seed
    identity: str
    words: str  # for people


def run(config: finetuning_config.Config, workdir: str) -> run_results.Results:
    """Fine-tunes what is not finished yet; returns and writes everything.

    Raises ConfigError, CheckpointError, ValueError: one line each, with the remedy.
    """
    begun = time.perf_counter()
    if jax.process_count() > 1:
        raise config_lib.ConfigError(
            "fine-tuning runs in one process; start it on one host, whose devices it all uses"
        )
    names, mesh = choices.tasks_in_order(config), choices.mesh(config)
    encoder = encoders.read(config, workdir, mesh)
    folder = run_folder.folder_of(config, workdir)
    safe_files.check_path(folder, "the folder of results", config_lib.ConfigError)
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            lock.hold(os.path.join(folder, "run.lock"), f"folder {folder}", config_lib.ConfigError)
        )
        stack.enter_context(logs.file(os.path.join(folder, "log.txt")))
        compile_cache.keep()
        session = Session(config, folder, mesh, encoder)
        run_folder.continue_or_begin(folder, config, encoder.identity)
        found, best = [], {}
        for name in names:
            result, best[name] = _task(session, name)
            found += [result] if result is not None else []
            whole = _results(session, found, (time.perf_counter() - begun) / 60)
            run_folder.write_results(folder, whole)
        for line in run_folder.write_glue(folder, best):
            logging.info("glue.zip: %s", line)
    return whole


# One task


def _task(session: Session, name: str) -> tuple[run_results.TaskResult | None, str]:
    """All seeds at all points; None for a task that another's model answers.

    Also the folder of the best seed on dev at the chosen point.
    """
    config, encoder = session.config, session.encoder
    task = datasets.task_named(config, name)
    prepared = datasets.prepare(
        config, task, encoder.vocabulary, encoder.max_tokens, encoder.pretrained_tokens
    )
    for line in prepared.report.lines():
        logging.info("%s", line)
    if task.model_of:
        return None, _answer_by(session, prepared, task.model_of)
    start = _start(session, name)
    made_of = {
        "data": prepared.fingerprint,
        "encoder": start.identity,
        "dtype": encoder.networks.dtype,
    }
    grid, everything = choices.points(config, encoder, task.epochs), {}
    folders = {
        point: os.path.join(session.folder, name, *([point.name] if len(grid) > 1 else []))
        for point in grid
    }
    for point, folder in folders.items():
        everything[point] = _seeds(session, prepared, start, point, folder, made_of)
    chosen = _best_point(prepared, everything)
    records = everything[chosen]
    notes = _notes(prepared) + ([start.words] if start.words else [])
    if len(grid) > 1:
        notes.append(_grid_note(prepared, everything, chosen))
    seconds = sum(record["seconds"] for record in records)
    tokens = sum(record["tokens"] for record in records)
    spent = sum(r["minutes"] for found in everything.values() for r in found)
    result = run_results.TaskResult(
        task=name,
        kind=task.kind,
        main=prepared.task.main,
        seeds=[_seed_result(prepared, record) for record in records],
        choice=config.evaluation.keep,
        examples=prepared.counts,
        baselines={
            split: scores.baseline(task.kind, prepared.task.metrics, part.targets)
            for split, part in prepared.scored.items()
        },
        minutes=spent,
        tokens_per_second=tokens / seconds if seconds else None,
        settings=_settings_of(session, prepared, chosen),
        notes=notes,
    )
    best = _best(prepared, records)
    return result, run_folder.seed_folder(folders[chosen], records[best]["seed"])


def _seeds(session, prepared, start, point, folder, made_of) -> list[dict]:
    """Records of all seeds of one point; those that are missing are trained."""
    config = session.config
    numbers = range(config.seed, config.seed + config.seeds)
    found = {number: run_folder.finished(folder, number, made_of) for number in numbers}
    pending = [number for number in numbers if found[number] is None]
    together = len(pending) if choices.train_together(config, session.encoder, session.mesh) else 1
    for first in range(0, len(pending), max(1, together)):
        group = pending[first : first + together]
        records = _train(session, prepared, start, point, folder, group, made_of)
        found |= dict(zip(group, records))
    return [found[number] for number in numbers]


def _train(session, prepared, start, point, folder, seeds, made_of) -> list[dict]:
    """Trains some seeds side by side, and writes what they came to."""
    begun = time.perf_counter()
    config, name = session.config, prepared.task.name
    made = choices.setup(config, session.encoder, prepared, len(seeds))
    programs = tuning_step.programs(made, session.mesh)
    keys_Z = tuning_step.keys(seeds)
    if start.trunk is None:
        state = programs.begin_fresh(keys_Z)
    else:
        state = programs.begin(start.trunk, keys_Z)
    plan = loop.Plan(
        peak=point.learning_rate,
        epochs=point.epochs,
        batch_size=config.recipe.batch_size,
        warmup_share=config.recipe.warmup_share,
        buckets=prepared.buckets,
        shared_seed=config.seed,
        evaluate_times=config.evaluation.times,
        keep=config.evaluation.keep,
    )
    main, first_dev = prepared.task.main, prepared.first_dev

    def judged(params, parts):
        """{split: what each seed says of it}, thresholds of the first dev split included."""
        found = {
            split: _said(session, programs, prepared, part, params) for split, part in parts.items()
        }
        thresholds = [
            datasets.threshold(prepared, prepared.dev[first_dev], one) for one in found[first_dev]
        ]
        return found, thresholds

    def score(params):
        found, thresholds = judged(params, prepared.dev)
        return [
            {
                split: _scores(prepared, part, found[split][place], thresholds[place])
                for split, part in prepared.dev.items()
            }
            for place in range(len(seeds))
        ]

    def better(left, right):
        return scores.better(main, left[first_dev][main], right[first_dev][main])

    def report(number, steps, latest):
        for seed, one in zip(seeds, latest):
            logging.info(
                "%s %s, seed %d: step %d of %d, loss %.4f, %s %s",
                name, point.name, seed, number, steps, one.loss, main,
                results_table.shown(main, one.scores[first_dev][main]),
            )  # fmt: skip

    tuned = loop.train(
        programs, state, keys_Z, seeds, prepared.train.rows, plan, made.pad_id, score, better,
        report,
    )  # fmt: skip
    parts = dict(prepared.dev) | dict(prepared.test)
    found, thresholds = judged(tuned.params, parts)
    records = []
    for place, seed in enumerate(seeds):
        mine = {split: said[place] for split, said in found.items()}
        scored = {
            split: _scores(prepared, part, mine[split], thresholds[place])
            for split, part in prepared.scored.items()
        }
        evaluations = tuned.evaluations[place]
        where = run_folder.seed_folder(folder, seed)
        run_folder.write_predictions(where, prepared, parts, mine, thresholds[place])
        records.append(
            made_of
            | {
                "seed": seed,
                "scores": scored,
                "curve": [[one.step, one.loss, one.scores[first_dev]] for one in evaluations],
                "chosen_step": evaluations[tuned.chosen[place]].step,
                "warnings": _warnings(prepared, mine[first_dev], thresholds[place], tuned, place),
                "threshold": thresholds[place],
                "seconds": tuned.seconds / len(seeds),
                "tokens": tuned.tokens / len(seeds),
                "compile_seconds": tuned.compile_seconds / len(seeds),
                "minutes": (time.perf_counter() - begun) / 60 / len(seeds),
            }
        )
    _save_weights(session, prepared, point, folder, tuned, records)
    for record in records:
        run_folder.finish(folder, record)
    return records


def _said(session, programs, prepared, part, params) -> list:
    """What each seed says of the examples of a split."""
    config = session.config
    outputs = loop.predict(
        programs,
        params,
        part.rows,
        prepared.buckets,
        config.recipe.batch_size,
        session.encoder.vocabulary.pad_id,
    )
    return [datasets.said(prepared, part, one, config.span) for one in outputs]


def _scores(prepared, part, said, threshold):
    predictions = datasets.decided(prepared, said, threshold)
    return scores.compute(prepared.task.metrics, predictions, part.targets)


def _warnings(prepared, said, threshold, tuned, place):
    part = prepared.dev[prepared.first_dev]
    predictions = datasets.decided(prepared, said, threshold)
    warnings = statistics.degenerate(
        prepared.task.kind, prepared.task.main, predictions, part.targets, prepared.task.labels
    )
    if tuned.skipped[place]:
        warnings.append(f"{tuned.skipped[place]} steps were not finite and not applied")
    return warnings


def _save_weights(session, prepared, point, folder, tuned, records):
    """Those of the best seed so far on dev; of every seed where that is asked for."""
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
            "settings": _settings_of(session, prepared, point),
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
        run_folder.save_weights(os.path.join(where, "weights"), *one(place))
    best = one(_best(prepared, records))
    run_folder.save_if_better(os.path.join(folder, "weights"), *best)


def _best(prepared, records) -> int:
    """Place of the best seed on the first dev split; of equals the first."""
    main, best = prepared.task.main, 0
    values = [record["scores"][prepared.first_dev][main] for record in records]
    for place, value in enumerate(values):
        if scores.better(main, value, values[best]):
            best = place
    return best


def _start(session: Session, name: str) -> Start:
    """The encoder of the workdir, or the one that another task tuned."""
    config, encoder = session.config, session.encoder
    other = config.starts.get(name)
    if other is None:
        return Start(encoder.trunk, encoder.identity, "")
    known = os.path.join(session.folder, other)
    where = known if os.path.isdir(known) else other
    shapes = jax.eval_shape(lambda: tuning_step.fresh_trunk(encoder.networks, jax.random.key(0)))
    trunk, about = run_folder.load_weights(where, encoder.vocabulary.sha256, session.mesh, shapes)
    words = f"{name} starts from the encoder tuned on {about['task']} (seed {about['seed']})"
    logging.info("%s", words)
    return Start(trunk, encoders.identity_of(trunk), words)


def _answer_by(session: Session, prepared: datasets.Prepared, other: str) -> str:
    """Predicts the test sets of a task by the model of another one; returns the folder."""
    made = choices.setup(session.config, session.encoder, prepared, 1)
    programs = tuning_step.programs(made, session.mesh)
    shapes = jax.eval_shape(lambda: programs.begin_fresh(tuning_step.keys([0]))).params
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), shapes)
    where, sha256 = os.path.join(session.folder, other), session.encoder.vocabulary.sha256
    tuned, about = run_folder.load_weights(where, sha256, session.mesh, shapes)
    params = jax.tree.map(lambda leaf: leaf[None], tuned)
    said = {
        split: _said(session, programs, prepared, part, params)[0]
        for split, part in prepared.test.items()
    }
    logging.info(
        "%s is answered by the model of %s (seed %d)", prepared.task.name, other, about["seed"]
    )
    where = run_folder.seed_folder(os.path.join(session.folder, prepared.task.name), about["seed"])
    run_folder.write_predictions(where, prepared, prepared.test, said, None)
    return where


# What it came to


def _best_point(
    prepared, everything: Mapping[choices.GridPoint, Sequence[dict]]
) -> choices.GridPoint:
    """The best median of the main metric on the first dev split; of equals the first."""
    best = None
    for point, records in everything.items():
        value = _median(prepared, records)
        if best is None or scores.better(prepared.task.main, value, best[0]):
            best = value, point
    return best[1]


def _median(prepared, records):
    values = [record["scores"][prepared.first_dev][prepared.task.main] for record in records]
    return statistics.summarise(prepared.task.main, values).median


def _notes(prepared):
    """What was met in reading, without the task's name and the counts that stand elsewhere."""
    name = prepared.task.name
    lines = [line.removeprefix(name).lstrip(": ") for line in prepared.report.lines()]
    return [line for line in lines if not line.endswith(" examples")]


def _grid_note(prepared, everything, chosen):
    main = prepared.task.main
    tried = ", ".join(
        f"{point.name} {results_table.shown(main, _median(prepared, records))}"
        for point, records in everything.items()
    )
    return f"chosen on dev, which flatters: {chosen.name} of {tried} (medians of {main})"


def _seed_result(prepared, record) -> run_results.SeedResult:
    return run_results.SeedResult(
        seed=record["seed"],
        scores=record["scores"],
        curve=[run_results.CurvePoint(*point) for point in record["curve"]],
        chosen_step=record["chosen_step"],
        warnings=record["warnings"],
    )


def _settings_of(session, prepared, point) -> dict[str, Any]:
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


def _results(session, found, minutes) -> run_results.Results:
    device = session.mesh.devices.flat[0]
    return run_results.Results(
        name=session.config.name,
        tasks=found,
        encoder=session.encoder.about,
        device=f"{session.mesh.devices.size} x {device.device_kind}",
        minutes=minutes,
        settings=config_lib.flatten(session.config),
    )
