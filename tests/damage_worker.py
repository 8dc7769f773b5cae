# SPDX-License-Identifier: Apache-2.0
"""Damages a checkpoint in many ways and loads each copy; prints what came of it; own process.

    python tests/damage_worker.py WORKDIR STEP SCRATCH CASES

What orbax began to read when it met damage stays behind in its event loop and is reported when the
collector finds it, whenever that is: a process of its own keeps that out of other tests.
"""

import json
import os
import pathlib
import random
import shutil
import sys

os.environ["JAX_PLATFORMS"] = "cpu"

from electra_jax import checkpoint, runs  # noqa: E402 - the platform must be set before
from electra_jax import config as config_lib  # noqa: E402

KINDS = ("flip", "cut", "empty", "delete")

workdir, step, scratch, cases = sys.argv[1:]
config = config_lib.parse(json.loads((pathlib.Path(workdir) / "config.json").read_text()))
run = runs.start(config, workdir)
abstract = runs.saved_tree(run.abstract, runs.placed_like(run.interval))
source = pathlib.Path(workdir) / "checkpoints" / step
expected = checkpoint.digest(checkpoint.restore(str(source), abstract).tree)
files = sorted(path.relative_to(source) for path in source.rglob("*") if path.is_file())
draw = random.Random(1)
outcomes = {"harmless": 0, "caught": 0, "silently wrong": 0, "several lines": 0}
for case in range(int(cases)):
    copy = pathlib.Path(scratch) / str(case)
    shutil.copytree(source, copy)
    victim = copy / files[case % len(files)]
    data = bytearray(victim.read_bytes())
    kind = KINDS[case // len(files) % len(KINDS)]
    if kind == "delete" or not data:
        victim.unlink()
    else:
        if kind == "flip":
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        victim.write_bytes({"flip": data, "cut": data[: len(data) // 2], "empty": b""}[kind])
    try:
        loaded = checkpoint.restore(str(copy), abstract)
    except checkpoint.CheckpointError as error:
        outcomes["several lines" if "\n" in str(error) else "caught"] += 1
    else:
        same = checkpoint.digest(loaded.tree) == expected
        outcomes["harmless" if same else "silently wrong"] += 1
print(json.dumps(outcomes))
