# SPDX-License-Identifier: Apache-2.0
"""Makes a dev set of a part of train where a task has none, or a train set of a part of dev.

A hash of the text decides which examples move, so equal texts stay on the same side, and the
division is the same in every run and on every machine. Of a task with queries it is a hash of the
query, whose candidates stay together.
"""

import hashlib

from electra_jax.finetuning.tasks import examples
from electra_jax.finetuning.tasks import task as task_lib


def divided(
    task: task_lib.Task,
    splits: dict[str, examples.Split],
    share: float,
    report: examples.Report,
) -> dict[str, examples.Split]:
    """Returns the splits with the train or the dev set divided into both, if one is missing.

    Questions without an answer go to train, where they are left out: dev could not score them.

    Args:
      share: of the examples, which are dev; 0 divides nothing.

    Raises ValueError if one side would be empty.
    """
    dev = [name for name in splits if name.startswith("dev")]
    if ("train" in splits) == bool(dev) or not share:
        return splits
    whole = "train" if "train" in splits else dev[0]
    given = splits[whole]
    parts = {"train": [], "dev": []}
    for example in given.examples:
        scored = examples.is_labelled(example) and _text_fraction(example) < share
        parts["dev" if scored else "train"].append(example)

    other, what = "dev" if whole == "train" else "train", "query" if task.has_queries else "text"
    note = (
        f"{task.name}: no {other} file; {len(parts['dev']):,} of {len(given.examples):,} examples"
        f" of {whole} are dev by a hash of their {what} (dev_share {share:g})"
    )
    if not parts["train"] or not parts["dev"]:
        raise ValueError(
            f"{note}: one side is empty; give a file for {other}, or another data.dev_share"
        )

    report.note(note)
    made = {
        name: examples.Split(name, tuple(part), given.files, note) for name, part in parts.items()
    }
    kept = {name: split for name, split in splits.items() if name not in made and name != whole}
    return made | kept


def _text_fraction(example) -> float:
    """Returns a number from 0 to 1 that depends only on the text, or on the query if there is one.

    Questions about the same context get the same number, so they stay together.
    """
    if isinstance(example, examples.TextExample) and example.query is not None:
        text = example.query
    elif isinstance(example, examples.TextExample):
        text = f"{example.a}\0{example.b or ''}"
    elif isinstance(example, examples.TaggedExample):
        text = "\0".join(example.words)
    else:
        text = example.context

    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
