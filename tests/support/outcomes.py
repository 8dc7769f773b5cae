# SPDX-License-Identifier: Apache-2.0
"""What a run has left in its workdir, in a form that two runs can be compared by."""

from electra_jax.report import writers
from electra_jax.workdir import metadata

# Metrics that a clock decides, so that no two runs share them.
TIMES = ("tokens_per_second", "step_seconds", "mfu", "seconds_left")


def rows(workdir, kind=None):
    """metrics.jsonl without TIMES; only the rows of this kind if one is given."""
    return [
        {name: value for name, value in row.items() if name not in TIMES}
        for row in writers.read(f"{workdir}/metrics.jsonl")
        if kind in (None, row["kind"])
    ]


def digest(workdir, step=None):
    """{path: checksum} of every array of a checkpoint, the newest by default."""
    if step is None:
        step = metadata.steps(f"{workdir}/checkpoints")[-1]
    return metadata.read(f"{workdir}/checkpoints/{step}")["digest"]
