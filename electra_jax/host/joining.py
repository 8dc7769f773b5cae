# SPDX-License-Identifier: Apache-2.0
"""How the processes of a run find each other before jax starts.

The first process listens (`meet`); each of the others connects to it (`find_first`) and introduces
itself with one message (`introduction`). While some are missing, the first process says for whom it
waits, and tells those that have come. It then sends all of them either "go" with the names of all
processes, or "no" with the reason: one is missing, two have the same number, or they run different
code. The open connections are handed to `peer_group.PeerGroup`.
"""

import importlib.metadata
import json
import os
import selectors
import socket
import time

import jax

from electra_jax.host import code_version, error_causes, waiting, wire

_CUT_TEXT = ("sentencepiece", "tokenizers")  # processes that share text must cut it alike
_GREETING = 1 << 16  # bytes at most that a process sends before the answer


class PeersError(ValueError):
    """The processes cannot train together; the message has one line."""


class LateError(PeersError, error_causes.MayPass):
    """They have not all come in time; when they are begun again, they may."""


def introduction(address):
    """Returns what a process says about itself when it connects, as JSON data."""
    return {
        "number": address.me,
        "count": address.count,
        "name": f"process {address.me} (pid {os.getpid()} on {socket.gethostname()})",
        "versions": {
            "jax": jax.__version__,
            "code of electra_jax": code_version.digest(),
            **{name: importlib.metadata.version(name) for name in _CUT_TEXT},
        },
    }


def meet(port, about, seconds):
    """Waits, as the first process, until all others have come.

    Returns ({number of a process: its connection}, names of all processes). Raises, on the others
    too, LateError if one does not come within `seconds`, PeersError if two do not belong together.
    """
    with _listen(port) as listener, selectors.DefaultSelector() as selector:
        meeting = _Meeting(listener, selector, about, seconds)
        meeting.wait_for_all()
        return meeting.answer_all()


class _Meeting:
    """The first process, as the others come: who has come, and why they cannot train together."""

    def __init__(self, listener, selector, about, seconds):
        self._listener, self._selector = listener, selector
        self._about, self._seconds = about, seconds
        self._began = time.monotonic()
        self._ends = self._began + seconds
        self._patience = waiting.Patience(self._began)
        self._arrived = {}  # number of a process -> (its connection, its name)
        self._greeted = []  # the connections of all that spoke, of a repeated number too
        self._refusal: PeersError | None = None
        selector.register(listener, selectors.EVENT_READ)

    def wait_for_all(self):
        """Returns when all have come, once one is refused and all were heard, or after the time."""
        while not self._is_complete():
            now = time.monotonic()
            if now > self._ends:
                self._refusal = self._refusal or self._late()
                return

            if self._patience.is_over(now):
                self._say_who_is_missing(now)
            for key, _ in self._selector.select(wire.RETRY):
                if key.fileobj is self._listener:
                    connection = wire.watched(self._listener.accept()[0])
                    self._selector.register(connection, selectors.EVENT_READ, bytearray())
                else:
                    self._read(key.fileobj, key.data, now)

    def answer_all(self):
        """Says "go" or "no" to all and closes what does not belong to the run; see `meet`."""
        if self._refusal:
            late = isinstance(self._refusal, LateError)
            for connection in self._greeted:
                wire.say(connection, {"kind": "no", "why": str(self._refusal), "late": late})

        # Only the connections of the run stay open.
        ours = [] if self._refusal else [connection for connection, _ in self._arrived.values()]
        for key in list(self._selector.get_map().values()):
            if key.fileobj not in (self._listener, *ours):
                self._drop(key.fileobj)
        if self._refusal:
            raise self._refusal

        names = [self._about["name"]]
        names += [self._arrived[number][1] for number in range(1, self._about["count"])]
        for connection in ours:
            wire.say(connection, {"kind": "go", "names": names})
        return {number: connection for number, (connection, _) in self._arrived.items()}, names

    def _is_complete(self):
        # After two that do not belong together, the others still have time to come and be told.
        if self._refusal:
            return len(self._greeted) >= self._about["count"] - 1
        return not self._missing()

    def _missing(self):
        numbers = range(1, self._about["count"])
        return [f"process {number}" for number in numbers if number not in self._arrived]

    def _late(self):
        return LateError(
            f"{waiting.listed(self._missing())} of {self._about['count']} did not come within"
            f" {self._seconds:g} s; start all with the same --coordinator_address and"
            " --num_processes, or raise --start_timeout"
        )

    def _say_who_is_missing(self, now):
        missing, seconds = self._missing(), now - self._began
        waiting.say_waiting(missing, seconds)
        for connection, _ in self._arrived.values():
            wire.say(connection, {"kind": "waiting", "names": missing, "seconds": seconds})

    def _read(self, connection, received, now):
        """Takes what a connection has sent; with the end of its greeting the process has come."""
        data = wire.received(connection)
        received += data
        if not data or connection in self._greeted or len(received) > _GREETING:
            # It went away, or it is another program that found the port.
            self._greeted = [one for one in self._greeted if one is not connection]
            self._drop(connection)
        elif received.endswith(b"\n"):
            greeting = _greeting(received)
            if greeting is None:
                self._drop(connection)
            else:
                self._take(connection, greeting, now)

    def _take(self, connection, greeting, now):
        self._greeted.append(connection)
        why = _unlike(self._about, greeting, self._arrived)
        if why and not self._refusal:
            self._refusal = PeersError(why)
            self._ends = min(self._ends, now + waiting.FIRST_WORD)
        self._arrived.setdefault(greeting["number"], (connection, greeting["name"]))

    def _drop(self, connection):
        self._selector.unregister(connection)
        connection.close()
        for known in [n for n, (one, _) in self._arrived.items() if one is connection]:
            del self._arrived[known]


def _listen(port):
    """Returns a socket that takes connections, over IPv6 too if this machine has both."""
    try:
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        return socket.create_server(("", port), family=family, dualstack_ipv6=dual)
    except OSError as error:
        raise PeersError(
            f"process 0 cannot listen on port {port} ({error.strerror}); choose another port in"
            " --coordinator_address, the same for all"
        ) from error


def _greeting(line):
    """Returns an introduction that was received; None if another program sent it."""
    try:
        found = json.loads(line)
        return found if {"number", "count", "name", "versions"} <= set(found) else None
    except (ValueError, TypeError):
        return None


def _unlike(mine, theirs, arrived):
    """Returns why two processes cannot train together; None if they can."""
    name, number = theirs["name"], theirs["number"]
    if theirs["count"] != mine["count"]:
        return (
            f"{name} was started with --num_processes={theirs['count']}, {mine['name']} with"
            f" --num_processes={mine['count']}"
        )

    if number in arrived or number == 0:
        other = mine["name"] if number == 0 else arrived[number][1]
        return f"two were started with --process_id={number}: {other} and {name}"

    for what, version in mine["versions"].items():
        if theirs["versions"].get(what) != version:
            return (
                f"{what} is {version} on {mine['name']} and {theirs['versions'].get(what)} on"
                f" {name}; install the same on all"
            )

    return None


def find_first(host, port, about, seconds):
    """Connects to the first process and waits until all have come.

    Returns (the connection, names of all processes). Raises LateError if the first process does
    not answer within `seconds`, and PeersError if it refuses.
    """
    began, where = time.monotonic(), f"process 0 at {host}:{port}"
    patience = waiting.Patience(began)

    while True:
        now = time.monotonic()
        if now - began > seconds:
            raise LateError(
                f"{where} did not answer within {seconds:g} s; start it with the same"
                " --coordinator_address and --num_processes, or raise --start_timeout"
            )

        if patience.is_over(now):
            waiting.say_waiting([where], now - began)

        try:
            connection = wire.watched(socket.create_connection((host, port), timeout=5))
        except OSError:
            # The process has not started yet, or its name cannot be looked up yet.
            time.sleep(wire.RETRY)
            continue

        wire.say(connection, about)

        # From here on the first process decides when the waiting ends. The timeout is for a
        # process that never says anything.
        connection.settimeout(2 * waiting.FIRST_WORD)
        names = None
        try:
            names = _admitted(connection, began + seconds + waiting.FIRST_WORD)
        finally:
            if names is None:
                connection.close()

        if names is not None:
            connection.settimeout(None)
            return connection, names

        # The connection was lost, or another service listens there: try again.
        time.sleep(wire.RETRY)


def _admitted(connection, deadline):
    """Returns the names of all processes once they have come.

    Returns None if the first process went away before, if another service listens at the port, or
    if nothing was heard until `deadline`. Raises PeersError if the first process refuses.
    """
    received = b""

    while True:
        try:
            data = wire.received(connection)
        except TimeoutError:
            if time.monotonic() > deadline:
                return None
            continue

        *lines, received = (received + data).split(b"\n")
        for line in lines:
            try:
                message = json.loads(line)
                kind = message["kind"]
            except (ValueError, TypeError, KeyError):
                return None  # another service
            if kind == "no":
                raise (LateError if message.get("late") else PeersError)(message["why"])
            if kind == "go":
                return message["names"]

            waiting.say_waiting(message["names"], message["seconds"])

        if not data:
            return None
