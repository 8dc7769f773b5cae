# SPDX-License-Identifier: Apache-2.0
"""Workdirs of runs that were never trained: their settings, and metrics that were made up."""

import json

from electra_jax import config as config_lib

from .corpus import load_config


def workdir(folder, name, losses, *, seed=0, step=10, tokens=100, **settings):
    """A run with an evaluation every `step` steps; `losses` are its gen_masked_loss."""
    tree = load_config("tiny_paper")
    tree.name, tree.seed = name, seed
    for path, value in settings.items():
        section, field = path.split("__")
        tree[section][field] = value
    path = folder / name
    path.mkdir()
    (path / "config.json").write_text(config_lib.to_json(config_lib.parse(tree)))
    rows = []
    for number, loss in enumerate(losses, 1):
        common = {"step": step * number, "tokens_seen": tokens * number}
        rows.append(common | {"kind": "train", "loss": 2 * loss, "learning_rate": 1e-3})
        evaluated = {"gen_masked_loss": loss, "unigram_entropy": 6.0, "disc_auc": loss / 10}
        rows.append(common | {"kind": "eval"} | evaluated)
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)
