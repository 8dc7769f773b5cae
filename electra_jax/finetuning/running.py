# SPDX-License-Identifier: Apache-2.0
"""All fine-tunings of one command: every side effect, no maths.

    for each task    read it; for each point of the grid, for the seeds that are not finished yet:
    for some seeds   train, look at dev, predict, keep

    WORKDIR/finetune/NAME/settings.json                 what made the rest
                         /TASK/seed_0/seed.json         scores and curve of a finished seed
                                     /dev.jsonl         its predictions, a line an example
                         /TASK/weights/                 tuned weights of the best seed on dev
                         /TASK/rate_3e-04_epochs_3/...  the same of each point of a grid
                         /results.json, results.md, log.txt, glue.zip

A seed is finished when its seed.json is there, which is written last and whole. The same command
trains what is not finished and nothing else; what is there already keeps its numbers.
"""

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from absl import logging
from jax.sharding import Mesh

from electra_jax import checkpoint, compilations, drawing, lock, logs, optimizer, sharding
from electra_jax import config as config_lib
from electra_jax.finetuning import (
    config as finetuning_config,
)
from electra_jax.finetuning import (
    datasets,
    encoders,
    rates,
    results,
    results_page,
    scores,
    statistics,
    step,
    submission,
    tuning,
)
from electra_jax.model import task_heads

SIDE_BY_SIDE = 50_000_000  # parameters; larger encoders fill an accelerator alone


@dataclasses.dataclass(frozen=True)
class Point:
    """A point of the grid."""

    learning_rate: float
    epochs: int

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"rate_{self.learning_rate:.3g}_epochs_{self.epochs}"


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


def run(config: finetuning_config.Config, workdir: str) -> results.Results:
    """Fine-tunes what is not finished yet; returns and writes everything.

    Raises ConfigError, CheckpointError, ValueError: one line each, with the remedy.
    """
    begun = time.perf_counter()
    if jax.process_count() > 1:
        raise config_lib.ConfigError(
            "fine-tuning runs in one process; start it on one host, whose devices it all uses"
        )
    names, mesh = in_order(config), mesh_of(config)
    encoder = encoders.open_workdir(config, workdir, mesh)
    folder = folder_of(config, workdir)
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            lock.hold(os.path.join(folder, "run.lock"), f"folder {folder}", config_lib.ConfigError)
        )
        stack.enter_context(logs.file(os.path.join(folder, "log.txt")))
        compilations.keep()
        session = Session(config, folder, mesh, encoder)
        _continue_or_begin(session)
        found, minutes = [], 0.0
        for name in names:
            result = _task(session, name)
            if result is not None:
                found.append(result)
            minutes = (time.perf_counter() - begun) / 60
            whole = _results(session, found, minutes)
            _write(session, whole)
    return whole


def mesh_of(config: finetuning_config.Config) -> Mesh:
    """All devices that are asked for, along `data`. Raises ConfigError."""
    devices = jax.devices()
    count = config.run.devices if config.run.devices > 0 else len(devices)
    if count > len(devices):
        raise config_lib.ConfigError(f"run.devices={count}, but there are {len(devices)}")
    if config.recipe.batch_size % count:
        raise config_lib.ConfigError(
            f"recipe.batch_size={config.recipe.batch_size} is not divisible by {count} devices;"
            " set run.devices"
        )
    return sharding.make_mesh(count, devices=devices[:count])


def folder_of(config: finetuning_config.Config, workdir: str) -> str:
    """Where everything goes."""
    return os.path.join(workdir, "finetune", config.name)


def in_order(config: finetuning_config.Config) -> list[str]:
    """The tasks as given, but each behind the one that it starts from or whose model answers it."""
    names, ordered = list(config.task_names), []
    models = {n: datasets.task_named(config, n).model_of for n in names}

    def add(name, waiting=()):
        if name in waiting:
            raise config_lib.ConfigError(
                f"encoder.start_from goes in a circle: {' -> '.join((*waiting, name))}"
            )
        for before in (config.starts.get(name), models[name]):
            if before in names:
                add(before, (*waiting, name))
        if name not in ordered:
            ordered.append(name)

    for name in names:
        add(name)
    return ordered


def points(config: finetuning_config.Config, encoder: encoders.Encoder, epochs: int) -> list[Point]:
    """The grid, or the one point of the recipe. `epochs`: the task's published ones."""
    recipe = config.recipe
    learning_rates = config.grid.learning_rates or (recipe.learning_rate or _rate(config, encoder),)
    epochs_list = config.grid.epochs or (recipe.epochs or epochs,)
    return [Point(float(rate), epochs) for rate in learning_rates for epochs in epochs_list]


def layer_decay(config: finetuning_config.Config, encoder: encoders.Encoder) -> float:
    """As set, or as published for the size."""
    shape = encoder.networks.discriminator
    return config.recipe.layer_decay or rates.published(shape.layers, shape.width).layer_decay


def setup(
    config: finetuning_config.Config,
    encoder: encoders.Encoder,
    prepared: datasets.Prepared,
    seeds: int,
) -> step.Setup:
    """What the programs of a task depend on."""
    recipe, shape = config.recipe, encoder.networks.discriminator
    kind = prepared.task.kind
    head = {"tagging": "token", "span": f"span_{config.span.head}"}.get(kind, recipe.head)
    return step.Setup(
        networks=encoder.networks,
        head=task_heads.HeadConfig(
            kind=head,
            width=shape.width,
            outputs=max(1, len(prepared.task.labels)),
            dropout=recipe.head_dropout,
            dropout_bits=shape.dropout_bits,
            hidden=config.span.hidden,
            impossible=kind == "span" and prepared.task.impossible,
            beam=min(config.span.beam, prepared.buckets[0]),
        ),
        kind=kind,
        pad_id=encoder.vocabulary.pad_id,
        optimizer=recipe.optimizer,
        adam=optimizer.AdamConfig(
            recipe.beta1, recipe.beta2, recipe.epsilon, recipe.weight_decay, recipe.clip_norm
        ),
        layer_decay=layer_decay(config, encoder),
        decay_rule=recipe.decay_rule,
        loss=recipe.loss,
        impossible_weight=config.span.impossible_weight,
        seeds=seeds,
    )


def side_by_side(config: finetuning_config.Config, encoder: encoders.Encoder, mesh: Mesh) -> bool:
    """Whether seeds train in one program: on accelerators, where a small one leaves them idle."""
    asked = config.run.vmapped_seeds
    if asked != "auto":
        return asked == "on"
    return mesh.devices.flat[0].platform != "cpu" and encoder.parameters <= SIDE_BY_SIDE


def _rate(config, encoder):
    """The published peak of this size."""
    shape = encoder.networks.discriminator
    found = rates.published(shape.layers, shape.width).learning_rate
    return min(found, rates.BASE.learning_rate) if config.recipe.published != "paper" else found


# One task


def _task(session: Session, name: str) -> results.TaskResult | None:
    """All seeds at all points; None for a task that another's model answers."""
    begun = time.perf_counter()
    config, encoder = session.config, session.encoder
    task = datasets.task_named(config, name)
    prepared = datasets.prepare(
        config, task, encoder.vocabulary, encoder.max_tokens, encoder.pretrained_tokens
    )
    for line in prepared.report.lines():
        logging.info("%s", line)
    if task.model_of:
        _answer_by(session, prepared, task.model_of)
        return None
    start = _start(session, name)
    made_of = {"data": prepared.fingerprint, "encoder": start.identity}
    grid, everything = points(config, encoder, task.epochs), {}
    for point in grid:
        folder = os.path.join(session.folder, name, point.name if len(grid) > 1 else "")
        everything[point] = _seeds(session, prepared, start, point, folder, made_of)
    chosen = _best_point(prepared, everything)
    records = everything[chosen]
    notes = prepared.report.lines() + ([start.words] if start.words else [])
    if len(grid) > 1:
        notes.append(_grid_note(prepared, everything, chosen))
    seconds = sum(record["seconds"] for record in records)
    tokens = sum(record["tokens"] for record in records)
    spent = sum(r["minutes"] for found in everything.values() for r in found)
    logging.info("%s: done in %.1f min", name, (time.perf_counter() - begun) / 60)
    return results.TaskResult(
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


def _seeds(session, prepared, start, point, folder, made_of) -> list[dict]:
    """Records of all seeds of one point; those that are missing are trained."""
    config = session.config
    numbers = range(config.seed, config.seed + config.seeds)
    found = {number: _finished(folder, number, made_of) for number in numbers}
    pending = [number for number in numbers if found[number] is None]
    together = len(pending) if side_by_side(config, session.encoder, session.mesh) else 1
    for first in range(0, len(pending), max(1, together)):
        group = pending[first : first + together]
        records = _train(session, prepared, start, point, folder, group, made_of)
        found |= dict(zip(group, records))
    return [found[number] for number in numbers]


def _train(session, prepared, start, point, folder, seeds, made_of) -> list[dict]:
    """Trains some seeds side by side, and writes what they came to."""
    begun = time.perf_counter()
    config, name = session.config, prepared.task.name
    made = setup(config, session.encoder, prepared, len(seeds))
    programs = step.programs(made, session.mesh)
    keys_R = step.keys(seeds)
    if start.trunk is None:
        state = programs.begin_fresh(keys_R)
    else:
        state = programs.begin(start.trunk, keys_R)
    plan = tuning.Plan(
        peak=point.learning_rate,
        epochs=point.epochs,
        batch_size=config.recipe.batch_size,
        warmup_share=config.recipe.warmup_share,
        buckets=prepared.buckets,
        shared_seed=config.seed,
        evaluations=config.evaluation.times,
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
                results.shown(main, one.scores[first_dev][main]),
            )  # fmt: skip

    tuned = tuning.train(
        programs, state, keys_R, seeds, prepared.train.rows, plan, made.pad_id, score, better,
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
        points_ = tuned.points[place]
        where = os.path.join(folder, f"seed_{seed}")
        _write_predictions(prepared, where, parts, mine, thresholds[place])
        records.append(
            made_of
            | {
                "seed": seed,
                "scores": scored,
                "curve": [[one.step, one.loss, one.scores[first_dev]] for one in points_],
                "chosen_step": points_[tuned.chosen[place]].step,
                "warnings": _warnings(prepared, mine[first_dev], thresholds[place], tuned, place),
                "threshold": thresholds[place],
                "seconds": tuned.seconds / len(seeds),
                "tokens": tuned.tokens / len(seeds),
                "compile_seconds": tuned.compile_seconds / len(seeds),
                "minutes": (time.perf_counter() - begun) / 60 / len(seeds),
            }
        )
    _save_weights(session, prepared, folder, tuned, records)
    for record in records:
        _write_json(_record_path(folder, record["seed"]), record)
    return records


def _said(session, programs, prepared, part, params) -> list:
    """What each seed says of the examples of a split."""
    config = session.config
    outputs = tuning.predict(
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


# Files


def _continue_or_begin(session: Session) -> None:
    """Compares with what made the results that are there, or says what makes them."""
    path = os.path.join(session.folder, "settings.json")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            old = json.load(file)
        changed = finetuning_config.differences(
            finetuning_config.parse(old["config"]), session.config
        )
        if old["encoder"] != session.encoder.identity:
            changed.append("the encoder's weights")
        if changed:
            raise config_lib.ConfigError(
                f"{session.folder} holds results of other settings: {'; '.join(changed)}; choose"
                " another --config.name, or delete that folder"
            )
    kept = {"config": config_lib.to_tree(session.config), "encoder": session.encoder.identity}
    _write_json(path, kept)


def _record_path(folder, seed):
    return os.path.join(folder, f"seed_{seed}", "seed.json")


def _finished(folder, seed, made_of) -> dict | None:
    path = _record_path(folder, seed)
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        record = json.load(file)
    for name, what in (("data", "files of the task"), ("encoder", "encoder that it starts from")):
        if record[name] != made_of[name]:
            raise config_lib.ConfigError(
                f"{path}: the {what} changed since; choose another --config.name, or delete"
                f" {folder}"
            )
    return record


def _write_predictions(prepared, where, parts, said, threshold):
    os.makedirs(where, exist_ok=True)
    for split, part in parts.items():
        predictions = datasets.decided(prepared, said[split], threshold)
        targets = None if part.targets is None else datasets.in_words(prepared, part.targets)
        if prepared.task.kind == "span":
            os.makedirs(os.path.join(where, split), exist_ok=True)
            submission.squad(os.path.join(where, split), part.ids, said[split], threshold)
        lanes = {}
        if prepared.task.kind in ("classification", "multi_label"):
            lanes["scores"] = said[split]
        submission.lines(
            os.path.join(where, f"{split}.jsonl"),
            part.ids,
            datasets.in_words(prepared, predictions),
            targets,
            **lanes,
        )


def _save_weights(session, prepared, folder, tuned, records):
    """Weights of the best seed so far on dev, or of every seed."""
    if session.config.run.save == "none":
        return
    main, first_dev = prepared.task.main, prepared.first_dev
    values = [record["scores"][first_dev][main] for record in records]
    if session.config.run.save == "all":
        for place, record in enumerate(records):
            where = os.path.join(folder, f"seed_{record['seed']}", "weights")
            _save(session, prepared, where, tuned, place, record["seed"], values[place])
    best = 0
    for place, value in enumerate(values):
        if scores.better(main, value, values[best]):
            best = place
    where = os.path.join(folder, "weights")
    kept = checkpoint.steps(where)
    if kept:
        before = checkpoint.metadata(os.path.join(where, str(kept[-1])))["score"]
        if not scores.better(main, values[best], before):
            return
    _save(session, prepared, where, tuned, best, records[best]["seed"], values[best])


def _save(session, prepared, where, tuned, place, seed, value):
    params = jax.tree.map(lambda leaf: leaf[place], tuned.params)
    kept = checkpoint.steps(where)
    with checkpoint.Checkpoints(where, keep_last=1) as saved:
        saved.save(
            kept[-1] + 1 if kept else 1,
            params,
            {
                "task": prepared.task.name,
                "kind": prepared.task.kind,
                "labels": list(prepared.task.labels),
                "seed": seed,
                "score": value,
                "config": config_lib.to_tree(session.config),
                "vocabulary": session.encoder.vocabulary.sha256,
            },
        )


def load_weights(session: Session, where: str, abstract: dict) -> checkpoint.Restored:
    """Tuned weights of a folder, or the part of them that `abstract` names. Raises ConfigError."""
    kept = checkpoint.steps(where)
    if not kept:
        raise config_lib.ConfigError(
            f"no tuned weights in {where}; fine-tune that task first, with run.save='best'"
        )
    path = os.path.join(where, str(kept[-1]))
    if checkpoint.metadata(path)["vocabulary"] != session.encoder.vocabulary.sha256:
        raise config_lib.ConfigError(f"{path} was tuned with another vocabulary")
    everywhere = sharding.replicated(session.mesh)
    placed = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=everywhere), abstract
    )
    return checkpoint.restore(path, placed)


def _start(session: Session, name: str) -> Start:
    """The encoder of the workdir, or the one that another task tuned."""
    config, encoder = session.config, session.encoder
    other = config.starts.get(name)
    if other is None:
        return Start(encoder.trunk, encoder.identity, "")
    known = os.path.join(session.folder, other)
    where = os.path.join(known if os.path.isdir(known) else other, "weights")
    shapes = jax.eval_shape(lambda: step.fresh_trunk(encoder.networks, jax.random.key(0)))
    restored = load_weights(session, where, shapes)
    about = restored.metadata
    words = f"{name} starts from the encoder tuned on {about['task']} (seed {about['seed']})"
    logging.info("%s", words)
    return Start(restored.tree, encoders.identity_of(restored.tree), words)


def _answer_by(session: Session, prepared: datasets.Prepared, other: str) -> None:
    """Predicts the test sets of a task by the model of another one."""
    made = setup(session.config, session.encoder, prepared, 1)
    programs = step.programs(made, session.mesh)
    shapes = jax.eval_shape(lambda: programs.begin_fresh(step.keys([0]))).params
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), shapes)
    restored = load_weights(session, os.path.join(session.folder, other, "weights"), shapes)
    params = jax.tree.map(lambda leaf: leaf[None], restored.tree)
    said = {
        split: _said(session, programs, prepared, part, params)[0]
        for split, part in prepared.test.items()
    }
    where = os.path.join(session.folder, prepared.task.name, "seed_of_" + other)
    _write_predictions(prepared, where, prepared.test, said, None)


# What it came to


def _best_point(prepared, everything: Mapping[Point, Sequence[dict]]) -> Point:
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


def _grid_note(prepared, everything, chosen):
    main = prepared.task.main
    tried = ", ".join(
        f"{point.name} {results.shown(main, _median(prepared, records))}"
        for point, records in everything.items()
    )
    return f"chosen on dev, which flatters: {chosen.name} of {tried} (medians of {main})"


def _seed_result(prepared, record) -> results.Seed:
    return results.Seed(
        seed=record["seed"],
        scores=record["scores"],
        curve=[results.Point(*point) for point in record["curve"]],
        chosen_step=record["chosen_step"],
        warnings=record["warnings"],
    )


def _settings_of(session, prepared, point) -> dict[str, Any]:
    config, recipe = session.config, session.config.recipe
    return {
        "learning_rate": point.learning_rate,
        "epochs": point.epochs,
        "layer_decay": layer_decay(config, session.encoder),
        "decay_rule": recipe.decay_rule,
        "loss": recipe.loss,
        "batch_size": recipe.batch_size,
        "sequence_length": prepared.length,
        "lengths": list(prepared.buckets),
        "head": setup(config, session.encoder, prepared, 1).head.kind,
    }


def _results(session, found, minutes) -> results.Results:
    device = session.mesh.devices.flat[0]
    return results.Results(
        name=session.config.name,
        tasks=found,
        encoder=session.encoder.about,
        device=f"{session.mesh.devices.size} x {device.device_kind}",
        minutes=minutes,
        settings=config_lib.flatten(session.config),
    )


def _write(session: Session, whole: results.Results) -> None:
    results.write(session.folder, whole)
    results_page.write(os.path.join(session.folder, "results.html"), whole)
    predictions = _glue_predictions(session, whole)
    if predictions:
        for line in submission.glue(os.path.join(session.folder, "glue.zip"), predictions):
            logging.info("glue.zip: %s", line)


def _glue_predictions(session, whole) -> dict[str, list]:
    """{file of GLUE: labels of its test rows}, by the best seed of each task on dev."""
    found = {}
    for result in whole.tasks:
        best = _best_seed(result)
        for split, name in (
            ("test", result.task),
            ("test_matched", f"{result.task}_matched"),
            ("test_mismatched", f"{result.task}_mismatched"),
        ):
            path = os.path.join(_point_folder(session, result), f"seed_{best}", f"{split}.jsonl")
            if name in submission.GLUE and os.path.exists(path):
                found[name] = _predictions_of(path)
    path = os.path.join(session.folder, "ax", "seed_of_mnli", "test.jsonl")
    if os.path.exists(path):
        found["ax"] = _predictions_of(path)
    return found


def _best_seed(result):
    split, best = result.splits[0], None
    for seed in result.seeds:
        value = seed.scores[split][result.main]
        if best is None or scores.better(result.main, value, best[0]):
            best = value, seed.seed
    return best[1]


def _point_folder(session, result):
    folder = os.path.join(session.folder, result.task)
    named = Point(result.settings["learning_rate"], result.settings["epochs"]).name
    inner = os.path.join(folder, named)
    return inner if os.path.isdir(inner) else folder


def _predictions_of(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line)["prediction"] for line in file]


def _write_json(path, content):
    text = json.dumps(content, indent=1, default=np.ndarray.tolist) + "\n"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    drawing.write_whole(path, text.encode())
