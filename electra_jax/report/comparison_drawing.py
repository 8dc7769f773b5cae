# SPDX-License-Identifier: Apache-2.0
"""Runs side by side as drawings: ladders of final metrics, and curves on shared axes.

    Comparison  ->  ladders: each group's final metric with its runs, error and baseline
                ->  curves:  every run on shared axes, and the mean of each group
                ->  picture: both in one PNG; ladder_svg, curve_svg: one each for the page

In a ladder a dot is a run, a line reaches two standard errors of the mean to either side, and a
dashed stroke is what a guesser gets. Training curves are running means over a tenth of their
length.
"""

import dataclasses
import io
import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import figure as mpl_figure
from matplotlib import ticker

from electra_jax.report import comparison as comparison_lib
from electra_jax.report import drawing, style

_LADDERS = (  # metric, title
    ("gen_masked_loss", "Generator loss"),
    ("mlm_masked_loss", "Main network's loss"),
    ("disc_auc_unigram", "AUC on unigram replacements"),
    ("disc_auc", "AUC on its own generator"),
    ("disc_loss", "Discriminator loss"),
    ("gen_masked_accuracy", "Generator accuracy"),
    ("disc_accuracy", "Discriminator accuracy"),
    ("mlm_masked_accuracy", "Main network's accuracy"),
)
_CURVES = (  # kind of row, metric, title, unit
    ("eval", "gen_masked_loss", "Generator loss", "held-out gen_masked_loss, nats"),
    ("eval", "mlm_masked_loss", "Main network's loss", "held-out mlm_masked_loss, nats"),
    ("eval", "disc_auc_unigram", "AUC on unigram replacements", "held-out disc_auc_unigram"),
    ("eval", "disc_auc", "AUC on its own generator", "held-out disc_auc"),
    ("eval", "disc_loss", "Discriminator loss", "held-out disc_loss, nats"),
    ("eval", "loss", "Loss", "held-out loss, weighted as each run has it"),
    ("train", "loss", "Training loss", "loss, weighted as each run has it"),
    ("train", "grad_norm", "Gradient norm", "grad_norm, before clipping"),
    ("train", "learning_rate", "Learning rate", "learning_rate"),
    ("train", "tokens_per_second", "Speed", "tokens_per_second"),
)
ALONG = {"step": "steps", "tokens_seen": "tokens seen"}
MARKS = {"better": "good", "worse": "bad"}  # verdict -> colour of the palette
_POINTS = 300  # per curve; more than a panel can show


@dataclasses.dataclass(frozen=True)
class _Line:
    """A curve of one run, or the mean of a group."""

    x: np.ndarray
    y: np.ndarray
    group: int
    look: str  # 'run', 'mean'
    error: np.ndarray | None = None  # of a mean: the standard error at each point


@dataclasses.dataclass(frozen=True)
class _Panel:
    """One chart of curves."""

    title: str
    unit: str
    name: str  # of the metric
    along: str  # 'step' or 'tokens_seen'
    lines: Sequence[_Line]
    baseline: float | None


def picture(comparison: comparison_lib.Comparison) -> bytes:
    """The groups in words, then the ladders, then the curves, three charts in a row.

    Heights are inches, measured from the top.
    """
    palette = style.LIGHT
    ladders = ladder_metrics(comparison)[:6]
    along = "tokens_seen" if comparison_lib.tokens_say_more(comparison) else "step"
    panels = curve_panels(comparison, along) or curve_panels(comparison, "step")
    groups, notes = comparison.groups, comparison.notes

    rung = 0.42 * len(groups) + 0.35
    ladder_rows, curve_rows = math.ceil(len(ladders) / 3), math.ceil(len(panels) / 3)
    top = 0.95 + 0.27 * (len(groups) + len(notes)) + 0.6
    height = top + ladder_rows * (rung + 1.0) + curve_rows * 3.0 + 0.2
    figure = mpl_figure.Figure(figsize=(15, height), facecolor=palette["card"])

    def say(text, below, size, colour, weight="normal", left=0.045):
        figure.text(
            left, 1 - below / height, text, fontsize=size, color=palette[colour],
            fontweight=weight, parse_math=False,
        )  # fmt: skip

    say(headline(comparison), 0.45, 16, "ink", "bold")
    at = 0.85  # of the next line of text
    for place, group in enumerate(groups):
        say(caption(group), at, 11, style.GROUPS[place % len(style.GROUPS)], "bold")
        at += 0.27
    for note in notes:
        say(f"Note: {note}.", at, 10, "muted")
        at += 0.27

    left, wide, gap = 0.045, 0.165, 0.325  # shares of the width
    for place, (name, title) in enumerate(ladders):
        row, column = divmod(place, 3)
        bottom = top + row * (rung + 1.0) + rung
        axes = figure.add_axes((left + gap * column, 1 - bottom / height, wide, rung / height))
        _draw_ladder(axes, comparison, name, title, palette)

    for place, panel in enumerate(panels):
        row, column = divmod(place, 3)
        bottom = top + ladder_rows * (rung + 1.0) + row * 3.0 + 1.95
        axes = figure.add_axes((left + gap * column, 1 - bottom / height, 0.235, 1.95 / height))
        _draw_curves(axes, panel, palette)
    if not ladders and not panels:
        say("Nothing to draw yet.", top, 11, "muted")

    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return file.getvalue()


def headline(comparison: comparison_lib.Comparison) -> str:
    """`9 runs, 3 configurations: disc_weight`."""
    runs, groups = len(comparison.runs), len(comparison.groups)
    if groups == 1:
        return f"{runs} runs of one configuration"

    names = [path.rpartition(".")[2] for path in comparison.differing]
    names = names if len(names) <= 3 else [*names[:3], f"{len(names) - 3} more"]
    return f"{runs} runs, {groups} configurations: {', '.join(names)}"


def caption(group: comparison_lib.Group) -> str:
    """`B  disc_weight 50, 3 seeds  ·  step 2,000, 8.06M tokens`."""
    facts = [group.title]
    step = comparison_lib.progress(group, "step")
    tokens = comparison_lib.progress(group, "tokens_seen")
    if step is not None:
        facts.append(f"step {step:,.0f}" + (f", {style.count(tokens)} tokens" if tokens else ""))
    return "  ·  ".join(facts)


def ladder_svg(comparison: comparison_lib.Comparison, name: str, title: str) -> str:
    """The ladder of one metric for the page."""
    rung = 0.42 * len(comparison.groups) + 0.35
    height = rung + 1.0
    figure = mpl_figure.Figure(figsize=(4.6, height), facecolor="none")
    axes = figure.add_axes((0.05, 0.3 / height, 0.55, rung / height))
    _draw_ladder(axes, comparison, name, title, drawing.STAND_INS)
    return drawing.svg(figure, title)


def curve_svg(panel: _Panel) -> str:
    """The curves of one metric for the page."""
    figure = mpl_figure.Figure(figsize=(4.6, 2.75), facecolor="none")
    axes = figure.add_axes((0.105, 0.16, 0.67, 0.62))
    _draw_curves(axes, panel, drawing.STAND_INS)
    return drawing.svg(figure, f"{panel.title} by {ALONG[panel.along]}")


def look(group: int, palette: Mapping[str, str]) -> tuple[str, tuple]:
    """Colour and dashes of a group; where there are more groups than colours, they are dashed."""
    rounds, place = divmod(group, len(style.GROUPS))
    return palette[style.GROUPS[place]], (0, ()) if not rounds else (0, (4, 1 + rounds))


# --- curves -----------------------------------------------------------------------------------


def curve_panels(comparison: comparison_lib.Comparison, along: str) -> list[_Panel]:
    """The panels in which at least one run has something to show."""
    panels = []
    for kind, name, title, unit in _CURVES:
        lines = []
        for place, group in enumerate(comparison.groups):
            runs = [run.curve(kind, name, along) for run in group.runs]
            runs = [_thinned(np.array(x, float), np.array(y, float)) for x, y in runs if x]

            # Training metrics are noisy, so they are smoothed; a learning rate is exact.
            if kind == "train" and name != "learning_rate":
                runs = [(x, drawing.smoothed(y, 0.1)) for x, y in runs]
            lines += [_Line(x, y, place, "run") for x, y in runs]

            if len(group.runs) > 1 and len(runs) == len(group.runs):
                lines += _mean_line(runs, place)

        if lines:
            panels.append(_Panel(title, unit, name, along, lines, _baseline(comparison, name)))
    return panels


def _baseline(comparison: comparison_lib.Comparison, name: str) -> float | None:
    """What a guesser gets in every group. Returns None if groups differ or it is not known."""
    found = [comparison_lib.baseline(group, name) for group in comparison.groups]
    values = [one.value for one in found if one is not None]
    alike = values and max(values) - min(values) <= 0.005 * abs(values[0])
    return values[0] if alike else None


def _thinned(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most _POINTS points, each the mean of equally many neighbours."""
    size = math.ceil(len(x) / _POINTS)
    if size <= 1:
        return x, y

    # The last group is filled up with copies of the last point.
    fill = -len(x) % size
    return tuple(np.pad(v, (0, fill), "edge").reshape(-1, size).mean(axis=1) for v in (x, y))


def _mean_line(runs: Sequence[tuple[np.ndarray, np.ndarray]], group: int) -> list[_Line]:
    """The mean of a group, point by point, up to the end of the shortest run.

    Returns no line if the runs reported at different steps.
    """
    length = min(len(x) for x, _ in runs)
    xs, ys = (np.stack([run[lane][:length] for run in runs]) for lane in (0, 1))

    # Points are averaged by their number, so they must lie at about the same place.
    if np.ptp(xs, axis=0).max() > 0.02 * xs.max():
        return []

    error = ys.std(axis=0, ddof=1) / math.sqrt(len(runs))
    return [_Line(xs.mean(axis=0), ys.mean(axis=0), group, "mean", error)]


def _draw_curves(axes, panel: _Panel, palette: Mapping[str, str]) -> None:
    """One chart of curves; the runs of a group are faint where their mean is drawn."""
    drawing.frame(axes, palette)
    axes.grid(axis="y", color=palette["grid"], linewidth=0.8)

    with_mean = {line.group for line in panel.lines if line.look == "mean"}
    ends: dict[int, tuple[float, float]] = {}
    for line in panel.lines:
        colour, dashes = look(line.group, palette)
        if line.look == "mean":
            axes.plot(line.x, line.y, color=colour, linewidth=2, linestyle=dashes)
            low, high = line.y - line.error, line.y + line.error
            axes.fill_between(line.x, low, high, color=colour, alpha=0.16, linewidth=0)
        else:
            faint = line.group in with_mean
            axes.plot(
                line.x, line.y, color=colour, linestyle=dashes,
                linewidth=0.8 if faint else 1.8, alpha=0.45 if faint else 1,
            )  # fmt: skip

        if line.look == "mean" or line.group not in with_mean:
            ends[line.group] = (line.x[-1], line.y[-1])
            if len(line.x) == 1:
                axes.plot(line.x, line.y, "o", color=colour, markersize=5, clip_on=False)

    # The limits come before the baseline and the labels, which depend on them.
    _limit_curves(axes, panel)
    end = max(line.x[-1] for line in panel.lines)
    axes.set_xlim(0, max(end, 1))
    low, high = axes.get_ylim()
    if panel.baseline is not None and low <= panel.baseline <= high:
        axes.axhline(panel.baseline, color=palette["muted"], linewidth=1.1, linestyle=(0, (5, 3)))
    _label_ends(axes, ends, palette)

    places = ticker.MaxNLocator(nbins=4, integer=True).tick_values(0, end)
    places = [place for place in places if 0 <= place <= end]
    axes.set_xticks(places, [drawing.rounded(place, end) for place in places])
    axes.set_xlabel(ALONG[panel.along], fontsize=8.5, color=palette["muted"], loc="right")
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(drawing.tick))
    drawing.title(axes, panel.title, panel.unit, palette)


def _limit_curves(axes, panel: _Panel) -> None:
    """The limits that all runs share.

    A steep start may leave the picture, since runs are compared by how they end: the first tenth of
    each run does not count for the upper limit.
    """
    late, whole = [], []
    for line in panel.lines:
        whole.append(line.y)
        late.append(line.y[len(line.y) // 10 :])
    low, high = np.concatenate(whole).min(), np.quantile(np.concatenate(late), 0.995)
    high = max(high, max(line.y[-1] for line in panel.lines))

    room = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
    zero = panel.name == "tokens_per_second" or (low >= 0 and low < 0.3 * high)
    axes.set_ylim(0 if zero else low - room, high + room)
    axes.yaxis.set_major_locator(ticker.MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))


def _label_ends(axes, ends: Mapping[int, tuple[float, float]], palette) -> None:
    """A group's letter and last value beside the end of its line; labels do not overlap."""
    points = axes.transAxes.inverted().transform(axes.transData.transform(list(ends.values())))

    # Lines that end at about the same place share a column of labels.
    columns = np.round(points[:, 0] * 6)
    for column in np.unique(columns):
        inside = np.flatnonzero(columns == column)
        heights = drawing.spread(np.clip(points[inside, 1], 0, 1), 0.105)
        heights += max(0.0, 0.05 - heights.min())  # keeps clear of the numbers of the axis

        for place, height in zip(inside, heights):
            group, (_, value) = list(ends.items())[place]
            number = f"{value:.3f}" if 0.1 <= abs(value) < 100 else drawing.tick(value)
            x = points[inside, 0].max() + 0.02
            # The lines of longer runs pass behind the label of a run that ended early.
            behind = dict(facecolor=palette["card"], alpha=0.75, linewidth=0, pad=0.6)
            axes.text(
                x, height, f"{comparison_lib.letter(group)} {number}",
                transform=axes.transAxes, fontsize=8.5, va="center", fontweight="bold",
                color=look(group, palette)[0], bbox=behind if x < 1 else None, parse_math=False,
            )  # fmt: skip


# --- ladders ----------------------------------------------------------------------------------


def ladder_metrics(comparison: comparison_lib.Comparison) -> list[tuple[str, str]]:
    """(metric, title) of each ladder that has something to show."""
    return [(name, title) for name, title in _LADDERS if name in comparison.metrics]


def _draw_ladder(
    axes, comparison: comparison_lib.Comparison, name: str, title: str, palette: Mapping[str, str]
) -> None:
    """The final values of one metric: one line per group, the first at the top."""
    drawing.frame(axes, palette)
    axes.grid(axis="x", color=palette["grid"], linewidth=0.8)

    groups = comparison.groups
    first = comparison_lib.final(groups[0], name)
    shown, trivial = [], []
    for place, group in enumerate(groups):
        found = comparison_lib.final(group, name)
        if found is None:
            continue

        colour, _ = look(place, palette)
        values = comparison_lib.finals(group, name)
        spread = 2 * (found.error or 0)
        shown += [*values, found.value - spread, found.value + spread]
        axes.plot(values, np.full(len(values), place), "o", color=colour, alpha=0.35, markersize=5,
                  markeredgewidth=0)  # fmt: skip
        if found.error is not None:
            ends = [found.value - spread, found.value + spread]
            axes.plot(ends, [place, place], color=colour, linewidth=2)
        axes.plot(found.value, place, "D" if found.error is not None else "o", color=colour,
                  markersize=7)  # fmt: skip

        beside = comparison_lib.with_error(name, found)
        apart = comparison_lib.effect(name, found, first) if place and first else None
        _beside(axes, place, name, beside, apart, colour, palette)
        guess = comparison_lib.baseline(group, name)
        if guess is not None:
            trivial.append((place, guess))

    # A baseline far from all runs is left out, so it is drawn once the limits are known.
    _limit_ladder(axes, name, shown, trivial, len(groups), palette)
    low, high = axes.get_xlim()
    for place, guess in trivial:
        if low <= guess.value <= high:
            axes.plot([guess.value] * 2, [place - 0.36, place + 0.36], color=palette["muted"],
                      linewidth=1.3, linestyle=(0, (3, 2)))  # fmt: skip

    unit = name
    if trivial:
        values = [guess.value for _, guess in trivial]
        words = trivial[0][1].name.replace("_", " ")
        text = style.metric(name, min(values))
        if style.metric(name, max(values)) != text:
            text += f" to {style.metric(name, max(values))}"
        unit += f"; {words} {text}" + ("" if low <= min(values) <= high else ", beyond the axis")
    drawing.title(axes, title, unit, palette)


def _beside(axes, place, name, value, apart, colour, palette) -> None:
    """A group's value at the right, and below it the distance from the first group."""
    where = axes.get_yaxis_transform()
    axes.text(1.03, place - (0.18 if apart else 0), value, transform=where, fontsize=9,
              va="center", color=colour, fontweight="bold", parse_math=False)  # fmt: skip
    if apart:
        words = f"{comparison_lib.signed(name, apart)}, {apart.verdict}"
        mark = MARKS.get(apart.verdict, "muted")
        axes.text(1.03, place + 0.2, words, transform=where, fontsize=7.8, va="center",
                  color=palette[mark], parse_math=False)  # fmt: skip


def _limit_ladder(axes, name, shown, trivial, count, palette) -> None:
    """Fits the axis to the runs, and to the baselines that lie near enough not to squeeze them."""
    low, high = min(shown), max(shown)
    room = (high - low) or 0.02 * abs(high) or 0.01
    for _, guess in trivial:
        if low - 2 * room <= guess.value <= high + 2 * room:
            low, high = min(low, guess.value), max(high, guess.value)
    room = 0.12 * ((high - low) or room)
    axes.set_xlim(low - room, high + room)
    axes.set_ylim(count - 0.5, -0.5)

    letters = [comparison_lib.letter(place) for place in range(count)]
    axes.set_yticks(range(count), letters, fontweight="bold")
    for place, label in enumerate(axes.get_yticklabels()):
        label.set_color(look(place, palette)[0])

    axes.xaxis.set_major_locator(ticker.MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10]))
    percent = style.is_share(name)
    axes.xaxis.set_major_formatter(
        ticker.FuncFormatter(lambda x, _: f"{100 * x:.4g}%" if percent else f"{x:.4g}")
    )
