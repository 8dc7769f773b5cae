# SPDX-License-Identifier: Apache-2.0
"""Answers new texts with a fine-tuned task.

    python -m electra_jax.predict --from=runs/mine/finetune/NAME/TASK new.tsv --out=answers.jsonl
    python -m electra_jax.predict --from=runs/mine/finetune/NAME/TASK a.jsonl b.jsonl
    python -m electra_jax.predict --from=runs/mine/finetune/NAME/TASK texts.txt

The files have the columns of the task's test set, or of its other files if it has none; labels are
not read. For tasks of single texts a .txt file has one text a line. Each example becomes a line of
JSON: its id, the prediction, and of classes the probability of each; of several files also the
file. The model is that of the best seed on dev, as in the results. docs/finetuning.md has the
details, and `electra_jax.load_tuned` does the same in a program.
"""

if __name__ == "__main__":
    from electra_jax.cli import usage

    # Before all other imports, so that help answers at once.
    usage.answer(__file__)

import json
import os
import sys
from collections.abc import Sequence

from absl import flags, logging

from electra_jax import config as config_lib
from electra_jax.cli import command
from electra_jax.finetuning.tuning import tuned_model
from electra_jax.host import safe_files
from electra_jax.report import drawing

_FROM = flags.DEFINE_string("from", None, "The folder of a fine-tuned task.", allow_override=True)
_OUT = flags.DEFINE_string(
    "out", None, "File for the answers; without it they are printed.", allow_override=True
)


def main(paths: Sequence[str]) -> None:
    """Reads the files, answers them, and writes or prints the answers."""
    if not _FROM.value:
        raise config_lib.ConfigError(
            "--from names no fine-tuned task; give it the folder WORKDIR/finetune/NAME/TASK"
        )
    if not paths:
        raise config_lib.ConfigError("no file is named; give one or several after the flags")
    for path, what in [(_FROM.value, "--from"), *((path, "a file") for path in paths)]:
        safe_files.check_no_address(path, what, config_lib.ConfigError)
    for path in paths:
        if not os.path.isfile(path):
            raise config_lib.ConfigError(f"there is no file {path}")
    if _OUT.value:
        check_place(_OUT.value, paths)

    model, text = tuned_model.load(_FROM.value), ""
    for path in paths:
        rows, notes = model.of_file(path)
        for note in notes:
            logging.info("%s: %s", path, note)
        for row in rows:
            if "scores" in row:
                row["scores"] = {name: round(score, 6) for name, score in row["scores"].items()}
            named = {"file": path} | row if len(paths) > 1 else row
            text += json.dumps(named, ensure_ascii=False, allow_nan=False) + "\n"

    if not _OUT.value:
        sys.stdout.write(text)
        return
    drawing.write_whole(_OUT.value, text.encode())
    print(f"written: {_OUT.value}")


def check_place(out: str, paths: Sequence[str]) -> None:
    """Raises ConfigError if the answers cannot be written there, or would replace a file read."""
    safe_files.check_no_address(out, "--out", config_lib.ConfigError)
    folder = os.path.dirname(out) or "."
    if not os.path.isdir(folder):
        raise config_lib.ConfigError(f"--out={out}: there is no folder {folder}")
    if os.path.isdir(out) or any(os.path.exists(out) and os.path.samefile(out, p) for p in paths):
        what = "a folder" if os.path.isdir(out) else "one of the files to answer"
        raise config_lib.ConfigError(f"--out={out} is {what}; name another file")


if __name__ == "__main__":
    command.run_on_paths(main)
