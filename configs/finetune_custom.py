# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning on a task of your own, whose files have a text and a label in each row.

    python -m electra_jax.finetune --workdir=runs/small --config=configs/finetune_custom.py

This reads train.csv and dev.csv, with the columns `text` and `label`, from the folder in which the
command runs, or from --config.data.dir. Files may also be .tsv, .jsonl or .parquet, and a set of
the Hugging Face Hub is named as hf:OWNER/NAME. Accuracy and macro F1 over five seeds are written to
WORKDIR/finetune/custom. docs/finetuning_tasks.md describes pairs of texts, several labels, numbers,
tags and questions. `electra_jax.convert` hands the result on as a Hugging Face folder. With
--config.recipe.head=two_layer transformers reads it by itself; the published head, which it lacks,
has its code in the folder.
"""

from electra_jax.configs import finetune


def get_config():
    """Returns configs/finetune.py with the task `custom` described."""
    config = finetune.get_config()
    config.name, config.tasks = "custom", "custom"
    config.custom.kind = "classification"
    config.custom.train = "train.csv"  # or 'hf:OWNER/NAME:train'
    config.custom.dev = "dev.csv"
    config.custom.text = "text"  # name of a column
    config.custom.label = "label"  # name of a column
    config.custom.metrics = "accuracy,macro_f1"  # the first is the main one
    config.recipe.epochs = 5
    return config
