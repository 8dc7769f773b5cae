# SPDX-License-Identifier: Apache-2.0
"""Two programs by turns, with made-up programs in their place: one that ends spoils nothing."""

import json
import sys

import pytest

from benchmarks import against_peer

# A worker as ours.py and peer_torch.py are, that takes so long and may end before its work is done.
WORKER = """
import json, sys
SECONDS, PLATFORM, LAST = {seconds!r}, {platform!r}, {last!r}
if "--compile" in sys.argv:
    sys.exit("no compiler")
print("a library says something first")
print(json.dumps({{"platform": PLATFORM, "product_rate": 1e9}}), flush=True)
for number, line in enumerate(sys.stdin):
    if number == LAST:
        sys.exit("out of memory")
    seconds = [100.0] + [SECONDS] * (int(line) - 1)  # the first step after a pause is slow
    print(json.dumps({{"seconds": seconds, "losses": [1.0, 2.0]}}), flush=True)
"""


@pytest.fixture
def compare(tmp_path, monkeypatch, capsys):
    """Runs the comparison with these workers; (exit code, what it printed)."""

    def worker(name, seconds, platform="gpu", last=None):
        code = WORKER.format(seconds=seconds, platform=platform, last=last)
        (tmp_path / "benchmarks" / name).write_text(code)

    def run(ours, peer, *flags):
        (tmp_path / "benchmarks").mkdir(exist_ok=True)
        worker("ours.py", **ours)
        worker("peer_torch.py", **peer)
        monkeypatch.setattr(against_peer, "HERE", tmp_path / "benchmarks")
        monkeypatch.setattr(sys, "argv", ["", "--batch_size=2", "--rounds=3", "--steps=2", *flags])
        with pytest.raises(SystemExit) as ended:
            against_peer.main()
        return ended.value.code, capsys.readouterr()

    return run


def test_a_form_that_does_not_start_is_named_and_the_others_are_compared(compare):
    """On a GPU there is nothing to gain from another heap."""
    code, said = compare({"seconds": 0.5}, {"seconds": 1.0}, "--json")
    found = json.loads(said.out)
    assert code == 1
    assert set(found) == {"ours", "peer, eager", "peer, compiled"}
    assert found["ours"]["step_seconds"] == found["ours"]["slowest"] == 0.5
    assert found["peer, eager"]["tokens_per_second"] == 2 * 128 / 1.0
    assert found["peer, compiled"] == {"error": "ended with exit code 1"}
    assert said.err == "left out: peer, compiled ended with exit code 1\n"


def test_a_side_that_ends_on_the_way_is_left_out(compare):
    code, said = compare({"seconds": 0.5}, {"seconds": 1.0, "last": 1}, "--json")
    assert code == 1
    assert json.loads(said.out)["peer, eager"] == {"error": "ended with exit code 1"}
    assert json.loads(said.out)["ours"]["fastest"] == 0.5

    code, said = compare({"seconds": 0.5, "last": 0}, {"seconds": 1.0}, "--json")
    assert code == 1
    assert json.loads(said.out)["ours"] == {"error": "ended with exit code 1"}


def test_an_interrupt_prints_what_was_measured_until_then(compare, monkeypatch):
    whole, calls = against_peer.Side.run, []

    def run(side, steps):
        calls.append(side.name)
        if len(calls) == 4:
            raise KeyboardInterrupt
        whole(side, steps)

    monkeypatch.setattr(against_peer.Side, "run", run)
    code, said = compare({"seconds": 0.5}, {"seconds": 1.0}, "--json", "--variant=model.scan=on")
    found = json.loads(said.out)
    assert code == 1 and calls == ["ours", "ours, model.scan=on", "ours, model.scan=on", "ours"]
    assert found["ours"]["step_seconds"] == found["ours, model.scan=on"]["step_seconds"] == 0.5
    assert found["the rest"] == {"error": "was interrupted"}


def test_a_peer_on_the_cpu_is_not_held_against_ours_on_a_gpu(compare):
    peer = {"seconds": 9.0, "platform": "cpu"}
    code, said = compare({"seconds": 0.5}, peer, "--json")
    assert code == 1
    why = json.loads(said.out)["peer, eager"]["error"]
    assert why == "runs on cpu, and ours on gpu"


def test_the_table_has_a_line_for_each_side_that_worked(compare):
    cpu = {"platform": "cpu"}
    code, said = compare({"seconds": 0.5} | cpu, {"seconds": 1.0} | cpu)
    rows = said.out.splitlines()[2:]
    names = [row[:28].strip() for row in rows]
    assert names == ["ours", "peer, eager", "peer, eager, huge pages", "peer, eager, heap kept"]
    assert rows[1].split()[-2:] == ["2.00x", "1"]
    assert code == 1  # the compiled form has not started


def test_all_sides_that_worked_to_the_end_are_exit_code_0(compare):
    code, said = compare({"seconds": 0.5}, {"seconds": 1.0}, "--variant=model.scan=on")
    assert (code, said.err) == (0, "")


def test_sides_share_the_memory_of_a_gpu(tmp_path, monkeypatch):
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)
    monkeypatch.setattr(against_peer, "HERE", tmp_path / "benchmarks")
    value = "os.environ['XLA_PYTHON_CLIENT_PREALLOCATE']"
    code = f"import json, os; print(json.dumps({{'n': {value}}}))"
    side = against_peer.Side("ours", ["-c", code])
    side.close()
    assert side.about == {"n": "false"}
