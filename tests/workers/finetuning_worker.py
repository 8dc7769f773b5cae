# SPDX-License-Identifier: Apache-2.0
"""Three steps of fine-tuning with two seeds, one by one and together, on one device and on four."""

import dataclasses
import json

import jax
import numpy as np

from electra_jax.core import meshes
from electra_jax.finetuning.tuning import tuning_step
from electra_jax.model import networks, task_heads
from support import odd

trunk = networks.main_trunk(odd.NETWORKS, odd.weights())
shape = dataclasses.replace(odd.NETWORKS.discriminator, dropout=0.1, attention_dropout=0.1)
config = dataclasses.replace(odd.NETWORKS, discriminator=shape)
rows = [0, 1, 4, 5]
batches = [  # of each seed
    {
        "ids": odd.IDS_BL[order].astype(np.int32),
        "marks": odd.MARKS_BL[order].astype(np.uint8),
        "weight": np.array([1, 1, 1, weight], np.float32),
        "label": np.array([0, 1, 1, 0], np.int32),
    }
    for order, weight in ((rows, 1), (rows[::-1], 0))
]


def run(devices, together, parts=1):
    mesh = meshes.make_mesh(devices, devices=jax.devices()[:devices])
    setup = tuning_step.Setup(
        networks=config,
        head=task_heads.HeadConfig("linear", shape.width, outputs=2),
        kind="classification",
        pad_id=odd.PAD,
        seeds=together,
        accumulation=parts,
    )
    programs, losses, said = tuning_step.programs(setup, mesh), [[], []], []
    for first in range(0, 2, together):
        seeds = list(range(first, first + together))
        keys_Z = tuning_step.keys(seeds)
        state = programs.begin(trunk, keys_Z)
        batch = {name: np.stack([batches[s][name] for s in seeds]) for name in batches[0]}
        for _ in range(3):
            put = jax.device_put(batch, programs.rows)
            schedule = tuning_step.rate_schedule(1e-2, 4, 0.25)
            state, loss_Z = programs.update(state, put, schedule, keys_Z)
            for seed, loss in zip(seeds, loss_Z.tolist()):
                losses[seed].append(loss)
        looked_at = {name: batches[0][name] for name in ("ids", "marks")}
        put = jax.device_put(looked_at, programs.shared_rows)
        said += programs.predict(state.params, put)["scores_BC"].tolist()
    return {"losses": losses, "scores": said}


found = {"1 device": run(1, 1), "4 devices": run(4, 1), "2 seeds": run(1, 2)}
found["2 seeds on 4 devices"] = run(4, 2)
found["2 seeds on 2 devices, 2 micro-batches"] = run(2, 2, parts=2)
print(json.dumps(found))
