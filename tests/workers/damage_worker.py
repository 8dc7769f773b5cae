# SPDX-License-Identifier: Apache-2.0
"""Damages the newest checkpoint of a run in many ways and restores after each.

    python tests/workers/damage_worker.py WORKDIR SCRATCH CASES

Each case damages one file of the newer of two checkpoints and restores the newest good one, as the
start of a run does. There are two good outcomes: the newer checkpoint is restored with every array
and all metadata as they were saved, or it is set aside and the older one is restored so. Anything
else counts as 'lost'.

This needs a process of its own: reads that orbax has begun when it meets damage stay in its event
loop, and Python reports them later, when the garbage collector finds them.
"""

import json
import os
import pathlib
import random
import shutil
import sys

os.environ["JAX_PLATFORMS"] = "cpu"

from electra_jax import config as config_lib  # noqa: E402
from electra_jax.core import trees  # noqa: E402
from electra_jax.training import runs, saved_state  # noqa: E402 - the platform must be set before
from electra_jax.weights import checkpoint, checkpoint_series
from electra_jax.workdir import metadata

KINDS = ("flip", "flip", "flip", "flip", "cut", "empty", "delete", "folder", "other")

workdir, scratch, cases = sys.argv[1:]
config = config_lib.parse(json.loads((pathlib.Path(workdir) / "config.json").read_text()))
run = runs.start(config, workdir)
like = saved_state.tree_of(run.abstract_state, trees.shapes_like(run.interval))

directory = pathlib.Path(scratch) / "checkpoints"
before, newest = metadata.steps(os.path.join(workdir, "checkpoints"))[-2:]
for step in (before, newest):
    shutil.copytree(pathlib.Path(workdir) / "checkpoints" / str(step), directory / str(step))
whole = {}
for step in (before, newest):
    restored = checkpoint.restore(str(directory / str(step)), like)
    whole[step] = checkpoint.digest(restored.tree), restored.metadata
source = directory / str(newest)
files = sorted(path.relative_to(source) for path in source.rglob("*") if path.is_file())


def damage(path, kind, draw):
    data = bytearray(path.read_bytes())
    if kind == "flip" and data:
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    elif kind == "cut" and data:
        data = data[: draw.randrange(len(data))]
    elif kind == "empty":
        data = b""
    elif kind == "other":  # as large, of other bytes
        data = draw.randbytes(len(data))
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind != "delete":
        path.write_bytes(data)


outcomes = {"harmless": 0, "set aside": 0, "lost": []}
draw = random.Random(1)
for case in range(int(cases)):
    victim, kind = files[case % len(files)], draw.choice(KINDS)
    kept = (source / victim).read_bytes()
    damage(source / victim, kind, draw)
    try:
        with checkpoint_series.Checkpoints(str(directory), keep_last=9) as saved:
            found = saved.restore_latest(like)
        same = (checkpoint.digest(found.tree), found.metadata) == whole[found.step]
        aside = sorted(os.listdir(directory)) == sorted([str(before), f"{newest}.corrupt"])
        if not same or aside != (found.step == before):
            outcomes["lost"].append([str(victim), kind, "other values"])
        else:
            outcomes["set aside" if aside else "harmless"] += 1
    except BaseException as error:  # whatever it is, the run would have ended
        outcomes["lost"].append([str(victim), kind, f"{type(error).__name__}: {error}"[:200]])
    if not source.exists():
        os.rename(f"{source}.corrupt", source)
    if (source / victim).is_dir():
        (source / victim).rmdir()
    (source / victim).write_bytes(kept)
print(json.dumps(outcomes))
