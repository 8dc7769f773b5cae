# SPDX-License-Identifier: Apache-2.0
"""How the processes of a run find each other."""

import hashlib
import json
import os
import pathlib
import selectors
import socket
import time

import jax

from electra_jax.host import waiting, wire

_GREETING = 1 << 16  # bytes


class PeersError(ValueError):
    """The processes cannot train together; the message is one line."""


def introduction(address):
    """What a process says of itself at the door."""
    code = hashlib.sha256()
    for path in sorted(pathlib.Path(__file__).parent.rglob("*.py")):
        code.update(path.read_bytes())
    return {
        "number": address.me,
        "count": address.count,
        "name": f"process {address.me} (pid {os.getpid()} on {socket.gethostname()})",
        "versions": {"jax": jax.__version__, "code of electra_jax": code.hexdigest()[:12]},
    }


def meet(port, about, seconds):
    """The first process: (connections, names) once all others have come."""
    count, began = about["count"], time.monotonic()
    patience, arrived = waiting.Patience(began), {}
    try:
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        listener = socket.create_server(("", port), family=family, dualstack_ipv6=dual)
    except OSError as error:
        raise PeersError(
            f"process 0 cannot listen on port {port} ({error.strerror}); choose another port in"
            " --coordinator_address, the same for all"
        ) from error

    def missing():
        return [f"process {n}" for n in range(1, count) if n not in arrived]

    def drop(connection):
        selector.unregister(connection)
        connection.close()
        for known in [n for n, (one, _) in arrived.items() if one is connection]:
            del arrived[known]

    greeted, unlike, ends = [], None, began + seconds
    with listener, selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        # Where two do not belong together, the rest may still come to hear of it.
        while len(greeted) < count - 1 if unlike else missing():
            now = time.monotonic()
            if now > ends:
                unlike = unlike or (
                    f"{waiting.listed(missing())} of {count} did not come within {seconds:g} s;"
                    " start all with the same --coordinator_address and --num_processes, or raise"
                    " --start_timeout"
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
                    drop(connection)  # it went away, or is no process of ours
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
            wire.say(connection, {"kind": "no", "why": unlike})
        ours = [] if unlike else [connection for connection, _ in arrived.values()]
        for key in list(selector.get_map().values()):
            if key.fileobj not in (listener, *ours):
                drop(key.fileobj)
    if unlike:
        raise PeersError(unlike)
    names = [about["name"]] + [arrived[n][1] for n in range(1, count)]
    for connection, _ in arrived.values():
        wire.say(connection, {"kind": "go", "names": names})
    return {number: connection for number, (connection, _) in arrived.items()}, names


def _greeting(line):
    """What a process said of itself; None for anything else that found the port."""
    try:
        found = json.loads(line)
        return found if {"number", "count", "name", "versions"} <= set(found) else None
    except (ValueError, TypeError):
        return None


def _unlike(mine, theirs, arrived):
    """Why two processes cannot train together, or nothing."""
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
    """Another process: (connection to the first, names) once all have come."""
    began, where = time.monotonic(), f"process 0 at {host}:{port}"
    patience = waiting.Patience(began)
    while True:
        now = time.monotonic()
        if now - began > seconds:
            raise PeersError(
                f"{where} did not answer within {seconds:g} s; start it with the same"
                " --coordinator_address and --num_processes, or raise --start_timeout"
            )
        if patience.is_over(now):
            waiting.say_waiting([where], now - began)
        try:
            connection = wire.watched(socket.create_connection((host, port), timeout=5))
        except OSError:  # it is not there yet, nor perhaps its name
            time.sleep(wire.RETRY)
            continue
        wire.say(connection, about)
        # The first one ends the waiting from here on; the time is for one that never speaks.
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
        time.sleep(wire.RETRY)


def _admitted(connection, deadline):
    """The names of all once they are there; None where the first process went away before."""
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
                raise PeersError(message["why"])
            if kind == "go":
                return message["names"]
            waiting.say_waiting(message["names"], message["seconds"])
        if not data:
            return None
