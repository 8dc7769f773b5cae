# SPDX-License-Identifier: Apache-2.0
"""What a run would be, before it is one: parameters, FLOPs, memory, epochs, time."""

import os

import jax
import numpy as np

from electra_jax import accounting, build, fill, rehearsal, style
from electra_jax import config as config_lib
from electra_jax.data import preparation, records, vocabulary

_SHARE_OF_PEAK = 0.35  # what a first run reaches; the estimate says so


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
    lines = [
        ("devices", f"{jax.device_count()} x {kind}, mesh {dict(mesh.shape)}"),
        ("parameters", f"{sum(parts.values()):,} ({_joined(parts)})"),
        ("main network with its tables", f"{_main(parts):,}"),
        ("FLOPs a step", f"{step_flops:.3g} (3 x forward matrix products)"),
        ("FLOPs of the run", f"{step_flops * config.schedule.steps:.3g}"),
        ("state a device", f"{state_bytes / split / 2**20:,.1f} MiB (weights and moments)"),
        ("scores a device", f"{_scores_bytes(config, step.objective, mesh):,.1f} MiB at a time"),
    ]
    if ready:
        opened = records.open(folder)
        held = sum(opened.rows("train", index) for index in range(len(opened.manifest.sources)))
        epochs = rows * config.schedule.steps / held
        lines.append(("epochs over the data", f"{epochs:.2f} ({held:,} rows)"))
    else:
        lines.append(("epochs over the data", "not known before the data is prepared"))
    if peak:
        seconds = step_flops * config.schedule.steps / (peak * jax.device_count() * _SHARE_OF_PEAK)
        lines.append(("time", f"{style.duration(seconds)} at {_SHARE_OF_PEAK:.0%} of the peak"))
    else:
        lines.append(("time", f"not known for {kind}; electra_jax.main prints it as ETA"))
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines)


def _main(parts):
    """What is fine-tuned: tables, the main network, and the trunk where it is shared."""
    return sum(parts.get(part, 0) for part in ("embeddings", "encoder", "discriminator"))


def _joined(parts):
    return ", ".join(f"{name} {count:,}" for name, count in parts.items())


def _scores_bytes(config, objective, mesh):
    """Scores of the vocabulary's pieces for one micro-batch, float32."""
    rows = config.data.batch_size / config.schedule.accumulation
    rows /= mesh.shape["data"] * mesh.shape["fsdp"]
    piece = min(fill.PIECE, objective.networks.padded_vocab_size)
    return np.ceil(rows) * objective.slots * piece * 4 / 2**20
