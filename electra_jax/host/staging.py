# SPDX-License-Identifier: Apache-2.0
"""Folders in a bucket, used through copies on this machine.

    gs://BUCKET/PATH  <->  CACHE/buckets/N/BUCKET/PATH      local, address: by their names alone

A command works with the copy of its workdir as with any other folder:

    open_workdir -> small files are fetched -> the command reads and writes the copy
           -> `push` sends what has changed, at every save and at the end

Two things never come as a whole. Checkpoints stay in the bucket, and orbax reads and writes them
there: `place` says where they are. Of prepared data each machine fetches the shards that its rows
need, when it needs them: `staged_files.have`.

The bucket is what counts. What an earlier command left in the copy and did not send is removed.
N is a number of this process: two processes of one machine never share a copy.
"""

import contextlib
import functools
import itertools
import os
import re
from collections.abc import Iterator, Sequence

from absl import logging

from electra_jax.host import bucket_lock, buckets, safe_files, user_cache
from electra_jax.host import lock as lock_lib

CHECKPOINTS = "checkpoints"
DATA = "data"
LOCK = "run.lock"
_NOT_COPIED = (CHECKPOINTS, DATA)  # folders of a workdir

_copies: dict[str, "_Copy"] = {}  # the copies that this process sends back, by their paths


def local(address: str | os.PathLike) -> str:
    """Returns the folder on this machine for an address; other paths are returned as they are."""
    path = os.fspath(address)
    if not buckets.is_address(path):
        return path
    return os.path.join(_own_root()[0], path.removeprefix(buckets.SCHEME).rstrip("/"))


def address(path: str) -> str:
    """Returns the address of a folder or file on this machine; '' if it is no copy."""
    number, _, inside = os.path.relpath(os.path.abspath(path), _root()).partition(os.sep)
    return buckets.SCHEME + inside if number.isdecimal() and inside else ""


def place(path: str) -> str:
    """Returns where a folder really is: its address if it is a copy, and else the path."""
    return address(path) or path


def named(text: str) -> str:
    """Returns a text for users, with the addresses of copies in place of their paths."""
    return re.sub(rf"(file://)?{re.escape(_root())}/\d+/", buckets.SCHEME, text)


@contextlib.contextmanager
def open_workdir(workdir: str | os.PathLike, writes: bool = True) -> Iterator[str]:
    """Yields the folder of this machine to use as the workdir; other paths are yielded as they are.

    Args:
      workdir: an address or a path.
      writes: whether this process sends back what has changed, at each `push` and at the end. With
        several processes only the first does.

    Raises BucketError if the bucket cannot be read, or at the end cannot be written; where another
    error has ended the block, that one is raised and this one is logged.
    """
    path = local(workdir)
    if not buckets.is_address(workdir) or path in _copies:
        yield path
        return

    _copies[path] = copy = _Copy(os.fspath(workdir).rstrip("/"), path, writes)
    try:
        copy.fetch()
        with _sent(copy, path):
            yield path
    finally:
        del _copies[path]


@contextlib.contextmanager
def locked(workdir: str, folder: str, what: str) -> Iterator[None]:
    """Holds the lock of a folder while the block runs; nothing if its workdir is in no bucket.

    After that `push` raises `bucket_lock.Lost` once another run has taken the lock over.

    Args:
      workdir: that was opened.
      folder: the workdir or a folder in it.
      what: names the folder in the message.

    Raises error_causes.MayPass, one line, if another run holds the lock.
    """
    copy = _copies.get(workdir)
    if copy is None:
        yield
        return

    with bucket_lock.hold(f"{address(folder)}/{LOCK}", what) as held:
        copy.fetch()  # what another run has written before this one got the lock
        copy.held = held
        try:
            with _sent(copy, workdir):  # before another run may begin
                yield
        finally:
            copy.held = None


@contextlib.contextmanager
def _sent(copy, workdir):
    """Sends what has changed at the end of the block. The error that ends it is the one to tell."""
    try:
        yield
    except BaseException:
        push(workdir)
        raise
    copy.push()


def push(workdir: str) -> bool:
    """Sends the changed small files of a workdir to its bucket; nothing for other workdirs.

    Returns False, and logs an error, if the bucket does not answer; the next call sends the same
    files. Raises `bucket_lock.Lost` if another run has the workdir now.
    """
    copy = _copies.get(workdir)
    if copy is None:
        return True

    try:
        copy.push()
        return True
    except bucket_lock.Lost:
        raise
    except buckets.BucketError as error:
        logging.error("%s", error)
        return False


def check(path: str | os.PathLike, what: str, error: type[ValueError] = ValueError) -> None:
    """Refuses an address that cannot be read here; see `buckets.check` for the arguments."""
    read = buckets.is_address(path)
    (buckets.check if read else safe_files.check_no_address)(os.fspath(path), what, error)


def copied(path: str | os.PathLike, what: str, error: type[ValueError] = ValueError) -> str:
    """Returns the path on this machine of something that is only read.

    Args:
      path: the address of a workdir, of one of its checkpoints, or of an export, whose small files
        are fetched; other paths are returned as they are.
      what: the flag or setting that named it, for messages.
      error: raised with a message of one line if it is an address that cannot be used.
    """
    check(path, what, error)
    if not buckets.is_address(path):
        return os.fspath(path)

    path = os.fspath(path).rstrip("/")
    before, _, step = path.rpartition(f"/{CHECKPOINTS}/")
    workdir = before if step.isdecimal() else path
    if local(workdir) not in _copies:
        _Copy(workdir, local(workdir), writes=False).fetch()
    return local(path)


def copied_file(path: str, what: str) -> str:
    """Returns the path on this machine of a file that is only read; fetches it from a bucket.

    Raises ValueError, see `check`; FileNotFoundError if it is not in the bucket.
    """
    check(path, what)
    if buckets.is_address(path):
        buckets.download(path, local(path))
    return local(path)


def fetch(folder: str, names: Sequence[str]) -> None:
    """Fetches files of a folder that is a copy, or all files of folders in it, if they changed.

    What is not in the bucket is left out, and stays as it is.

    Args:
      folder: of this machine; nothing is done if it is no copy.
      names: of files and folders in it.
    """
    where = address(folder)
    if not where:
        return

    there, folders = buckets.listing(where, below=False), buckets.folders(where)
    for name in names:
        if name in folders:
            inside = buckets.listing(f"{where}/{name}")
            there |= {f"{name}/{one}": about for one, about in inside.items()}
    wanted = [one for one in there if one in names or one.split("/")[0] in names]
    for one in wanted:
        _fetch_changed(f"{where}/{one}", os.path.join(folder, one), there[one])


def send(folder: str, names: Sequence[str]) -> None:
    """Sends files of a folder, by their paths in it; nothing if it is no copy."""
    if where := address(folder):
        for name in names:
            buckets.upload(os.path.join(folder, name), f"{where}/{name}")


def receive(folder: str, names: Sequence[str]) -> None:
    """Fetches files of a folder as they are now, by their paths in it; nothing if it is no copy.

    Raises FileNotFoundError if the bucket does not have one.
    """
    if where := address(folder):
        for name in names:
            buckets.download(f"{where}/{name}", os.path.join(folder, name))


def remove(folder: str, name: str) -> None:
    """Removes a folder within a folder from the bucket; nothing if that is no copy."""
    if where := address(folder):
        for one in buckets.listing(f"{where}/{name}"):
            buckets.remove(f"{where}/{name}/{one}")


def sizes(folder: str) -> dict[str, int]:
    """Returns the bytes of all objects in a folder, by their paths in it; {} if it is no copy."""
    where = address(folder)
    return {name: one.bytes for name, one in buckets.listing(where).items()} if where else {}


def is_published(folder: str, last: str) -> bool:
    """Returns whether the bucket has a complete folder; True if it is no copy. See `publish`."""
    where = address(folder)
    if not where:
        return True
    there = buckets.listing(where, below=False)
    return last in there and there[last].md5 == buckets.md5_of(os.path.join(folder, last))


def publish(folder: str, last: str) -> None:
    """Sends a complete folder to its bucket; nothing if it is no copy.

    Args:
      folder: of this machine.
      last: the file that says that the folder is complete; it is sent after all others. Nothing is
        sent if the bucket has it already.
    """
    where = address(folder)
    if not where or is_published(folder, last):
        return

    end, there = os.path.join(folder, last), buckets.listing(where)
    names = [name for name in _files(folder) if name != last and not name.endswith(".lock")]
    logging.info("sending %d files to %s", len(names) + 1, where)
    for name in names:
        path = os.path.join(folder, name)
        if name not in there or there[name].md5 != buckets.md5_of(path):
            buckets.upload(path, f"{where}/{name}")
    buckets.upload(end, f"{where}/{last}")


class _Copy:
    """The copy of a workdir, and what is known of its files in the bucket."""

    def __init__(self, address: str, path: str, writes: bool):
        self.address, self._path, self._writes = address, path, writes
        self.held: bucket_lock.Held | None = None
        self._there: dict[str, str] = {}  # name of a file in the bucket -> MD5 of its content

    def fetch(self):
        """Makes the small files of the copy those of the bucket."""
        there = buckets.listing(self.address, below=False)
        for folder in buckets.folders(self.address):
            if folder not in _NOT_COPIED:
                inside = buckets.listing(f"{self.address}/{folder}")
                there |= {f"{folder}/{name}": one for name, one in inside.items()}
        there = {name: one for name, one in there.items() if os.path.basename(name) != LOCK}

        # Of what was fetched, and not of the listing: a run may send a newer file in between, which
        # would look here like a change of our own, and be sent back over a still newer one.
        self._there = {
            name: _fetch_changed(f"{self.address}/{name}", os.path.join(self._path, name), one)
            for name, one in there.items()
        }
        if self._writes:
            for name in self._own_files():
                if name not in there:
                    os.remove(os.path.join(self._path, name))

    def push(self):
        """Sends what has changed, and removes from the bucket what was removed from the copy."""
        if not self._writes:
            return
        if self.held is not None:
            self.held.renew_if_old()
            if self.held.is_lost():
                self._writes = False
                self.held.refuse()

        names = self._own_files()
        for name in names:
            path = os.path.join(self._path, name)
            try:
                if (md5 := buckets.md5_of(path)) != self._there.get(name):
                    buckets.upload(path, f"{self.address}/{name}")
                    self._there[name] = md5
            except FileNotFoundError:
                continue  # it was removed in between, or is a link to nothing
        for name in set(self._there) - set(names):
            buckets.remove(f"{self.address}/{name}")
            del self._there[name]

    def _own_files(self):
        """The names of all files that are kept in the bucket."""
        return [
            name
            for name in _files(self._path)
            if name.split(os.sep)[0] not in _NOT_COPIED and os.path.basename(name) != LOCK
        ]


def _fetch_changed(address, path, about):
    """Downloads an object unless the file has the same content; returns the MD5 of the file."""
    if about.md5 and os.path.isfile(path) and buckets.md5_of(path) == about.md5:
        return about.md5
    buckets.download(address, path)
    return buckets.md5_of(path)


def _files(folder):
    """The paths of all files in a folder, relative to it; without half-written ones."""
    return sorted(
        os.path.relpath(os.path.join(directory, name), folder)
        for directory, _, names in os.walk(folder)
        for name in names
        if not name.endswith(".partial")
    )


def _root():
    return user_cache.folder("buckets")


@functools.cache
def _own_root() -> tuple[str, int]:
    """Returns the folder of this process's copies, and the open lock that keeps others out.

    Raises ValueError, one line, if the file system has no locks.
    """
    os.makedirs(_root(), exist_ok=True)
    for number in itertools.count():
        folder = os.path.join(_root(), str(number))
        lock = os.open(f"{folder}.lock", os.O_CREAT | os.O_WRONLY)
        try:
            if not lock_lib.take(lock, wait=False):
                raise ValueError(
                    f"the file system of {_root()} has no locks, which keep the copies of several"
                    " commands apart; set ELECTRA_JAX_CACHE to a folder of a disk of this machine"
                )
            return folder, lock  # held until the process ends
        except BlockingIOError:
            os.close(lock)
    raise AssertionError
