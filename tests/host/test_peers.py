# SPDX-License-Identifier: Apache-2.0
"""How the processes of a run find each other, stop together and hear of each other's end."""

import hashlib
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading

import pytest

import electra_jax
from electra_jax.host import joining, peer_group, peers
from support.commands import free_port
from support.corpus import ROOT

NAMES = ["process 0 (pid 10 on a)", "process 1 (pid 11 on b)", "process 2 (pid 12 on c)"]


def about(number, count=3, **versions):
    known = {"jax": "1.0", "code of electra_jax": "abc"}
    return {"number": number, "count": count, "name": NAMES[number], "versions": known | versions}


def test_all_of_the_package_is_compared_and_not_only_what_connects_the_processes():
    package = pathlib.Path(electra_jax.__file__).parent
    files = sorted(package.rglob("*.py"))
    assert len({path.parent for path in files}) > 15
    whole = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    found = joining.introduction(peers.Address("a:1", count=2, me=0))
    assert found["versions"].pop("code of electra_jax") == whole[:12]
    assert set(found["versions"]) == {"jax", "sentencepiece", "tokenizers"}


def meeting(*others, seconds=20.0):
    """What came of it on each: the names of all, or the error; the first process is one more."""
    port, found = free_port(), {}

    def come(place, call):
        try:
            connections, found[place] = call()
            for connection in connections.values() if place == 0 else [connections]:
                connection.close()
        except joining.PeersError as error:
            found[place] = str(error)

    calls = [lambda: joining.meet(port, about(0), seconds)]
    calls += [lambda one=one: joining.find_first("127.0.0.1", port, one, seconds) for one in others]
    threads = [threading.Thread(target=come, args=item) for item in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[place] for place in range(len(calls))]


def test_all_learn_the_names_of_all():
    assert meeting(about(2), about(1)) == [NAMES, NAMES, NAMES]


@pytest.mark.parametrize(
    ("others", "why"),
    [
        (
            [about(1), about(2, jax="0.9")],
            f"jax is 1.0 on {NAMES[0]} and 0.9 on {NAMES[2]}; install the same on all",
        ),
        (
            [about(1), about(1) | {"name": "process 1 (pid 99 on z)"}],
            "two were started with --process_id=1: ",
        ),
        ([about(1), about(0)], f"two were started with --process_id=0: {NAMES[0]} and {NAMES[0]}"),
        (
            [about(1), about(2, count=4)],
            f"{NAMES[2]} was started with --num_processes=4, {NAMES[0]} with --num_processes=3",
        ),
    ],
)
def test_processes_that_do_not_belong_together_are_refused_on_all(others, why):
    found = meeting(*others)
    assert all(isinstance(one, str) for one in found), found
    assert why in found[0]
    assert set(found) == {found[0]}


def test_another_program_at_the_port_is_left_alone():
    """A scanner that connects, says something and goes is no process of the run."""
    port, found = free_port(), []
    first = threading.Thread(target=lambda: found.append(joining.meet(port, about(0, 2), 20)))
    first.start()
    for said in (b"GET / HTTP/1.1\r\n\r\n", b"[]\n", b""):
        while True:
            try:
                with socket.create_connection(("127.0.0.1", port)) as stranger:
                    stranger.sendall(said)
                break
            except ConnectionRefusedError:  # it does not listen yet
                continue
    connection, names = joining.find_first("127.0.0.1", port, about(1, 2), 20)
    first.join()
    connections, others = found[0]
    for one in (connection, *connections.values()):
        one.close()
    assert names == others == NAMES[:2]


def test_a_port_in_use_is_one_line():
    with socket.create_server(("", 0)) as taken:
        with pytest.raises(joining.PeersError, match=r"cannot listen on port \d+ .*another port"):
            joining.meet(taken.getsockname()[1], about(0), 5)


def groups():
    """Three groups of one process; nobody of them may end."""
    pairs = {number: socket.socketpair() for number in (1, 2)}
    first = peer_group.PeerGroup(0, {number: pair[0] for number, pair in pairs.items()}, NAMES)
    return [first] + [peer_group.PeerGroup(n, {0: pair[1]}, NAMES) for n, pair in pairs.items()]


def part(run):
    """All agree to end, so that nobody takes what follows for a death."""
    on_each(run, lambda number, group: group._exchange(peer_group.END, "", "to end"))
    # The first is connected with both others, who close their ends as soon as they see it.
    for connection in list(run[0]._sockets.values()):
        connection.shutdown(socket.SHUT_RDWR)


def on_each(run, work):
    found = {}

    def one(number, group):
        found[number] = work(number, group)

    threads = [threading.Thread(target=one, args=item) for item in enumerate(run)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[number] for number in range(len(run))]


def test_all_stop_at_one_step_though_some_are_ahead():
    """Each asks from another process, at another moment, and while some run ahead of the others."""
    for asker in range(3):
        run, begun = groups(), threading.Barrier(3)

        def steps(number, group, asker=asker, begun=begun):
            begun.wait()
            for step in range(1, 100_000):
                if group.reached(step):
                    return step
                if number == asker and step == 20:
                    group.ask_stop("SIGTERM")

        stopped = on_each(run, steps)
        assert len(set(stopped)) == 1, stopped
        part(run)


def test_all_stop_with_the_next_step_if_the_run_goes_back_when_a_stop_is_asked():
    """A spike takes them from step 20 to 10: nobody trains up to the old step once more."""
    for asker in range(3):
        run, begun = groups(), threading.Barrier(3)

        def steps(number, group, asker=asker, begun=begun):
            begun.wait()
            passed = [*range(1, 21), *range(11, 100_000)]
            for count, step in enumerate(passed):
                if number == asker and count == 19:
                    group.ask_stop("SIGTERM")
                if count == 20:
                    group.goes_back(10)
                if group.reached(step):
                    return count
            return None

        stopped = on_each(run, steps)
        assert len(set(stopped)) == 1, stopped
        part(run)


def test_a_step_to_stop_at_is_reached_once_the_run_has_gone_back():
    run = groups()
    assert on_each(run, lambda _, group: group.reached(250)) == [False] * 3
    run[0].ask_stop("SIGTERM")
    for group in run:
        while not group.is_stopping():
            threading.Event().wait(0.001)
    for group in run:
        group.goes_back(200)  # before any has come to step 251
    assert on_each(run, lambda _, group: group.reached(201)) == [True] * 3
    part(run)


def test_what_each_says_comes_to_all_in_order():
    run = groups()

    def talk(number, group):
        return [group.gather(f"{number}:{call}") for call in range(50)]

    expected = [[f"{number}:{call}" for number in range(3)] for call in range(50)]
    assert on_each(run, talk) == [expected] * 3
    part(run)


def start(port, number, count, *more):
    worker = "tests/workers/peers_worker.py"
    return subprocess.Popen(
        [sys.executable, worker, str(port), str(number), str(count), *more],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_who_waits_says_for_whom_and_ends_in_time():
    """Two of three that wait for the third, and one that waits for the first."""
    port = free_port()
    waiting = [start(port, n, 3, "12", "walk") for n in (0, 1)]
    waiting.append(start(free_port(), 1, 2, "12", "walk"))
    said = [process.communicate(timeout=100)[1] for process in waiting]
    assert [process.returncode for process in waiting] == [1] * 3, said  # they may come later
    for text in said[:2]:
        assert "waiting for process 2 for 10 s" in text
        assert "error: process 2 of 3 did not come within 12 s; start all with" in text
    assert re.search(r"waiting for process 0 at 127.0.0.1:\d+ for 10 s", said[2])
    assert "did not answer within 12 s; start it with the same" in said[2]
    assert all(len(text.splitlines()) == 2 for text in said), said


def test_processes_are_counted_as_jax_counts_them():
    """On a TPU slice jax's numbers follow from the place of a host, not from its launcher."""
    port = free_port()
    run = [start(port, n, 3, "60", "counted") for n in range(3)]
    said = [process.communicate(timeout=100) for process in run]
    assert [process.returncode for process in run] == [0] * 3, said
    found = [json.loads(out) for out, _ in said]
    assert [one["number"] for one in found] == [1, 2, 0]
    for me, one in enumerate(found):
        assert one["gathered"] == ["2", "0", "1"]
        assert one["again"] == ["2 again", "0 again", "1 again"]
        assert (one["of_first"], one["number_of_first"]) == ("2", 2.0)
        assert one["agreed"] == str(me)


@pytest.fixture(scope="module", params=[0, 1])
def killed(request):
    """(number of the killed process, its pid, [(exit code, what it said)] of the others)."""
    port, victim = free_port(), request.param
    run = [start(port, n, 3, "60", "walk") for n in range(3)]
    for process in run:
        next(line for line in process.stdout if line == "walking\n")
    run[victim].kill()
    # No longer than this: the connection of a dead process is closed at once.
    said = [process.communicate(timeout=10)[1] for process in run]
    left = [(p.returncode, text) for n, (p, text) in enumerate(zip(run, said)) if n != victim]
    return victim, run[victim].pid, left


@pytest.mark.slow
def test_the_death_of_one_ends_the_others_with_one_line_that_names_it(killed):
    victim, pid, left = killed
    for code, text in left:
        assert code == 1
        (line,) = text.splitlines()
        assert line.startswith(f"error: process {victim} (pid {pid} on ")
        assert line.endswith(") died; the same command continues from the newest checkpoint")


@pytest.mark.slow
@pytest.mark.parametrize("does", ["fail", "fail_asked"])
def test_one_that_fails_alone_ends_the_others_with_its_reason(does):
    """While they wait for it in a computation, or for its word; its own error is told in full."""
    port = free_port()
    run = [start(port, n, 3, "60", does) for n in range(3)]
    said = [process.communicate(timeout=100)[1] for process in run]
    assert [process.returncode for process in run] == [1, 1, 1], said
    assert said[1].splitlines()[-1] == "KeyError: 'no such thing'"
    for text in (said[0], said[2]):
        (line,) = text.splitlines()
        assert f"error: process 1 (pid {run[1].pid} on " in line
        assert line.endswith(") ended with an error: KeyError: 'no such thing'")


@pytest.mark.slow
def test_one_that_is_late_is_named_and_its_death_ends_the_waiting():
    """The others ask how it went; the late one is stopped by the system, so it can say nothing."""
    port = free_port()
    run = [start(port, n, 3, "60", "ask") for n in range(3)]
    for process in run:
        next(line for line in process.stdout if line == "asking\n")
    run[2].send_signal(signal.SIGSTOP)
    said = [next(line for line in process.stderr if "waiting" in line) for process in run[:2]]
    assert all(f"waiting for process 2 (pid {run[2].pid} on " in line for line in said)
    assert all(line.endswith(") to count for 10 s\n") for line in said)
    run[2].kill()
    rest = [process.communicate(timeout=10)[1] for process in run[:2]]
    run[2].communicate()
    assert all(" died; " in text and len(text.splitlines()) == 1 for text in rest), rest


@pytest.mark.slow
def test_sigterm_to_one_that_hangs_ends_it_in_the_stated_time_and_the_others_with_it():
    port = free_port()
    run = [start(port, n, 3, "60", "hang") for n in range(3)]
    next(line for line in run[1].stdout if line == "hanging\n")
    run[1].send_signal(signal.SIGTERM)
    said = [process.communicate(timeout=60)[1] for process in run]
    assert [process.returncode for process in run] == [1, 128 + signal.SIGTERM, 1], said
    *_, why = said[1].splitlines()
    assert why.startswith("error: SIGTERM: no step ended within 2 s (--stop_timeout), in which it")
    for text in (said[0], said[2]):
        *_, why = text.splitlines()
        assert why.startswith(f"error: process 1 (pid {run[1].pid} on "), text
        assert why.endswith(
            ") was ended by SIGTERM; the same command continues from the newest checkpoint"
        )


@pytest.mark.parametrize("address", ["host", ":8476", "host:0", "host:65536", "host:port"])
def test_an_address_that_nobody_can_listen_at_is_refused(address):
    with pytest.raises(joining.PeersError, match=f"address={address} is not HOST:PORT of 1 to 65"):
        peers.join(peers.Address(address, 2, 1), 5)
