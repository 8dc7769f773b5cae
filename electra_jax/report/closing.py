# SPDX-License-Identifier: Apache-2.0
"""What a finished run says last: what was learnt, where the report is, what can be done next."""

import math
import os
import pathlib
import shlex
import textwrap
from collections.abc import Mapping

from electra_jax.host import program
from electra_jax.report import baselines, best_checkpoint, console_lines, metric_values

_LINE = "(the unigram line is the loss of knowing only how frequent each token is)"
_NEAR = 0.1  # nats; a network that is no further below the line has hardly begun to use context
_ABOVE = (
    "(it has not learnt yet how frequent tokens are, which is the first thing that networks learn:"
    " more steps may be all it needs)"
)
_AT_THE_LINE = (
    "(networks first come down to that line; with configs/tiny.py a generator leaves it within"
    " 1 M tokens, with configs/tiny_paper.py after 4 M: more steps may be all it needs)"
)
_TASK = "(RTE is downloaded; --config.data.dir=glue reads official files from a folder)"


def text(
    metrics: Mapping[str, float | None],
    workdir: str,
    reported: bool,
    best: best_checkpoint.Best | None = None,
) -> str:
    """Returns the lines. The commands among them can be pasted as they are.

    Args:
      metrics: of the last evaluation.
      workdir: of the run.
      reported: whether the run has drawn a report.
      best: the best checkpoint, if the run keeps it; the commands take it, not the newest one.
    """
    verdict = baselines.verdict(metrics)
    lines = textwrap.wrap(verdict, console_lines.COLUMNS)
    if "unigram line" in verdict:
        lines.append(_LINE)
    margin = _least_margin(metrics)
    if margin < _NEAR:
        words = _ABOVE if margin < -_NEAR else _AT_THE_LINE
        lines += textwrap.wrap(words, console_lines.COLUMNS)
    lines.append("")

    here = pathlib.Path(os.path.abspath(workdir))
    if reported:
        lines.append(f"report     {(here / 'report.html').as_uri()}")
    if best is not None:
        lines.append(f"best       {best}")
    step = encoder = ""
    if best is not None and best.step < best.newest_step:
        step = f" --step={best.step}"
        # Not encoder.step, of which 0 is the newest.
        place = shlex.quote(f"{workdir}/checkpoints/{best.step}")
        encoder = f" --config.encoder.from={place}"
    run, out = f"--workdir={shlex.quote(workdir)}", shlex.quote(f"exports/{here.name}")
    lines += [
        f"look       {program.command('show')} {run}{step}",
        f"fine-tune  {program.command('finetune')} {run}{encoder} --config.tasks=rte",
        f"           {_TASK}",
        f"export     {program.command('convert')} {run}{step} --to=hugging_face --out={out}",
    ]
    return "\n".join(lines)


def _least_margin(metrics):
    """How far the networks that predict tokens are below the unigram line, in nats, at the least.

    Infinite if none is there.
    """
    margins = [math.inf]
    for name in ("gen_masked_loss", "mlm_masked_loss"):
        loss, line = metric_values.value(metrics, name), baselines.of(name, metrics)
        if loss is not None and line is not None:
            margins.append(line.margin(loss))
    return min(margins)
