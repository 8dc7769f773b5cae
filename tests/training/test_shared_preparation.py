# SPDX-License-Identifier: Apache-2.0
"""How units are shared out; that real processes do it is in tests/whole/test_shared_preparation."""

import collections
import gzip
import json
import socket
import threading
from concurrent import futures

import jax
import pytest

from electra_jax.data import planning, sent_units, text, text_files, unit_files
from electra_jax.host import processes, staging
from electra_jax.training import run_data, shared_preparation
from support import made_records
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


class Together:
    """Threads in the place of processes, each with a machine: they exchange texts in rounds."""

    def __init__(self, monkeypatch, machines):
        self.machines, self._mine = machines, threading.local()
        self._round, self._texts = threading.Barrier(len(machines)), [""] * len(machines)
        monkeypatch.setattr(processes, "gather", self._gather)
        monkeypatch.setattr(processes, "is_alone", lambda: False)
        monkeypatch.setattr(processes, "is_first", lambda: self.number == 0)
        monkeypatch.setattr(jax, "process_index", lambda: self.number)
        monkeypatch.setattr(jax, "process_count", lambda: len(machines))
        monkeypatch.setattr(socket, "gethostname", lambda: machines[self.number])

    @property
    def number(self):
        return self._mine.number

    @property
    def rounds(self):
        """How many this one has been through."""
        return self._mine.rounds

    def _gather(self, text, doing=""):
        self._mine.rounds += 1
        self._texts[self.number] = text
        self._round.wait(60)
        texts = list(self._texts)
        self._round.wait(60)
        return texts

    def run(self, work):
        """What `work()` returns in each of them."""

        def one(number):
            self._mine.number, self._mine.rounds = number, 0
            return work()

        with futures.ThreadPoolExecutor(len(self.machines)) as pool:
            return list(pool.map(one, range(len(self.machines))))


def test_of_processes_with_a_disk_of_their_machine_one_prepares_at_a_time(tmp_path, monkeypatch):
    """The first machine has one, the second two and the third one, with a disk for each machine."""
    together = Together(monkeypatch, "abbc")
    monkeypatch.setattr(shared_preparation, "lead", lambda find, executor: find(executor))
    monkeypatch.setattr(shared_preparation, "serve", lambda settings, root: "")
    rounds = collections.defaultdict(list)

    def find(executor):
        machine = together.machines[together.number]
        rounds[machine].append(together.rounds)
        folder = tmp_path / machine
        if len(rounds[machine]) == 1:
            made_records.write(str(folder), [[5]])
        return str(folder)

    found = together.run(lambda: run_data._folder_on_all_processes(find, None, str(tmp_path)))
    assert found == [str(tmp_path / machine) for machine in "abbc"]
    first, second = rounds["b"]
    assert first != second, "the lock of the folder would refuse one of them"
    assert len(rounds["a"]) == len(rounds["c"]) == 1
