# SPDX-License-Identifier: Apache-2.0
"""From the settings of fine-tuning to its parts: devices, order of tasks, grid, head, optimizer.

Values that a setting leaves open (0, 'auto') are decided here; `rates.published` has the published
ones.
"""

import dataclasses
import os

import jax
from jax.sharding import Mesh

from electra_jax import config as config_lib
from electra_jax.core import meshes
from electra_jax.finetuning import config as finetuning_config
from electra_jax.finetuning.results import run_results
from electra_jax.finetuning.tasks import task as task_lib
from electra_jax.finetuning.tuning import datasets, encoders, rates, tuning_step
from electra_jax.model import task_heads
from electra_jax.step import optimizer

TOGETHER_UP_TO = 50_000_000  # parameters; one seed of a larger encoder fills an accelerator
SEEDS_TOGETHER = 5  # at most, of a smaller one


@dataclasses.dataclass(frozen=True)
class Session:
    """What all tasks of one command share."""

    config: finetuning_config.Config
    workdir: str
    folder: str  # of the results, in it
    mesh: Mesh
    encoder: encoders.LoadedEncoder
    control: run_results.Results | None = None  # to compare with


@dataclasses.dataclass(frozen=True)
class GridPoint:
    """One combination of values in the grid."""

    learning_rate: float
    epochs: int

    @property
    def name(self) -> str:
        """The name of the point's folder."""
        return f"rate_{rates.name(self.learning_rate)}_epochs_{self.epochs}"


def with_whole_path(config: finetuning_config.Config) -> finetuning_config.Config:
    """The settings with an absolute path of the encoder, if it lies on this machine.

    What was tuned from it can then be read from any folder.
    """
    path = config.encoder.from_
    if not path or not os.path.exists(path):
        return config
    whole = dataclasses.replace(config.encoder, from_=os.path.abspath(path))
    return dataclasses.replace(config, encoder=whole)


def mesh(config: finetuning_config.Config) -> Mesh:
    """The devices that are asked for, all along the axis `data`.

    Raises ConfigError if there are fewer, or if they do not divide the batch.
    """
    devices = jax.devices()
    count = config.run.devices if config.run.devices > 0 else len(devices)
    if count > len(devices):
        raise config_lib.ConfigError(f"run.devices={count}, but there are {len(devices)}")

    if config.micro_batch_size % count:
        raise config_lib.ConfigError(
            f"recipe.batch_size={config.recipe.batch_size} is not divisible by {count} devices x"
            f" run.accumulation={config.run.accumulation}; set run.devices"
        )
    return meshes.make_mesh(count, devices=devices[:count])


def tasks_in_order(config: finetuning_config.Config) -> list[str]:
    """The tasks in the given order, except that a task comes after those that it needs.

    These are the task whose encoder it starts from and the task whose model answers it. Raises
    ConfigError if tasks need each other in a circle, or if a task of the user's own is described
    and the usual tasks would be tuned.
    """
    if config.custom.train and config.tasks == finetuning_config.usual().tasks:
        raise config_lib.ConfigError(
            f"custom.train={config.custom.train!r} describes the task custom, and"
            f" tasks={config.tasks!r} does not name it; add --config.tasks=custom"
        )
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


def unread(config: finetuning_config.Config) -> list[str]:
    """One line, with the reason, for each setting that was given and has no effect."""
    c, lines = config, []
    kinds = {datasets.task_named(c, name).kind for name in c.task_names}

    def says(path, value, reason):
        lines.append(f"{path}={value!r} changes nothing: {reason}")

    if c.custom.train and "custom" not in c.task_names:
        says("custom.train", c.custom.train, f"tasks={c.tasks!r} does not name the task custom")
    if c.grid.learning_rates and c.recipe.learning_rate:
        says("recipe.learning_rate", c.recipe.learning_rate, "grid.learning_rates takes its place")
    if c.grid.epochs and c.recipe.epochs:
        says("recipe.epochs", c.recipe.epochs, "grid.epochs takes its place")

    usual = finetuning_config.usual().span
    head = c.recipe.head
    if kinds <= {"tagging", "span"} and head != finetuning_config.usual().recipe.head:
        reason = "tags and answers have heads of their own, of which span.head chooses the second"
        says("recipe.head", head, reason)
    for field in dataclasses.fields(c.span):
        value = getattr(c.span, field.name)
        if "span" not in kinds and value != getattr(usual, field.name):
            says(f"span.{field.name}", value, f"no task of tasks={c.tasks!r} is of kind 'span'")
    return lines


def points(
    config: finetuning_config.Config, encoder: encoders.LoadedEncoder, epochs: int
) -> list[GridPoint]:
    """All different points of the grid; without a grid the one point of the recipe.

    `epochs` is the task's published number, used if no setting gives another.
    """
    recipe = config.recipe
    learning_rates = config.grid.learning_rates or (recipe.learning_rate or _rate(config, encoder),)
    epochs_list = config.grid.epochs or (recipe.epochs or epochs,)
    found = [GridPoint(float(rate), epochs) for rate in learning_rates for epochs in epochs_list]
    return list(dict.fromkeys(found))


def layer_decay(config: finetuning_config.Config, encoder: encoders.LoadedEncoder) -> float:
    """The factor of the learning rate per layer: as set, or as published for the encoder's size."""
    shape = encoder.networks.discriminator
    return config.recipe.layer_decay or rates.published(shape.layers, shape.width).layer_decay


def head_kind(config: finetuning_config.Config, task: task_lib.Task) -> str:
    """The kind of head, a key of `task_heads.INITS`: of the task's kind, or that of the recipe."""
    if task.kind == "tagging":
        return "token"
    if task.kind == "span":
        return f"span_{config.span.head}"
    if config.recipe.head == "mean" and task.pairs:  # the means of both texts
        return "matched_means"
    return config.recipe.head


def setup(
    config: finetuning_config.Config,
    encoder: encoders.LoadedEncoder,
    prepared: datasets.PreparedTask,
    seeds: int,
) -> tuning_step.Setup:
    """What the compiled programs of a task depend on."""
    recipe, shape = config.recipe, encoder.networks.discriminator
    kind = prepared.task.kind
    return tuning_step.Setup(
        networks=encoder.networks,
        head=task_heads.HeadConfig(
            kind=head_kind(config, prepared.task),
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
        optimizer_settings=optimizer.Settings(
            beta1=recipe.beta1,
            beta2=recipe.beta2,
            epsilon=recipe.epsilon,
            weight_decay=recipe.weight_decay,
            clip_norm=recipe.clip_norm,
        ),
        layer_decay=layer_decay(config, encoder),
        decay_rule=recipe.decay_rule,
        loss=recipe.loss,
        impossible_weight=config.span.impossible_weight,
        seeds=seeds,
        accumulation=config.run.accumulation,
    )


def seeds_together(
    config: finetuning_config.Config, encoder: encoders.LoadedEncoder, mesh: Mesh
) -> int:
    """How many seeds train in one program.

    By default one, but several on accelerators with small encoders, where one seed leaves the
    device idle. Results of a group are saved when all its seeds have finished.
    """
    asked = config.run.vmapped_seeds
    if asked != "auto":
        return config.seeds if asked == "on" else 1
    small = encoder.parameters <= TOGETHER_UP_TO
    return SEEDS_TOGETHER if small and mesh.devices.flat[0].platform != "cpu" else 1


def _rate(config, encoder):
    """The published peak for the encoder's size; above BASE's only if recipe.published='paper'."""
    shape = encoder.networks.discriminator
    found = rates.published(shape.layers, shape.width).learning_rate
    return min(found, rates.BASE.learning_rate) if config.recipe.published != "paper" else found
