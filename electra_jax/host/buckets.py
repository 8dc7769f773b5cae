# SPDX-License-Identifier: Apache-2.0
"""Objects of a bucket of Google Cloud Storage, by their addresses: gs://BUCKET/PATH.

    read, write, download, upload       one object
    listing, folders                    what lies below an address
    rename_folder                       every object below it, one after another
    version_of, replace                 an object that only one of several writers may replace
    ask_as_orbax                        the bucket itself, for which orbax asks before it saves

Small files of a run go through here, with Google's own client. Checkpoints do not: orbax reads and
writes them by themselves. A server that refuses, or does not answer, is tried again for
`PATIENCE` seconds, and after the first time a line in the log says so.

Client and server are those that the libraries find by themselves: credentials of the machine, or
the server that STORAGE_EMULATOR_HOST names.
"""

import base64
import contextlib
import dataclasses
import functools
import hashlib
import importlib.util
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from absl import logging

from electra_jax.host import error_causes, extras

T = TypeVar("T")

SCHEME = "gs://"
PATIENCE = 120.0  # seconds for which a server that does not answer is tried again
_PAUSE = 5.0  # seconds between two attempts, at most
_TIMEOUT = (10.0, 60.0)  # seconds to connect, and between two parts of an answer
SILENCE = 10.0  # seconds without an answer after which a line says so
_OVERLOADED = (408, 429, 500, 502, 503, 504)  # answers after which the same request may succeed
_STRANGE = "[]*?#\\"  # in names, which one of the libraries in between takes for a pattern


class BucketError(OSError):
    """A bucket cannot be read or written; the message has one line."""


class NotAllowed(BucketError):
    """What the user has to give is missing: a right, or a project. Trying again changes nothing."""


@dataclasses.dataclass(frozen=True)
class Object:
    """An object as a listing shows it."""

    bytes: int
    md5: str  # hexadecimal; '' if the server does not know it


@dataclasses.dataclass(frozen=True)
class Version:
    """The content of an object together with the number of its version."""

    content: bytes
    generation: int  # 0 if there is no such object


def is_address(path: str | os.PathLike) -> bool:
    """Returns whether a path is the address of something in a bucket."""
    return os.fspath(path).startswith(SCHEME)


def check_address(address: str, what: str, error: type[ValueError] = ValueError) -> None:
    """Refuses an address that names no folder; where it leads, and with what, is not looked at.

    Args:
      address: begins with gs://.
      what: the flag or setting that named it, for the message: '--workdir'.
      error: raised with a message of one line.
    """
    bucket, _, path = address.removeprefix(SCHEME).partition("/")
    parts = path.rstrip("/").split("/")
    if not bucket or not all(parts) or {".", ".."} & set(parts):
        raise error(f"{what}={address!r} names no folder of a bucket; write {SCHEME}BUCKET/FOLDER")

    if strange := sorted(set(address) & set(_STRANGE)):
        raise error(
            f"{what}={address!r} has {' '.join(strange)} in it, which libraries take for patterns;"
            " choose a name without"
        )


def check(address: str, what: str, error: type[ValueError] = ValueError) -> None:
    """Refuses an address that cannot be used, before anything is written; see `check_address`."""
    check_address(address, what, error)
    if not is_installed():
        raise error(
            f"{what}={address!r} needs gcsfs (the extra gcs), which is not installed:"
            f" {extras.command('gcs')}"
        )
    follow_emulator()


def is_installed() -> bool:
    """Returns whether the extra `gcs` is installed, without which no bucket can be reached."""
    return importlib.util.find_spec("gcsfs") is not None


def follow_emulator() -> None:
    """Lets every library use the server that STORAGE_EMULATOR_HOST names, if it is set."""
    if host := os.environ.get("STORAGE_EMULATOR_HOST"):
        # tensorstore, which writes arrays, has a variable of its own.
        os.environ.setdefault("TENSORSTORE_GCS_HTTP_URL", host)

    # gcsfs would ask at each of its objects which kind the bucket is, and warn without credentials.
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")


def read(address: str) -> bytes:
    """Returns the content of an object. Raises FileNotFoundError if there is none."""
    return _tried(address, lambda: _blob(address).download_as_bytes(**_options(address)))


def write(address: str, data: bytes) -> None:
    """Writes an object: a reader finds the old content or the new one."""
    _tried(address, lambda: _blob(address).upload_from_string(data, **_options(address)))


def download(address: str, path: str) -> None:
    """Fetches an object into a file, which is there completely or not at all."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    partial = f"{path}.{os.getpid()}.partial"
    try:
        _tried(address, lambda: _blob(address).download_to_filename(partial, **_options(address)))
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.remove(partial)


def upload(path: str, address: str) -> None:
    """Writes the content of a file as it is now."""
    _tried(address, lambda: _blob(address).upload_from_filename(path, **_options(address)))


def remove(address: str) -> None:
    """Removes an object, if it is there."""
    try:
        _tried(address, lambda: _blob(address).delete(**_options(address)))
    except FileNotFoundError:
        pass


def exists(address: str) -> bool:
    """Returns whether there is an object with exactly this address."""
    return _tried(address, lambda: _blob(address).exists(**_options(address)))


def listing(address: str, below: bool = True) -> dict[str, Object]:
    """Returns the objects below an address, by the rest of their names.

    Args:
      address: of a folder.
      below: whether to list the folders in it too.
    """
    return {
        name: Object(found.size, _hexadecimal(found.md5_hash))
        for name, found in _list(address, None if below else "/")[0]
    }


def folders(address: str) -> list[str]:
    """Returns the names of the folders in a folder."""
    return _list(address, "/")[1]


def rename_folder(address: str, other: str) -> None:
    """Gives every object below an address another one. Interrupted, it leaves some at each."""
    bucket, _ = _split(address)
    for name in listing(address):
        source, target = _blob(f"{address}/{name}"), _split(f"{other}/{name}")[1]
        _tried(
            address,
            lambda source=source, target=target: (
                _client()
                .bucket(bucket)
                .copy_blob(source, source.bucket, target, **_options(address))
            ),
        )
    for name in listing(address):
        remove(f"{address}/{name}")


def version_of(address: str) -> Version:
    """Returns the content of an object and the number of its version."""
    bucket, name = _split(address)
    options = _options(address)

    while found := _tried(address, lambda: _client().bucket(bucket).get_blob(name, **options)):
        try:
            content = _tried(address, lambda blob=found: blob.download_as_bytes(**options))
            return Version(content, found.generation)
        except FileNotFoundError:
            continue  # this version was replaced in between

    return Version(b"", 0)


def replace(address: str, data: bytes, generation: int) -> int:
    """Writes an object if its version is still this one; returns the new version, or 0 if not.

    Args:
      address: of the object.
      data: its new content.
      generation: of the version that is replaced; 0 if there must be none yet.
    """
    from google.api_core import exceptions  # noqa: PLC0415 - the extra `gcs`

    def work():
        blob = _blob(address)
        blob.upload_from_string(data, if_generation_match=generation, **_options(address))
        return blob.generation

    try:
        return _tried(address, work)
    except exceptions.PreconditionFailed:
        pass

    # An answer that was lost on its way is asked for again, and then our own version is there.
    now = version_of(address)
    return now.generation if now.content == data else 0


def ask_as_orbax(address: str) -> None:
    """Asks for the bucket of an address as orbax does before it saves.

    That needs another right than objects do, and a client that knows a project, which it does not
    use. Raises NotAllowed if one of them is missing, BucketError if the bucket does not answer.
    """
    from google.cloud import storage  # noqa: PLC0415 - the extra `gcs`

    _client()  # without credentials this says so
    try:
        client = storage.Client()
    except OSError as error:
        raise NotAllowed(
            "no project of Google Cloud is known on this machine, and orbax, which saves the"
            " checkpoints, asks for one; set GOOGLE_CLOUD_PROJECT to the project of the bucket"
        ) from error

    bucket, _ = _split(address)
    _tried(
        SCHEME + bucket,
        lambda: client.get_bucket(bucket, **_options(address)),
        right="asked for (storage.buckets.get), as orbax does before it saves,",
        role="Storage Legacy Bucket Reader (roles/storage.legacyBucketReader)",
    )


def md5_of(path: str) -> str:
    """Returns the MD5 of a file, in hexadecimal, which is what a server knows of its content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


@functools.cache
def _client() -> Any:
    """Google's client. Raises BucketError without credentials."""
    from google.auth import exceptions  # noqa: PLC0415 - the extra `gcs`
    from google.cloud import storage  # noqa: PLC0415 - as above

    follow_emulator()
    try:
        # A project is needed to make buckets, which nothing here does.
        return storage.Client(project=os.environ.get("GOOGLE_CLOUD_PROJECT", "none"))
    except exceptions.DefaultCredentialsError as error:
        raise BucketError(
            "there are no credentials for Google Cloud Storage on this machine: run gcloud auth"
            " application-default login, or set GOOGLE_APPLICATION_CREDENTIALS"
        ) from error


def _split(address):
    """Returns (bucket, name of the object)."""
    bucket, _, name = address.removeprefix(SCHEME).partition("/")
    return bucket, name


def _blob(address):
    bucket, name = _split(address)
    return _client().bucket(bucket).blob(name)


def _list(address, delimiter):
    """Returns ([(name below the address, blob)], [folders in it])."""
    bucket, name = _split(address)
    prefix = f"{name}/"

    def work():
        found = _client().list_blobs(
            bucket, prefix=prefix, delimiter=delimiter, **_options(address)
        )
        objects = [(one.name.removeprefix(prefix), one) for one in found]
        inside = [one.removeprefix(prefix).rstrip("/") for one in found.prefixes]
        # Some programs make an empty object as the sign of a folder.
        return [(name, one) for name, one in objects if name and name[-1] != "/"], sorted(inside)

    try:
        return _tried(address, work)
    except FileNotFoundError as error:
        raise BucketError(
            f"there is no bucket {bucket}, or it may not be seen with these credentials; make it:"
            f" gcloud storage buckets create {SCHEME}{bucket}"
        ) from error


def _options(address):
    """The arguments of every call: how long an answer may take, and what is tried again."""
    from google.api_core import retry  # noqa: PLC0415 - the extra `gcs`

    told, handled = [], sys.exception()

    def tell(error):
        if not told:
            told.append(True)
            logging.warning(
                "%s cannot be reached (%s); it is tried again for %.0f s",
                address, _reason(error, handled), PATIENCE,
            )  # fmt: skip

    policy = retry.Retry(predicate=_is_transient, maximum=_PAUSE, timeout=PATIENCE, on_error=tell)
    return {"timeout": _TIMEOUT, "retry": policy}


def _is_transient(error):
    """Returns whether the same request may succeed a little later."""
    import requests  # noqa: PLC0415 - the extra `gcs`
    from google.api_core import exceptions, retry  # noqa: PLC0415 - as above
    from google.cloud.storage import exceptions as of_uploads  # noqa: PLC0415 - as above

    # What an upload meets has a kind of its own as long as it may be tried again.
    if isinstance(error, of_uploads.InvalidResponse):
        return error.response.status_code in _OVERLOADED
    kinds = requests.Timeout, exceptions.BadGateway, exceptions.GatewayTimeout, ConnectionError
    return retry.if_transient_error(error) or isinstance(error, kinds)


def _tried(
    address: str,
    work: Callable[[], T],
    right: str = "read or written",
    role: str = "Storage Object Admin",
) -> T:
    """Returns `work()`; turns what went wrong into FileNotFoundError or a BucketError.

    Args:
      address: of what is asked for.
      work: asks.
      right: what the credentials may not do if the server refuses, for the message.
      role: that has this right.
    """
    from google.api_core import exceptions  # noqa: PLC0415 - the extra `gcs`

    handled = sys.exception()
    try:
        with _silence_said(address):
            return work()
    except exceptions.PreconditionFailed:
        raise
    except exceptions.NotFound as error:
        raise FileNotFoundError(f"there is no {address}") from error
    except exceptions.Forbidden as error:
        raise NotAllowed(
            f"{address} may not be {right} with these credentials ({_reason(error, handled)});"
            f" give them the role {role} on the bucket"
        ) from error
    except BucketError:
        raise
    except Exception as error:  # many kinds: no network, a server that fails, a full disk
        if isinstance(error, OSError) and error.errno and error.filename:
            raise  # of this machine
        raise BucketError(
            f"{address} cannot be reached ({_reason(error, handled)}); the same command continues"
            " once it answers"
        ) from error


@contextlib.contextmanager
def _silence_said(address):
    """Logs one line if what is done within takes longer than SILENCE."""

    def say():
        logging.warning("%s: no answer of the bucket for %g s; it is waited for", address, SILENCE)

    timer = threading.Timer(SILENCE, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _reason(error, handled):
    """Returns the first cause of an error, shortened to one line; see `error_causes.of`."""
    error = error_causes.of(error, handled)[-1]
    line = " ".join(f"{error}".split()) or type(error).__name__
    answer = getattr(error, "response", None)
    if status := getattr(answer, "status_code", None):
        line = f"{status} {answer.reason}"
    return line if len(line) <= 160 else f"{line[:100]} ... {line[-55:]}"


def _hexadecimal(md5):
    return base64.b64decode(md5).hex() if md5 else ""
