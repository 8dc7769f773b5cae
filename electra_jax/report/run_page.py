# SPDX-License-Identifier: Apache-2.0
"""What a run looks like: `report.html` and `report.png`, drawn from its metrics.

    rows of metrics.jsonl  ->  series (step, value)  ->  panels  ->  report.png, one picture
    summary of the run     ->  tiles, tables, samples            ->  report.html, one whole file

Everything is held against what a guesser that has learnt nothing would get (`baselines.py`).
The same function draws a panel for the picture and for the page; in the page it becomes SVG whose
colours are CSS variables, so that it follows the reader's light or dark setting.
"""

import dataclasses
import io
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
from matplotlib import figure as mpl_figure
from matplotlib import ticker

from electra_jax.report import alarms as alarms_lib
from electra_jax.report import baselines, drawing, rendering, style


class Summary(TypedDict, total=False):
    """What the report says beside the curves. Every entry may be left out."""

    name: str  # of the run
    status: str  # 'running', 'finished' or 'stopped'
    note: str  # plain words, such as why it stopped
    steps: int  # the last step of the schedule; 0 where something else is the budget
    budget: str  # in words: '1,000 steps', '10.0B tokens'
    device: str  # in words: '8 x TPU v5e'
    elapsed_seconds: float
    parameters: Mapping[str, int]  # part -> count, as 'generator' -> 3_000_000
    config: Mapping[str, Any]  # highlights or all of it; nested mappings become dotted names
    corpus: Mapping[str, Any]  # facts from the data's manifest
    evaluation: Mapping[str, float | None]  # latest; default: the last eval row
    samples: Sequence[str]  # HTML fragments from `view.to_html`
    rollbacks: Sequence[str]  # sentences, one for each time that the run went back, in their order


STATUSES = ("running", "finished", "stopped")


def write(workdir: str | os.PathLike, rows: Sequence[Mapping], summary: Summary) -> None:
    """Writes `report.png` and `report.html` into `workdir`, each at once or not at all.

    Args:
      rows: the rows of `metrics.jsonl` in their order; may be empty and may hold nulls.

    Raises:
      ValueError: an entry or a status of the summary that does not exist.
    """
    unknown = sorted(summary.keys() - Summary.__annotations__.keys())
    if unknown:
        known = ", ".join(Summary.__annotations__)
        raise ValueError(f"summary has no entry {unknown[0]!r}; known are {known}")
    if summary.get("status", "running") not in STATUSES:
        raise ValueError(f"status {summary['status']!r} is unknown; use one of {STATUSES}")
    curves = _Curves.of(rows)
    panels = _panels(curves)
    drawing.write_whole(
        os.path.join(os.fspath(workdir), "report.png"), _picture(curves, panels, summary)
    )
    page = _page(curves, panels, summary)
    drawing.write_whole(os.path.join(os.fspath(workdir), "report.html"), page.encode())


# --- series ---------------------------------------------------------------------------------

POINTS = 600  # more than a panel has pixels to tell apart
ALARMS = 12  # sentences shown; the marks in the curves are all of them


@dataclasses.dataclass(frozen=True)
class _Series:
    steps: np.ndarray
    values: np.ndarray

    def __bool__(self):
        return len(self.steps) > 0


@dataclasses.dataclass(frozen=True)
class _Curves:
    """The rows turned round: (kind, metric) -> its finite points."""

    series: Mapping[tuple[str, str], _Series]
    last: Mapping[str, Mapping]  # kind -> its last row
    last_step: int
    alarms: Sequence[alarms_lib.Alarm]

    @classmethod
    def of(cls, rows: Sequence[Mapping]) -> "_Curves":
        points: dict[tuple[str, str], tuple[list, list]] = {}
        last: dict[str, Mapping] = {}
        for row in rows:
            kind, step = row["kind"], row["step"]
            last[kind] = row
            for name, value in (row | _baselines(row)).items():
                if name in ("step", "kind") or value is None or not math.isfinite(value):
                    continue
                steps, values = points.setdefault((kind, name), ([], []))
                steps.append(step)
                values.append(value)
        series = {
            key: _Series(np.array(s, float), np.array(v, float)) for key, (s, v) in points.items()
        }
        end = max((row["step"] for row in rows), default=0)
        return cls(series, last, end, alarms_lib.alarms(rows))

    def get(self, kind: str, name: str) -> _Series:
        return self.series.get((kind, name), _NOTHING)


_NOTHING = _Series(np.zeros(0), np.zeros(0))


def _baselines(row: Mapping) -> dict[str, float]:
    """What the metrics of a row are held against, as `baseline of disc_loss`."""
    found = {name: baselines.of(name, row) for name in _HELD_AGAINST if name in row}
    return {f"baseline of {name}": line.value for name, line in found.items() if line is not None}


_HELD_AGAINST = ("gen_masked_loss", "mlm_masked_loss", "disc_loss", "disc_accuracy")


def _thinned(series: _Series) -> tuple[_Series, np.ndarray, np.ndarray]:
    """At most POINTS means over equal runs of points, and where 90 % of each run lies."""
    size = math.ceil(len(series.steps) / POINTS)
    if size <= 1:
        return series, series.values, series.values
    fill = -len(series.steps) % size
    runs = [
        np.pad(lane, (0, fill), "edge").reshape(-1, size) for lane in (series.steps, series.values)
    ]
    low, high = np.quantile(runs[1], (0.05, 0.95), axis=1)
    return _Series(*(run.mean(axis=1) for run in runs)), low, high


# --- panels: what is drawn, before any drawing ------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Line:
    label: str
    series: _Series
    look: str  # 'train' (running mean in a band), 'exact', 'eval' (dots), 'baseline' (dashed)
    colour: str  # a name of the palette


@dataclasses.dataclass(frozen=True)
class _Panel:
    title: str
    unit: str
    lines: tuple[_Line, ...]
    log: bool = False
    percent: bool = False
    from_zero: bool = False


def _panels(curves: _Curves) -> list[_Panel]:
    """The panels that have something to show, in the order of the method."""
    end = curves.last_step
    whole = np.array([0, max(end, 1)], float)

    def train(name, colour, label="train"):
        return _Line(label, curves.get("train", name), "train", colour)

    def held(name, colour, label="held-out"):
        return _Line(label, curves.get("eval", name), "eval", colour)

    def level(name, label):
        series = curves.get("eval", name) or curves.get("train", name)
        if len(series.steps) == 1 or (series and np.ptp(series.values) == 0):
            series = _Series(whole, np.full(2, series.values[-1]))
        return _Line(label, series, "baseline", "muted")

    def baseline(name, label):
        return level(f"baseline of {name}", label)

    unigram = baseline("gen_masked_loss", "unigram")
    chance = _Line("chance", _Series(whole, np.full(2, baselines.CHANCE)), "baseline", "muted")
    # Like is held against like: the masked slots alone, where training reports them.
    masked = curves.get("train", "gen_masked_loss")
    trained = "gen_masked_loss" if masked else "gen_loss"
    rates = [
        _Line(label, curves.get("train", name), "exact", colour)
        for name, colour, label in (
            ("learning_rate", "shared", ""),
            ("gen_learning_rate", "generator", "generator"),
            ("disc_learning_rate", "discriminator", "discriminator"),
            ("muon_learning_rate", "ink", "matrices"),
        )
    ]
    norms = [train("grad_norm", "muted", "all")] + [
        train(f"grad_norm_{part}", colour, part)
        for part, colour in (
            ("embeddings", "shared"),
            ("encoder", "shared"),
            ("generator", "generator"),
            ("discriminator", "discriminator"),
        )
    ]
    g, d = "generator", "discriminator"
    drafts = [
        _Panel(
            "Generator loss",
            f"{trained}, nats" if masked else "train gen_loss, held-out gen_masked_loss, nats",
            (unigram, train(trained, g), held("gen_masked_loss", g)),
        ),
        _Panel(
            "Main network's loss",
            "mlm_masked_loss, nats",
            (
                baseline("mlm_masked_loss", "unigram"),
                train("mlm_masked_loss", d),
                held("mlm_masked_loss", d),
            ),
        ),
        _Panel(
            "Main network's accuracy",
            "mlm_masked_accuracy",
            (train("mlm_masked_accuracy", d), held("mlm_masked_accuracy", d)),
            percent=True,
        ),
        _Panel(
            "Discriminator loss",
            "disc_loss, nats",
            (
                baseline("disc_loss", "constant guess"),
                train("disc_loss", d),
                held("disc_loss", d),
            ),
        ),
        _Panel(
            "Discriminator AUC",
            "disc_auc",
            (
                chance,
                train("disc_auc", d),
                held("disc_auc_unigram", "shared", "on unigram"),
                held("disc_auc", d),
            ),
        ),
        _Panel(
            "Generator accuracy",
            "gen_masked_accuracy" if masked else "train gen_accuracy, held-out gen_masked_accuracy",
            (
                train("gen_masked_accuracy" if masked else "gen_accuracy", g),
                held("gen_masked_accuracy", g),
            ),
            percent=True,
        ),
        _Panel(  # of a network that knows how little it knows, it is as large as its loss
            "Generator entropy",
            "gen_entropy, nats",
            (
                unigram,
                level("gen_masked_loss", "its loss"),
                train("gen_entropy", g),
                held("gen_entropy", g),
            ),
        ),
        _Panel(
            "Discriminator accuracy",
            "disc_accuracy",
            (
                baseline("disc_accuracy", "majority"),
                train("disc_accuracy", d),
                held("disc_accuracy", d),
            ),
            percent=True,
        ),
        _Panel(
            "Masked and replaced tokens",
            "masked_rate, replaced_rate",
            (train("masked_rate", g, "masked"), train("replaced_rate", d, "replaced")),
            percent=True,
        ),
        _Panel("Gradient norms", "grad_norm, before clipping", tuple(norms), log=True),
        _Panel("Learning rate", "learning_rate", tuple(rates)),
        _Panel(
            "Speed", "tokens_per_second", (train("tokens_per_second", "ink", ""),), from_zero=True
        ),
    ]
    panels = []
    for panel in drafts:
        lines = tuple(line for line in panel.lines if line.series)
        if any(line.look != "baseline" for line in lines):
            panels.append(dataclasses.replace(panel, lines=lines))
    return panels


# --- drawing --------------------------------------------------------------------------------


def _draw(axes, panel: _Panel, curves: _Curves, palette: Mapping[str, str]) -> None:
    """One panel: lines, their labels at the right end, steps below and tokens seen above."""
    axes.set_facecolor("none")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(palette["line"])
    axes.grid(axis="y", color=palette["grid"], linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", length=0, labelsize=8.5, labelcolor=palette["muted"], pad=4)
    if panel.log:
        axes.set_yscale("log")
    ends, extent = [], []
    for line in panel.lines:
        colour = palette[line.colour]
        means, low, high = _thinned(line.series)
        steps, shown = means.steps, means.values
        if line.look == "train":
            shown = drawing.smoothed(means.values)
            if len(panel.lines) < 4:  # more clouds than that would hide the lines
                axes.fill_between(steps, low, high, color=colour, alpha=0.14, linewidth=0)
                axes.plot(steps, means.values, color=colour, alpha=0.2, linewidth=0.7)
            faint = 0.5 if any(other.look == "eval" for other in panel.lines) else 1.0
            axes.plot(steps, shown, color=colour, linewidth=1.5, alpha=faint)
        elif line.look in ("eval", "exact"):
            axes.plot(steps, shown, color=colour, linewidth=1.8 if line.look == "eval" else 1.5)
        else:
            axes.plot(steps, shown, color=colour, linewidth=1.1, linestyle=(0, (5, 3)))
        if len(steps) == 1 or (line.look == "eval" and len(steps) <= 40):
            size = 6 if len(steps) == 1 else 3.6
            axes.plot(steps, shown, "o", color=colour, markersize=size, clip_on=False)
        extent.append(shown)
        ends.append((line, shown[-1]))
    for alarm in curves.alarms:
        if panel.title in _MARKED[alarm.name]:
            axes.axvline(alarm.step, color=palette["bad"], linewidth=1, linestyle=(0, (1, 2)))
    _limit(axes, panel, np.concatenate(extent))
    _label_ends(axes, panel, ends, palette)
    _label_steps(axes, curves, palette)
    axes.set_title(
        panel.title, loc="left", fontsize=11, fontweight="bold", color=palette["ink"], pad=34
    )
    axes.text(
        0, 1, panel.unit, transform=drawing.above(axes, 23), fontsize=8.5, color=palette["muted"],
        parse_math=False,
    )  # fmt: skip
    if panel.percent:
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda y, _: f"{100 * y:.4g}%"))
    elif panel.log:
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda y, _: f"{y:g}"))
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 3)))
        axes.yaxis.set_minor_locator(ticker.NullLocator())
    else:
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(drawing.tick))


_MARKED = {  # alarm -> the panels that it is seen in
    "loss_spike": (
        "Generator loss",
        "Main network's loss",
        "Discriminator loss",
        "Gradient norms",
    ),
    "main_network_collapse": ("Main network's loss",),
    "generator_collapse": ("Generator loss", "Generator accuracy", "Generator entropy"),
    "discriminator_collapse": (
        "Discriminator loss",
        "Discriminator AUC",
        "Discriminator accuracy",
    ),
}


def _limit(axes, panel: _Panel, values: np.ndarray) -> None:
    """Room for what is drawn solidly; a spike of a single step may leave the picture."""
    low, high = float(values.min()), float(values.max())
    if panel.log:
        low, high = max(low, 1e-6), max(high, 1e-6)
        axes.set_ylim(low / 1.6, high * 1.6)
        return
    room = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
    zero = panel.from_zero or (low >= 0 and (low < room or low < 0.3 * high))
    bottom, room = (0.0, max(room, 0.08 * high)) if zero else (low - room, room)
    axes.set_ylim(bottom, min(high + room, 1.0) if panel.percent and high <= 1 else high + room)
    axes.yaxis.set_major_locator(ticker.MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))


def _label_ends(axes, panel: _Panel, ends: list, palette: Mapping[str, str]) -> None:
    """Writes each line's name and last value beside its end, moved apart where they would meet."""
    heights = axes.transData.transform([(0, value) for _, value in ends])
    places = np.clip(axes.transAxes.inverted().transform(heights)[:, 1], 0, 1)
    places = drawing.spread(places, 0.105)  # a label's height, as a share of the panel's
    for (line, value), place in zip(ends, places):
        number = f"{100 * value:.1f}%" if panel.percent else drawing.tick(value)
        axes.text(
            1.02, place, f"{line.label} {number}".strip(), transform=axes.transAxes, fontsize=8.5,
            va="center", color=palette[line.colour], parse_math=False,
            fontweight="bold" if line.look == "eval" else "normal",
        )  # fmt: skip


def _label_steps(axes, curves: _Curves, palette: Mapping[str, str]) -> None:
    end = max(curves.last_step, 1)
    ticks = [
        t for t in ticker.MaxNLocator(nbins=4, integer=True).tick_values(0, end) if 0 <= t <= end
    ]
    axes.set_xlim(0, end)
    axes.set_xticks(ticks, [drawing.rounded(t, end) for t in ticks])
    axes.set_xlabel("steps", fontsize=8.5, color=palette["muted"], loc="right", labelpad=1)
    tokens = curves.get("train", "tokens_seen") or curves.get("eval", "tokens_seen")
    if not tokens:
        return
    at = np.interp(ticks, np.append(0, tokens.steps), np.append(0, tokens.values))
    for tick, seen in zip(ticks, at):
        if tick:
            label = f"{style.count(seen)} tokens" if tick == ticks[-1] else style.count(seen)
            axes.text(
                tick / end, 1, label, transform=drawing.above(axes, 6), fontsize=7.5, ha="center",
                color=palette["muted"],
            )  # fmt: skip


def _picture(curves: _Curves, panels: Sequence[_Panel], summary: Summary) -> bytes:
    """All panels in one PNG, three in a row, under the run's name and its verdict."""
    palette = style.LIGHT
    rows = max(1, math.ceil(len(panels) / 3))
    height = 1.0 + 3.0 * rows
    figure = mpl_figure.Figure(figsize=(15, height), facecolor=palette["card"])
    title = f"{summary.get('name', 'run')}  ·  step {curves.last_step:,}"
    verdict = baselines.verdict(_evaluation(curves, summary))
    for text, below, size, colour, weight in (
        (title, 0.38, 16, "ink", "bold"),
        (verdict, 0.66, 11, "muted", "normal"),
    ):
        figure.text(
            0.045, 1 - below / height, text, fontsize=size, color=palette[colour],
            fontweight=weight, parse_math=False,
        )  # fmt: skip
    if not panels:
        figure.text(0.045, 0.5, _NOTHING_YET, fontsize=11, color=palette["muted"])
    grid = figure.add_gridspec(
        rows, 3, left=0.045, right=0.905, bottom=0.5 / height, top=1 - 1.65 / height,
        wspace=0.55, hspace=0.72,
    )  # fmt: skip
    for place, panel in enumerate(panels):
        _draw(figure.add_subplot(grid[place // 3, place % 3]), panel, curves, palette)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return file.getvalue()


def _svg(panel: _Panel, curves: _Curves) -> str:
    """A panel as inline SVG in the colours and the font of the page around it."""
    figure = mpl_figure.Figure(figsize=(4.6, 2.9), facecolor="none")
    axes = figure.add_axes((0.105, 0.14, 0.63, 0.6))
    _draw(axes, panel, curves, drawing.STAND_INS)
    return drawing.svg(figure, panel.title)


# --- the page -------------------------------------------------------------------------------

_NOTHING_YET = "Nothing to draw yet: the first metrics are on their way."

_TILES = (
    ("gen_masked_loss", "Generator loss"),
    ("mlm_masked_loss", "Main network's loss"),
    ("gen_masked_accuracy", "Generator accuracy"),
    ("disc_auc", "Discriminator AUC"),
    ("disc_accuracy", "Discriminator accuracy"),
)


def _page(curves: _Curves, panels: Sequence[_Panel], summary: Summary) -> str:
    evaluation = _evaluation(curves, summary)
    latest = list(curves.alarms)[::-1][:ALARMS]
    source_metrics, sources = _sources(evaluation)
    tables = {
        title: {name: _fact(value) for name, value in _flat(summary.get(entry) or {}).items()}
        for title, entry in (("Data", "corpus"), ("Config", "config"))
    }
    return rendering.render(
        "run.html.j2",
        title=summary.get("name", "run"),
        status=summary.get("status"),
        verdict=baselines.verdict(evaluation),
        **_progress(curves, summary),
        tiles=_tiles(evaluation, curves.last.get("train", {})),
        alarms=[{"step": f"{alarm.step:,}", "sentence": alarm.sentence} for alarm in latest],
        earlier_alarms=len(curves.alarms) - len(latest),
        rollbacks=list(summary.get("rollbacks", ()))[::-1],
        charts=[_svg(panel, curves) for panel in panels],
        nothing_yet=_NOTHING_YET,
        source_metrics=source_metrics,
        sources=sources,
        samples=summary.get("samples"),
        parameters=_parameters(summary.get("parameters") or {}),
        tables=[(title, facts) for title, facts in tables.items() if facts],
    )


def _evaluation(curves: _Curves, summary: Summary) -> Mapping:
    return summary.get("evaluation") or curves.last.get("eval", {})


def _progress(curves: _Curves, summary: Summary) -> dict[str, Any]:
    """The line of facts below the verdict, and how many percent of the run are done."""
    step, steps = curves.last_step, summary.get("steps")
    status = summary.get("status")
    facts = [f"step {step:,}" + (f" of {steps:,}" if steps else "")]
    if "elapsed_seconds" in summary:
        facts.append(
            f"{style.duration(summary['elapsed_seconds'])} so far"
            if status == "running"
            else style.duration(summary["elapsed_seconds"])
        )

    train = curves.last.get("train", {})
    share = baselines.value(train, "progress")
    if share is not None and summary.get("budget"):
        facts[0] += f", {share:.1%} of {summary['budget']}"
    elif steps:
        share = min(1.0, step / steps)
    left = baselines.seconds_left(step, steps or 0, train)
    if status == "running" and share is not None and left is not None:
        facts.append(f"{style.duration(left)} left")

    if "parameters" in summary:
        facts.append(f"{style.count(sum(summary['parameters'].values()))} parameters")
    facts += [summary[entry] for entry in ("device", "note") if summary.get(entry)]
    return {"facts": facts, "done": None if share is None else f"{100 * share:.1f}"}


@dataclasses.dataclass(frozen=True)
class _Tile:
    """A number of the latest row, large, with a few words below it."""

    title: str
    value: str
    beside: str
    marked: str = ""  # words before `beside` in the colour of `mark`
    mark: str = "bad"  # or 'good'


def _tiles(evaluation: Mapping, train: Mapping) -> list[_Tile]:
    tiles = []
    for name, title in _TILES:
        value = baselines.value(evaluation, name)
        if value is None:
            continue
        shown, baseline = style.metric(name, value), baselines.of(name, evaluation)
        if baseline is None:
            tiles.append(_Tile(title, shown, "of the masked tokens"))
            continue
        side = baseline.side(value)
        arrow = "▼" if side == "below" else "▲"
        trivial = style.metric(name, baseline.value)
        tiles.append(
            _Tile(
                title,
                shown,
                f"{side} {baseline.name.replace('_', ' ')} {trivial}",
                f"{arrow} {style.difference(name, abs(baseline.margin(value)))}",
                "good" if baseline.margin(value) > 0 else "bad",
            )
        )

    tokens, epoch = baselines.value(train, "tokens_seen"), baselines.value(train, "epoch")
    if tokens is not None:
        beside = "" if epoch is None else f"{epoch:.3g} epochs over the data"
        tiles.append(_Tile("Tokens seen", style.count(tokens), beside))
    speed, mfu = baselines.value(train, "tokens_per_second"), baselines.value(train, "mfu")
    if speed is not None:
        beside = "" if mfu is None else f"{100 * mfu:.1f}% of the peak (MFU)"
        tiles.append(_Tile("Tokens per second", style.count(speed), beside))
    skipped = baselines.value(train, "skipped_steps")
    if skipped:
        beside = "or a spike, never applied"
        tiles.append(_Tile("Skipped steps", style.count(skipped), beside, "not finite"))
    return tiles


def _sources(evaluation: Mapping) -> tuple[list[str], list[dict]]:
    """The metrics reported by source, as `disc_auc/wiki`: their names, and a row per source."""
    split = [key.partition("/") for key in evaluation if "/" in key]
    sources = list(dict.fromkeys(source for _, _, source in split))
    stems = [stem for stem in dict.fromkeys(s for s, _, _ in split) if stem not in _LINES]
    rows = [
        {"name": source, "cells": [_cell(f"{stem}/{source}", evaluation) for stem in stems]}
        for source in sources
    ]
    return stems, rows


def _cell(name: str, evaluation: Mapping) -> dict[str, str]:
    """A value and, where it has one, its baseline."""
    value, baseline = baselines.value(evaluation, name), baselines.of(name, evaluation)
    cell = {"value": style.metric(name, value), "trivial": "", "mark": ""}
    if value is not None and baseline is not None:
        cell["trivial"] = style.metric(name, baseline.value)
        cell["mark"] = "good" if baseline.margin(value) > 0 else "bad"
    return cell


_LINES = ("unigram_entropy", "disc_majority")  # stand beside what they are the baseline of


def _parameters(parameters: Mapping[str, int]) -> list[dict[str, str]]:
    """Each part's count and the width of its bar, in percent of the largest part's."""
    most = max(parameters.values(), default=0)
    return [
        {"name": part, "count": f"{number:,}", "width": f"{max(1, 100 * number / most):.0f}"}
        for part, number in parameters.items()
    ]


def _flat(facts: Mapping, prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted names: {'data': {'rows': 'pairs'}} -> {'data.rows': 'pairs'}."""
    flat = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _fact(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    return ", ".join(map(_fact, value)) if isinstance(value, (list, tuple)) else str(value)
