# SPDX-License-Identifier: Apache-2.0
"""What a fine-tuning command would do, without training: examples, rows, steps, FLOPs, time."""

import jax

from electra_jax.finetuning import config as finetuning_config
from electra_jax.finetuning.tuning import batches, choices, datasets, encoders, rates
from electra_jax.host import cluster, console_table
from electra_jax.model import accounting
from electra_jax.report import style

_SHARE_OF_PEAK = 0.2  # rows are short and batches small; the text names the share
_HEAD = ("task", "train", "dev", "rows", "cut to", "padded to", "rate", "epochs", "steps", "FLOPs")


def text(config: finetuning_config.Config, workdir: str) -> str:
    """A table with one line per task and point of the grid, then totals. Reads the tasks' files."""
    cluster.check_chips_are_free()
    mesh = choices.mesh(config)
    encoder = encoders.read(config, workdir, mesh)

    lines, total, remarks = [_HEAD], 0.0, choices.unread(config)
    for name in choices.tasks_in_order(config):
        task = datasets.task_named(config, name)
        prepared = datasets.prepare(
            config, task, encoder.vocabulary, encoder.max_tokens, encoder.pretrained_tokens
        )
        remarks += prepared.report.lines()
        if prepared.train is None:
            lines.append((name, "-", "-", *["-"] * 7))
            continue

        epoch_flops = _epoch_flops(encoder, prepared, config.recipe.batch_size)
        for point in choices.points(config, encoder, task.epochs):
            flops = epoch_flops * point.epochs
            total += flops * config.seeds
            lines.append(_line(name, prepared, point, config.recipe.batch_size, flops))

    return "\n".join(
        [
            *console_table.lines(lines),
            "",
            f"encoder     {encoder.parameters:,} parameters, {encoder.about['from']}",
            f"rates       {', '.join(_layer_factors(config, encoder))} of the peak",
            f"FLOPs       {total:.3g} in training over {config.seeds} seeds",
            f"time        {_time(total, mesh.devices.size)}, without evaluation",
            *(f"note        {line}" for line in remarks),
        ]
    )


def _line(name, prepared, point, batch_size, flops) -> tuple[str, ...]:
    rows = prepared.train.rows
    return (
        name,
        f"{prepared.counts['train']:,}",
        f"{sum(prepared.counts[split] for split in prepared.dev):,}",
        f"{len(rows):,}",
        str(prepared.length),
        "/".join(map(str, prepared.buckets)),
        rates.name(point.learning_rate),
        str(point.epochs),
        f"{batches.steps(len(rows), batch_size, point.epochs):,}",
        f"{flops:.3g}",
    )


def _epoch_flops(encoder, prepared, batch_size) -> float:
    """FLOPs of one epoch on padded rows; a task's head counts as the discriminator's own head."""
    pieces = batches.in_order(prepared.train.rows.lengths, prepared.buckets, batch_size)
    return sum(
        accounting.detection(encoder.networks, piece.length).train * batch_size for piece in pieces
    )


def _layer_factors(config, encoder) -> list[str]:
    """'head 1', 'layer 11 0.8', ...; the middle of a deep encoder is left out."""
    decay, recipe = choices.layer_decay(config, encoder), config.recipe
    layers = encoder.networks.discriminator.layers
    factors = rates.table(layers, decay, recipe.decay_rule, recipe.frozen_layers).items()
    ends = [f"{part} {factor:.3g}" for part, factor in factors]
    return ends if len(ends) <= 5 else [*ends[:3], "...", *ends[-2:]]


def _time(flops, devices) -> str:
    kind = jax.devices()[0].device_kind
    peak = accounting.peak(kind)
    if not peak:
        return f"not known for {kind}"
    seconds = flops / (peak * devices * _SHARE_OF_PEAK)
    return f"{style.duration(seconds)} at {_SHARE_OF_PEAK:.0%} of the peak"
