# SPDX-License-Identifier: Apache-2.0
"""The curves of fine-tuning at services (logging.writers): each seed of a task is a run there.

    evaluation of some seeds  ->  train/loss, eval/METRIC of each  ->  its run at each service

A seed that was interrupted begins again, and so it does as another run at the services.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from electra_jax import config as config_lib
from electra_jax.finetuning.tuning import choices, datasets, loop, run_folder
from electra_jax.report import services

Told = Callable[[int, Sequence[loop.SeedEvaluation]], None]  # (step, evaluation per seed)


@contextlib.contextmanager
def followed(
    session: choices.Session,
    prepared: datasets.PreparedTask,
    point: choices.GridPoint,
    folder: str,
    seeds: Sequence[int],
) -> Iterator[Told]:
    """Opens a run for each of these seeds; ends them with the block, as failed on an error.

    Yields what is told of each evaluation. Raises ConfigError if one cannot be opened.
    """
    names = session.config.logging.writers
    for seed in seeds if names else ():
        os.makedirs(run_folder.seed_folder(folder, seed), exist_ok=True)

    with contextlib.ExitStack() as stack:
        senders = [
            stack.enter_context(
                services.open_senders(
                    names, _about(session, prepared, point, folder, seed), continues=False
                )
            )
            for seed in seeds
        ]

        def told(step: int, latest: Sequence[loop.SeedEvaluation]) -> None:
            for own, one in zip(senders, latest, strict=True):
                for sender in own:
                    sender.write(step, "train", {"loss": one.loss})
                    sender.write(step, "eval", metrics(one.scores, prepared.first_dev))

        yield told


def metrics(scores: Mapping[str, Mapping[str, float]], first_dev: str) -> dict[str, float]:
    """The scores of an evaluation by one name each; those of a second dev set end in its name.

    {'dev': {'f1': 0.8}, 'dev_mismatched': {'f1': 0.7}}  ->  {'f1': 0.8, 'f1/dev_mismatched': 0.7}
    """
    return {
        metric if split == first_dev else f"{metric}/{split}": value
        for split, found in scores.items()
        for metric, value in found.items()
    }


def _about(session, prepared, point, folder, seed) -> services.About:
    """What services are told of a seed: its place below the workdir is its name."""
    where = run_folder.seed_folder(folder, seed)
    workdir = os.path.abspath(session.workdir)
    below = os.path.relpath(where, os.path.join(session.workdir, "finetune"))
    settings = config_lib.flatten(session.config)
    settings |= dataclasses.asdict(point) | {"task": prepared.task.name, "seed": seed}
    return services.About(
        workdir=os.path.abspath(where),
        name=f"{os.path.basename(workdir)}/{below}",
        id="",
        config=settings,
        kept_in="seed.json",
    )
