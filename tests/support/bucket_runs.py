# SPDX-License-Identifier: Apache-2.0
"""Commands of a machine that has nothing but a bucket, and what they leave there."""

import json
import os
import subprocess
import sys

from electra_jax.host import bucket_lock
from electra_jax.report import writers
from support.corpus import ROOT
from support.outcomes import TIMES

STEPS = 60  # of the runs of the fixture `config`
QUICK = bucket_lock.Timing(sign_of_life=0.02, silence=0.2)  # seconds


def start(module, *arguments, **machine):
    """A command that runs; `machine` is the environment of `BucketServer.environment`."""
    return subprocess.Popen(
        [sys.executable, "-m", f"electra_jax.{module}", *arguments],
        cwd=ROOT,
        env=os.environ | machine,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def command(module, *arguments, **machine):
    """The same, when it has ended."""
    process = start(module, *arguments, **machine)
    output, errors = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def same(address, workdir, server):
    """The run in the bucket has the metrics and the last arrays of the other, bit for bit."""
    folder = server._folder / address.removeprefix("gs://")
    mine, theirs = (
        [
            {name: value for name, value in row.items() if name not in TIMES}
            for row in writers.read(place / "metrics.jsonl")
        ]
        for place in (folder, workdir)
    )
    assert mine == theirs
    digests = [
        json.loads((place / "checkpoints" / str(STEPS) / "_CHECKPOINT_METADATA").read_text())[
            "custom_metadata"
        ]["digest"]
        for place in (folder, workdir)
    ]
    assert digests[0] == digests[1]


def rows(server, name):
    """The metrics of a run in the bucket."""
    return writers.read(server._folder / "lab" / name / "metrics.jsonl")
