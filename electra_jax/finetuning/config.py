# SPDX-License-Identifier: Apache-2.0
"""The settings of fine-tuning as typed values, checked before anything is read or compiled.

`configs/finetune.py` builds the tree of settings and documents every field. `parse` turns the tree
into the frozen dataclasses below and raises a ConfigError of one line, with a remedy, for a value
that cannot be used.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from electra_jax import config as config_lib
from electra_jax.config import between, one_of
from electra_jax.configs import finetune
from electra_jax.finetuning.tasks import built_in
from electra_jax.host import safe_files

ConfigError = config_lib.ConfigError


@dataclasses.dataclass(frozen=True)
class DataSettings:
    """Where examples come from and how many are used."""

    dir: str
    dev_share: float = between(0.001, 0.9)
    train_examples: int = between(0, 2**31 - 1)


@dataclasses.dataclass(frozen=True)
class EncoderSettings:
    """The pre-trained encoder that is fine-tuned."""

    init: str = one_of("pretrained", "fresh")
    from_: str
    step: int = between(0, 2**31 - 1)
    data_dir: str
    start_from: str


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Head, optimizer and schedule; 0 stands for the published value."""

    head: str = one_of("linear", "two_layer", "mean")
    head_dropout: float = between(0, 0.9)
    learning_rate: float = between(0, 10)
    published: str = one_of("paper", "released_code")
    layer_decay: float = between(0, 1)
    frozen_layers: int = between(0, 1000)
    decay_rule: str = one_of("paper", "released_code")
    weight_decay: float = between(0, 10)
    loss: str = one_of("mean", "sum")
    clip_norm: float = between(0, math.inf)
    optimizer: str = one_of("reference_adamw", "adamw")
    beta1: float = between(0, 0.99999)
    beta2: float = between(0, 0.999999)
    epsilon: float = between(1e-20, 1)
    warmup_share: float = between(0, 1)
    epochs: int = between(0, 10_000)
    batch_size: int = between(1, 65_536)
    sequence_length: int = between(0, 65_536)
    dropout: float = between(0, 0.9)
    attention_dropout: float = between(0, 0.9)
    both_orders: str = one_of("published", "off")


@dataclasses.dataclass(frozen=True)
class Span:
    """Question answering: head, windows over the text, choice of the answer."""

    head: str = one_of("joint", "plain")
    hidden: int = between(1, 65_536)
    beam: int = between(1, 512)
    impossible_weight: float = between(0, 1e6)
    query_length: int = between(1, 65_536)
    stride: int = between(1, 65_536)
    n_best: int = between(1, 10_000)
    longest_answer: int = between(1, 65_536)
    without_answer: str = one_of("first_position", "impossible", "skip")


@dataclasses.dataclass(frozen=True)
class Grid:
    """The learning rates and numbers of epochs that are compared on dev."""

    learning_rates: tuple
    epochs: tuple


@dataclasses.dataclass(frozen=True)
class EvaluationSettings:
    """Evaluations on dev during training."""

    times: int = between(1, 100_000)
    keep: str = one_of("last", "best")


@dataclasses.dataclass(frozen=True)
class RunSettings:
    """How the computation runs: devices, memory, dtype, compilation, what is saved."""

    vmapped_seeds: str = one_of("auto", "on", "off")
    lengths: tuple
    dtype: str = one_of("auto", "float32", "bfloat16")
    scan: str = one_of("auto", "on", "off")
    devices: int = between(-1, 65_536)
    accumulation: int = between(1, 65_536)
    remat: str = one_of("none", "dots", "full")
    save: str = one_of("best", "all", "none")


@dataclasses.dataclass(frozen=True)
class LoggingSettings:
    """Where the curves go beside the folder of the results."""

    writers: str


@dataclasses.dataclass(frozen=True)
class Custom:
    """A task that is not built in."""

    kind: str
    train: str
    dev: str
    test: str
    text: str
    pair: str
    label: str
    id: str
    query: str
    labels: str
    separator: str
    format: str
    header: bool
    quotes: str = one_of("", "on", "off")
    encoding: str
    odd_rows: str
    metrics: str
    main: str
    both_orders: bool
    label_range: tuple
    impossible: bool


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of one command, which may fine-tune several tasks with several seeds."""

    name: str
    tasks: str
    seeds: int = between(1, 1000)
    seed: int = between(0, 2**31 - 1)
    data: DataSettings
    encoder: EncoderSettings
    recipe: Recipe
    span: Span
    grid: Grid
    evaluation: EvaluationSettings
    run: RunSettings
    logging: LoggingSettings
    custom: Custom

    @property
    def task_names(self) -> tuple[str, ...]:
        """The names of the tasks in the order given, without repetitions."""
        return tuple(dict.fromkeys(name.strip() for name in self.tasks.split(",") if name.strip()))

    @property
    def starts(self) -> dict[str, str]:
        """{task: the task or folder whose fine-tuned encoder it starts from}."""
        return dict(_start_pairs(self.encoder.start_from))

    @property
    def micro_batch_size(self) -> int:
        """The rows that a step computes at a time."""
        return self.recipe.batch_size // self.run.accumulation


# Settings that may change when a command continues earlier results: none of them changes the
# numbers of a finished seed. The data folder may move because its content is compared instead.
RESUMABLE = (
    "tasks",
    "seeds",
    "data.dir",
    "encoder.from",  # so may its folder, and how they are found there: its weights are compared
    "encoder.step",
    "encoder.data_dir",
    "run.vmapped_seeds",
    "run.dtype",  # the dtype that was used is stored with each seed and compared instead
    "run.scan",
    "run.devices",
    "run.accumulation",
    "run.remat",
    "run.save",
    "logging.writers",
)


def parse(tree: Mapping[str, Any]) -> Config:
    """Parses an ml_collections or JSON tree. Raises ConfigError for the first invalid value."""
    config = config_lib.typed(Config, tree, "configs/finetune.py")
    _check_together(config)
    return config


def parse_saved(tree: Mapping[str, Any]) -> Config:
    """The same for a tree that was saved, perhaps by an earlier version of this package.

    A setting that it lacks came later, and has its value in configs/finetune.py.
    """
    return parse(config_lib.completed(tree, finetune.get_config().to_dict()))


def usual() -> Config:
    """The settings of configs/finetune.py."""
    return parse(finetune.get_config().to_dict())


def differences(old: Config, new: Config) -> list[str]:
    """Returns the changes that are not allowed when results of `old` are continued, as text."""
    return config_lib.differences(old, new, RESUMABLE)[1]


def _check_together(c: Config):
    """Raises ConfigError for values that are invalid by themselves or in combination."""
    if not c.name or "/" in c.name or c.name in (".", ".."):
        raise ConfigError(f"name={c.name!r} is to be a folder in WORKDIR/finetune; try 'finetune'")
    if safe_files.is_address(c.data.dir):
        raise ConfigError(
            f"data.dir={c.data.dir!r} is an address, and tasks are read from a folder of this"
            " machine; copy that folder here, and give its path"
        )
    if not c.task_names:
        raise ConfigError(
            "tasks is empty; try cola,mrpc, or custom with configs/finetune_custom.py"
        )

    _check_starts(c)
    config_lib.check_services(c.logging.writers)

    # Weights of one task must be saved for another task to start from them.
    if c.run.save == "none" and (c.starts or "ax" in c.task_names):
        raise ConfigError(
            "run.save='none' keeps no weights, and encoder.start_from and ax need another task's;"
            " take 'best'"
        )
    _check_numbers("grid.learning_rates", c.grid.learning_rates, (int, float), 10)
    _check_numbers("grid.epochs", c.grid.epochs, (int,), 10_000)
    _check_numbers("run.lengths", c.run.lengths, (int,), 65_536)

    if c.run.devices == 0:
        raise ConfigError("run.devices=0; give how many split the rows, or -1 for all")
    if c.recipe.batch_size % c.run.accumulation:
        raise ConfigError(
            f"recipe.batch_size={c.recipe.batch_size} is not divisible by"
            f" run.accumulation={c.run.accumulation}; try {_divisor(c)}"
        )


def _divisor(c):
    """The next larger number of micro-batches that divides the rows of a step."""
    rows = c.recipe.batch_size
    return next(n for n in range(min(c.run.accumulation, rows), rows + 1) if rows % n == 0)


def _start_pairs(start_from):
    """(task, what it starts from) for each part of encoder.start_from."""
    for part in filter(None, map(str.strip, start_from.split(","))):
        task, _, other = part.partition(":")
        yield task.strip(), other.strip()


def _check_starts(c):
    """Raises ConfigError if encoder.start_from is not TASK:OTHER, or names a task wrongly.

    A task may stand there that is not among `tasks`: a later command can add it.
    """
    trained = [name for name, task in built_in.TASKS.items() if not task.model_of]
    known, seen = [*trained, "custom"], set()
    setting = f"encoder.start_from={c.encoder.start_from!r}"

    for task, other in _start_pairs(c.encoder.start_from):
        if not task or not other:
            raise ConfigError(f"{setting} is not TASK:OTHER; try rte:mnli")
        if task not in known:
            near = config_lib.nearest(task, known)
            raise ConfigError(f"{setting}: no task that is trained is called {task!r}; {near}")
        if task in seen:
            raise ConfigError(f"{setting} names {task} twice; give it one encoder to start from")
        if task == other:
            raise ConfigError(f"{setting}: {task} cannot start from itself; try rte:mnli")
        seen.add(task)


def _check_numbers(path, values, kinds, most):
    """Raises ConfigError if a value is not above 0 and up to `most`, or of none of these types."""
    for value in values:
        if type(value) not in kinds or not 0 < value <= most:  # NaN is refused too
            whole = "numbers" if float in kinds else "whole numbers"
            raise ConfigError(
                f"{path}={values} must hold {whole} above 0 and up to {most:,}, or be ()"
            )
