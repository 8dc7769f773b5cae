# SPDX-License-Identifier: Apache-2.0
"""What a run would be, before it is one: parameters, FLOPs, memory, epochs, time."""

import operator
import os

import jax
import numpy as np
from jax import numpy as jnp

from electra_jax import config as config_lib
from electra_jax.config import stages
from electra_jax.core import batch as batch_lib
from electra_jax.core import streams
from electra_jax.data import preparation, records
from electra_jax.model import accounting
from electra_jax.objectives import fill
from electra_jax.report import style
from electra_jax.speed import synthetic
from electra_jax.step import build
from electra_jax.training import budget, runs
from electra_jax.weights import starting_weights
from electra_jax.workdir import metadata, prepared_data

_SHARE_OF_PEAK = 0.35  # what a first run reaches; the estimate says so
_NOT_BEFORE = "not known before the speed is"


def text(config: config_lib.Config, workdir: str) -> str:
    """A few aligned lines. Uses prepared data where it is there and never prepares."""
    mesh = build.mesh(config)
    _check(config, workdir)
    opened = _opened(config, workdir)
    ready = None not in opened
    vocab_size = prepared_data.vocabulary_size(config, workdir)
    if opened[0] is not None:
        vocab_size = opened[0].manifest.vocabulary["size"]
    words, unigram_V = synthetic.Words(vocab_size), np.ones(vocab_size)
    shapes = build.step(config, words, mesh, unigram_V).shapes
    parts = accounting.parameters(shapes.params)
    kinds = stages.of(config)
    settings = [stages.config_of(config, number) for number in range(len(kinds))]
    objectives = [build.objective(c, words, unigram_V, mesh) for c in settings]
    flops = [
        objective.flops(kind.sequence_length).train * kind.batch_size
        for objective, kind in zip(objectives, kinds)
    ]
    state_bytes = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(shapes))
    split = mesh.shape["fsdp"] * mesh.shape["tensor"]
    device = jax.devices()[0].device_kind
    peak = accounting.peak(device)
    rate = peak and peak * jax.device_count() * _SHARE_OF_PEAK
    seconds = [a_step / rate for a_step in flops] if peak else []
    real = [1 - found.manifest.wasted_fraction for found in opened] if ready else []
    steps = stages.steps(config, real, seconds)
    scores = [_scores_bytes(c, objective, mesh) for c, objective in zip(settings, objectives)]
    activations = [
        _activation_bytes(c, objective, words, mesh) for c, objective in zip(settings, objectives)
    ]
    what = "weights, averages and moments" if shapes.ema is not None else "weights and moments"
    lines = [
        ("devices", f"{jax.device_count()} x {device}, mesh {dict(mesh.shape)}"),
        ("parameters", f"{sum(parts.values()):,} ({_joined(parts)})"),
        ("main network with its tables", f"{_main(parts):,}"),
        ("FLOPs a step", f"{_then(f'{x:.3g}' for x in flops)} (3 x forward matrix products)"),
        ("budget", _budget(config.schedule, steps and sum(steps))),
        (
            "FLOPs of the run",
            f"{sum(map(operator.mul, flops, steps)):.3g}" if steps else _NOT_BEFORE,
        ),
        ("state a device", f"{state_bytes / split / 2**20:,.1f} MiB ({what})"),
        (
            "activations a device",
            f"{max(activations) / 2**20:,.1f} MiB (kept for the backward pass)",
        ),
        ("scores a device", f"{max(scores):,.1f} MiB a piece, on the way back two at a time"),
    ]
    if len(kinds) > 1:
        known = [f"{count:,} steps of " for count in steps] if steps else [""] * len(kinds)
        named = _then(before + stages.in_words(kind) for before, kind in zip(known, kinds))
        lines.insert(5, ("stages", named))
    if ready and steps:
        held = [
            sum(found.rows("train", index) for index in range(len(found.manifest.sources)))
            for found in opened
        ]
        epochs = sum(kind.batch_size * n / rows for kind, n, rows in zip(kinds, steps, held))
        rows = _then(f"{rows:,}" for rows in dict.fromkeys(held))
        lines.append(("epochs over the data", f"{epochs:.2f} ({rows} rows)"))
    else:
        unknown = _NOT_BEFORE if ready else "not known before the data is prepared"
        lines.append(("epochs over the data", unknown))
    if peak:
        time = style.duration(_all(seconds, steps))
        lines.append(("time", f"{time} at {_SHARE_OF_PEAK:.0%} of the peak"))
    else:
        lines.append(("time", f"not known for {device}; electra_jax.main prints it as ETA"))
    if line := build.peak_not_reached(config, steps and sum(steps)):
        lines.append(("note", line))
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines)


def _check(config, workdir):
    """Refuses what a run would, as far as can be told without preparing or reading weights."""
    record = prepared_data.read(workdir)
    is_there = (
        record is not None
        and prepared_data.is_of(config, record)
        and all(prepared_data.folder(config, workdir, part) is not None for part in record.stages)
    )
    if not is_there:
        settings = runs.stage_settings(config, workdir, 0)
        preparation.check_sources(settings)
        preparation.check_vocabulary(settings)
        _check_folder(runs.data_root(config, workdir))
    if not metadata.steps(os.path.join(workdir, "checkpoints")):
        starting_weights.check_paths(config)


def _check_folder(path):
    """A folder can be made there, or files in it."""
    place = os.path.abspath(path)
    while not os.path.exists(place):
        place = os.path.dirname(place)
    if not os.path.isdir(place):
        raise config_lib.ConfigError(f"no folder {path} can be made: {place} is a file")
    if not os.access(place, os.W_OK):
        raise config_lib.ConfigError(f"no folder {path} can be made: {place} cannot be written")


def _opened(config, workdir) -> list[records.Records | None]:
    """The rows of each stage, None where they are not prepared yet."""
    record = prepared_data.read(workdir)
    if record is not None and prepared_data.is_of(config, record):
        folders = [prepared_data.folder(config, workdir, part) for part in record.stages]
        return [folder and records.open(folder) for folder in folders]
    root, found = runs.data_root(config, workdir), []
    for settings in runs.data_settings(config, workdir):
        folder = ""
        if None not in found:  # the others need the vocabulary of the first
            folder = preparation.folder_of(settings, root)
        ready = os.path.exists(os.path.join(folder, records.MANIFEST))
        found.append(records.open(folder) if ready else None)
    return found


def _main(parts):
    """What is fine-tuned: tables, the main network, and the trunk where it is shared."""
    return sum(parts.get(part, 0) for part in ("embeddings", "encoder", "discriminator"))


def _budget(schedule, steps):
    words = budget.in_words(schedule)
    if schedule.budget == "steps" or steps is None:
        return words
    return f"{words}, about {steps:,} steps" + " (their limit)" * (steps == schedule.steps)


def _joined(parts):
    return ", ".join(f"{name} {count:,}" for name, count in parts.items())


def _scores_bytes(config, objective, mesh):
    """MiB of the scores of one piece of the vocabulary for one micro-batch, float32."""
    rows = config.data.batch_size / config.schedule.accumulation
    rows /= mesh.shape["data"] * mesh.shape["fsdp"]
    piece = min(fill.PIECE, objective.networks.padded_vocab_size)
    places = objective.scored_places(config.data.sequence_length)
    return np.ceil(rows) * places * piece * 4 / 2**20


def _activation_bytes(config, objective, words, mesh):
    """What the backward pass of one micro-batch keeps of the forward pass, on one device.

    It is read off the traced program, without compiling it: all that the phases hand to their
    backward passes, weights left out. The compiler keeps less where it computes something anew and
    needs more while it works.
    """
    rows = config.data.batch_size // config.schedule.accumulation
    length = config.data.sequence_length
    lanes = {
        "ids": jax.ShapeDtypeStruct((rows, length), np.int32),
        "marks": jax.ShapeDtypeStruct((rows, length), np.uint8),
    }
    shapes = jax.eval_shape(objective.init, build.run_key(config))
    kept = []

    def trace(params, lanes):
        row_B = jnp.arange(rows, dtype=jnp.uint32)
        batch = batch_lib.from_lanes(lanes["ids"], lanes["marks"], row_B, words.pad_id)
        keys = streams.keys(build.run_key(config), 0, row_B, dropout=True)
        knobs, carry = objective.knobs(0.0), None
        for phase in objective.phases:
            trained = phase.trained(params)
            rest = {part: params[part] for part in params if part not in trained}

            def loss(trained, rest=rest, phase=phase, carry=carry):
                sums, _, carry = phase.loss(rest | trained, batch, keys, knobs, carry)
                return objective.total(sums), carry

            _, pull_back, carry = jax.vjp(loss, trained, has_aux=True)
            given = {id(leaf) for leaf in jax.tree.leaves((params, batch))}
            leaves = {id(leaf): leaf for leaf in jax.tree.leaves(pull_back)}
            sizes = [x.size * x.dtype.itemsize for at, x in leaves.items() if at not in given]
            kept.append(sum(sizes))
        return 0

    jax.eval_shape(trace, shapes, lanes)
    return max(kept) / (mesh.shape["data"] * mesh.shape["fsdp"])


def _all(a_step, steps):
    """Of the whole run, from what a step of each stage is."""
    return sum(map(operator.mul, a_step, steps))


def _then(values):
    """One a stage: `1.2e+09, then 3.4e+09`."""
    return ", then ".join(values)
