# SPDX-License-Identifier: Apache-2.0
"""One writer at a time in a bucket: an object whose owner gives a sign of life every 10 seconds.

The object holds who its owner is, and may be replaced only by who knows the number of its version
(the server compares, in one operation with the writing). Each sign of life makes a new version. So
the lock of a dead owner is one whose version no longer changes, and no clocks are compared.

    free, or none                     taken at once
    of a process of this machine      taken at once if that process is gone
    any other                         taken if its version stays the same for 45 seconds

`lock_owner.py` says what "of this machine" means.
"""

import contextlib
import dataclasses
import json
import threading
import time
import uuid
from collections.abc import Iterator

from absl import logging

from electra_jax.host import buckets, error_causes, lock_owner

SIGN_OF_LIFE = 10.0  # seconds from one to the next
SILENCE = 45.0  # seconds after which an owner without one is gone
_FREE = b"free\n"


class Lost(buckets.BucketError):
    """Another process owns the lock now, since this one was silent for too long."""


@dataclasses.dataclass(frozen=True)
class Timing:
    """How often an owner gives a sign of life, and how long one is waited for; seconds."""

    sign_of_life: float = SIGN_OF_LIFE
    silence: float = SILENCE


@contextlib.contextmanager
def hold(address: str, what: str, timing: Timing = Timing()) -> Iterator["Held"]:
    """Holds the lock while the block runs.

    Args:
      address: of the object.
      what: names the locked thing in the message.
      timing: shorter in tests.

    Raises error_causes.MayPass, one line, if another process holds the lock, and BucketError if the
    bucket does not answer.
    """
    token = uuid.uuid4().hex
    generation = _taken(address, token, what, timing)
    held = Held(address, token, what, generation, timing)
    held.start()
    try:
        yield held
    finally:
        held.release()


class Held:
    """A lock that this process owns; a thread gives its signs of life."""

    def __init__(self, address: str, token: str, what: str, generation: int, timing: Timing):
        self._address, self._token, self._what, self._timing = address, token, what, timing
        self._generation = generation  # 0 once it is lost
        # The last sign of life. This clock, unlike the monotonic one, also counts while the machine
        # is suspended.
        self._seen = time.time()
        self._lock = threading.Lock()  # of who gives one
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._work, name="lock", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def is_lost(self) -> bool:
        """Returns whether another process owns the lock now, as far as is known."""
        return not self._generation

    def renew_if_old(self) -> None:
        """Gives a sign of life if the last one is too old to rely on.

        The thread slept as long as the machine did: a run that was suspended asks before it writes.
        """
        if not 0 <= time.time() - self._seen <= 2 * self._timing.sign_of_life:
            self._live()

    def refuse(self) -> None:
        """Raises Lost."""
        raise Lost(
            f"{self._what} was taken over by another process, since this one gave no sign of life"
            f" for {self._timing.silence:.0f} s; it ends here without writing there"
        )

    def release(self) -> None:
        """Ends the thread and leaves the lock free."""
        self._ends.set()
        self._thread.join()
        if self._generation:
            try:
                buckets.replace(self._address, _FREE, self._generation)
            except OSError as error:
                logging.warning("the lock of %s stays for a while: %s", self._what, error)

    def _work(self):
        while not self._ends.wait(self._timing.sign_of_life):
            self._live()
            if self.is_lost():
                return

    def _live(self):
        """Gives a sign of life, or finds out that the lock is lost."""
        with self._lock:
            if self.is_lost():
                return
            try:
                generation = buckets.replace(self._address, _me(self._token), self._generation)
                if not generation:
                    generation = self._own_version()
            except OSError:
                return  # nobody else can take it as long as the bucket does not answer
            self._generation, self._seen = generation, time.time()
        if self.is_lost():
            logging.error("%s was taken over by another process", self._what)

    def _own_version(self):
        """The version in the bucket if it is ours, and 0 if not.

        The server may have written an earlier sign of life whose answer has never come.
        """
        now = buckets.version_of(self._address)
        owner = _read(now.content)
        return now.generation if owner and owner["token"] == self._token else 0


def _taken(address, token, what, timing):
    """Waits until the lock is free, and takes it; returns the number of its version."""
    found = buckets.version_of(address)
    while True:
        if not _is_free(found.content):
            later = _watched(address, what, found, timing)
            if later.generation != found.generation and not _is_free(later.content):
                raise error_causes.MayPass(
                    f"{what} is in use by another run ({_owner(later.content)}); stop that one or"
                    " choose another folder"
                )
            found = later

        if generation := buckets.replace(address, _me(token), found.generation):
            return generation
        found = buckets.version_of(address)  # another process was quicker


def _watched(address, what, found, timing):
    """Returns the first other version of the lock, or this one if it stays for long enough."""
    logging.info(
        "%s was in use (%s); waiting up to %.0f s for a sign of life",
        what, _owner(found.content), timing.silence,
    )  # fmt: skip
    end = time.monotonic() + timing.silence
    while time.monotonic() < end:
        time.sleep(min(1.0, timing.sign_of_life))
        later = buckets.version_of(address)
        if later.generation != found.generation:
            return later
    return found


def _is_free(content):
    """Whether nobody owns a lock with this content, as far as this machine can tell at once."""
    owner = _read(content)
    if owner is None:
        return not content or content == _FREE
    return lock_owner.is_here(owner) and not lock_owner.runs(owner["pid"], owner["started"])


def _me(token):
    # The time makes each sign of life another content, by which `replace` knows its own.
    return json.dumps({**lock_owner.me(), "token": token, "at": time.time_ns()}).encode()


def _read(content):
    """What a lock says of its owner; None if it has none, or is not readable."""
    try:
        owner = json.loads(content)
        words = {name: str(owner.get(name, "")) for name in ("machine", "started", "token")}
        found = {"host": str(owner["host"]), "pid": int(owner["pid"]), "at": int(owner["at"])}
        return found | words
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _owner(content):
    owner = _read(content)
    if owner is None:
        return "which has not said who it is"
    seen = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(owner["at"] / 1e9))
    return f"process {owner['pid']} on {owner['host']}, last sign of life {seen}"
