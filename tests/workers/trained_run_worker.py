# SPDX-License-Identifier: Apache-2.0
"""Prepares, trains on four devices and reads the run on one; prints what it found as JSON.

python tests/workers/trained_run_worker.py CORPUS FOLDER
"""

import json
import sys

corpus, folder = sys.argv[1:]

import jax  # noqa: E402 - nothing of it may open a device before the rows are prepared
from jax._src import xla_bridge  # noqa: E402

import electra_jax  # noqa: E402
from electra_jax import config as config_lib  # noqa: E402
from electra_jax.training import (  # noqa: E402
    run_data,
    shown_rows,
    trained_run,  # noqa: E402
)
from support.corpus import small_run  # noqa: E402

jax.config.update("jax_num_cpu_devices", 4)
tree = small_run(f"text:{corpus}", f"{folder}/data", data__batch_size=16, schedule__steps=2)
tree.mesh.fsdp = 4
config, workdir = config_lib.parse(tree), f"{folder}/run"
run_data.prepare(config, workdir, None)
found = {"opened_to_prepare": bool(xla_bridge.backends_are_initialized())}

electra_jax.train(tree, workdir)
run = trained_run.open(config, workdir)
found["devices"] = sorted({len(leaf.devices()) for leaf in jax.tree.leaves(run.params)})
shown, _ = shown_rows.of(run, 2, "best", 8)
found["shown"] = len(shown)
found["scores"] = len(list(run.scorer().scores(["a"])))

evaluated = trained_run.open(config, workdir, evaluates=True)
found["evaluated_on"] = sorted({len(x.devices()) for x in jax.tree.leaves(evaluated.params)})
print(json.dumps(found))
