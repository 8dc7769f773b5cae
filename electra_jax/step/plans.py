# SPDX-License-Identifier: Apache-2.0
"""Turns a configuration into the typed parts of its training.

    config, vocabulary, mesh -> networks, objectives, optimizer, rate, stages, extras -> Plan

Objective, optimizer, schedule, dtype and attention are chosen here; `mask_unit` and `sharing` are
passed on as values. `make_plan` returns a `Plan` of all parts; the functions after it make single
parts. Networks, objectives and the step never see the configuration.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import Mesh

from electra_jax import config as config_lib
from electra_jax.config import compiler_options, row_split, stages
from electra_jax.core import compilers, meshes, placing, sharding
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.model import encoder_config, networks
from electra_jax.objectives import (
    adversarial_generator,
    all_tokens_mlm,
    corrective_lm,
    decoupled_detection,
    electric,
    fixed_generator,
    frozen_generator,
    masked_lm,
    masked_token_detection,
    masking,
    multi_word_selection,
    replace_mlm,
    replaced_token_detection,
)
from electra_jax.objectives.objective import Objective
from electra_jax.step import attention_choice, evaluation, optimizer, schedule, train_step

# The type is Any because FixedGenerator takes weights_V in addition, so that one constructor call
# for all of them cannot be checked.
OBJECTIVES: dict[str, type[Any]] = {
    "replaced_token_detection": replaced_token_detection.ReplacedTokenDetection,
    "decoupled_detection": decoupled_detection.DecoupledDetection,
    "masked_token_detection": masked_token_detection.MaskedTokenDetection,
    "multi_word_selection": multi_word_selection.MultiWordSelection,
    "corrective_lm": corrective_lm.CorrectiveLM,
    "adversarial_generator": adversarial_generator.AdversarialGenerator,
    "frozen_generator": frozen_generator.FrozenGenerator,
    "uniform_generator": fixed_generator.FixedGenerator,
    "unigram_generator": fixed_generator.FixedGenerator,
    "electric": electric.Electric,
    "masked_lm": masked_lm.MaskedLM,
    "replace_mlm": replace_mlm.ReplaceMLM,
    "all_tokens_mlm": all_tokens_mlm.AllTokensMLM,
}

OPTIMIZERS = {
    "reference_adamw": optimizer.reference_adamw,
    "adamw": optimizer.adamw,
    "muon": optimizer.muon,
    "lamb": optimizer.lamb,
}

SHAPES: dict[str, Callable[..., jax.Array]] = {
    "linear": schedule.linear,
    "cosine": schedule.cosine,
    "warmup_stable_decay": schedule.warmup_stable_decay,
}


@dataclasses.dataclass(frozen=True)
class Plan:
    """All parts of the training of one configuration.

    Step, objectives and networks get these parts and never see the configuration.
    """

    mesh: Mesh | None
    stages: tuple[stages.Stage, ...]
    # By row length, each with the shapes of both networks; placed on the mesh, if there is one.
    objectives: Mapping[int, Objective]
    optimizer: optax.GradientTransformation
    # (step, progress) -> the rate of the parameters with the highest peak
    rate: Callable[..., jax.Array]
    peak: float  # of the rate, without warmup and decay
    warmup_steps: int
    progress: Callable  # state -> spent share of the budget
    extras: train_step.Extras
    key: jax.Array  # everything random on the device is derived from it
    pad_id: int
    accumulation: int  # micro-batches per step
    steps: int  # number of steps of the whole run
    compiler_options: Mapping[str, bool | int | str]  # XLA's, for the step

    @property
    def objective(self) -> Objective:
        """The objective for the rows of the first stage."""
        return self.objectives[self.stages[0].sequence_length]

    def low_peak_warning(self, steps: int | None) -> str | None:
        """A warning if the rate stays far below its peak in so many steps; else None."""
        return schedule.low_peak_warning(self.rate, self.peak, self.warmup_steps, self.steps, steps)

    @property
    def networks(self) -> networks.NetworksConfig:
        """The shapes of both networks."""
        return self.objective.networks

    def init(self) -> train_step.TrainState:
        """The state before the first step."""
        return train_step.init_state(self.objective, self.optimizer, self.key, self.extras)

    @functools.cached_property
    def state_shapes(self) -> train_step.TrainState:
        """The shapes of the state that `init` returns."""
        return jax.eval_shape(self.init)

    @functools.cached_property
    def state_shardings(self) -> train_step.TrainState:
        """The sharding of each array of the state."""
        return sharding.shardings(self.state_shapes, self._mesh())

    def make_update(self, sequence_length: int) -> Callable:
        """The step on rows of this length, not compiled: (state, lanes) -> (state, measured).

        The length must be that of a stage.
        """
        mesh = self._mesh()
        return train_step.make_update(
            objective=self.objectives[sequence_length],
            optimizer=self.optimizer,
            rate=self.rate,
            key=self.key,
            pad_id=self.pad_id,
            progress=self.progress,
            split=train_step.StepSplit(
                self.accumulation, placing.with_table_copies(mesh), placing.groups(mesh)
            ),
            extras=self.extras,
        )

    def compile_update(self, sequence_length: int) -> Callable:
        """The step on rows of this length, jitted over the mesh."""
        return train_step.compile_update(
            self.make_update(sequence_length),
            self.state_shapes,
            self._mesh(),
            self.compiler_options,
        )

    def compile_evaluate(self, sequence_length: int, unigram_V: np.ndarray) -> Callable:
        """The evaluation of rows of this length, jitted over the mesh.

        `unigram_V` is how often the training text has each id, see `evaluation.compile_evaluate`.
        """
        return evaluation.compile_evaluate(
            self.objectives[sequence_length],
            self.pad_id,
            unigram_V,
            self._mesh(),
            self.state_shardings.params,
        )

    def _mesh(self):
        if self.mesh is None:
            raise ValueError("this plan was made without a mesh, so it has no place for a state")
        return self.mesh


def make_plan(
    config: config_lib.Config,
    vocabulary: vocabulary_lib.Vocabulary,
    unigrams: Mapping[int, np.ndarray] | None = None,
    mesh: Mesh | None = None,
) -> Plan:
    """Returns the plan of a configuration. Raises ConfigError.

    Args:
      config: the configuration.
      vocabulary: the vocabulary of the rows, or what has its size and special ids.
      unigrams: by row length, how often the training text has each id, [V]. For a length that is
        not there all ids count as equally frequent, which is enough if nothing is sampled by
        frequency.
      mesh: where to train; if None, the objective runs on one device.
    """
    all_stages = stages.of(config)
    known, equal_V = unigrams or {}, np.ones(vocabulary.size)
    return Plan(
        mesh=mesh,
        stages=all_stages,
        objectives={
            length: make_objective(config, vocabulary, known.get(length, equal_V), mesh, length)
            for length in dict.fromkeys(stage.sequence_length for stage in all_stages)
        },
        optimizer=make_optimizer(config),
        rate=make_rate(config),
        peak=peak_rates(config).peak,
        warmup_steps=config.schedule.warmup_steps,
        progress=make_progress(config),
        extras=make_extras(config),
        key=jax.random.key(config.seed),
        pad_id=vocabulary.pad_id,
        accumulation=config.schedule.accumulation,
        steps=config.schedule.steps,
        compiler_options=_compiler_options(config.mesh.compiler_options, mesh),
    )


def make_evaluator(
    config: config_lib.Config, plan: Plan, stage: stages.Stage, program: Callable
) -> evaluation.Evaluator:
    """What computes the metrics of held-out rows of a stage.

    `program` is what `Plan.compile_evaluate` has made for rows of this length.
    """
    assert plan.mesh is not None, "the program runs on a mesh"
    return evaluation.Evaluator(
        program=program,
        objective=plan.objectives[stage.sequence_length],
        pad_id=plan.pad_id,
        mesh=plan.mesh,
        batch_size=config.evaluation.batch_size or stage.batch_size,
        ema_decay=config.optimizer.ema_decay,
    )


def make_mesh(
    config: config_lib.Config,
    devices: Sequence[jax.Device] | None = None,
    evaluates: bool = False,
) -> Mesh:
    """The mesh of devices.

    Args:
      config: the configuration.
      devices: those of the mesh; all that jax finds without them.
      evaluates: whether batches of `evaluation.batch_size` rows are to be placed on it too.

    Raises ConfigError if it does not fit the number of devices, if the rows of a batch cannot be
    split evenly over devices and micro-batches, or if their compiler refuses an option.
    """
    chosen = config.mesh
    try:
        made = meshes.make_mesh(chosen.data, chosen.fsdp, chosen.tensor, devices, chosen.slices)
    except ValueError as error:
        raise config_lib.ConfigError(str(error)) from error

    slices = meshes.count_slices(list(made.devices.flat), chosen.slices)
    if reason := row_split.refused(config, meshes.row_devices(made), made.size, slices):
        raise config_lib.ConfigError(reason)
    if evaluates and (reason := row_split.evaluation_refused(config, meshes.row_devices(made))):
        raise config_lib.ConfigError(reason)

    options = _compiler_options(chosen.compiler_options, made)
    if reason := compilers.refused(options, made):
        raise config_lib.ConfigError(
            f"mesh.compiler_options={chosen.compiler_options!r} is refused by the compiler of"
            f" {made.devices.flat[0].device_kind}: {reason}; correct it, or set it to 'auto'"
        )

    return made


def _compiler_options(text, mesh):
    """XLA's options for the step on this mesh."""
    if text != "auto":
        return compiler_options.parse(text)
    return compilers.needed(mesh.devices.flat[0]) if mesh else {}


def networks_config(
    config: config_lib.Config,
    vocab_size: int,
    mesh: Mesh | None = None,
    sequence_length: int | None = None,
) -> networks.NetworksConfig:
    """The shapes of both networks, with every 'auto' resolved.

    It is resolved for the devices of the mesh, or for those of this machine without one, and for
    rows of the length, or for those of the first stage without one. Raises ConfigError if these
    devices cannot compute attention in the way that the configuration names.
    """
    length = sequence_length or config.data.sequence_length
    model, platform = config.model, meshes.platform(mesh)
    dtype = model.dtype
    if dtype == "auto":
        dtype = "float32" if platform == "cpu" else "bfloat16"

    # norm_kind, positions, biases and so on: each field of EncoderConfig that `model` has too.
    shared = {
        field.name: getattr(model, field.name)
        for field in dataclasses.fields(encoder_config.EncoderConfig)
        if hasattr(model, field.name)
    }
    split = config.mesh.fsdp * config.mesh.tensor > 1
    triton = meshes.runs_triton(meshes.first_device(mesh))
    in_kernel = triton and model.residual_norm == "auto"
    shared |= encoder_config.forms_on(platform, model.scan, split, in_kernel)
    shared["attention"] = attention_choice.choose(config, length, mesh)

    def shape(network):
        return encoder_config.EncoderConfig(**shared | dataclasses.asdict(network))

    # For an objective that does not read a setting, its value is ignored.
    reads = config_lib.READS[config.objective.name]
    return networks.NetworksConfig(
        vocab_size=vocab_size,
        embedding_size=model.embedding_size,
        max_positions=model.max_positions if model.positions == "learned" else 0,
        generator=shape(model.generator),
        discriminator=shape(model.discriminator),
        dtype=dtype,
        sharing=model.sharing if "model.sharing" in reads else "embeddings",
        discriminator_head=(
            model.discriminator_head if "model.discriminator_head" in reads else "token"
        ),
        shared_layers=model.shared_layers if "model.shared_layers" in reads else 0,
    )


def make_objective(
    config: config_lib.Config,
    vocabulary: vocabulary_lib.Vocabulary,
    unigram_V: np.ndarray,
    mesh: Mesh | None = None,
    sequence_length: int | None = None,
) -> Objective:
    """The objective, with its networks and its settings.

    On a mesh each device chooses slots, samples and computes attention for its own rows.

    Args:
      config: the configuration.
      vocabulary: the vocabulary of the rows, or what has its size and special ids.
      unigram_V: how often the training text has each id.
      mesh: where to train; if None, on one device.
      sequence_length: tokens per row; if None, those of the first stage.

    Raises ConfigError if the vocabulary has fewer tokens than a slot is to be offered.
    """
    length = sequence_length or config.data.sequence_length
    _check_selection(config.objective, vocabulary)
    settings = dataclasses.asdict(config.objective)
    name = settings.pop("name")
    shapes = networks_config(config, vocabulary.size, mesh, length)
    objective = OBJECTIVES[name](
        networks=shapes,
        special_ids=tuple(vocabulary.special_ids),
        mask_id=vocabulary.mask_id,
        slots=max_slots(config.objective, length),
        placement=placing.placement(mesh),
        **settings,
    )

    if name in ("uniform_generator", "unigram_generator"):
        weights_V = np.zeros(shapes.padded_vocab_size, np.float32)
        weights_V[: vocabulary.size] = unigram_V if name == "unigram_generator" else 1
        objective = dataclasses.replace(objective, weights_V=weights_V)

    return objective


def _check_selection(chosen, vocabulary):
    most = vocabulary.size - len(vocabulary.special_ids)
    reads = "objective.selection_size" in config_lib.READS[chosen.name]
    if reads and chosen.selection_size > most:
        raise config_lib.ConfigError(
            f"objective.selection_size={chosen.selection_size} is more than the {most} tokens of"
            f" the vocabulary that may be offered; give {most} at most"
        )


def max_slots(chosen: config_lib.Objective, length: int) -> int:
    """N, the largest number of slots in a row of this length at any time of the run."""
    return min(masking.max_slots(max(chosen.mask_rate, chosen.first_mask_rate), length), length)


def make_optimizer(config: config_lib.Config) -> optax.GradientTransformation:
    """The optimizer; the training step multiplies its updates by -rate."""
    chosen = config.optimizer
    return OPTIMIZERS[chosen.name](
        optimizer.Settings(
            beta1=chosen.beta1,
            beta2=chosen.beta2,
            epsilon=chosen.epsilon,
            weight_decay=chosen.weight_decay,
            clip_norm=chosen.clip_norm,
            clip=chosen.clip,
            peaks=peak_rates(config),
        )
    )


def peak_rates(config: config_lib.Config) -> optimizer.PeakRates:
    """The peak learning rate of each network; 0 in the configuration means `learning_rate`."""
    chosen = config.optimizer
    # A rate at which nothing learns must not raise the peak, which is the largest of all rates.
    discriminator = chosen.disc_learning_rate or chosen.learning_rate
    learns = "optimizer.gen_learning_rate" in config_lib.READS[config.objective.name]
    return optimizer.PeakRates(
        (chosen.gen_learning_rate or chosen.learning_rate) if learns else discriminator,
        discriminator,
        matrices=_rates_of_matrices(config) if chosen.name == "muon" else None,
        tables="generator" if config_lib.shares_tables(config) else "discriminator",
    )


def _rates_of_matrices(config):
    """Muon's peak rates: (for the generator's and shared matrices, for the discriminator's)."""
    chosen = config.optimizer
    muon = chosen.muon_learning_rate or chosen.learning_rate
    if not config_lib.has_use(config, "optimizer.disc_muon_learning_rate"):
        return muon, muon
    own = chosen.disc_muon_learning_rate or muon
    # As above: where no other matrix learns, the discriminator's rate is that of all.
    alone = config.objective.name in (*config_lib.WITHOUT_GENERATOR, "frozen_generator")
    return (own if alone else muon), own


def make_rate(config: config_lib.Config) -> Callable[..., jax.Array]:
    """(step, progress) -> the rate of the parameters with the highest peak.

    The optimizer scales the others down.
    """
    chosen = config.schedule
    shape = SHAPES[chosen.shape]
    if chosen.shape == "linear":
        shape = functools.partial(shape, power=chosen.decay_power)
    elif chosen.shape == "warmup_stable_decay":
        shape = functools.partial(shape, decay_share=chosen.decay_share)
    return schedule.rate(peak_rates(config).peak, chosen.steps, chosen.warmup_steps, shape)


def make_progress(config: config_lib.Config) -> Callable[[train_step.TrainState], jax.Array]:
    """A function of the state: the spent share of the budget."""
    chosen = config.schedule
    if chosen.budget == "tokens":
        return schedule.share_of_tokens(chosen.tokens)
    if chosen.budget == "minutes":
        return schedule.share_of_minutes(chosen.minutes)
    return schedule.share_of_steps(chosen.steps)


def make_extras(config: config_lib.Config) -> train_step.Extras:
    """The optional parts of step and state that the configuration asks for."""
    chosen, named = config.schedule, peak_rates(config).named()
    return train_step.Extras(
        ema_decay=config.optimizer.ema_decay,
        spike_factor=0.0 if chosen.on_spike == "go_on" else chosen.spike_factor,
        timed=chosen.budget == "minutes",
        logged_shares=None if named == {"learning_rate": 1.0} else named,
    )
