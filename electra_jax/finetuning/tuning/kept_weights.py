# SPDX-License-Identifier: Apache-2.0
"""The tuned weights that a fine-tuning keeps: saved by its seeds, read by other tasks and exports.

    TASK/weights/NUMBER            of the best seed on dev
    TASK/POINT/weights/NUMBER      the same of each point, if there is a grid
    .../seed_N/weights/NUMBER      of every seed, with run.save='all'

`run_folder.py` has the rest of these folders.
"""

import glob
import os
from collections.abc import Collection, Mapping
from typing import Any

from absl import logging
from jax.sharding import Mesh

from electra_jax import config as config_lib
from electra_jax.core import sharding, trees
from electra_jax.finetuning.results import scores, statistics
from electra_jax.finetuning.tuning import rates, run_folder
from electra_jax.weights import checkpoint, checkpoint_series
from electra_jax.workdir import metadata


def save_weights(where: str, params: dict, about: Mapping[str, Any]) -> None:
    """Saves weights into a folder that keeps only the newest ones.

    `about` holds task, seed, main, score, vocabulary, and what `export.open` reads beside them.
    """
    found = metadata.steps(where)
    with checkpoint_series.Checkpoints(where, keep_last=1) as saved:
        saved.save(found[-1] + 1 if found else 1, params, dict(about))


def save_if_better(
    where: str, params: dict, about: Mapping[str, Any], finished: Collection[int]
) -> None:
    """Saves weights if they score better on dev than those that are there.

    Args:
      finished: the numbers of the seeds that are reported and were finished before. Weights of any
        other seed are not compared with: they give way.
    """
    found = metadata.steps(where)
    if found:
        path = os.path.join(where, str(found[-1]))
        try:
            before = metadata.read(path)
        except metadata.CheckpointError as error:
            logging.error("%s; the weights of seed %d take its place", error, about["seed"])
        else:
            better = scores.better(about["main"], about["score"], before["score"])
            if before["seed"] in finished and not better:
                return

    save_weights(where, params, about)


def load_weights(
    folder: str, vocabulary: str, mesh: Mesh, abstract: dict
) -> tuple[dict, Mapping[str, Any]]:
    """The best tuned weights in the folder of a task: the parameters that `abstract` names.

    Args:
      vocabulary: the hash of the vocabulary that they must have been tuned with.

    Returns (parameters, the `about` that they were saved with). Raises ConfigError if there are no
    weights, or if they were tuned with another vocabulary.
    """
    path, about = best_weights(folder)
    if about["vocabulary"] != vocabulary:
        raise config_lib.ConfigError(f"{path} was tuned with another vocabulary than this encoder")
    everywhere = sharding.replicated(mesh)
    return restore(path, trees.shapes_at(abstract, everywhere)), about


def best_weights(folder: str) -> tuple[str, Mapping[str, Any]]:
    """(checkpoint, its `about`) of the weights that are best on dev in a task's folder.

    These are the weights of the best seed or, if there is a grid, of the best seed at the point
    with the best median, which the results report. Seeds that the last command with this task has
    not reported do not count. The folder of a seed has one checkpoint.

    Raises ConfigError if no weights were kept, or not those of the best seed.
    """
    points = [folder, *_points(folder)]
    kept = {point: weights for point in points if (weights := _newest(point)) is not None}
    if not kept:
        raise config_lib.ConfigError(
            f"no tuned weights in {folder}; fine-tune that task first, with run.save='best'"
        )

    _, about = next(iter(kept.values()))
    main, records = about["main"], {point: run_folder.reported(point) for point in points}
    values = {point: _dev_scores(main, found) for point, found in records.items() if found}
    if not values:  # the folder of a seed, or no seed is finished
        return _best(main, kept.values(), lambda weights: weights[1]["score"])

    # The best point, and at that point the best seed.
    point = _best(main, values, lambda one: statistics.summarise(main, values[one]).median)
    score, record = _best(main, zip(values[point], records[point]), lambda pair: pair[0])
    numbers, about = run_folder.reported_seeds(point), kept.get(point, ("", None))[1]
    left_out = about is not None and numbers is not None and about["seed"] not in numbers
    if about is not None and not left_out and not scores.better(main, score, about["score"]):
        return kept[point]

    where = run_folder.seed_folder(point, record["seed"])
    if (own := _newest(where)) is not None:  # with run.save='all'
        return own

    remedy = ";"
    if left_out:
        remedy = (
            f"; those of seed {about['seed']} were, which the results leave out: give"
            f" --config.seeds={about['seed'] - numbers.start + 1}, or"
        )
    raise config_lib.ConfigError(
        f"{where} is the best seed on dev, and its weights were not kept{remedy} delete that"
        " folder and run the same finetune command again with run.save='best', which tunes it anew"
    )


def _newest(folder):
    """(checkpoint, its `about`) of the weights in the folder of a task, point or seed, or None."""
    for number in metadata.steps(os.path.join(folder, "weights"))[-1:]:
        path = os.path.join(folder, "weights", str(number))
        return path, _undamaged(path, metadata.read)
    return None


def _points(folder):
    """The folders of a grid's points, in the order in which they are tuned."""
    found = glob.glob(f"{glob.escape(folder)}/rate_*")
    known = run_folder.settings(folder)
    grid = known[1]["config"]["grid"] if known else {"learning_rates": (), "epochs": ()}
    names = [f"rate_{rates.name(rate)}" for rate in grid["learning_rates"]]
    epochs = [f"{number}" for number in grid["epochs"]]

    def place(path):
        rate, _, number = os.path.basename(path).partition("_epochs_")
        return (
            names.index(rate) if rate in names else len(names),
            epochs.index(number) if number in epochs else len(epochs),
        )

    return sorted(sorted(found), key=place)


def _dev_scores(main, found):
    """The main metric of each record on the first dev set, which stands first."""
    return [next(iter(record["scores"].values()))[main] for record in found]


def _best(main, candidates, score):
    """The candidate whose score is best by the main metric; the first of equals."""
    first, *others = candidates
    for other in others:
        if scores.better(main, score(other), score(first)):
            first = other
    return first


def restore(path: str, abstract: dict) -> dict:
    """The weights of a checkpoint that `best_weights` has found.

    Raises CheckpointError, with the remedy, if they are damaged. Only the best seed's weights are
    kept, so there is no older checkpoint to fall back on.
    """
    return _undamaged(path, lambda path: checkpoint.restore(path, abstract).tree)


def _undamaged(path, read):
    """read(path); a CheckpointError also says what to do."""
    try:
        return read(path)
    except metadata.CheckpointError as error:
        task = os.path.dirname(os.path.dirname(path))
        raise metadata.CheckpointError(
            f"{error}; move {task} away and run the same finetune command again: it tunes that part"
            " anew"
        ) from error
