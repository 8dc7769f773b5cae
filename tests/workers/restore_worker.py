# SPDX-License-Identifier: Apache-2.0
"""One of two processes that each restore from its own copy of the checkpoints, some damaged.

    python tests/workers/restore_worker.py FOLDER PORT ID

Both save the steps 1 and 2 to one folder. For each case every process copies the folder and damages
its copy as the table CASES says. One line of JSON tells what this process restored in each case.
"""

import json
import os
import pathlib
import shutil
import sys

folder, port, me = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402 - the platform must be set before

jax.config.update("jax_num_cpu_devices", 2)
jax.distributed.initialize(f"127.0.0.1:{port}", 2, me)

import numpy as np  # noqa: E402
from absl import logging  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402

from electra_jax.host import logs, processes  # noqa: E402
from electra_jax.weights import checkpoint_series  # noqa: E402
from electra_jax.workdir import metadata  # noqa: E402

mesh = jax.make_mesh((2, 2), ("data", "fsdp"))
SHAPES = {"split": PartitionSpec(("data", "fsdp")), "copied": PartitionSpec()}


def no_folder(path):
    shutil.rmtree(path)


def no_arrays(path):
    for found in path.glob("state/*/d"):
        shutil.rmtree(found)
    shutil.rmtree(path / "state" / "d")


def no_manifest(path):
    (path / "state" / "manifest.ocdbt").unlink()


def cut_metadata(path):
    (path / "_CHECKPOINT_METADATA").write_bytes(b"{")


def other_numbers(path):
    """Another checkpoint under the same step: it can be read, but holds other numbers."""
    shutil.rmtree(path / "state")
    shutil.copytree(path.parent / "1" / "state", path / "state")


CASES = {  # name -> what is done to step 2, to step 1; by process
    "good": {},
    "no folder": {1: (no_folder,)},
    "no arrays": {1: (no_arrays,)},
    "no manifest": {1: (no_manifest,)},
    "metadata": {1: (cut_metadata,)},
    "other numbers": {1: (other_numbers,)},
    "other numbers in what each has": {1: (other_numbers,)},
    "first process": {0: (no_arrays,)},
    "none good": {0: (no_arrays,), 1: (lambda path: None, cut_metadata)},
}


def tree_of(step):
    return {
        name: jax.make_array_from_callback(
            (8, 4), NamedSharding(mesh, spec), lambda at: np.full((8, 4), step, np.float32)[at]
        )
        for name, spec in SHAPES.items()
    }


def save(where, *steps):
    with checkpoint_series.Checkpoints(str(where), keep_last=9) as saved:
        for step in steps:
            saved.save(step, tree_of(step), {})


like = {
    name: jax.ShapeDtypeStruct((8, 4), np.float32, sharding=NamedSharding(mesh, spec))
    for name, spec in SHAPES.items()
}
logs.show()
save(folder / "saved", 1, 2)
found = {}
for name, damaged in CASES.items():
    copy = folder / name / str(me)
    shutil.copytree(folder / "saved", copy)
    for step, damage in zip(("2", "1"), damaged.get(me, ()), strict=False):
        damage(copy / step)
    logging.info("case: %s", name)
    with checkpoint_series.Checkpoints(str(copy), keep_last=9) as saved:
        wanted = {"copied": like["copied"]} if name.endswith("each has") else like
        try:
            restored = saved.restore_latest(wanted)
        except metadata.CheckpointError as error:
            found[name] = str(error).replace(str(copy), "FOLDER")
            continue
    for leaf in restored.tree.values():
        np.testing.assert_array_equal(leaf.addressable_data(0), restored.step)
    found[name] = restored.step
save(folder / "saved", 3)  # what orbax waits for is still named alike on both
with checkpoint_series.Checkpoints(str(folder / "saved"), keep_last=9) as saved:
    found["saved again"] = saved.restore_latest(like).step
processes.of_first(lambda: None)
print(json.dumps(found))
jax.distributed.shutdown()
