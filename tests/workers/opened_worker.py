# SPDX-License-Identifier: Apache-2.0
"""Prepares, trains on four devices and reads the run on one; prints what it found as JSON.

python tests/workers/opened_worker.py CORPUS FOLDER
"""

import json
import sys

corpus, folder = sys.argv[1:]

import jax  # noqa: E402 - nothing of it may open a device before the rows are prepared
from jax._src import xla_bridge  # noqa: E402

import electra_jax  # noqa: E402
from electra_jax import config as config_lib  # noqa: E402
from electra_jax.objectives import scoring  # noqa: E402
from electra_jax.training import opened as opened_lib  # noqa: E402
from electra_jax.training import run_data, shown_rows  # noqa: E402
from support.corpus import small_run  # noqa: E402

jax.config.update("jax_num_cpu_devices", 4)
tree = small_run(f"text:{corpus}", f"{folder}/data", data__batch_size=16, schedule__steps=2)
tree.mesh.fsdp = 4
config, workdir = config_lib.parse(tree), f"{folder}/run"
run_data.prepare(config, workdir, None)
found = {"opened_to_prepare": bool(xla_bridge.backends_are_initialized())}

electra_jax.train(tree, workdir)
opened = opened_lib.open_workdir(config, workdir)
found["devices"] = sorted({len(leaf.devices()) for leaf in jax.tree.leaves(opened.params)})
shown, _ = shown_rows.of(opened, 2, "best", 8)
found["shown"] = len(shown)
limit = opened.longest_row
scores = scoring.scores(opened.objective.placed(), opened.params, opened.vocabulary, ["a"], limit)
found["scores"] = len(list(scores))

evaluated = opened_lib.open_workdir(config, workdir, evaluates=True)
found["evaluated_on"] = sorted({len(x.devices()) for x in jax.tree.leaves(evaluated.params)})
print(json.dumps(found))
