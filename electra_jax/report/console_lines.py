# SPDX-License-Identifier: Apache-2.0
"""What a run writes to the console: a line for each log interval, a table for each evaluation.

    step  1200/2000  gen_masked_loss 5.070  disc_loss 0.352  13.1k/s ETA 1m02s

    evaluation at step 1200/2000
                          value  baseline
      gen_masked_loss     5.011     5.930  token frequencies  better  0.919
      disc_accuracy      86.00%    88.00%  always "original"  worse   2.00 points

Both speak of the same quantities, so that the line can be compared with the table: `gen_loss` and
`mlm_loss` also cover slots that keep their token, which are easy. Both fit into 80 columns.
Everything else is in metrics.jsonl.
"""

import itertools
import math
from collections.abc import Container, Mapping

from electra_jax.report import baselines, metric_values, style
from electra_jax.report.metric_values import Number

COLUMNS = 80  # of a terminal
LOSSES = ("gen_masked_loss", "mlm_masked_loss", "disc_loss")
# Verdicts of a table in colour, for `host/console_table.py`.
COLOURS = r"(?m)(?P<green>better +[\d.e-]+( points)?)$|(?P<red>worse +[\d.e-]+( points)?)$"

_ROWS = (
    "gen_masked_loss",
    "mlm_masked_loss",
    "disc_loss",
    "disc_accuracy",
    "disc_auc",
    "disc_recall_at_2",
    "disc_auc_unigram",
    "selection_loss",
    "selection_accuracy",
)


def step_line(step: int, steps: int, metrics: Mapping[str, Number]) -> str:
    """One line of training metrics: the losses, tokens per second, the time left.

    The columns are the same for all lines of a run, and stand under each other. A value that is not
    known yet is left blank. The speed is left out if the line would exceed 80 columns, which takes
    two losses with long names and more than 99,999 steps.

    Args:
      step: the last step.
      steps: the last step of the run.
      metrics: a row of training metrics.
    """
    parts = [f"step {_of_steps(step, steps)}"]
    if "progress" in metrics:  # the budget is not a number of steps
        share = metric_values.value(metrics, "progress") or 0.0
        parts = [f"step {step:>{len(str(steps))}} ({share:4.0%})"]

    names = [name for name in LOSSES if name in metrics] or ["loss"]
    parts += [f"{name} {loss(metric_values.value(metrics, name)):>5}" for name in names]

    speed, left = metric_values.value(metrics, "tokens_per_second"), ""
    seconds = metric_values.seconds_left(step, steps, metrics)
    if seconds:
        left = f"ETA {style.duration(seconds):>6}"
    rate = " " * 7 if speed is None else f"{style.count(speed):>5}/s"
    if len("  ".join(parts)) + len(f"  {rate} ETA 59m59s") <= COLUMNS:
        left = f"{rate} {left}"
    return "  ".join([*parts, left]).rstrip()


def evaluation_table(
    step: int, steps: int, metrics: Mapping[str, Number], explained: Container[str] = ()
) -> str:
    """A table of the held-out metrics that have a baseline, and the baselines in words.

    A metric of one source, such as `disc_auc/wiki`, stands under the name of its source.

    Args:
      step: the step that was evaluated.
      steps: the last step of the run.
      metrics: a row of evaluation metrics.
      explained: baselines, by their names, that need no more explanation below the table.
    """
    title = f"evaluation at step {_of_steps(step, steps).strip()}"
    if metrics.get("ema_decay") is not None:
        title += f", of averaged weights (decay {metrics['ema_decay']:g})"

    found = sorted(
        (name.partition("/") for name in metrics if name.partition("/")[0] in _ROWS),
        key=lambda found: (found[2], _ROWS.index(found[0])),
    )
    if not found:
        return title

    width = max(len(stem) for stem in ("disc_auc_unigram", *(name for name, *_ in found)))
    rows: dict[str, list[str]] = {}
    for stem, _, source in found:
        rows.setdefault(source, []).append(_row(stem, source, metrics, width))

    lines = [title, f"{'value':>{width + 11}}  {'baseline':>8}"]
    for source, shown in rows.items():
        lines += [f"  {source}:"] * bool(source) + shown
    new = [name for name in shown_baselines(metrics) if name not in explained]
    if new:
        lines.append("  A baseline is the score of a guesser that has learnt nothing:")
        lines += [f"    {baselines.IN_WORDS[name]:<17}  {baselines.GUESSERS[name]}" for name in new]
    return "\n".join(lines)


def loss(value: Number) -> str:
    """A loss in five columns: `0.352`, `10.35`, `123.5`; `-` for null."""
    if value is None or not math.isfinite(value):
        return "-"
    digits = 3 if abs(value) < 10 else 4 - len(f"{abs(value):.0f}")
    return f"{value:.{max(0, digits)}f}"


def shown_baselines(metrics: Mapping[str, Number]) -> list[str]:
    """The names of the baselines in the table of these metrics, in the order of its rows."""
    found = itertools.chain.from_iterable(
        (baselines.of(name, metrics) for name in metrics if name.partition("/")[0] == stem)
        for stem in _ROWS
    )
    return list(dict.fromkeys(baseline.name for baseline in found if baseline is not None))


def _row(stem, source, metrics, width):
    name = f"{stem}/{source}" if source else stem
    value, baseline = metric_values.value(metrics, name), baselines.of(name, metrics)
    line = f"  {stem:<{width}}  {style.metric(name, value):>7}"
    if baseline is None:
        return line

    line += f"  {style.metric(name, baseline.value):>8}  {baselines.IN_WORDS[baseline.name]:<17}"
    if value is not None:
        margin = baseline.margin(value)
        verdict = "better" if margin > 0 else "worse" if margin < 0 else "equal"
        line += f"  {verdict:<6}  {style.difference(name, abs(margin))}"
    return line.rstrip()


def _of_steps(step, steps):
    """`  20/2000`, as wide for every step."""
    return f"{step:>{len(str(steps))}}/{steps}"
