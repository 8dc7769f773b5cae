# SPDX-License-Identifier: Apache-2.0
"""What a run would be, before it is one: parameters, FLOPs, memory, epochs, time."""

import math
import os

import jax
import numpy as np

from electra_jax import accounting, budget, build, fill, rehearsal, style
from electra_jax import config as config_lib
from electra_jax.data import preparation, records, vocabulary

_SHARE_OF_PEAK = 0.35  # what a first run reaches; the estimate says so
_NOT_BEFORE = "not known before the speed is"


def text(config: config_lib.Config, workdir: str) -> str:
    """A few aligned lines. Uses prepared data where it is there and never prepares."""
    mesh = build.mesh(config)
    folder = preparation.folder_of(
        preparation.Settings.from_config(config), config.data.dir or os.path.join(workdir, "data")
    )
    ready = os.path.exists(os.path.join(folder, "manifest.json"))
    if ready:
        vocab_size = vocabulary.load(os.path.join(folder, "vocab")).size
    else:
        vocab_size = build.vocab_size(config)
    step = build.step(config, rehearsal.Words(vocab_size), mesh, np.ones(vocab_size))
    shapes = step.shapes
    parts = accounting.parameters(shapes.params)
    rows = config.data.batch_size
    flops = step.objective.flops(config.data.sequence_length)
    step_flops = flops.train * rows
    state_bytes = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(shapes))
    split = mesh.shape["fsdp"] * mesh.shape["tensor"]
    kind = jax.devices()[0].device_kind
    peak = accounting.peak(kind)
    step_seconds = step_flops / (peak * jax.device_count() * _SHARE_OF_PEAK) if peak else None
    opened = records.open(folder) if ready else None
    steps = _steps(config, opened.manifest.wasted_fraction if ready else 0.0, step_seconds)
    what = "weights, averages and moments" if shapes.ema is not None else "weights and moments"
    lines = [
        ("devices", f"{jax.device_count()} x {kind}, mesh {dict(mesh.shape)}"),
        ("parameters", f"{sum(parts.values()):,} ({_joined(parts)})"),
        ("main network with its tables", f"{_main(parts):,}"),
        ("FLOPs a step", f"{step_flops:.3g} (3 x forward matrix products)"),
        ("budget", _budget(config.schedule, steps)),
        ("FLOPs of the run", f"{step_flops * steps:.3g}" if steps else _NOT_BEFORE),
        ("state a device", f"{state_bytes / split / 2**20:,.1f} MiB ({what})"),
        ("scores a device", f"{_scores_bytes(config, step.objective, mesh):,.1f} MiB at a time"),
    ]
    if ready and steps:
        held = sum(opened.rows("train", index) for index in range(len(opened.manifest.sources)))
        epochs = rows * steps / held
        lines.append(("epochs over the data", f"{epochs:.2f} ({held:,} rows)"))
    else:
        unknown = _NOT_BEFORE if ready else "not known before the data is prepared"
        lines.append(("epochs over the data", unknown))
    if peak:
        time = style.duration(step_seconds * steps)
        lines.append(("time", f"{time} at {_SHARE_OF_PEAK:.0%} of the peak"))
    else:
        lines.append(("time", f"not known for {kind}; electra_jax.main prints it as ETA"))
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines)


def _main(parts):
    """What is fine-tuned: tables, the main network, and the trunk where it is shared."""
    return sum(parts.get(part, 0) for part in ("embeddings", "encoder", "discriminator"))


def _steps(config, padding, step_seconds):
    """How many steps the budget buys; None where that hangs on a speed that is not known."""
    c, data = config.schedule, config.data
    if c.budget == "tokens":
        a_step = data.batch_size * data.sequence_length * (1 - padding)
        return min(c.steps, math.ceil(c.tokens / a_step))
    if c.budget == "minutes":
        return step_seconds and min(c.steps, math.ceil(60 * c.minutes / step_seconds))
    return c.steps


def _budget(schedule, steps):
    words = budget.in_words(schedule)
    if schedule.budget == "steps" or steps is None:
        return words
    return f"{words}, about {steps:,} steps" + " (their limit)" * (steps == schedule.steps)


def _joined(parts):
    return ", ".join(f"{name} {count:,}" for name, count in parts.items())


def _scores_bytes(config, objective, mesh):
    """Scores of the vocabulary's pieces for one micro-batch, float32."""
    rows = config.data.batch_size / config.schedule.accumulation
    rows /= mesh.shape["data"] * mesh.shape["fsdp"]
    piece = min(fill.PIECE, objective.networks.padded_vocab_size)
    return np.ceil(rows) * objective.slots * piece * 4 / 2**20
