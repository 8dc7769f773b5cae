# SPDX-License-Identifier: Apache-2.0
"""The processes of one run: how they find each other, and how the end of one reaches the others.

`join` waits until every process has come, and says for whom it waits. The first process listens
where jax will (`--coordinator_address`); the others connect to it, and these connections stay open
beside jax's own. The operating system closes them when a process dies, so the others know it at
once; where a whole machine is gone, its silence of 30 seconds tells them. Whoever learns that
another one is gone prints one line that names it and exits: waiting inside a computation for a
process that will never come has no other end.

jax aborts a process, with pages of stack, in the moment in which its connection to the first
process closes. So the others reach jax's service through a relay of their own, which keeps that
connection open until the line is printed.

A process that fails by itself says so before it unwinds. Where all fail alike, as when they agree
that a file cannot be read, each ends in its own words; where the others have not failed 5 seconds
later, they end and name the one that did.
"""

import collections
import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import selectors
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import jax
from absl import logging

START_SECONDS = 300  # how long `join` waits for the others
SILENCE = 30  # seconds without an answer from another machine that pass for its end
_FIRST_WORD = 10.0  # seconds of waiting after which it is said for whom
_FAILS_ALIKE = 5.0  # seconds in which the others may fail in the same way
_NOTICE = 1.0  # seconds in which the end of another explains an error here
_RETRY = 0.2
_GREETING = 1 << 16  # bytes
# With the relay jax hears no process that holds Python's lock for long; the connections do.
_HEARTBEAT = 600

_WITH_ERROR = "ended with an error"
_END = 0  # the call in which all say that they end; `Group.gather` counts from 1
_GOES_ON = "the same command goes on from the newest checkpoint"


class PeersError(ValueError):
    """The processes cannot train together; the message is one line."""


@dataclasses.dataclass(frozen=True)
class Address:
    """What jax.distributed.initialize wants to know."""

    coordinator: str  # HOST:PORT of the first process
    count: int
    me: int
    devices: Any = None  # ids of this process's devices, where several share a machine


class Group:
    """The connections between the first process and each of the others, once all are there.

    The first one is asked by all and answers all; what it asks and answers itself takes the same
    way without a connection.
    """

    def __init__(self, me: int, sockets: dict[int, socket.socket], names: list[str]):
        self._me, self._sockets, self._names = me, dict(sockets), names
        self._sending = threading.Lock()
        self._handling = threading.RLock()
        # What this process knows.
        self._calls = 0
        self._answers: dict[int, list[str]] = {}
        self._answered = threading.Condition()
        self._over = False  # all have ended well, or all have ended alike
        self._failure: tuple[str, int] | None = None  # own: what is still to be said, exit code
        self._stepping = threading.Lock()
        self._step, self._stop_at = -1, None
        # What the first one knows of all.
        self._said: dict[int, dict] = {}
        self._failed: dict[int, tuple[float, str]] = {}
        self._counted: dict[int, int] | None = None
        self._asked_by = ""
        self._ends_at = float("inf")
        threading.Thread(target=self._listen, name="peers", daemon=True).start()

    def gather(self, text: str, doing: str = "") -> list[str]:
        """The texts of all processes, in their order; waits for all of them.

        Args:
          text: what this one has to say.
          doing: what the others wait for, as in "to prepare the data".
        """
        self._calls += 1
        return self._exchange(self._calls, text, doing)

    def _exchange(self, call, text, doing):
        self._to_first({"kind": "said", "call": call, "text": text, "doing": doing})
        with self._answered:
            self._answered.wait_for(lambda: call in self._answers)
            return self._answers.pop(call)

    def ask_stop(self, why: str) -> None:
        """Asks all to stop at one step; called from any thread."""
        self._to_first(
            {"kind": "stop", "why": f"{self._names[self._me]} was asked to stop ({why})"}
        )

    def reached(self, step: int) -> bool:
        """Whether `step` is the one to stop at: true on every process at the same step.

        A process that runs ahead of the others cannot have passed it: all tell the step that they
        are at, none begins another until all have, and the stop is one behind the furthest.
        """
        with self._stepping:
            self._step = step
            return self._stop_at is not None and step >= self._stop_at

    def failing(self, text: str, why: str = "") -> None:
        """Tells that this process ends with an error, before anything else of it is undone.

        An error may be what the end of another one looks like from here; then this one ends first.
        """
        if self._failure is None:
            time.sleep(_NOTICE)
            self._failure = (text, 1)
            self._to_first({"kind": "failed", "why": why or f"{_WITH_ERROR}: {text}"})

    def leave(self, code: int) -> None:
        """Waits until all others end too, then lets go of them and of jax's service.

        Args:
          code: which this process ends with, having said why. Where it failed alone, it ends here.
        """
        if code:
            self._failure = ("", code)
        # Not the next call: the others may wait in that one for what this process will never say.
        self._exchange(_END, "", "to end")
        jax.distributed.shutdown()

    def end(self, text: str, code: int, why: str) -> None:
        """Ends this process at once, having told the others why; called from any thread."""
        if self._failure is None or self._failure[0]:
            self._failure = (text, code)
        message = {"kind": "ended", "number": self._me, "why": why}
        if self._me:
            self._send(0, message)
        else:
            self._to_others(message)
        self._exit()

    # What is heard

    def _listen(self):
        """Reads from all connections for ever, and looks at the time."""
        received = collections.defaultdict(bytes)
        with selectors.DefaultSelector() as selector:
            for number, connection in self._sockets.items():
                selector.register(connection, selectors.EVENT_READ, number)
            while selector.get_map():
                for key, _ in selector.select(1.0):
                    data = _received(key.fileobj)
                    *lines, received[key.data] = (received[key.data] + data).split(b"\n")
                    for line in lines:
                        self._handle(key.data, json.loads(line))
                    if not data:
                        selector.unregister(key.fileobj)
                        self._lost(key.data)
                if self._me == 0:
                    self._look_at_the_time()

    def _handle(self, number, message):
        with self._handling:
            getattr(self, f"_on_{message.pop('kind')}")(number, **message)

    def _on_said(self, number, call, text, doing):
        now = time.monotonic()
        said = self._said.setdefault(
            call, {"texts": {}, "doing": "", "patience": _Patience(now), "since": now}
        )
        said["texts"][number] = text
        said["doing"] = said["doing"] or doing
        if len(said["texts"]) == len(self._names):
            del self._said[call]
            texts = [said["texts"][n] for n in range(len(self._names))]
            self._to_all({"kind": "all", "call": call, "texts": texts, "over": call == _END})

    def _on_all(self, _, call, texts, over):
        self._over = self._over or over
        with self._answered:
            self._answers[call] = texts
            self._answered.notify_all()

    def _on_waiting(self, _, missing, seconds, doing):
        if self._me not in missing:
            _say_waiting([self._names[n] for n in missing], seconds, doing)

    def _on_stop(self, _, why):
        if self._counted is None:
            self._counted, self._asked_by = {}, why
            self._to_all({"kind": "count"})

    def _on_count(self, _):
        self._stepping.acquire()
        self._to_first({"kind": "counted", "step": self._step})

    def _on_counted(self, number, step):
        self._counted[number] = step
        if len(self._counted) == len(self._names):
            stop_at = max(self._counted.values()) + 1
            self._to_all({"kind": "stop_at", "step": stop_at, "why": self._asked_by})

    def _on_stop_at(self, _, step, why):
        self._stop_at = step
        self._stepping.release()
        logging.info("%s: saving and stopping at step %d", why, max(step, 1))

    def _on_failed(self, number, why):
        self._failed.setdefault(number, (time.monotonic(), why))

    def _on_ended(self, _, number, why):
        """One has ended, or fails alone: so do all that have no error of their own."""
        if self._over:
            return
        if self._me == 0:
            self._to_others({"kind": "ended", "number": number, "why": why})
        if number == self._me and self._failure is not None:
            # The others end now; what is still to be undone here may wait for them in vain.
            self._ends_at = time.monotonic() + _FAILS_ALIKE
            if self._me:
                self._exit()
            return
        alone = why.startswith(_WITH_ERROR)  # its own line says what to do
        self._exit(f"{self._names[number]} {why}" + ("" if alone else f"; {_GOES_ON}"))

    def _lost(self, number):
        """A connection is closed: its process is gone, or at the end that it told before."""
        with self._handling:
            lost = self._sockets.pop(number)
            lost.close()
            if self._over:
                return
            if number in self._failed:
                self._on_ended(number, number, self._failed[number][1])
            elif self._ends_at == float("inf"):
                self._on_ended(number, number, "died")
            elif not self._sockets:
                self._exit()

    def _look_at_the_time(self):
        with self._handling:
            now = time.monotonic()
            for said in self._said.values():
                if not self._over and said["patience"].is_over(now):
                    self._to_all(
                        {
                            "kind": "waiting",
                            "missing": [
                                n for n in range(len(self._names)) if n not in said["texts"]
                            ],
                            "seconds": now - said["since"],
                            "doing": said["doing"],
                        }
                    )
            if self._failed and self._ends_at == float("inf") and not self._over:
                number, (since, why) = min(self._failed.items(), key=lambda item: item[1])
                if len(self._failed) < len(self._names) and now - since > _FAILS_ALIKE:
                    self._on_ended(number, number, why)
            if now > self._ends_at:
                self._exit()

    # What is said

    def _to_first(self, message):
        if self._me == 0:
            self._handle(0, dict(message))
        else:
            self._send(0, message)

    def _to_others(self, message):
        for number in list(self._sockets):
            self._send(number, message)

    def _to_all(self, message):
        self._to_others(message)
        self._handle(0, dict(message))

    def _send(self, number, message):
        # Who cannot be reached is found gone by the thread that reads.
        with self._sending, contextlib.suppress(OSError, KeyError):
            self._sockets[number].sendall(json.dumps(message).encode() + b"\n")

    def _exit(self, text="", code=1):
        if self._failure is not None:
            text, code = self._failure
        exit_now(text, code)


def exit_now(text: str, code: int) -> None:
    """Ends this process from any thread, with one line if there is one; nothing else is undone.

    What a run keeps is whole at every moment, so nothing is lost.
    """
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    if text:
        # Not through a file object, whose lock the main thread may hold.
        with contextlib.suppress(OSError):
            os.write(2, f"error: {' '.join(text.split())}\n".encode())
    os._exit(code)


def group() -> Group | None:
    """The processes that `join` brought together; None if there is one, or jax was started
    otherwise."""
    return _group


def join(address: Address, seconds: float = START_SECONDS) -> None:
    """Waits for all processes of a run and starts jax.distributed.

    Raises PeersError on all that came: one of them did not come in time, two have one number, or
    they run different code.
    """
    global _group
    host, _, port = address.coordinator.rpartition(":")
    if not port.isdecimal():
        raise PeersError(f"--coordinator_address={address.coordinator} is not HOST:PORT")
    if not 0 <= address.me < address.count:
        raise PeersError(
            f"--process_id={address.me} is outside 0 to {address.count - 1}, which"
            f" --num_processes={address.count} allows"
        )
    coordinator = address.coordinator
    if address.count > 1:
        about = _about(address)
        if address.me == 0:
            sockets, names = _meet(int(port), about, seconds)
        else:
            first, names = _find_first(host.strip("[]"), int(port), about, seconds)
            sockets = {0: first}
            coordinator = f"127.0.0.1:{_relay(host.strip('[]'), int(port))}"
        _group = Group(address.me, sockets, names)
    # Ours asks at which step all can stop (`Group.reached`), and leaves SIGTERM to `signals`.
    with contextlib.suppress(AttributeError):
        jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        coordinator,
        address.count,
        address.me,
        address.devices,
        initialization_timeout=max(1, int(seconds)),
        heartbeat_timeout_seconds=_HEARTBEAT if address.count > 1 else 100,
    )


@contextlib.contextmanager
def telling() -> Iterator[None]:
    """Tells the other processes of an error in the block, before anything around it is undone."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if _group is not None:
            kind, text = type(error), str(error)
            ours = kind.__module__.startswith("electra_jax") or isinstance(error, OSError)
            text = text if text and ours else f"{kind.__name__}: {text}"
            _group.failing(text, getattr(error, "why", ""))
        raise


_group: Group | None = None


class _Patience:
    """When to say that one waits: after 10 s, and then ever more seldom."""

    def __init__(self, since):
        self._since, self._next = since, _FIRST_WORD

    def is_over(self, now):
        if now - self._since < self._next:
            return False
        self._next += min(self._next, 300.0)
        return True


def _say_waiting(names, seconds, doing=""):
    logging.info("waiting for %s%s for %.0f s", _listed(names), doing and f" {doing}", seconds)


def _listed(names):
    if len(names) > 5:
        names = [*names[:4], f"{len(names) - 4} others"]
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def _about(address):
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


def _meet(port, about, seconds):
    """The first process: (connections, names) once all others have come."""
    count, began = about["count"], time.monotonic()
    patience, arrived = _Patience(began), {}
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
                    f"{_listed(missing())} of {count} did not come within {seconds:g} s; start all"
                    " with the same --coordinator_address and --num_processes, or raise"
                    " --start_timeout"
                )
                break
            if patience.is_over(now):
                _say_waiting(missing(), now - began)
                told = {"kind": "waiting", "names": missing(), "seconds": now - began}
                for connection, _ in arrived.values():
                    _say(connection, told)
            for key, _ in selector.select(_RETRY):
                if key.fileobj is listener:
                    connection = _watched(listener.accept()[0])
                    selector.register(connection, selectors.EVENT_READ, bytearray())
                    continue
                connection, greeting, data = key.fileobj, key.data, _received(key.fileobj)
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
                        unlike, ends = why, min(ends, now + _FIRST_WORD)
                    arrived.setdefault(theirs["number"], (connection, theirs["name"]))
        for connection in greeted if unlike else ():
            _say(connection, {"kind": "no", "why": unlike})
        ours = [] if unlike else [connection for connection, _ in arrived.values()]
        for key in list(selector.get_map().values()):
            if key.fileobj not in (listener, *ours):
                drop(key.fileobj)
    if unlike:
        raise PeersError(unlike)
    names = [about["name"]] + [arrived[n][1] for n in range(1, count)]
    for connection, _ in arrived.values():
        _say(connection, {"kind": "go", "names": names})
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


def _find_first(host, port, about, seconds):
    """Another process: (connection to the first, names) once all have come."""
    began, where = time.monotonic(), f"process 0 at {host}:{port}"
    patience = _Patience(began)
    while True:
        now = time.monotonic()
        if now - began > seconds:
            raise PeersError(
                f"{where} did not answer within {seconds:g} s; start it with the same"
                " --coordinator_address and --num_processes, or raise --start_timeout"
            )
        if patience.is_over(now):
            _say_waiting([where], now - began)
        try:
            connection = _watched(socket.create_connection((host, port), timeout=5))
        except OSError:  # it is not there yet, nor perhaps its name
            time.sleep(_RETRY)
            continue
        _say(connection, about)
        # The first one ends the waiting from here on; the time is for one that never speaks.
        connection.settimeout(2 * _FIRST_WORD)
        names = None
        try:
            names = _admitted(connection, began + seconds + _FIRST_WORD)
        finally:
            if names is None:
                connection.close()
        if names is not None:
            connection.settimeout(None)
            return connection, names
        time.sleep(_RETRY)


def _admitted(connection, deadline):
    """The names of all once they are there; None where the first process went away before."""
    received = b""
    while True:
        try:
            data = _received(connection)
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
            _say_waiting(message["names"], message["seconds"])
        if not data:
            return None


def _received(connection):
    """What came, nothing where the connection is closed or broken. May raise TimeoutError."""
    try:
        return connection.recv(1 << 16)
    except TimeoutError as error:
        if error.errno is not None:  # the other machine answers no more
            return b""
        raise
    except OSError:
        return b""


def _say(connection, message):
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(message).encode() + b"\n")


def _watched(connection):
    """The same, found broken when the other machine has been silent for SILENCE seconds."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (
        ("TCP_KEEPIDLE", SILENCE // 3),
        ("TCP_KEEPINTVL", SILENCE // 6),
        ("TCP_KEEPCNT", 4),
        ("TCP_USER_TIMEOUT", 1000 * SILENCE),
    ):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection


def _relay(host, port):
    """A port of this machine that leads to jax's service, and stays open when that is gone."""
    server, kept = socket.create_server(("127.0.0.1", 0)), []

    def reach():
        while True:
            try:
                return socket.create_connection((host, port), timeout=5)
            except OSError:  # jax starts it after `join` of the first process
                time.sleep(_RETRY)

    def serve():
        while True:
            near, _ = server.accept()
            far = reach()
            far.settimeout(None)
            far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            kept.append((near, far))  # a socket that nobody holds is closed
            for source, target, at_end in ((near, far, True), (far, near, False)):
                threading.Thread(
                    target=_copy, args=(source, target, at_end), name="relay", daemon=True
                ).start()

    threading.Thread(target=serve, name="relay", daemon=True).start()
    return server.getsockname()[1]


def _copy(source: socket.socket, target: socket.socket, closes: bool) -> None:
    """Passes bytes on; at the end of them closes the target or leaves it as it is."""
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        if closes:
            target.shutdown(socket.SHUT_WR)
