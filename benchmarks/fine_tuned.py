# SPDX-License-Identifier: Apache-2.0
"""What a finished encoder is worth when it is fine-tuned, for comparisons of many encoders.

    chunking    CoNLL-2000, F1 of chunks on dev
    wikiann_en  named entities of WikiANN, F1 on dev
    stsb        STS-B, Spearman's correlation on dev

One seed of fine-tuning an encoder, so that the spread over encoders holds both kinds of luck. The
recipe is that of `configs/finetune_hour.py`, the same for all encoders; `hour.py` has the trials
behind its numbers. Results stay in WORKDIR/finetune/NAME, and what is finished is not tuned again.
"""

from collections.abc import Sequence

import ml_collections

import electra_jax
from electra_jax.configs import finetune_hour
from electra_jax.finetuning import config as finetuning_config
from electra_jax.finetuning.tasks import reading
from electra_jax.finetuning.tuning import datasets

RATES = {"chunking": 1e-3, "wikiann_en": 1e-3, "stsb": 5e-4}  # peaks of trained weights
# Dropout as published, and the peak of docs/experiments/fine_tuning.md: random weights of the shape
# that the hour has lose without dropout (docs/LOG.md).
RANDOM = {"dropout": 0.1, "attention_dropout": 0.1, "learning_rate": 1e-3}


def named(tasks: str, downstream: str | None) -> list[str]:
    """The tasks of --tasks, none without --downstream; all files are read once, before anything.

    Raises:
      SystemExit: a task that there is not, or files that cannot be read.
    """
    names = [name for name in tasks.split(",") if name] if downstream else []
    for name in names:
        if name not in RATES:
            raise SystemExit(f"--tasks={name} is no task; there are {', '.join(RATES)}")
        config = finetuning_config.parse(settings(downstream, name, seed=0, fresh=False))
        try:
            reading.read(datasets.task_named(config, name), downstream, config.data.dev_share)
        except ValueError as error:
            raise SystemExit(f"--downstream={downstream}, --tasks={name}: {error}") from error
    return names


def measure(
    workdir: str, downstream: str, tasks: Sequence[str], seed: int, fresh: bool = False
) -> dict[str, float]:
    """Fine-tunes a run's encoder on each task.

    Args:
      workdir: of the finished run.
      downstream: the folder of the tasks' files; `configs/finetune.py` says what it holds.
      tasks: of `named`.
      seed: of the fine-tuning.
      fresh: random weights in the shape of the encoder, with a recipe of their own.

    Returns {task: score}, F1 and accuracies in 0..1.
    """
    found = {}
    for task in tasks:
        (tuned,) = electra_jax.fine_tune(settings(downstream, task, seed, fresh), workdir).tasks
        found[task] = tuned.summary(tuned.splits[0], tuned.main).mean
    return found


def settings(downstream: str, task: str, seed: int, fresh: bool) -> ml_collections.ConfigDict:
    """The configuration of one fine-tuning."""
    tree = finetune_hour.get_config()
    tree.name, tree.tasks = f"{'fresh' if fresh else 'pretrained'}_{task}", task
    tree.seed, tree.seeds = seed, 1
    tree.data.dir = downstream
    tree.encoder.init = "fresh" if fresh else "pretrained"
    tree.recipe.learning_rate = RATES[task]
    tree.recipe.sequence_length = 64  # as in pre-training
    if fresh:
        tree.recipe.update(RANDOM)
    tree.evaluation.times = 1
    tree.run.update(lengths=(32, 64), dtype="bfloat16", save="none")
    return tree
