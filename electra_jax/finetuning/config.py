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

ConfigError = config_lib.ConfigError


@dataclasses.dataclass(frozen=True)
class Data:
    """Where examples come from and how many are used."""

    dir: str
    dev_share: float
    train_examples: int


@dataclasses.dataclass(frozen=True)
class Encoder:
    """The pre-trained encoder that is fine-tuned."""

    init: str
    from_: str
    step: int
    data_dir: str
    start_from: str


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Head, optimizer and schedule; 0 stands for the published value."""

    head: str
    head_dropout: float
    learning_rate: float
    published: str
    layer_decay: float
    decay_rule: str
    weight_decay: float
    loss: str
    clip_norm: float
    optimizer: str
    beta1: float
    beta2: float
    epsilon: float
    warmup_share: float
    epochs: int
    batch_size: int
    sequence_length: int
    dropout: float
    attention_dropout: float
    both_orders: str


@dataclasses.dataclass(frozen=True)
class Span:
    """Question answering: head, windows over the text, choice of the answer."""

    head: str
    hidden: int
    beam: int
    impossible_weight: float
    query_length: int
    stride: int
    n_best: int
    longest_answer: int
    without_answer: str


@dataclasses.dataclass(frozen=True)
class Grid:
    """The learning rates and numbers of epochs that are compared on dev."""

    learning_rates: tuple
    epochs: tuple


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Evaluations on dev during training."""

    times: int
    keep: str


@dataclasses.dataclass(frozen=True)
class Run:
    """How the computation runs: devices, dtype, compilation, what is saved."""

    vmapped_seeds: str
    lengths: tuple
    dtype: str
    scan: str
    devices: int
    save: str


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
    labels: str
    separator: str
    format: str
    header: bool
    quotes: str
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
    seeds: int
    seed: int
    data: Data
    encoder: Encoder
    recipe: Recipe
    span: Span
    grid: Grid
    evaluation: Evaluation
    run: Run
    custom: Custom

    @property
    def task_names(self) -> tuple[str, ...]:
        """The names of the tasks in the order given, without repetitions."""
        return tuple(dict.fromkeys(name.strip() for name in self.tasks.split(",") if name.strip()))

    @property
    def starts(self) -> dict[str, str]:
        """{task: the task or folder whose fine-tuned encoder it starts from}."""
        parts = [part.strip() for part in self.encoder.start_from.split(",") if part.strip()]
        return dict(part.split(":", 1) for part in parts)


# Settings that may change when a command continues earlier results: none of them changes the
# numbers of a finished seed. The data folder may move because its content is compared instead. An
# entry that ends in a dot stands for a whole section.
RESUMABLE = (
    "tasks",
    "seeds",
    "data.dir",
    "encoder.data_dir",
    "run.vmapped_seeds",
    "run.dtype",  # the dtype that was used is stored with each seed and compared instead
    "run.scan",
    "run.devices",
    "run.save",
)

_CHOICES = {
    "encoder.init": ("pretrained", "fresh"),
    "recipe.head": ("linear", "two_layer"),
    "recipe.published": ("paper", "released_code"),
    "recipe.decay_rule": ("paper", "released_code"),
    "recipe.loss": ("mean", "sum"),
    "recipe.optimizer": ("reference_adamw", "adamw"),
    "recipe.both_orders": ("published", "off"),
    "span.head": ("joint", "plain"),
    "span.without_answer": ("first_position", "impossible", "skip"),
    "evaluation.keep": ("last", "best"),
    "run.vmapped_seeds": ("auto", "on", "off"),
    "run.dtype": ("auto", "float32", "bfloat16"),
    "run.scan": ("auto", "on", "off"),
    "run.save": ("best", "all", "none"),
    "custom.quotes": ("", "on", "off"),
}

_RANGES = {  # inclusive bounds
    "seeds": (1, 1000),
    "seed": (0, 2**31 - 1),
    "data.dev_share": (0.001, 0.9),
    "data.train_examples": (0, 2**31 - 1),
    "encoder.step": (0, 2**31 - 1),
    "recipe.head_dropout": (0, 0.9),
    "recipe.learning_rate": (0, 10),
    "recipe.layer_decay": (0, 1),
    "recipe.weight_decay": (0, 10),
    "recipe.clip_norm": (0, math.inf),
    "recipe.beta1": (0, 0.99999),
    "recipe.beta2": (0, 0.999999),
    "recipe.epsilon": (1e-20, 1),
    "recipe.warmup_share": (0, 1),
    "recipe.epochs": (0, 10_000),
    "recipe.batch_size": (1, 65_536),
    "recipe.sequence_length": (0, 65_536),
    "recipe.dropout": (0, 0.9),
    "recipe.attention_dropout": (0, 0.9),
    "span.hidden": (1, 65_536),
    "span.beam": (1, 512),
    "span.impossible_weight": (0, 1e6),
    "span.query_length": (1, 65_536),
    "span.stride": (1, 65_536),
    "span.n_best": (1, 10_000),
    "span.longest_answer": (1, 65_536),
    "evaluation.times": (1, 100_000),
    "run.devices": (-1, 65_536),
}


def parse(tree: Mapping[str, Any]) -> Config:
    """Parses an ml_collections or JSON tree. Raises ConfigError for the first invalid value."""
    config = config_lib.typed(Config, tree, {}, "configs/finetune.py")
    config_lib.check_each(config, _CHOICES, _RANGES)
    _check_together(config)
    return config


def differences(old: Config, new: Config) -> list[str]:
    """Returns the changes that are not allowed when results of `old` are continued, as text."""
    before, after = config_lib.flatten(old), config_lib.flatten(new)
    return [
        f"{path}: {before[path]!r} -> {after[path]!r}"
        for path in after
        if before[path] != after[path] and not _resumable(path)
    ]


def _resumable(path):
    """Whether a setting, or its whole section, is in RESUMABLE."""
    return path in RESUMABLE or path[: path.rfind(".") + 1] in RESUMABLE


def _check_together(c: Config):
    """Raises ConfigError for values that are invalid by themselves or in combination."""
    if not c.name or "/" in c.name or c.name in (".", ".."):
        raise ConfigError(f"name={c.name!r} is to be a folder in WORKDIR/finetune; try 'finetune'")
    if not c.task_names:
        raise ConfigError(
            "tasks is empty; try cola,mrpc, or custom with configs/finetune_custom.py"
        )

    for part in c.encoder.start_from.split(","):
        if part.strip() and ":" not in part:
            raise ConfigError(
                f"encoder.start_from={c.encoder.start_from!r} is not TASK:OTHER; try rte:mnli"
            )

    # Weights of one task must be saved for another task to start from them.
    if c.run.save == "none" and (c.starts or "ax" in c.task_names):
        raise ConfigError(
            "run.save='none' keeps no weights, and encoder.start_from and ax need another task's;"
            " take 'best'"
        )
    for task, other in c.starts.items():
        if task == other:
            raise ConfigError(f"encoder.start_from: {task} cannot start from itself")

    _check_positive_numbers("grid.learning_rates", c.grid.learning_rates, (int, float))
    _check_positive_numbers("grid.epochs", c.grid.epochs, (int,))
    _check_positive_numbers("run.lengths", c.run.lengths, (int,))

    if c.run.devices == 0:
        raise ConfigError("run.devices=0; give how many split the rows, or -1 for all")
    if c.custom.label_range and len(c.custom.label_range) != 2:
        raise ConfigError(f"custom.label_range={c.custom.label_range} is not (lowest, highest)")


def _check_positive_numbers(path, values, kinds):
    """Raises ConfigError if a value is not above 0 or has another type than `kinds`."""
    for value in values:
        if type(value) not in kinds or value <= 0:
            raise ConfigError(f"{path}={values} must hold numbers above 0, or be ()")
