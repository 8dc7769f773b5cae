# SPDX-License-Identifier: Apache-2.0
"""What a run would need, before it starts: parameters, FLOPs, memory, disk, epochs, time.

    configuration -> step, traced but not compiled -> numbers -> aligned lines of text

Prepared data is read if it exists; nothing is prepared, trained or written.
"""

import collections
import dataclasses
import operator
import os
import shutil

import jax

from electra_jax import config as config_lib
from electra_jax.config import stages
from electra_jax.core import meshes
from electra_jax.data import downloads, pipeline, planning, records, servers
from electra_jax.host import console_table, staging
from electra_jax.model import accounting, networks
from electra_jax.report import style
from electra_jax.speed import disk, memory, synthetic
from electra_jax.step import plans
from electra_jax.training import budget, run_data
from electra_jax.weights import starting_checks
from electra_jax.workdir import metadata, prepared_data

# The share of the device's FLOP/s that the time is computed with, for networks of this width or
# more; it is assumed. Narrower ones reach less: 12 % is assumed for a width of 256, with which the
# one GPU that was met reached 8 to 12 % (docs/experiments/first_light.md).
_SHARE_OF_PEAK, _WIDE = 0.35, 768
_MANY_EPOCHS = 100  # ELECTRA-Base of the paper read its text some 30 times, Small some 5
_SPEED_UNKNOWN = "not known until the speed is"


def text(config: config_lib.Config, workdir: str) -> str:
    """Returns the estimate as aligned lines."""
    prepared_data.check_folder(config.data)
    mesh = plans.make_mesh(config, evaluates=True)
    data = prepared_data.RunData.of(config, workdir)
    try:
        _check(config, data)
        rows_by_stage, unreachable = _prepared_rows(data), []
    except servers.Unreachable as error:
        # Everything else is known without the text, even on a machine without a network.
        rows_by_stage, unreachable = [None] * len(stages.of(config)), [str(error)]

    estimate = _estimate(config, mesh, rows_by_stage, prepared_data.vocabulary_size(data))
    lines = _lines(estimate, is_reached=not unreachable)
    lines += [("note", note) for note in (*unreachable, *_notes(estimate, workdir))]
    return "\n".join(console_table.lines(lines))


@dataclasses.dataclass(frozen=True)
class _Estimate:
    """What is known of a run before it starts. Lists are by stage."""

    config: config_lib.Config
    plan: plans.Plan
    rows_by_stage: list[records.Records | None]  # None: not prepared yet
    flops: list[int]  # per step
    seconds: list[float]  # per step; empty if the device's speed is not known
    share_of_peak: float  # that `seconds` are computed with
    steps: list[int] | None  # None if the budget is one of time, and the speed is not known
    scores: float  # bytes per device and piece of the vocabulary, in the stage that needs most
    activations: float  # bytes per device, likewise
    checkpoints: int  # the most that are on the disk at one time
    checkpoint_bytes: int  # of each

    @property
    def all_steps(self) -> int | None:
        return self.steps and sum(self.steps)

    @property
    def is_prepared(self) -> bool:
        return None not in self.rows_by_stage


def _estimate(config, mesh, rows_by_stage, vocab_size) -> _Estimate:
    """Traces the step of each stage; `vocab_size` is for data that is not prepared yet."""
    if rows_by_stage[0] is not None:
        vocab_size = rows_by_stage[0].manifest.vocabulary["size"]
    plan = plans.make_plan(config, synthetic.MadeUpVocabulary(vocab_size), mesh=mesh)
    flops = [
        plan.objectives[stage.sequence_length].flops(stage.sequence_length).train * stage.batch_size
        for stage in plan.stages
    ]

    # A budget in minutes becomes steps by the speed, one in tokens by the share of padding.
    peak = accounting.peak(jax.devices()[0].device_kind)
    share = _SHARE_OF_PEAK * min(1.0, plan.networks.discriminator.width / _WIDE)
    rate = peak and peak * jax.device_count() * share
    seconds = [flops_per_step / rate for flops_per_step in flops] if peak else []
    prepared = rows_by_stage if None not in rows_by_stage else []
    real = [1 - found.manifest.wasted_fraction for found in prepared]
    steps = stages.steps(config.schedule, plan.stages, real, seconds)

    return _Estimate(
        config=config,
        plan=plan,
        rows_by_stage=rows_by_stage,
        flops=flops,
        seconds=seconds,
        share_of_peak=share,
        steps=steps,
        scores=max(memory.scores(plan, stage) for stage in plan.stages),
        activations=max(memory.activations(plan, stage) for stage in plan.stages),
        checkpoints=disk.checkpoints(
            config.checkpoint, sum(steps) if steps else config.schedule.steps
        ),
        # The state is the same in all stages; row length and batch size may differ.
        checkpoint_bytes=disk.bytes_per_checkpoint(plan.state_shapes),
    )


def _lines(estimate: _Estimate, is_reached: bool) -> list[tuple[str, str]]:
    """(what, how much), in the order of the table; `is_reached` says whether the text is."""
    plan, mesh = estimate.plan, estimate.plan.mesh
    device, schedule = jax.devices()[0].device_kind, estimate.config.schedule
    parts = accounting.parameters(plan.state_shapes.params)
    step_flops = _by_stage(f"{x:.3g}" for x in estimate.flops)
    run_flops = (
        f"{_over_run(estimate.flops, estimate.steps):.3g}" if estimate.steps else _SPEED_UNKNOWN
    )
    return [
        ("devices", f"{jax.device_count()} x {device}, mesh {dict(mesh.shape)}"),
        *_slices(mesh, estimate.config.mesh.slices),
        ("parameters", f"{sum(parts.values()):,} ({_named_counts(parts)})"),
        ("main network with its tables", f"{_main_network(plan):,}"),
        ("FLOPs per step", f"{step_flops} (3 x forward matrix products)"),
        ("budget", _budget(schedule, estimate.all_steps)),
        *([("stages", _stages(plan.stages, estimate.steps))] if len(plan.stages) > 1 else []),
        ("FLOPs of the run", run_flops),
        ("state per device", _state(plan)),
        ("activations per device", f"{_mib(estimate.activations)} (kept for the backward pass)"),
        (
            "scores per device",
            f"{_mib(estimate.scores)} per piece of the vocabulary; the backward pass holds two",
        ),
        ("checkpoints on disk", _on_disk(estimate.checkpoints, estimate.checkpoint_bytes)),
        *_to_download(estimate.config.data.source, is_reached and not estimate.is_prepared),
        ("epochs over the data", _describe_epochs(estimate)),
        ("time", _time(device, estimate.seconds, estimate.steps, estimate.share_of_peak)),
    ]


def _notes(estimate: _Estimate, workdir) -> list[str]:
    """What a user should think about before the run starts."""
    line = estimate.plan.low_peak_warning(estimate.all_steps)
    by_source = _epochs_by_source(estimate)
    return [
        *([line] if line else []),
        *_too_much_memory(estimate.plan, estimate.activations),
        *_too_full(estimate.checkpoints, estimate.checkpoint_bytes, workdir),
        *(_source_too_often(by_source) if by_source else _too_often(_epochs(estimate))),
    ]


def _check(config, data):
    """Raises the errors of a run that can be found without preparing data or reading weights.

    Sources come last: if they cannot be reached, all else has been checked.
    """
    if not metadata.steps(metadata.directory(data.workdir)):
        starting_checks.check(config)

    record = prepared_data.read(data.workdir)
    is_there = (
        record is not None
        and prepared_data.is_of(data, record)
        and all(prepared_data.folder(data, part) is not None for part in record.stages)
    )

    if not is_there:
        settings = run_data.stage_settings(data, 0)
        planning.check_vocabulary(settings)
        _check_folder(data.root)
        planning.check_sources(settings)
        planning.check_beginnings(settings)


def _check_folder(path):
    """Raises ConfigError if the folder, or files in it, cannot be created."""
    place = _nearest_folder(path)
    if not os.path.isdir(place):
        raise config_lib.ConfigError(f"no folder {path} can be made: {place} is a file")
    if not os.access(place, os.W_OK):
        raise config_lib.ConfigError(f"no folder {path} can be made: {place} cannot be written")


def _nearest_folder(path):
    """The path, or the nearest one above it that is there."""
    place = os.path.abspath(path)
    while not os.path.exists(place):
        place = os.path.dirname(place)
    return place


def _prepared_rows(data) -> list[records.Records | None]:
    """Returns the prepared rows of each stage; None for a stage that is not prepared yet."""
    record = prepared_data.read(data.workdir)
    if record is not None and prepared_data.is_of(data, record):
        folders = [prepared_data.folder(data, part) for part in record.stages]
        return [folder and records.open(folder) for folder in folders]

    found: list[records.Records | None] = []
    for settings in run_data.data_settings(data):
        if None in found:  # later stages need the vocabulary of the first
            found.append(None)
            continue
        folder = planning.folder_of(settings, data.root)
        ready = os.path.exists(os.path.join(folder, records.MANIFEST))
        found.append(records.open(folder) if ready else None)

    return found


def _main_network(plan):
    """Parameters of the main network by itself, as it is exported, with rows of padding."""

    def alone(params):
        return networks.alone(plan.networks, params, "discriminator")

    shapes = jax.eval_shape(alone, plan.state_shapes.params)
    return sum(accounting.parameters(shapes).values())


def _budget(schedule, steps):
    """Returns the budget as text, with the number of steps that it allows if that is known."""
    words = budget.describe(schedule)
    if schedule.budget == "steps" or steps is None:
        return words
    return f"{words}, about {steps:,} steps" + " (their limit)" * (steps == schedule.steps)


def _named_counts(parts):
    return ", ".join(f"{name} {count:,}" for name, count in parts.items())


def _slices(mesh, asked):
    """Returns a line that says what goes across slices; none if there is only one."""
    count = meshes.count_slices(list(mesh.devices.flat), asked)
    if count == 1:
        return []
    copies = mesh.shape["data"] // count
    words = f"{copies:,} cop{'y' if copies == 1 else 'ies'} of the model in each"
    return [("slices", f"{count} with {words}; only gradients go across")]


def _stages(run_stages, steps):
    """Returns the stages as text, with their steps if they are known."""
    known = [f"{count:,} steps of " for count in steps] if steps else [""] * len(run_stages)
    return _by_stage(before + stages.describe(stage) for before, stage in zip(known, run_stages))


def _state(plan):
    """Returns the size of the state per device as text."""
    what = (
        "weights, averages and moments"
        if plan.state_shapes.ema is not None
        else "weights and moments"
    )
    return f"{_mib(memory.of_tree(plan.state_shapes, plan.state_shardings))} ({what})"


def _to_download(source, wanted):
    """Returns a line for each source whose files are elsewhere; none if they are not wanted."""
    return [("text", line) for line in downloads.of_sources(source)] if wanted else []


def _describe_epochs(estimate):
    """Returns as text how often the run reads its data, and how many rows there are."""
    if not estimate.is_prepared:
        return "not known before the data is prepared"
    epochs = _epochs(estimate)
    if epochs is None:
        return _SPEED_UNKNOWN
    counts = dict.fromkeys(map(_training_rows, estimate.rows_by_stage))
    rows = _by_stage(f"{count:,}" for count in counts)
    told = f"{epochs:,.2f} ({rows} rows)"
    # Of a mixture the sources are read more or less often than that.
    each = ", ".join(f"{name} {times:,.2f}" for name, times in _epochs_by_source(estimate).items())
    return f"{told}: {each}" if each else told


def _epochs_by_source(estimate):
    """Returns how often the run reads each of several sources, by name; {} if not known yet."""
    if not estimate.is_prepared or not estimate.steps:
        return {}
    epochs: collections.Counter[str] = collections.Counter()
    for stage, count, found in zip(estimate.plan.stages, estimate.steps, estimate.rows_by_stage):
        sources = found.manifest.sources
        shares = pipeline.apportion([source.weight for source in sources], pipeline.PATTERN)
        for index, source in enumerate(sources):
            taken = stage.batch_size * count * shares[index] / pipeline.PATTERN
            epochs[source.name] += taken / found.rows("train", index)
    return dict(epochs) if len(epochs) > 1 else {}


def _epochs(estimate):
    """Returns how often the run reads its data; None if rows or steps are not known yet."""
    if not estimate.is_prepared or not estimate.steps:
        return None
    parts = zip(estimate.plan.stages, estimate.steps, map(_training_rows, estimate.rows_by_stage))
    return sum(stage.batch_size * count / rows for stage, count, rows in parts)


def _training_rows(found):
    return sum(found.rows("train", index) for index in range(len(found.manifest.sources)))


def _too_often(epochs):
    """Returns a note if each text is read so often that there is too little of it."""
    if epochs is None or epochs <= _MANY_EPOCHS:
        return []
    return [
        f"each text is read {epochs:,.0f} times; more text would help more than so many epochs,"
        " and schedule.steps may be lower"
    ]


def _source_too_often(epochs_by_source):
    """Returns a note if there is too little text of the source that is read most often."""
    name, epochs = max(epochs_by_source.items(), key=operator.itemgetter(1))
    if epochs <= _MANY_EPOCHS:
        return []
    return [
        f"each text of {name} is read {epochs:,.0f} times; more text of it would help more than so"
        " many epochs, or give it a smaller share: a lower weight in data.source, or"
        " data.mixture_alpha nearer to 1"
    ]


def _on_disk(saved, each):
    return f"{saved} at most, {_size(each)} each, {_size(saved * each)} in all"


def _size(count):
    return f"{count / 2**30:,.1f} GiB" if count >= 2**30 else _mib(count)


def _mib(count):
    return f"{count / 2**20:,.1f} MiB"


def _too_full(saved, each, workdir):
    """Returns a note if the checkpoints that are still to come are more than the disk has free.

    A bucket does not say how much room it has, so for one there is no note.
    """
    if staging.address(workdir):
        return []

    needed = each * max(0, saved - len(metadata.steps(metadata.directory(workdir))))
    free = shutil.disk_usage(_nearest_folder(workdir)).free
    if needed <= free:
        return []
    return [
        f"checkpoints will need {_size(needed)} more, and the disk of {workdir} has {_size(free)}"
        " free; free some, choose another --workdir, or lower"
        " checkpoint.keep_last"
    ]


def _too_much_memory(plan, activations):
    """Returns a note if state and activations alone are more than a device's memory."""
    has = memory.of_device(meshes.first_device(plan.mesh))
    needed = memory.of_tree(plan.state_shapes, plan.state_shardings) + activations
    if has is None or needed <= has:
        return []
    return [
        f"state and activations are {needed / 2**30:,.1f} GiB, and a device has"
        f" {has / 2**30:,.1f}; raise schedule.accumulation, set model.remat=full, or lower"
        " data.batch_size"
    ]


def _time(device, seconds, steps, share):
    """Returns the time of the run as text; `seconds` per step of each stage, [] if unknown."""
    if not seconds:
        return f"not known for {device}; electra_jax.main prints it as ETA"
    return f"{style.duration(_over_run(seconds, steps))} at {share:.0%} of the peak"


def _over_run(per_step, steps):
    """Returns the sum over the whole run of a quantity given per step of each stage."""
    return sum(map(operator.mul, per_step, steps))


def _by_stage(values):
    """Joins one value per stage: `1.2e+09, then 3.4e+09`."""
    return ", then ".join(values)
