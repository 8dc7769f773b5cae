# SPDX-License-Identifier: Apache-2.0
"""What a finished run says last: what was learnt, where the report is, what can be done next."""

import pathlib
import shlex
import textwrap
from collections.abc import Mapping

from electra_jax.host import program
from electra_jax.report import baselines, console_lines

_LINE = "(the unigram line is the loss of knowing only how frequent each token is)"
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
    lines += [*([_LINE] if "unigram line" in verdict else []), ""]

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
