# SPDX-License-Identifier: Apache-2.0
"""The processes of a run while they train: they exchange texts, stop together and end together.

Each process but the first has one connection, to the first process. A message goes to the first
process, which counts who has spoken and answers all. It handles its own messages by the same
functions, without a connection. In each process one thread reads the connections.

    gather    "said" by each process        -> "all": the texts of all
    waiting   one is late                   -> "waiting": for whom, and for how long
    stopping  "stop" by any process         -> "count" -> "counted" by each -> "stop_at"
    errors    "failed" by one that failed   -> "ended" to the others if they did not fail too
    the end   "ended", or a connection that closed without a word -> "ended" to the others
"""

import collections
import contextlib
import json
import selectors
import socket
import threading
import time
from collections.abc import Callable

import jax
from absl import logging

from electra_jax.host import process_exit, waiting, wire

_FAILS_ALIKE = 5.0  # seconds that the others have to fail in the same way
_NOTICE = 1.0  # seconds in which the end of another process may explain an error in this one
_WITH_ERROR = "ended with an error"
END = 0  # the number of the exchange in which all end; `PeerGroup.gather` counts from 1


class PeerGroup:
    """The connections between the first process and each of the others, once all have come.

    Args:
      me: the number of this process.
      sockets: by number, all other processes on process 0, and process 0 on the others.
      names: of all processes, in the order of their numbers.

    Messages are handled one at a time, each kind by a method of its own.
    """

    def __init__(self, me: int, sockets: dict[int, socket.socket], names: list[str]):
        self._me, self._sockets, self._names = me, dict(sockets), names
        self._send_lock = threading.Lock()
        self._handle_lock = threading.RLock()

        # What each process knows.
        self._calls = 0
        self._answers: dict[int, list[str]] = {}
        self._answered = threading.Condition()
        self._waits_for = ""  # once it has waited so long that it says for whom
        self._over = False  # all have said that they end, so a closed connection is no death
        self._failure: tuple[str, int] | None = None  # of this one: line to print, exit code
        self._step_lock = threading.Lock()
        # (how often the run has gone back, step), which grows in the same order on all processes.
        self._at: tuple[int, int] = (0, -1)
        self._stop_at: tuple[int, int] | None = None

        # What only the first process knows.
        self._said: dict[int, dict] = {}
        self._failed: dict[int, tuple[float, str]] = {}
        self._counted: dict[int, tuple[int, int]] | None = None
        self._asked_by = ""
        self._ends_at = float("inf")

        self._on: dict[str, Callable[..., None]] = {
            "said": self._on_said,
            "all": self._on_all,
            "waiting": self._on_waiting,
            "stop": self._on_stop,
            "count": self._on_count,
            "counted": self._on_counted,
            "stop_at": self._on_stop_at,
            "failed": self._on_failed,
            "ended": self._on_ended,
        }
        threading.Thread(target=self._listen, name="peers", daemon=True).start()

    def gather(self, text: str, doing: str = "") -> list[str]:
        """Waits for the texts of all processes and returns them in the order of their numbers.

        Args:
          text: the text of this process.
          doing: what the others wait for, for the log: "to prepare the data".
        """
        self._calls += 1
        return self._exchange(self._calls, text, doing)

    def _exchange(self, call, text, doing):
        self._to_first({"kind": "said", "call": call, "text": text, "doing": doing})
        with self._answered:
            self._answered.wait_for(lambda: call in self._answers)
            self._waits_for = ""
            return self._answers.pop(call)

    def waits_for(self) -> str:
        """What this process has waited for in an exchange for 10 seconds or more, or ""."""
        return self._waits_for

    def ask_stop(self, why: str) -> None:
        """Asks all processes to stop after the same step; may be called from any thread."""
        self._to_first(
            {"kind": "stop", "why": f"{self._names[self._me]} was asked to stop ({why})"}
        )

    def is_stopping(self) -> bool:
        """Whether a request to stop has come to this process; to the others perhaps not yet."""
        return self._stop_at is not None

    def reached(self, step: int) -> bool:
        """Returns whether to stop at `step`; it is true on every process at the same step.

        No process can have passed that step: after a request to stop each one tells which step it
        is at and then waits here until all have told, and the stop is one step after the furthest.
        """
        # `_on_count` holds this lock until the step to stop at is known.
        with self._step_lock:
            self._at = (self._at[0], step)
            return self._stop_at is not None and self._at >= self._stop_at

    def goes_back(self, step: int) -> None:
        """Says that the run goes back to this step, as it does on every process.

        A step at which to stop that was known before counts as reached with the next one.
        """
        with self._step_lock:
            self._at = (self._at[0] + 1, step)

    def failing(self, text: str, why: str = "") -> None:
        """Tells the others that this process ends with an error, before it cleans up anything.

        Args:
          text: the error, for the line that this process prints.
          why: what the others print instead, after the name of this process.
        """
        if self._failure is None:
            # The error may only be a consequence of another process's end. Its message then
            # arrives in this pause and ends this process with the true reason.
            time.sleep(_NOTICE)
            self._failure = (text, 1)
            self._to_first({"kind": "failed", "why": why or f"{_WITH_ERROR}: {text}"})

    def leave(self, code: int) -> None:
        """Waits until all others end too, then closes jax's service.

        Args:
          code: the exit code of this process, which has printed its reason. If it is the only one
            that failed, the process exits in here.
        """
        if code:
            self._failure = ("", code)

        # Not the next number of `gather`: in that exchange the others may be waiting for a text
        # that this process will never send.
        self._exchange(END, "", "to end")
        jax.distributed.shutdown()

    def end(self, text: str, code: int, why: str) -> None:
        """Tells the others why, then ends this process at once; may be called from any thread."""
        if self._failure is None or self._failure[0]:
            self._failure = (text, code)

        message = {"kind": "ended", "number": self._me, "why": why}
        if self._me:
            self._send(0, message)
        else:
            self._to_others(message)

        self._exit()

    # Receiving

    def _listen(self):
        """Reads from all connections as long as one is open; process 0 also looks at the clock."""
        received = collections.defaultdict(bytes)
        with selectors.DefaultSelector() as selector:
            for number, connection in self._sockets.items():
                selector.register(connection, selectors.EVENT_READ, number)
            while selector.get_map():
                for key, _ in selector.select(1.0):
                    data = wire.received(key.fileobj)
                    *lines, received[key.data] = (received[key.data] + data).split(b"\n")
                    for line in lines:
                        self._handle(key.data, json.loads(line))
                    if not data:
                        selector.unregister(key.fileobj)
                        self._lost(key.data)

                if self._me == 0:
                    self._look_at_the_time()

    def _handle(self, number, message):
        with self._handle_lock:
            self._on[message.pop("kind")](number, **message)

    def _on_said(self, number, call, text, doing):
        now = time.monotonic()
        said = self._said.setdefault(
            call, {"texts": {}, "doing": "", "patience": waiting.Patience(now), "since": now}
        )
        said["texts"][number] = text
        said["doing"] = said["doing"] or doing

        if len(said["texts"]) == len(self._names):
            del self._said[call]
            texts = [said["texts"][n] for n in range(len(self._names))]
            self._to_all({"kind": "all", "call": call, "texts": texts, "over": call == END})

    def _on_all(self, _, call, texts, over):
        # Before the waiting thread continues: it may close its connections at once.
        self._over = self._over or over
        with self._answered:
            self._answers[call] = texts
            self._answered.notify_all()

    def _on_waiting(self, _, missing, seconds, doing):
        if self._me not in missing:
            names = [self._names[n] for n in missing]
            self._waits_for = waiting.describe(names, doing)
            waiting.say_waiting(names, seconds, doing)

    def _on_stop(self, _, why):
        if self._counted is None:
            self._counted, self._asked_by = {}, why
            self._to_all({"kind": "count"})

    def _on_count(self, _):
        # From here to `_on_stop_at` this process does not get past `reached`.
        self._step_lock.acquire()
        self._to_first({"kind": "counted", "at": self._at})

    def _on_counted(self, number, at):
        self._counted[number] = tuple(at)
        if len(self._counted) == len(self._names):
            times_back, step = max(self._counted.values())
            stop_at = (times_back, step + 1)
            self._to_all({"kind": "stop_at", "at": stop_at, "why": self._asked_by})

    def _on_stop_at(self, _, at, why):
        self._stop_at, (_, step) = tuple(at), at
        self._step_lock.release()
        logging.info("%s: saving and stopping at step %d or before it", why, max(step, 1))

    def _on_failed(self, number, why):
        self._failed.setdefault(number, (time.monotonic(), why))

    def _on_ended(self, _, number, why):
        """Process `number` has ended or is the only one that failed: this process ends too."""
        if self._over:
            return

        if self._me == 0:
            self._to_others({"kind": "ended", "number": number, "why": why})

        if number == self._me and self._failure is not None:
            # The others end now, and this process could hang while it waits for them to clean up.
            self._ends_at = time.monotonic() + _FAILS_ALIKE
            if self._me:
                self._exit()
            return

        alone = why.startswith(_WITH_ERROR)  # that error says what to do
        self._exit(
            f"{self._names[number]} {why}" + ("" if alone else f"; {process_exit.CONTINUES}")
        )

    def _lost(self, number):
        """The connection to process `number` is closed: it died, or ended as it had said before."""
        with self._handle_lock:
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
        """Process 0 only: says who is late, and ends all if one failed and the others did not."""
        with self._handle_lock:
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

    # Sending

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
        # A broken connection is no error here: the thread that reads notices it.
        with self._send_lock, contextlib.suppress(OSError, KeyError):
            self._sockets[number].sendall(json.dumps(message).encode() + b"\n")

    def _exit(self, text="", code=1):
        # The error of this process, if it has one, is said before that of another.
        if self._failure is not None:
            text, code = self._failure
        process_exit.exit_now(text, code)
