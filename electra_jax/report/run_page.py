# SPDX-License-Identifier: Apache-2.0
"""What a run looks like: `report.html` and `report.png`, drawn from its metrics.

    rows of metrics.jsonl  ->  run_panels   ->  run_drawing  ->  report.png, one picture
    summary of the run     ->  tiles, tables, samples         ->  report.html, one whole file

Every number is shown beside what a guesser that has learnt nothing would get (`baselines.py`).
Structure and words of the page are `templates/run.html.j2`. While the run lasts, an open page loads
itself again.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from electra_jax.report import (
    baselines,
    drawing,
    metric_values,
    rendering,
    run_drawing,
    run_panels,
    style,
)


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
    config: Mapping[str, Any]  # all settings; nested mappings become dotted names
    base: Mapping[str, Any]  # the same settings in the base configuration
    environment: Mapping[str, Any]  # versions, devices and processes of the present start
    cost: Mapping[str, Any]  # what the run has used so far
    corpus: Mapping[str, Any]  # facts from the data's manifest
    evaluation: Mapping[str, float | None]  # latest; default: the last eval row
    samples: Sequence[str]  # HTML fragments from `view_html.to_html`, the best judged first
    worst_samples: Sequence[str]  # the same of other rows, the worst judged first
    about_samples: str  # how well all rows were judged, from `ranking.sentence`
    samples_key: str  # what explains their look, from `view_html.html_key`
    rollbacks: Sequence[str]  # a sentence each time the run went back to a checkpoint, in order


STATUSES = ("running", "finished", "stopped")


def write(
    workdir: str | os.PathLike, rows: Sequence[Mapping], summary: Summary, picture: bool = True
) -> None:
    """Writes `report.png` and `report.html` into `workdir`. A failure never leaves half a file.

    Args:
      workdir: of the run.
      rows: the rows of `metrics.jsonl` in their order. There may be none, and values may be null.
      summary: what the page says beside the curves.
      picture: whether `report.png` is drawn too.

    Raises:
      ValueError: the summary has an entry or a status that does not exist.
    """
    unknown = sorted(summary.keys() - Summary.__annotations__.keys())
    if unknown:
        known = ", ".join(Summary.__annotations__)
        raise ValueError(f"summary has no entry {unknown[0]!r}; known are {known}")
    if summary.get("status", "running") not in STATUSES:
        raise ValueError(f"status {summary['status']!r} is unknown; use one of {STATUSES}")

    curves = run_panels.Curves.of(rows)
    panels = run_panels.panels(curves)
    verdict = baselines.verdict(_evaluation(curves, summary))

    workdir = os.fspath(workdir)
    if picture:
        drawn = run_drawing.picture(curves, panels, summary.get("name", "run"), verdict)
        drawing.write_whole(os.path.join(workdir, "report.png"), drawn)
    page = _page(curves, panels, summary, verdict)
    drawing.write_whole(os.path.join(workdir, "report.html"), page.encode())


ALARMS = 12  # sentences shown at most; the curves mark every alarm

_TILES = (
    ("gen_masked_loss", "Generator loss"),
    ("mlm_masked_loss", "Main network's loss"),
    ("gen_masked_accuracy", "Generator accuracy"),
    ("disc_auc", "Discriminator AUC"),
    ("disc_recall_at_2", "Recall at 2 % alarms"),
    ("disc_accuracy", "Discriminator accuracy"),
    ("selection_accuracy", "Selection accuracy"),
)


def _page(
    curves: run_panels.Curves,
    panels: Sequence[run_panels.Panel],
    summary: Summary,
    verdict: str,
) -> str:
    """Fills `templates/run.html.j2`."""
    evaluation = _evaluation(curves, summary)
    latest = list(curves.alarms)[::-1][:ALARMS]
    source_metrics, sources = _sources(evaluation)
    tables = {
        title: {
            name: rendering.fact(value) for name, value in _flat(summary.get(entry) or {}).items()
        }
        for title, entry in (("Cost", "cost"), ("Environment", "environment"), ("Data", "corpus"))
    }
    settings, base = _flat(summary.get("config") or {}), _flat(summary.get("base") or {})
    return rendering.render(
        "run.html.j2",
        title=summary.get("name", "run"),
        status=summary.get("status"),
        **rendering.written(summary.get("status") == "running"),
        verdict=verdict,
        **_progress(curves, summary),
        tiles=_tiles(evaluation, curves.last.get("train", {})),
        alarms=[{"step": f"{alarm.step:,}", "sentence": alarm.sentence} for alarm in latest],
        earlier_alarms=len(curves.alarms) - len(latest),
        rollbacks=list(summary.get("rollbacks", ()))[::-1],
        charts=[run_drawing.chart(panel, curves) for panel in panels],
        nothing_yet=run_drawing.NOTHING_YET,
        source_metrics=source_metrics,
        sources=sources,
        samples=summary.get("samples"),
        worst_samples=summary.get("worst_samples"),
        about_samples=summary.get("about_samples"),
        samples_key=summary.get("samples_key", ""),
        parameters=_parameters(summary.get("parameters") or {}),
        tables=[(title, facts) for title, facts in tables.items() if facts],
        changed=[
            {"name": name, "base": rendering.fact(base[name]), "here": rendering.fact(value)}
            for name, value in settings.items()
            if name in base and base[name] != value
        ],
        settings={name: rendering.fact(value) for name, value in settings.items()},
    )


def _evaluation(curves: run_panels.Curves, summary: Summary) -> Mapping:
    """The metrics of the latest evaluation; empty if there is none yet."""
    return summary.get("evaluation") or curves.last.get("eval", {})


def _progress(curves: run_panels.Curves, summary: Summary) -> dict[str, Any]:
    """The facts below the verdict, and the share of the run that is done, in percent."""
    step, steps = curves.last_step, summary.get("steps")
    status = summary.get("status")

    facts = [f"step {step:,}" + (f" of {steps:,}" if steps else "")]
    if "elapsed_seconds" in summary:
        facts.append(
            f"{style.duration(summary['elapsed_seconds'])} of steps"
            + (" so far" if status == "running" else "")
        )

    train = curves.last.get("train", {})
    share = metric_values.value(train, "progress")
    if share is not None and summary.get("budget"):
        facts[0] += f", {share:.1%} of {summary['budget']}"
    elif steps:
        share = min(1.0, step / steps)

    left = metric_values.seconds_left(step, steps or 0, train)
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
    """The main metrics with their baselines, then tokens seen, speed and skipped steps."""
    tiles = []
    for name, title in _TILES:
        value = metric_values.value(evaluation, name)
        if value is None:
            continue
        shown, baseline = style.metric(name, value), baselines.of(name, evaluation)
        if baseline is None:
            # A main network beside a generator is asked for what the generator replaced.
            beside_one = name.startswith("mlm_") and "gen_masked_loss" in evaluation
            which = "replaced" if beside_one else "masked"
            tiles.append(_Tile(title, shown, f"of the {which} tokens"))
            continue

        guesser = baselines.IN_WORDS[baseline.name]
        guess = style.metric(name, baseline.value)
        amount = style.difference(name, abs(baseline.margin(value)))
        if shown == guess or amount == style.difference(name, 0.0):
            tiles.append(_Tile(title, shown, f"equal to {guesser} {guess}"))
            continue

        side = baseline.side(value)
        arrow = "▼" if side == "below" else "▲"
        mark = "good" if baseline.margin(value) > 0 else "bad"
        tiles.append(_Tile(title, shown, f"{side} {guesser} {guess}", f"{arrow} {amount}", mark))

    tokens, epoch = metric_values.value(train, "tokens_seen"), metric_values.value(train, "epoch")
    if tokens is not None:
        beside = "" if epoch is None else f"{epoch:.3g} epochs over the data"
        tiles.append(_Tile("Tokens seen", style.count(tokens), beside))
    speed, mfu = metric_values.value(train, "tokens_per_second"), metric_values.value(train, "mfu")
    if speed is not None:
        beside = [] if mfu is None else [f"{100 * mfu:.1f}% of the peak (MFU)"]
        padding = metric_values.value(train, "padding_rate")
        if padding is not None:
            beside.append(f"padding, not counted: {style.metric('padding_rate', padding)}")
        tiles.append(_Tile("Tokens per second", style.count(speed), "; ".join(beside)))
    skipped = metric_values.value(train, "skipped_steps")
    if skipped:
        beside = "or a spike, never applied"
        tiles.append(_Tile("Skipped steps", style.count(skipped), beside, "not finite"))
    return tiles


def _sources(evaluation: Mapping) -> tuple[list[str], list[dict]]:
    """Metrics that are reported per source, such as `disc_auc/wiki`.

    Returns the names of the metrics, and one row per source with a cell for each of them.
    """
    split = [key.partition("/") for key in evaluation if "/" in key]
    sources = list(dict.fromkeys(source for _, _, source in split))
    stems = [stem for stem in dict.fromkeys(s for s, _, _ in split) if stem not in _LINES]

    rows = [
        {"name": source, "cells": [_cell(f"{stem}/{source}", evaluation) for stem in stems]}
        for source in sources
    ]
    return stems, rows


def _cell(name: str, evaluation: Mapping) -> dict[str, str]:
    """The value of a metric and, if it has one, its baseline."""
    value, baseline = metric_values.value(evaluation, name), baselines.of(name, evaluation)
    cell = {"value": style.metric(name, value), "baseline": "", "mark": ""}
    if value is not None and baseline is not None:
        cell["baseline"] = style.metric(name, baseline.value)
        if cell["value"] != cell["baseline"]:  # as they are written
            cell["mark"] = "good" if baseline.margin(value) > 0 else "bad"
    return cell


_LINES = ("unigram_entropy", "disc_majority")  # baselines, shown in the cells of their metrics


def _parameters(parameters: Mapping[str, int]) -> list[dict[str, str]]:
    """Each part's count and the width of its bar, in percent of the largest part's."""
    most = max(parameters.values(), default=0)
    return [
        {"name": part, "count": f"{number:,}", "width": f"{max(1, 100 * number / most):.0f}"}
        for part, number in parameters.items()
    ]


def _flat(facts: Mapping, prefix: str = "") -> dict[str, Any]:
    """Nested mappings with dotted names: {'data': {'rows': 'pairs'}} -> {'data.rows': 'pairs'}."""
    flat = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
