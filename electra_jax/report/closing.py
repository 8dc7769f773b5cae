# SPDX-License-Identifier: Apache-2.0
"""What a finished run says last: what was learnt, where the report is, what can be done next."""

import pathlib
import shlex
import textwrap
from collections.abc import Mapping

from electra_jax.host import program
from electra_jax.report import baselines, console_lines, logged

_LINE = "(the unigram line is the loss of knowing only how frequent each token is)"
_NEAR = 0.1  # nats; a network that is no further below the line has hardly begun to use context
_BEGINNING = (
    "(networks begin at that line; with configs/tiny.py a generator leaves it within"
    " 1 M tokens, with configs/tiny_paper.py after 4 M: more steps may be all it needs)"
)
_TASK = "(RTE is downloaded; --config.data.dir=glue reads official files from a folder)"


def text(metrics: Mapping[str, float | None], workdir: str, reported: bool, export: str) -> str:
    """Returns the lines. The commands among them can be pasted as they are.

    Args:
      metrics: of the last evaluation.
      workdir: of the run.
      reported: whether the run has drawn a report.
      export: the form that its weights can be exported in, as `convert --to` takes it.
    """
    verdict = baselines.verdict(metrics)
    lines = textwrap.wrap(verdict, console_lines.COLUMNS)
    if "unigram line" in verdict:
        lines.append(_LINE)
    if _has_hardly_begun(metrics):
        lines += textwrap.wrap(_BEGINNING, console_lines.COLUMNS)
    lines.append("")

    here = pathlib.Path(workdir).absolute()
    if reported:
        lines.append(f"report     {(here / 'report.html').as_uri()}")
    run, out = f"--workdir={shlex.quote(workdir)}", shlex.quote(f"exports/{here.name}")
    lines += [
        f"look       {program.command('show')} {run}",
        f"fine-tune  {program.command('finetune')} {run} --config.tasks=rte",
        f"           {_TASK}",
        f"export     {program.command('convert')} {run} --to={export} --out={out}",
    ]
    return "\n".join(lines)


def _has_hardly_begun(metrics):
    """Whether a network that predicts tokens is near the unigram line, or above it."""
    for name in ("gen_masked_loss", "mlm_masked_loss"):
        loss, line = logged.value(metrics, name), baselines.of(name, metrics)
        if loss is not None and line is not None and line.margin(loss) < _NEAR:
            return True
    return False
