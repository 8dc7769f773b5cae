# SPDX-License-Identifier: Apache-2.0
"""A task of your own: a file with a text and a label in each row, in ten lines.

python -m electra_jax.finetune --workdir=runs/small --config=configs/finetune_custom.py

It reads train.csv and dev.csv, with the columns `text` and `label`, from the folder where the
command runs, or from --config.data.dir. docs/finetuning_tasks.md has pairs, several labels,
numbers, tags and questions.
"""

from configs import finetune


def get_config():
    """Returns configs/finetune.py with the task `custom` described."""
    config = finetune.get_config()
    config.name, config.tasks = "custom", "custom"
    config.custom.kind = "classification"
    config.custom.train = "train.csv"
    config.custom.dev = "dev.csv"
    config.custom.text = "text"
    config.custom.label = "label"
    config.custom.metrics = "accuracy,macro_f1"
    config.recipe.epochs = 5
    return config
