# SPDX-License-Identifier: Apache-2.0
"""What a finished fine-tuning says last: where its page and predictions are, what can be done."""

import glob
import os
import pathlib
import shlex
from collections.abc import Sequence

from electra_jax.finetuning.results import run_results
from electra_jax.host import program


def text(folder: str, tasks: Sequence[run_results.TaskResult], export: str | None) -> str:
    """Returns the lines. The call and the commands can be pasted, with files of yours for FILE.

    Args:
      folder: of the fine-tuning, WORKDIR/finetune/NAME.
      tasks: those that are fine-tuned there.
      export: the form that the weights of the last task can be exported in, as `convert --to` takes
        it; None if there are none.
    """
    page = pathlib.Path(os.path.abspath(folder), "results.html")
    lines = [f"report       {page.as_uri()}"]
    lines += [f"predictions  {_seed_folders(os.path.join(folder, task.task))}" for task in tasks]
    if export is None or not tasks:
        return "\n".join(lines)

    last = tasks[-1].task
    # Each task of one's own is called custom.
    tuned = os.path.join(folder, last)
    name = os.path.basename(os.path.abspath(folder)) if last == "custom" else last
    out = shlex.quote(f"exports/{name}")
    source = f"--from={shlex.quote(tuned)}"
    lines += [
        f"use          electra_jax.load_tuned({tuned!r})",
        f"new texts    {program.command('predict')} {source} FILE",
        f"export       {program.command('convert')} {source} --to={export} --out={out}",
    ]
    return "\n".join(lines)


def _seed_folders(where: str) -> str:
    """The folders of a task's seeds as a pattern; with a grid they lie in one folder per point."""
    at_points = glob.glob(f"{glob.escape(where)}/rate_*/seed_*")
    return os.path.join(where, *(["rate_*"] if at_points else []), "seed_*")
