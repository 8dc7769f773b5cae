# SPDX-License-Identifier: Apache-2.0
"""Runs side by side as a page and a picture.

    Comparison  ->  comparison_drawing        ->  compare.png, one picture
                ->  the same charts, tables   ->  compare.html, one whole file

A group has one letter and one colour everywhere. Structure and words of the page are
`templates/comparison.html.j2`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from electra_jax.report import (
    compared_run,
    comparison_curves,
    comparison_drawing,
    comparison_ladders,
    drawing,
    rendering,
    style,
)
from electra_jax.report import comparison as comparison_lib


def write(
    comparison: comparison_lib.Comparison, page: str, picture: str, follows: bool = False
) -> None:
    """Writes the page and the picture to these paths. A failure never leaves half a file.

    Args:
      follows: whether the page will be written again while a run is unfinished.
    """
    drawing.write_whole(picture, comparison_drawing.picture(comparison))
    drawing.write_whole(page, html(comparison, follows).encode())


def html(comparison: comparison_lib.Comparison, follows: bool = False) -> str:
    """The whole page."""
    shared, apart = comparison_lib.environments(comparison)
    groups = [_shown_group(place, group) for place, group in enumerate(comparison.groups)]
    return rendering.render(
        "comparison.html.j2",
        title=comparison_drawing.headline(comparison),
        groups=groups,
        **rendering.written(follows and bool(comparison.unfinished)),
        unfinished=comparison.unfinished,
        notes=comparison.notes,
        settings=[
            (path, [comparison_lib.setting(value) for value in values])
            for path, values in comparison.differing.items()
        ],
        ladders=[
            comparison_ladders.chart(comparison, *which)
            for which in comparison_ladders.metrics(comparison)
        ],
        finals=[(name, _finals(comparison, name)) for name in comparison.metrics],
        axes=_axes(comparison),
        runs=_runs(comparison, groups),
        device_hours=_hours(comparison.device_seconds),
        environment=[(name, rendering.fact(value)) for name, value in shared.items()],
        environment_apart=[
            (name, [(rendering.fact(value), _whose(comparison, runs)) for value, runs in values])
            for name, values in apart.items()
        ],
        commands=[
            (run.workdir, run.environment["command"])
            for run in comparison.runs
            if "command" in run.environment and "command" not in shared
        ],
    )


def _shown_group(place: int, group: comparison_lib.Group) -> dict[str, str]:
    """A group's letter and colour, its settings, and how far its runs have got."""
    title, *facts = comparison_drawing.caption(group).split("  ·  ")
    return {
        "letter": group.letter,
        "colour": style.GROUPS[place % len(style.GROUPS)],
        "label": title.removeprefix(group.letter).strip(),
        "progress": " · ".join(facts),
    }


def _runs(comparison, groups: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """The rows of the table of runs: how far each has got, and what it has cost until then."""
    return [
        {
            "group": shown,
            "workdir": run.workdir,
            "seed": run.seed,
            "again": run not in group.counted,
            "step": run.unfinished.removeprefix("step ") or f"{run.step:,}",
            "tokens": "-" if run.cost.tokens is None else style.count(run.cost.tokens),
            "flops": "-" if run.cost.flops is None else f"{run.cost.flops:.3g}",
            "device_hours": _hours(run.cost.device_seconds),
            "devices": run.environment.get("devices", "-"),
            "commit": run.environment.get("commit", "-"),
        }
        for group, shown in zip(comparison.groups, groups)
        for run in group.runs
    ]


def _hours(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds / 3600:.3g}"


def _whose(comparison, runs: Sequence[compared_run.ComparedRun]) -> list[str]:
    """Whole groups by their letter, other runs by their workdir."""
    found = []
    for group in comparison.groups:
        inside = [run.workdir for run in group.runs if run in runs]
        found += [group.letter] if len(inside) == len(group.runs) else inside
    return found


def _finals(comparison: comparison_lib.Comparison, name: str) -> list[dict[str, str]]:
    """A metric in each group: its mean, the distance from the first group, and the baseline."""
    groups = comparison.groups
    first, cells = comparison_lib.final(groups[0], name), []
    for place, group in enumerate(groups):
        cell = {"value": "-", "apart": "", "verdict": "", "mark": "", "baseline": ""}
        cells.append(cell)
        found = comparison_lib.final(group, name)
        if found is None:
            continue

        cell["value"] = comparison_lib.with_error(name, found)
        if place and first is not None:
            difference = comparison_lib.difference(name, found, first)
            cell["apart"] = comparison_lib.signed(name, difference)
            cell["verdict"] = difference.verdict
            cell["mark"] = comparison_ladders.MARKS.get(difference.verdict, "")
        baseline = comparison_lib.baseline(group, name)
        if baseline is not None:
            guesser = baseline.name.replace("_", " ")
            cell["baseline"] = f"{guesser} {style.metric(name, baseline.value)}"
    return cells


def _axes(comparison: comparison_lib.Comparison) -> list[dict[str, Any]]:
    """The curves by step and by tokens seen; one axis is shown first, a button shows the other."""
    drawn = {
        along: comparison_curves.panels(comparison, along) for along in comparison_curves.ALONG
    }
    drawn = {along: panels for along, panels in drawn.items() if panels}
    if not drawn:
        return []

    chosen = "tokens_seen" if comparison_lib.tokens_say_more(comparison) else "step"
    chosen = chosen if chosen in drawn else next(iter(drawn))
    return [
        {
            "name": along,
            "words": comparison_curves.ALONG[along],
            "chosen": along == chosen,
            "charts": [comparison_curves.chart(panel) for panel in panels],
        }
        for along, panels in drawn.items()
    ]
