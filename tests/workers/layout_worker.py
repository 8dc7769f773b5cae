# SPDX-License-Identifier: Apache-2.0
"""Trains a few steps on one layout of devices and writes what it computed to OUT.

    python tests/workers/layout_worker.py OUT CORPUS DATA WORKDIR STEPS DEVICES MESH ACCUMULATION
        [PORT PROCESSES ID]

DEVICES is the number of host devices per process, MESH is written as 2,2,2 and, for two slices of
devices, as 2,2,2,2. With PORT, PROCESSES and ID it is one of so many processes.
"""

import os
import sys

out, corpus, data, workdir, steps, devices, mesh, accumulation, *distributed = sys.argv[1:]
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402 - the platform must be set before
import numpy as np  # noqa: E402

jax.config.update("jax_num_cpu_devices", int(devices))
if distributed:
    port, count, number = distributed
    jax.distributed.initialize(f"127.0.0.1:{port}", int(count), int(number))

from jax.experimental import multihost_utils  # noqa: E402

from electra_jax import config as config_lib  # noqa: E402
from electra_jax.core import batch as batch_lib  # noqa: E402
from electra_jax.core import sharding, streams, trees  # noqa: E402
from electra_jax.data import pipeline  # noqa: E402
from electra_jax.training import feed as feed_lib  # noqa: E402
from electra_jax.training import runs, shown_rows  # noqa: E402
from support.corpus import small_run  # noqa: E402

config = small_run(f"text:{corpus}", data, data__batch_size=16)
config.mesh.update(dict(zip(("data", "fsdp", "tensor", "slices"), map(int, mesh.split(",")))))
config.schedule.accumulation = int(accumulation)
config.schedule.steps = 1000
run = runs.start(config_lib.parse(config), workdir)
feed = feed_lib.Feed(pipeline.Order(run.stage.records, 0), run.mesh, 0, 16, 32)


@jax.jit
def decide(params, lanes, step):
    """The random decisions of a step, and the ids that the generator sampled."""
    rows = lanes["ids"].shape[0]
    row_B = step * rows + jax.numpy.arange(rows, dtype=jax.numpy.uint32)
    batch = batch_lib.from_lanes(lanes["ids"], lanes["marks"], row_B, run.vocabulary.pad_id)
    keys = streams.keys(jax.random.key(0), step, row_B, dropout=True)
    played = run.stage.objective.intermediates(params, batch, keys, run.stage.objective.knobs(step))
    return {
        "ids": batch.ids_BL,
        "slots": played.chosen.slots_BN,
        "used": played.chosen.used_BN,
        "masked": played.chosen.masked_BN,
        "sampled": played.sampled_BN,
        "uniforms": jax.vmap(lambda key: jax.random.uniform(key, (8,)))(keys.sample_B),
    }


class Shown(Exception):
    """Raised in place of running the networks."""


def shown_on():
    """On how many devices the weights lie with which rows are shown."""

    def intermediates(params, *_):
        raise Shown(max(len(leaf.devices()) for leaf in jax.tree.leaves(params)))

    try:
        shown_rows.judged(intermediates, run.state.evaluated, run.vocabulary, run.stage.records, 8)
    except Shown as found:
        return found.args[0]


def fetch(tree):
    if distributed:
        return multihost_utils.process_allgather(tree, tiled=True)
    return jax.device_get(tree)


found = {}
for step in range(int(steps)):
    lanes = next(feed)
    for name, value in fetch(decide(run.state.params, lanes, np.uint32(step))).items():
        found[f"{name}/{step}"] = value
    run.state, measured = run.stage.update(run.state, lanes)
    for name, value in jax.device_get(measured.metric_sums).items():
        found[f"sums/{name}/{step}"] = value
feed.close()
spread = {str(tuple(x.sharding.spec)) for x in jax.tree.leaves(run.state.params)}
found["specs"] = np.array(sorted(spread))
if not distributed:
    found["shown_on"] = np.array(shown_on())
replicate = jax.jit(lambda t: t, out_shardings=sharding.replicated(run.mesh))
for path, value in trees.flat(jax.device_get(replicate(run.state.params))).items():
    found[f"params/{path}"] = value
if jax.process_index() == 0:
    np.savez(out, **found)
if distributed:
    multihost_utils.sync_global_devices("done")
    jax.distributed.shutdown()
