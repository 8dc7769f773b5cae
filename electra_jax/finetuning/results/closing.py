# SPDX-License-Identifier: Apache-2.0
"""What a finished fine-tuning says last: where its page and predictions are, what can be done."""

import os
import pathlib
import shlex
from collections.abc import Sequence

from electra_jax.finetuning.results import run_results
from electra_jax.host import program


def text(folder: str, tasks: Sequence[run_results.TaskResult], weights_kept: bool) -> str:
    """Returns the lines. The call and the command among them can be pasted as they are.

    Args:
      folder: of the fine-tuning, WORKDIR/finetune/NAME.
      tasks: those that are fine-tuned there.
      weights_kept: whether their tuned weights are there.
    """
    page = pathlib.Path(folder, "results.html").absolute()
    lines = [f"report       {page.as_uri()}"]
    lines += [f"predictions  {os.path.join(folder, task.task, 'seed_*')}" for task in tasks]
    if weights_kept and tasks:
        tuned, out = os.path.join(folder, tasks[-1].task), f"exports/{tasks[-1].task}"
        export = program.command("convert")
        lines += [
            f"use          electra_jax.load_tuned({tuned!r})",
            f"export       {export} --from={shlex.quote(tuned)} --to=orbax --out={out}",
        ]
    return "\n".join(lines)
