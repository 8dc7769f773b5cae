# SPDX-License-Identifier: Apache-2.0
"""How units are shared out; that real processes do it is in tests/whole/test_shared_preparation."""

import collections
import gzip
import json

import jax
import pytest

from electra_jax.data import planning, sent_units, text, text_files, unit_files
from electra_jax.host import processes, staging
from electra_jax.training import shared_preparation
from support.corpus import text_settings


@pytest.mark.parametrize(
    ("sizes", "cores", "owners"),
    [
        ([1, 1, 1, 1], [2, 2], [0, 0, 1, 1]),
        ([1, 1, 1, 1], [3, 1], [0, 0, 0, 1]),
        ([1, 1, 1, 1, 1, 1], [1, 0, 1, 1], [0, 0, 2, 2, 3, 3]),  # process 1 sees no folder
        ([6, 1, 1, 1, 1, 2], [1, 1], [0, 1, 1, 1, 1, 1]),
        ([1, 1, 1], [4, False, False], [0, 0, 0]),
        ([5], [1, 1], [1]),
        ([1, 1], [1, 1, 1, 1], [1, 3]),  # fewer units than processes
    ],
)
def test_shares_are_neighbours_and_as_large_as_the_cores(sizes, cores, owners):
    assert shared_preparation.shares(sizes, cores) == owners


def test_processes_of_one_host_divide_its_cores_and_who_sees_nothing_has_none():
    def process(host, sees=True, workers=0):
        return {"sees": sees, "host": host, "workers": workers, "cores": 8}

    answers = [process("a"), process("a"), process("b"), process("c", sees=False), process("a")]
    assert shared_preparation._cores(answers) == [2, 2, 8, 0, 2]
    assert shared_preparation._cores([process("a", workers=3), process("a", workers=3)]) == [3, 3]


def test_a_process_with_a_copy_of_its_own_reads_a_large_file_once(tmp_path, monkeypatch):
    """Process 1 builds three of the four stripes of a compressed file, in a folder of a bucket."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "dog"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    lines = [json.dumps({"text": f"cat dog {number}"}) for number in range(1500)]
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    monkeypatch.setattr(text, "_STRIPE_BYTES", 1)
    monkeypatch.setattr(text, "_STRIPES", 4)
    settings = text_settings(
        f"text:{tmp_path}/a.jsonl.gz", str(tmp_path / "vocab.txt"), 16, workers=1
    )
    plan = planning.make_plan(settings, str(tmp_path / "data"))
    tasks = planning.make_tasks(plan)

    opened, real = [], text_files._opened
    monkeypatch.setattr(text_files, "_opened", lambda path: opened.append(path) or real(path))

    def read(task):
        return len(list(unit_files.read_documents(task, collections.Counter())))

    address, said = "gs://lab/rows", []
    look = {"do": "look", "key": plan.key, "token": "t", "address": address}
    units = [[task.name, task.heldout_below, int(task.unit.stripe > 0)] for task in tasks]
    build = {"do": "build", "vocabulary": "x", "units": units}
    asked = iter([look, None, build, None, {"do": "end"}])  # None: process 0 listens

    def gather(mine, _):
        message = next(asked)
        if message is not None:
            return [json.dumps(message), ""]
        said.append(json.loads(mine))
        return [mine, mine]

    monkeypatch.setattr(processes, "gather", gather)
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    monkeypatch.setattr(staging, "address", lambda path: address)
    monkeypatch.setattr(sent_units, "elsewhere", lambda function: read)
    shared_preparation.serve(settings, str(tmp_path / "data"))

    assert len(opened) == 1
    assert said[1] == {task.name: read(task) for task in tasks[1:]}
    assert not list((tmp_path / "data").rglob("*.stripes"))
