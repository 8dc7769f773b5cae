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
    count, began = about["count"], time.monotonic()
    patience, arrived, listener = waiting.Patience(began), {}, _listen(port)

    def missing():
        return [f"process {n}" for n in range(1, count) if n not in arrived]

    def drop(connection):
        selector.unregister(connection)
        connection.close()
        for known in [n for n, (one, _) in arrived.items() if one is connection]:
            del arrived[known]

    # `arrived` has one connection per number, `greeted` all that spoke, of a repeated number too.
    greeted, unlike, ends, refusal = [], None, began + seconds, PeersError
    with listener, selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)

        # After two that do not belong together, the others still have time to come and be told.
        while len(greeted) < count - 1 if unlike else missing():
            now = time.monotonic()
            if now > ends:
                if not unlike:
                    refusal = LateError
                    unlike = (
                        f"{waiting.listed(missing())} of {count} did not come within"
                        f" {seconds:g} s; start all with the same --coordinator_address and"
                        " --num_processes, or raise --start_timeout"
                    )
                break

            if patience.is_over(now):
                waiting.say_waiting(missing(), now - began)
                told = {"kind": "waiting", "names": missing(), "seconds": now - began}
                for connection, _ in arrived.values():
                    wire.say(connection, told)

            for key, _ in selector.select(wire.RETRY):
                if key.fileobj is listener:
                    connection = wire.watched(listener.accept()[0])
                    selector.register(connection, selectors.EVENT_READ, bytearray())
                    continue

                connection, greeting, data = key.fileobj, key.data, wire.received(key.fileobj)
                greeting += data
                if not data or connection in greeted or len(greeting) > _GREETING:
                    greeted = [one for one in greeted if one is not connection]
                    # It went away, or it is another program that found the port.
                    drop(connection)
                elif greeting.endswith(b"\n"):
                    theirs = _greeting(greeting)
                    if theirs is None:
                        drop(connection)
                        continue
                    greeted.append(connection)
                    why = _unlike(about, theirs, arrived)
                    if why and not unlike:
                        unlike, ends = why, min(ends, now + waiting.FIRST_WORD)
                    arrived.setdefault(theirs["number"], (connection, theirs["name"]))

        for connection in greeted if unlike else ():
            late = refusal is LateError
            wire.say(connection, {"kind": "no", "why": unlike, "late": late})

        # Only the connections of the run stay open.
        ours = [] if unlike else [connection for connection, _ in arrived.values()]
        for key in list(selector.get_map().values()):
            if key.fileobj not in (listener, *ours):
                drop(key.fileobj)

    if unlike:
        raise refusal(unlike)

    names = [about["name"]] + [arrived[n][1] for n in range(1, count)]
    for connection, _ in arrived.values():
        wire.say(connection, {"kind": "go", "names": names})

    return {number: connection for number, (connection, _) in arrived.items()}, names


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
