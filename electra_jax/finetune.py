# SPDX-License-Identifier: Apache-2.0
r"""Fine-tunes a pre-trained encoder on tasks, with several seeds, and reports the scores.

    python -m electra_jax.finetune --workdir=runs/small --config.tasks=cola,mrpc --config.seeds=5
    python -m electra_jax.finetune --workdir=runs/small --config=configs/finetune_custom.py
    python -m electra_jax.finetune --workdir=runs/small --config.encoder.init=fresh \
        --config.name=random
    python -m electra_jax.finetune --workdir=runs/small --control=random

Writes to WORKDIR/finetune/NAME: results.json, a table, predictions, tuned weights. After an
interruption the same command continues. configs/finetune.py has every setting, docs/finetuning.md
the recipe with its sources.
"""

if __name__ == "__main__":
    from electra_jax.cli import usage
    from electra_jax.host import huge_pages

    # Before all other imports: help answers at once, and the program may be started again.
    usage.answer(__file__, "finetune")
    huge_pages.use_huge_pages()

import os

from absl import flags

from electra_jax.cli import command
from electra_jax.finetuning import config as finetuning_config
from electra_jax.finetuning.results import closing, results_table
from electra_jax.finetuning.tuning import choices, export, forecast, run_folder, task_by_task

CONFIG = "finetune"

_DRY_RUN = flags.DEFINE_bool(
    "dry_run",
    False,
    "Read the tasks, print examples, rows, steps and FLOPs, and stop.",
    allow_override=True,
)

_CONTROL = flags.DEFINE_string(
    "control",
    None,
    "Another fine-tuning to compare with: its config.name in this workdir, or its folder.",
)


def main(config: finetuning_config.Config, workdir: str) -> None:
    """Fine-tunes, or with --dry_run prints what that would take."""
    if _DRY_RUN.value:
        if _CONTROL.value is not None:
            folder, names = run_folder.folder_of(config, workdir), choices.tasks_in_order(config)
            run_folder.control(folder, _CONTROL.value, names)
        print(forecast.text(config, workdir))
        return

    results = task_by_task.run(config, workdir, _CONTROL.value)
    folder = run_folder.folder_of(config, workdir)
    print(results_table.text(results))
    last = results.tasks[-1].task if results.tasks else ""
    print("\n" + closing.text(folder, results.tasks, export.form(os.path.join(folder, last))))


if __name__ == "__main__":
    command.run(main, config_file=CONFIG, parse=finetuning_config.parse)
