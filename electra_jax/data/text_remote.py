# SPDX-License-Identifier: Apache-2.0
"""Text files behind an address: which files there are, and a file brought to this machine.

    text:gs://bucket/en/*.jsonl.gz  ->  files       ->  RemoteFile, RemoteFile, ...  (one listing)
    RemoteFile                      ->  .local_path ->  a file in the cache on this machine

fsspec speaks with the server, with one more library for most kinds of addresses: aiohttp for
https://, gcsfs for gs://, s3fs for s3://. A file is downloaded when it is first read, by the worker
that reads it, and kept in the folder of `user_cache`: what is complete is never fetched again.
"""

import contextlib
import dataclasses
import functools
import glob
import hashlib
import os
import posixpath
import re
import urllib.parse

from electra_jax.data import servers, text_files
from electra_jax.host import error_causes, extras, safe_files, user_cache
from electra_jax.host import lock as lock_lib

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_PATTERN = re.compile(r"[*?[]")
_WEB = ("http://", "https://")
_SILENCE = 60  # seconds without a byte of the web after which a download has failed
_EXTRAS = {"http": "http", "https": "http", "gs": "gcs", "gcs": "gcs", "s3": "s3", "s3a": "s3"}
_GOOGLE = (
    "give them the role Storage Object Viewer on the bucket, or take others: gcloud auth"
    " application-default login, or GOOGLE_APPLICATION_CREDENTIALS=KEY_FILE"
)
_AMAZON = (
    "give them s3:ListBucket and s3:GetObject on the bucket, or take others: AWS_ACCESS_KEY_ID and"
    " AWS_SECRET_ACCESS_KEY; a public bucket is read without any if FSSPEC_S3_ANON=true"
)
_RIGHTS = {"gs": _GOOGLE, "gcs": _GOOGLE, "s3": _AMAZON, "s3a": _AMAZON}
# What servers call a digest of a file's content; blob_id is the Hugging Face Hub's.
_DIGESTS = ("ETag", "etag", "md5Hash", "crc32c", "blob_id")


@dataclasses.dataclass(frozen=True)
class RemoteFile:
    """A file behind an address, as it was when it was listed."""

    address: str
    bytes: int
    digest: str  # of its content, in the server's own kind; '' if the server says none

    @property
    def name(self) -> str:
        """The last part of its path, whose ending says how it is read; 'text' if there is none."""
        return posixpath.basename(urllib.parse.urlsplit(self.address).path) or "text"

    def local_path(self) -> str:
        """Returns the file on this machine; downloads it if it is not there yet.

        Raises ValueError, one line, if that fails; error_causes.MayPass unless the server refuses.
        """
        path = self._path()
        folder = os.path.dirname(path)

        try:
            os.makedirs(folder, exist_ok=True)
            # Several workers may need one file; the first fetches it.
            with open(os.path.join(folder, "lock"), "w") as lock:
                alone = lock_lib.take(lock)
                if not os.path.exists(path):
                    _download(self, path, alone)
        except Exception as error:  # many kinds: no network, a full disk, access withdrawn
            if servers.refused(error):
                raise ValueError(_not_allowed(self.address, error)) from error
            raise error_causes.MayPass(
                f"{self.address} cannot be downloaded ({servers.why(error)}); the same"
                " command begins it again, and keeps the files that are complete"
            ) from error
        return path

    def bytes_here(self) -> int:
        """How much of the file is on this machine, also of one that is being downloaded."""
        path = self._path()
        for place in (path, *glob.glob(f"{glob.escape(path)}*.partial")):
            with contextlib.suppress(OSError):
                return os.path.getsize(place)
        return 0

    def _path(self):
        identity = f"{self.address}\n{self.bytes}\n{self.digest}"
        folder = os.path.join(cache(), hashlib.sha256(identity.encode()).hexdigest()[:32])
        return os.path.join(folder, self.name)


def is_address(pattern: str) -> bool:
    """Returns whether what follows `text:` is an address; else it is a path of this machine."""
    return _ADDRESS.match(pattern) is not None


@functools.cache
def files(pattern: str) -> list[RemoteFile]:
    """Asks the server for the files that match, sorted by address; downloads none of them.

    Each process asks once. The `?` of a web address begins its query; elsewhere it stands for a
    letter.

    Raises Unreachable, one line, if the server does not answer a question within
    `servers.SECONDS`; ValueError, one line, if there is no such file, kind of address or library,
    or if the server refuses.
    """
    if "::" in pattern:
        raise ValueError(
            f"text:{pattern} names files inside of another file; unpack that, and give its files:"
            " text:GLOB"
        )
    try:
        found = _listed(pattern)
    except ImportError as error:  # fsspec names the library
        extra = _EXTRAS.get(pattern.partition("://")[0])
        remedy = f": {extras.command(extra)}" if extra else ""
        raise ValueError(f"text:{pattern}: {text_files.one_line(error)}{remedy}") from error
    except Exception as error:  # many kinds: no network, no right to read, an unknown protocol
        if "Protocol not known" in str(error):
            raise ValueError(
                f"text:{pattern} is no kind of address that fsspec knows; gs://, s3:// and https://"
                " are some"
            ) from error
        if servers.refused(error):
            raise ValueError(_not_allowed(f"text:{pattern}", error)) from error
        raise servers.Unreachable(
            f"text:{pattern} cannot be listed ({servers.why(error)}); without a network"
            f" {servers.OTHER_TEXT}"
        ) from error

    if not found:
        inside = f"; the files of a folder are text:{pattern.rstrip('/')}/*"
        raise ValueError(
            f"text:{pattern} matches no file{'' if _PATTERN.search(pattern) else inside}"
        )
    for file in found:
        text_files.refuse_by_ending(file.address)
        if file.bytes < 0:
            raise ValueError(
                f"{file.address}: the server does not say how large it is; download it, and give"
                " its path: data.source=text:PATH"
            )
    return found


def cache() -> str:
    """Returns the folder of downloaded files."""
    return user_cache.folder("text")


def _not_allowed(place, error):
    """Returns the line for what the credentials do not allow; trying again would change nothing."""
    protocol = place.removeprefix("text:").partition("://")[0]
    remedy = _RIGHTS.get(protocol, "download it where it may be, and give data.source=text:PATH")
    return (
        f"{place} may not be read with the credentials of this machine ({servers.why(error)});"
        f" {remedy}"
    )


def _listed(pattern):
    system, found = servers.in_time(lambda: _matching(pattern))
    names = [name for name, about in found.items() if about.get("size") is None]
    # A page of the web lists names alone, so each file is a question of its own.
    found |= zip(names, servers.each_in_time(lambda name: _info(system, name), names), strict=True)

    return [
        RemoteFile(
            address=system.unstrip_protocol(name),
            bytes=-1 if about.get("size") is None else about["size"],
            digest=next((str(about[key]) for key in _DIGESTS if about.get(key)), ""),
        )
        for name, about in sorted(found.items())
        if about.get("type") == "file"
    ]


def _matching(pattern):
    """Returns what speaks with the server, and by name what it tells of the files that match."""
    system, path = _file_system(pattern)
    # The name of an existing file is not a pattern; the web cannot be asked for less than a page.
    if "*" in path or (_PATTERN.search(path) and not pattern.startswith(_WEB)):
        return system, system.glob(path, detail=True)
    return system, {path: {}}


def _file_system(address):
    """Returns what speaks with the server of an address, and the name that it calls the file by.

    By itself aiohttp gives a file of the web five minutes in all, however steadily it comes.
    """
    import fsspec  # noqa: PLC0415 - takes 0.1 s, and only these sources need it

    if not address.startswith(_WEB):
        return fsspec.core.url_to_fs(address)

    import aiohttp  # noqa: PLC0415 - of the extra `http`

    asked = {"timeout": aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=_SILENCE)}
    for protocol in ("http", "https"):  # what the user has set for fsspec stays
        asked |= fsspec.config.conf.get(protocol, {}).get("client_kwargs", {})
    return fsspec.core.url_to_fs(address, client_kwargs=asked)


def _info(system, path):
    """Returns what is known of a file; {} if there is none.

    Raises OSError without an answer, and the answer of a server that refuses.
    """
    try:
        return system.info(path)
    except FileNotFoundError as error:
        cause = error.__cause__

    # Of a web server that cannot be reached, or refuses, fsspec says the same as of one without
    # this file.
    silent = isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError)
    if silent or (cause is not None and servers.refused(cause)):
        raise cause
    return {}


def _download(file, path, alone):
    """Fetches a file; a reader finds all of it or nothing.

    Without a lock (`alone` is False) others may be fetching it too, each under a name of its own.
    """
    system, there = _file_system(file.address)
    partial = f"{path}.partial" if alone else safe_files.partial_name(path)
    try:
        system.get_file(there, partial)
        if (size := os.path.getsize(partial)) != file.bytes:
            raise OSError(f"{size:,} bytes came of the {file.bytes:,} that were listed")
        os.replace(partial, path)
    except BaseException:
        if not alone:  # nobody would write over it
            with contextlib.suppress(OSError):
                os.remove(partial)
        raise
