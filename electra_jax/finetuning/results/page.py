# SPDX-License-Identifier: Apache-2.0
"""What fine-tuning came to as one HTML file that needs nothing beside it.

    Results  ->  header, warnings  ->  scores by task  ->  where the seeds ended
             ->  curves of every seed                  ->  how each task was trained, notes

Blue is what was fine-tuned, grey a control (the same architecture from random weights, say), red a
seed that a warning names. Thin lines are seeds, the thick one is their median; a dashed stroke is
what the same answer to every example gets.
"""

import dataclasses
import html
import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import figure as mpl_figure
from matplotlib import ticker

from electra_jax.finetuning.results import results_table, run_results
from electra_jax.finetuning.results import scores as scores_lib
from electra_jax.report import drawing, style

_OURS, _CONTROL, _FAILED = "second", "first", "bad"


def write(
    path: str, results: run_results.Results, control: run_results.Results | None = None
) -> None:
    """Writes the page at once or not at all.

    Args:
      control: what the results are held against, task by task.
    """
    drawing.write_whole(path, _page(results, control).encode())


# --- curves -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Line:
    x: np.ndarray
    y: np.ndarray
    colour: str
    look: str  # 'seed', 'median'
    label: str = ""


@dataclasses.dataclass(frozen=True)
class _Panel:
    title: str
    unit: str
    metric: str  # '' for the loss
    lines: Sequence[_Line]
    guess: float | None = None


def _panels(task: run_results.TaskResult) -> list[_Panel]:
    """Dev score and training loss, as far as the seeds have reported them."""
    panels = []
    scored = [
        (seed.seed, [(p.step, p.scores[task.main]) for p in seed.curve if task.main in p.scores])
        for seed in task.seeds
    ]
    lines = _lines(task, scored)
    if lines:
        split = task.splits[0] if task.splits else "dev"
        guess = task.baseline(split, task.main)
        unit = f"{task.main} on {split}"
        panels.append(_Panel(f"{task.task}: score", unit, task.main, lines, guess))
    losses = [
        (seed.seed, [(p.step, p.loss) for p in seed.curve if p.loss is not None])
        for seed in task.seeds
    ]
    lines = _lines(task, losses)
    if lines:
        panels.append(_Panel(f"{task.task}: training loss", "loss", "", lines))
    return panels


def _lines(task: run_results.TaskResult, runs) -> list[_Line]:
    """A line a seed, and their median where they report at the same steps."""
    runs = [(seed, [(x, y) for x, y in points if math.isfinite(y)]) for seed, points in runs]
    runs = [(seed, np.array(points, float).T) for seed, points in runs if points]
    named = {seed for seed, _ in task.warnings}
    lines = []
    for seed, (x, y) in runs:
        alone = len(runs) == 1
        colour = _FAILED if seed in named else _OURS
        label = f"seed {seed}" if seed in named and not alone else ""
        lines.append(_Line(x, y, colour, "median" if alone else "seed", label))
    together = len(runs) > 1 and all(np.array_equal(x, runs[0][1][0]) for _, (x, _) in runs)
    if together:
        median = np.median([y for _, (_, y) in runs], axis=0)
        lines.append(_Line(runs[0][1][0], median, _OURS, "median", "median"))
    return lines


def _draw_curves(axes, panel: _Panel, palette: Mapping[str, str]) -> None:
    drawing.frame(axes, palette)
    axes.grid(axis="y", color=palette["grid"], linewidth=0.8)
    for line in panel.lines:
        thick = line.look == "median"
        axes.plot(
            line.x, line.y, color=palette[line.colour], linewidth=2 if thick else 0.9,
            alpha=1 if thick or line.colour == _FAILED else 0.5,
            marker="o" if len(line.x) == 1 else None, markersize=5, clip_on=False,
        )  # fmt: skip
    values = np.concatenate([line.y for line in panel.lines])
    low, high = values.min(), values.max()
    room = 0.08 * (high - low) or 0.05 * abs(high) or 0.05
    guess = panel.guess
    if guess is not None and low - 0.5 * (high - low) <= guess <= high + 0.5 * (high - low):
        low, high = min(low, guess), max(high, guess)
    axes.set_ylim(low - room, high + room)
    if guess is not None and low <= guess <= high:
        axes.axhline(guess, color=palette["muted"], linewidth=1.1, linestyle=(0, (5, 3)))
    axes.yaxis.set_major_locator(ticker.MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    hundred = panel.metric and panel.metric not in scores_lib.LOWER_IS_BETTER
    axes.yaxis.set_major_formatter(
        ticker.FuncFormatter(lambda y, _: f"{100 * y:.4g}" if hundred else drawing.tick(y))
    )
    end = max(line.x[-1] for line in panel.lines)
    axes.set_xlim(0, max(end, 1))
    places = ticker.MaxNLocator(nbins=4, integer=True).tick_values(0, end)
    places = [place for place in places if 0 <= place <= end]
    axes.set_xticks(places, [drawing.rounded(place, end) for place in places])
    axes.set_xlabel("steps", fontsize=8.5, color=palette["muted"], loc="right")
    _label_ends(axes, panel, palette)
    unit = panel.unit
    if guess is not None:
        unit += f"; a constant guess gets {_short(panel, guess)}"
    drawing.title(axes, panel.title, unit, palette)


def _label_ends(axes, panel: _Panel, palette: Mapping[str, str]) -> None:
    """Name and last value of the lines that have a name or stand alone."""
    named = [line for line in panel.lines if line.label or line.look == "median"]
    if not named:
        return
    ends = [(line.x[-1], line.y[-1]) for line in named]
    heights = axes.transAxes.inverted().transform(axes.transData.transform(ends))[:, 1]
    for line, height in zip(named, drawing.spread(np.clip(heights, 0, 1), 0.1)):
        words = f"{line.label} {_short(panel, line.y[-1])}".strip()
        axes.text(
            1.02, height, words, transform=axes.transAxes, fontsize=8.5, va="center",
            color=palette[line.colour], fontweight="bold" if line.look == "median" else "normal",
            parse_math=False,
        )  # fmt: skip


def _short(panel: _Panel, value: float) -> str:
    if panel.metric and panel.metric not in scores_lib.LOWER_IS_BETTER:
        return f"{100 * value:.1f}"
    return drawing.tick(value)


# --- where the seeds ended --------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Rung:
    name: str
    metric: str
    task: run_results.TaskResult
    split: str
    control: run_results.TaskResult | None


def _rungs(results: run_results.Results, control: run_results.Results | None) -> list[_Rung]:
    """One a dev split whose main metric lies on the common scale."""
    others = {task.task: task for task in control.tasks} if control is not None else {}
    return [
        _Rung(
            task.task if len(task.splits) == 1 else f"{task.task} {split.removeprefix('dev_')}",
            task.main,
            task,
            split,
            others.get(task.task),
        )
        for task in results.tasks
        for split in task.splits
        if task.main not in scores_lib.LOWER_IS_BETTER and task.summary(split, task.main).count
    ]


def _draw_rungs(axes, rungs: Sequence[_Rung], palette: Mapping[str, str]) -> None:
    """A dot a seed, a bar at their median, a dashed stroke at the guess; the first on top."""
    drawing.frame(axes, palette)
    axes.grid(axis="x", color=palette["grid"], linewidth=0.8)
    least = 0.0
    for place, rung in enumerate(rungs):
        # A control has the lower half of the rung.
        beside = rung.control is not None
        sets = [(rung.task, _OURS, -0.17 if beside else 0)]
        sets += [(rung.control, _CONTROL, 0.17)] if beside else []
        for task, colour, off in sets:
            values = [v for v in task.values(rung.split, rung.metric) if math.isfinite(v)]
            if not values:
                continue
            least, height = min([least, *values]), np.full(len(values), place + off)
            axes.plot(values, height, "o", color=palette[colour], alpha=0.45, markersize=6,
                      markeredgewidth=0, clip_on=False)  # fmt: skip
            median = task.summary(rung.split, rung.metric).median
            axes.plot([median] * 2, [place + off - 0.15, place + off + 0.15], linewidth=2.4,
                      color=palette[colour])  # fmt: skip
            axes.text(1.02, place + off, results_table.shown(rung.metric, median), fontsize=9,
                      transform=axes.get_yaxis_transform(), va="center", fontweight="bold",
                      color=palette[colour], parse_math=False)  # fmt: skip
        guess = rung.task.baseline(rung.split, rung.metric)
        if guess is not None:
            least = min(least, guess)
            axes.plot([guess] * 2, [place - 0.36, place + 0.36], color=palette["muted"],
                      linewidth=1.3, linestyle=(0, (3, 2)), clip_on=False)  # fmt: skip
    axes.set_xlim(least - 0.02 if least < 0 else 0, 1)
    axes.set_ylim(len(rungs) - 0.45, -0.55)
    axes.set_yticks(range(len(rungs)), [f"{rung.name}  {rung.metric}" for rung in rungs])
    for label in axes.get_yticklabels():
        label.set_color(palette["ink"])
        label.set_parse_math(False)
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{100 * x:.4g}"))


def _rungs_svg(rungs: Sequence[_Rung]) -> str:
    rung = 0.56 if any(one.control is not None for one in rungs) else 0.4
    high = rung * len(rungs) + 0.1
    height = high + 0.4
    figure = mpl_figure.Figure(figsize=(11.6, height), facecolor="none")
    axes = figure.add_axes((0.17, 0.3 / height, 0.76, high / height))
    _draw_rungs(axes, rungs, drawing.STAND_INS)
    return drawing.svg(figure, "Where the seeds ended")


# --- the page ---------------------------------------------------------------------------------

_SHEET = """
.facts, .notes { margin: 12px 0 0; padding: 0; list-style: none; font-size: 13.5px;
  color: var(--muted); max-width: 100ch; }
.notes li, .facts li { margin: 3px 0; }
.warnings { margin: 22px 0 0; padding: 12px 18px; list-style: none; font-size: 14px;
  border-left: 4px solid var(--bad); }
.warnings li { margin: 3px 0; }
.warnings b { color: var(--bad); font-weight: 600; }
.numbers thead th { color: var(--ink); font-weight: 600; }
.numbers thead th.word, .numbers td.word { text-align: left; }
.numbers tbody th { color: var(--ink); font-weight: 600; white-space: nowrap; }
.numbers tr.minor td { color: var(--muted); border-top-color: transparent; padding-top: 0; }
.numbers tr.minor th { border-top-color: transparent; padding-top: 0; }
.numbers .median { font-weight: 650; font-size: 15px; }
.numbers tr.minor .median { font-weight: 400; font-size: inherit; }
.good { color: var(--good); font-weight: 600; } .bad { color: var(--bad); font-weight: 600; }
.wide { margin-top: 14px; padding: 14px 10px 6px; }
.task { grid-template-columns: repeat(auto-fit, minmax(min(420px, 100%), 1fr)); margin-top: 12px; }
.settings { white-space: normal !important; text-align: left !important; color: var(--muted);
  min-width: 260px; }
"""


def _page(results: run_results.Results, control: run_results.Results | None) -> str:
    title = f"Fine-tuning: {results.name}"
    body = [_header(results, title), _warnings(results), _scores(results)]
    rungs = _rungs(results, control)
    if rungs:
        who = "A dot is a seed, a bar their median, a dashed stroke a constant guess."
        if control is not None:
            who += f" Blue: {results.name}; grey: {control.name}."
        body.append(
            f'<h2>Where the seeds ended</h2><p class="note">{html.escape(who)}</p>'
            f'<div class="chart card wide">{_rungs_svg(rungs)}</div>'
        )
    if control is not None:
        body.append(_against(results, control))
    body += [_curves(results), _training(results), _notes(results)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title>"
        f"<style>{style.stylesheet()}{drawing.SHEET}{_SHEET}</style></head>\n"
        "<body><main>\n" + "\n".join(part for part in body if part) + "\n</main></body></html>\n"
    )


def _header(results: run_results.Results, title: str) -> str:
    facts = results_table.facts(results)
    if results.glue_average is not None:
        facts.append(
            f"GLUE average of {len(run_results.GLUE)} medians: {100 * results.glue_average:.2f}"
        )
    lines = "".join(f"<li>{html.escape(fact)}</li>" for fact in facts)
    return f'<header><h1>{html.escape(title)}</h1><ul class="facts">{lines}</ul></header>'


def _warnings(results: run_results.Results) -> str:
    lines = "".join(
        f"<li><b>{html.escape(task.task)}, seed {seed}</b>: {html.escape(words)}</li>"
        for task in results.tasks
        for seed, words in task.warnings
    )
    return f'<ul class="warnings card">{lines}</ul>' if lines else ""


def _scores(results: run_results.Results) -> str:
    rows = results_table.table_rows(results)
    if not rows:
        return '<h2>Scores</h2><div class="empty card">No task has finished yet.</div>'
    lines, before = [], None
    for row in rows:
        place = (row.task, row.split)
        task, split = place if place != before else ("", "")
        again = place == before
        before = place
        mark = "" if row.learnt or not row.main else ' <span class="bad">not above the guess</span>'
        lines.append(
            f"<tr{' class=minor' if again else ''}><th>{html.escape(task)}</th>"
            f'<td class="word">{html.escape(split)}</td>'
            f'<td class="word">{html.escape(row.metric)}{mark}</td>'
            f'<td class="median">{row.median}</td><td>{row.mean}</td><td>{row.best}</td>'
            f"<td>{row.count}</td><td>{row.guess}</td></tr>"
        )
    head = "".join(
        f"<th{' class=word' if place < 3 else ''}>{'' if not place else name}</th>"
        for place, name in enumerate(results_table.HEAD)
    )
    return (
        "<h2>Scores</h2>"
        f'<div class="table card numbers"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
        '<p class="note" style="margin-top:8px">Hundredths, but for mse. The median over seeds'
        " counts; sd has n - 1; guess is what the same answer to every example gets.</p>"
    )


def _against(results: run_results.Results, control: run_results.Results) -> str:
    lines = []
    for row in run_results.compare(results, control):
        verdict = row.difference.verdict
        mark = {"better": "good", "worse": "bad"}.get(verdict, "muted")
        lines.append(
            f"<tr><th>{html.escape(row.task)}</th>"
            f'<td class="word">{html.escape(row.split)}</td>'
            f'<td class="word">{html.escape(row.metric)}</td>'
            f"<td>{results_table.with_error(row.metric, row.first.mean, row.first.error)}</td>"
            f"<td>{results_table.with_error(row.metric, row.second.mean, row.second.error)}</td>"
            f"<td>{results_table.signed(row.metric, row.difference)}</td>"
            f'<td><span class="{mark}">{verdict}</span></td></tr>'
        )
    if not lines:
        return ""
    names = (results.name, control.name, "difference")
    head = '<th></th><th class="word">split</th><th class="word">metric</th>'
    head += "".join(f"<th>{html.escape(name)}</th>" for name in names) + "<th></th>"
    return (
        f"<h2>Against {html.escape(control.name)}</h2>"
        f'<div class="table card numbers"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
        '<p class="note" style="margin-top:8px">Mean ± standard error over seeds. A difference'
        " below two standard errors of both is not resolved: these seeds do not tell it from"
        " luck.</p>"
    )


def _curves(results: run_results.Results) -> str:
    """A task a row: what it scored, and the loss it was trained with."""
    rows = []
    for task in results.tasks:
        charts = [f'<div class="chart card">{_curve_svg(panel)}</div>' for panel in _panels(task)]
        if charts:
            rows.append(f'<div class="charts task">{"".join(charts)}</div>')
    return f"<h2>Curves</h2>{''.join(rows)}" if rows else ""


def _curve_svg(panel: _Panel) -> str:
    figure = mpl_figure.Figure(figsize=(6.2, 2.6), facecolor="none")
    axes = figure.add_axes((0.085, 0.17, 0.74, 0.59))
    _draw_curves(axes, panel, drawing.STAND_INS)
    return drawing.svg(figure, panel.title)


def _training(results: run_results.Results) -> str:
    lines = []
    for task in results.tasks:
        examples = ", ".join(f"{split} {count:,}" for split, count in task.examples.items())
        took = "-" if task.minutes is None else style.duration(60 * task.minutes)
        speed = "-" if task.tokens_per_second is None else style.count(task.tokens_per_second)
        settings = ", ".join(f"{name} {value}" for name, value in task.settings.items())
        lines.append(
            f"<tr><th>{html.escape(task.task)}</th>"
            f'<td class="word">{html.escape(examples)}</td><td>{task.choice}</td><td>{took}</td>'
            f'<td>{speed}</td><td class="settings">{html.escape(settings)}</td></tr>'
        )
    if not lines:
        return ""
    return (
        "<h2>How they were trained</h2>"
        '<div class="table card numbers"><table><thead><tr><th></th><th class="word">examples</th>'
        "<th>checkpoint</th><th>time, all seeds</th><th>tokens/s</th>"
        f'<th class="word">settings</th></tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
    )


def _notes(results: run_results.Results) -> str:
    lines = "".join(f"<li>{html.escape(note)}</li>" for note in results_table.all_notes(results))
    return f'<h2>Notes</h2><ul class="notes">{lines}</ul>' if lines else ""
