# SPDX-License-Identifier: Apache-2.0
"""Runs side by side as plain tables for the console."""

from electra_jax.host import console_table
from electra_jax.report import comparison as comparison_lib
from electra_jax.report import metric_values, style

COLOURS = r"(?m)  (?:(?P<green>better)|(?P<red>worse))$"  # of verdicts


def text(comparison: comparison_lib.Comparison) -> str:
    """The whole comparison as plain tables for the console."""
    lines = []
    for group in comparison.groups:
        lines.append(group.title)
        for run in group.runs:
            row = run.last("eval") or run.last("train")
            tokens = metric_values.value(row, "tokens_seen")
            seen = f", {style.count(tokens)} tokens" if tokens is not None else ""
            again = "" if run in group.counted else ", the same run again"
            lines.append(f"   {run.workdir}  seed {run.seed}, step {row['step']:,}{seen}{again}")

    if comparison.differing:
        lines += ["", "what differs"]
        table = [["", *(group.letter for group in comparison.groups)]]
        for path, values in comparison.differing.items():
            table.append([f"  {path}", *map(comparison_lib.setting, values)])
        lines += console_table.lines(table)

    lines += ["", "final held-out metrics"]
    table = [["", "", "value", "baseline", "against A", ""]]
    for name in comparison.metrics:
        first = comparison_lib.final(comparison.groups[0], name)
        title = f"  {name}"
        for group in comparison.groups:
            found = comparison_lib.final(group, name)
            if found is None:
                continue

            baseline = comparison_lib.baseline(group, name)
            guess = style.metric(name, baseline.value) if baseline else ""
            cells = [title, group.letter, comparison_lib.with_error(name, found), guess, "", ""]
            if group is not comparison.groups[0] and first is not None:
                difference = comparison_lib.difference(name, found, first)
                cells[4:] = [comparison_lib.signed(name, difference), difference.verdict]
            table.append(cells)
            title = ""  # a metric is named in its first row only
    lines += console_table.lines(table) if len(table) > 1 else ["no run has been evaluated yet"]
    lines += [f"note: {note}" for note in comparison.notes]
    if comparison.unfinished:
        lines.append(f"unfinished: {', '.join(comparison.unfinished)}")

    return "\n".join(lines)
