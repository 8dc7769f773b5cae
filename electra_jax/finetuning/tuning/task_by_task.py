# SPDX-License-Identifier: Apache-2.0
"""All fine-tunings of one command, task after task.

    read a task  ->  for each point of the grid: all seeds (`seeds.py`)
                 ->  the point that is best on dev  ->  what the task came to (`summary.py`)
    all tasks    ->  results.json, results.md, glue.zip (`run_folder.py`), which keep what earlier
                     commands with other tasks have written there
    meanwhile    ->  results.html, which follows all of it (`live_page.py`)

The same command started again trains only the seeds that are not finished; finished ones keep their
numbers.
"""

import contextlib
import os
import time
from collections.abc import Iterator

import jax
from absl import logging

from electra_jax import config as config_lib
from electra_jax.finetuning import config as finetuning_config
from electra_jax.finetuning.results import run_results, shown_results
from electra_jax.finetuning.tasks import reading
from electra_jax.finetuning.tuning import (
    choices,
    datasets,
    encoders,
    kept_weights,
    live_page,
    run_folder,
    seeds,
    summary,
    tuning_step,
)
from electra_jax.host import (
    cluster,
    compile_cache,
    lock,
    logs,
    processes,
    safe_files,
    staging,
)
from electra_jax.report import services


def fine_tune(
    config, workdir: str | os.PathLike, control: str | os.PathLike | None = None
) -> shown_results.ShownResults:
    """Fine-tunes from a program or a notebook; see `electra_jax.fine_tune`."""
    if not isinstance(config, finetuning_config.Config):
        config = finetuning_config.parse(config)
    logs.show()
    staging.check(workdir, "workdir", config_lib.ConfigError)
    with staging.open_workdir(workdir, processes.is_first()) as here:
        found = run(config, here, control if control is None else os.fspath(control))
    return shown_results.of(found)


def run(
    config: finetuning_config.Config, workdir: str, control: str | None = None
) -> run_results.Results:
    """Fine-tunes what is not finished yet; writes all results and returns them.

    Those of other tasks that earlier commands have tuned in the same folder are among them.

    Args:
      control: another fine-tuning to compare with, by its name in the same workdir or its folder.

    Raises ConfigError, CheckpointError or ValueError, each one line with the remedy.
    """
    begun = time.perf_counter()
    config = choices.with_whole_path(config)
    cluster.check_chips_are_free()
    if jax.process_count() > 1:
        raise config_lib.ConfigError(
            "fine-tuning runs in one process; start it on one host, whose devices it all uses"
        )

    services.check_packages(config.logging.writers)
    for line in choices.unread(config):
        logging.warning("%s", line)
    names, mesh = choices.tasks_in_order(config), choices.mesh(config)
    folder = run_folder.folder_of(config, workdir)
    safe_files.check_path(folder, "folder", config_lib.ConfigError)
    compared = None if control is None else run_folder.control(folder, control, names)
    encoder = encoders.read(config, workdir, mesh)

    with contextlib.ExitStack() as stack:
        what = f"folder {staging.place(folder)}"
        stack.enter_context(lock.hold(os.path.join(folder, staging.LOCK), what))
        stack.enter_context(staging.locked(workdir, folder, what))
        stack.enter_context(logs.file(os.path.join(folder, "log.txt")))
        compile_cache.keep()
        session = choices.Session(config, workdir, folder, mesh, encoder, compared)
        run_folder.check_settings(folder, config, encoder.identity, encoder.step)
        _check_needed(session, names)

        # Results are written after every task, so an interrupted command leaves what it has.
        earlier, best = run_folder.earlier(folder), {}
        found = {task.task: task for task in earlier}  # each stays until it is done again
        page = stack.enter_context(_followed(session, names, earlier, begun))
        for name in names[1:]:  # now, so that a missing file does not end the command hours later
            reading.read(datasets.task_named(config, name), config.data.dir, config.data.dev_share)

        for name in names:
            result, best[name] = _task(session, page, name)
            if result is not None:
                found[name] = result
            whole = summary.results(session, list(found.values()), page.minutes)
            run_folder.write_results(folder, whole)
            page.task_done(result)
            staging.push(workdir)

        for line in run_folder.write_glue(folder, best):
            logging.info("glue.zip: %s", line)
    return whole


def _check_needed(session: choices.Session, names: list[str]) -> None:
    """Raises ConfigError if a task needs tuned weights that neither exist nor are tuned before it.

    Otherwise that would be known only after the tasks before it were trained.
    """
    for name in names:
        model = datasets.task_named(session.config, name).model_of
        other = model or session.config.starts.get(name)
        if other is not None and other not in names:
            own = os.path.join(session.folder, other)
            try:
                kept_weights.best_weights(own if model else _tuned_folder(session, other))
            except config_lib.ConfigError as error:
                why = f"is answered by {other}" if model else f"starts from {other!r}"
                raise config_lib.ConfigError(
                    f"{name} {why}, which is none of the tasks of this command: {error}"
                ) from error


def _tuned_folder(session: choices.Session, other: str) -> str:
    """The folder of another task of this fine-tuning or, if it has none, the folder `other`."""
    known = os.path.join(session.folder, other)
    return known if os.path.isdir(known) else other


@contextlib.contextmanager
def _followed(
    session: choices.Session,
    names: list[str],
    earlier: list[run_results.TaskResult],
    begun: float,
) -> Iterator[live_page.LivePage]:
    """A page that follows the tasks; if an error ends them, it says so and waits for no news."""
    page = live_page.LivePage(session, names, earlier, begun)
    try:
        yield page
    except KeyboardInterrupt:
        logging.info("stopped (%s); seeds that are finished are kept, others begin again", page.now)
        page.ended("interrupted; the same command continues")
        raise
    except Exception as error:
        page.ended(" ".join(f"{error}".split()) or type(error).__name__)
        raise
    page.ended()


def _task(
    session: choices.Session, page: live_page.LivePage, name: str
) -> tuple[run_results.TaskResult | None, str]:
    """Trains all seeds of a task at all points of the grid.

    Returns (the task's result, the folder of the seed that is best on dev at the chosen point).
    The result is None for a task that has no training data and is answered by another task's model.
    """
    config, encoder = session.config, session.encoder
    page.reads(name)
    task = datasets.task_named(config, name)
    prepared = datasets.prepare(
        config, task, encoder.vocabulary, encoder.max_tokens, encoder.pretrained_tokens
    )
    for line in prepared.report.lines():
        logging.info("%s", line)
    if task.model_of:
        run_folder.write_settings(session.folder, config, encoder.identity, encoder.step, name)
        return None, _answer_by(session, prepared, task.model_of)

    start = _start(session, name)
    made_of = {
        "data": prepared.fingerprint,
        "encoder": start.identity,
        "dtype": encoder.networks.dtype,
    }
    grid = choices.points(config, encoder, task.epochs)
    folders = {
        point: os.path.join(session.folder, name, *([point.name] if len(grid) > 1 else []))
        for point in grid
    }
    for at in folders.values():
        seeds.check_finished(session, at, made_of)
    run_folder.write_settings(session.folder, config, encoder.identity, encoder.step, name)
    records_at = {
        point: seeds.train_missing(session, page, prepared, start, point, at, made_of)
        for point, at in folders.items()
    }

    chosen = summary.best_point(prepared, records_at)
    result = summary.task_result(session, prepared, records_at, chosen, start.note)
    best = records_at[chosen][summary.best_seed(prepared, records_at[chosen])]
    return result, run_folder.seed_folder(folders[chosen], best["seed"])


def _start(session: choices.Session, name: str) -> encoders.Start:
    """The pre-trained encoder, or the one that another task has tuned (encoder.start_from)."""
    config, encoder = session.config, session.encoder
    other = config.starts.get(name)
    if other is None:
        return encoders.Start(encoder.trunk, encoder.identity, "")

    where = _tuned_folder(session, other)
    shapes = jax.eval_shape(lambda: tuning_step.fresh_trunk(encoder.networks, jax.random.key(0)))
    trunk, about = kept_weights.load_weights(where, encoder.vocabulary.sha256, session.mesh, shapes)
    note = f"{name} starts from the encoder tuned on {about['task']} (seed {about['seed']})"
    logging.info("%s", note)
    return encoders.Start(trunk, encoders.identity_of(trunk), note)


def _answer_by(session: choices.Session, prepared: datasets.PreparedTask, other: str) -> str:
    """Predicts a task's test splits with the model of another task.

    Returns the folder of the predictions.
    """
    made = choices.setup(session.config, session.encoder, prepared, 1)
    programs = tuning_step.programs(made, session.mesh)
    shapes = jax.eval_shape(lambda: programs.begin_fresh(tuning_step.keys([0]))).params
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), shapes)
    where, sha256 = os.path.join(session.folder, other), session.encoder.vocabulary.sha256
    tuned, about = kept_weights.load_weights(where, sha256, session.mesh, shapes)

    params = jax.tree.map(lambda leaf: leaf[None], tuned)
    predictions = {
        split: seeds.predictions(session, programs, prepared, part, params)[0]
        for split, part in prepared.test.items()
    }
    logging.info(
        "%s is answered by the model of %s (seed %d)", prepared.task.name, other, about["seed"]
    )
    where = run_folder.seed_folder(os.path.join(session.folder, prepared.task.name), about["seed"])
    run_folder.write_predictions(where, prepared, prepared.test, predictions, None)
    return where
