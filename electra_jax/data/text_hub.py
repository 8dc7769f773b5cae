# SPDX-License-Identifier: Apache-2.0
"""Data sets of the Hugging Face Hub: which files hold a split, and a file brought to this machine.

    hf:OWNER/NAME[/CONFIG][:SPLIT]  ->  parse      ->  DataSet
    DataSet                         ->  files      ->  HubFile, HubFile, ...   (one request)
    HubFile                         ->  local_path ->  a file in the Hub's cache on this machine

A file is downloaded when it is first read, by the worker that reads it. A download that was broken
off goes on where it stopped, and what is complete is never fetched again. The cache is where
HF_HOME or HF_HUB_CACHE say; HF_TOKEN opens data sets that need an account, and HF_ENDPOINT names
another server that speaks the Hub's protocol.

Of a data set that has no such files on its main branch, those of the branch `refs/convert/parquet`
are read, on which the Hub keeps a copy of most data sets as CONFIG/SPLIT/NUMBER.parquet.
"""

import dataclasses
import functools
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

from electra_jax.data import text_files

SECONDS = 15  # in which the Hub has to list a data set
_CONVERTED = "refs/convert/parquet"
_READABLE = re.compile(r"\.(parquet|(jsonl|json|ndjson|txt)(\.(gz|xz|zst|bz2))?)$")


class Unreachable(ValueError):
    """The Hub does not answer, so nothing is known about a data set."""


@dataclasses.dataclass(frozen=True)
class DataSet:
    """What `hf:OWNER/NAME[/CONFIG][:SPLIT]` names."""

    name: str  # OWNER/NAME
    config: str  # '' if none is given
    split: str

    def __str__(self) -> str:
        return f"hf:{self.name}{'/' * bool(self.config)}{self.config}:{self.split}"


@dataclasses.dataclass(frozen=True)
class HubFile:
    """A file of a data set at one commit."""

    name: str  # OWNER/NAME
    commit: str
    path: str  # in the repository
    bytes: int
    digest: str  # of its content


def parse(rest: str) -> DataSet:
    """Parses 'OWNER/NAME[/CONFIG][:SPLIT]'; the split is 'train' if none is given.

    Raises ValueError, one line, for anything else.
    """
    place, _, split = rest.partition(":")
    owner, _, rest_of_place = place.partition("/")
    name, _, config = rest_of_place.partition("/")
    if not owner or not name:
        raise ValueError(
            f"hf:{rest} does not name a data set; write hf:OWNER/NAME[/CONFIG][:SPLIT], such as"
            " hf:wikimedia/wikipedia/20231101.en"
        )
    return DataSet(f"{owner}/{name}", config.strip("/"), split or "train")


@functools.cache
def files(data_set: DataSet) -> list[HubFile]:
    """Asks the Hub for the files of a split, sorted by path; downloads none of them.

    Each process asks once, so that all its parts speak of the same commit.

    Raises Unreachable, one line, if the Hub does not answer within `SECONDS`; ValueError, one line,
    if it does not know the data set, or the data set has no such configuration or split.
    """
    every: list[HubFile] = []
    for branch in ("main", _CONVERTED):
        listed = _listed(data_set, branch)
        found = [file for file in listed if _READABLE.search(file.path)]
        mine = matching([file.path for file in found], data_set.config, data_set.split)
        if mine:
            return sorted((f for f in found if f.path in mine), key=lambda file: file.path)
        every += found

    known = sorted({re.sub(r"[^/]*$", "", file.path).rstrip("/") or file.path for file in every})
    there = f"; it has files in {', '.join(known[:8])}" if known else "; it has no readable file"
    raise ValueError(
        f"{data_set} has no parquet, JSON lines or text file of this configuration and"
        f" split{there}{', ...' if len(known) > 8 else ''}"
    )


def matching(paths: Sequence[str], config: str, split: str) -> set[str]:
    """Returns the paths of a configuration's split.

    A configuration is a folder. A split is a folder too, or the beginning of file names:
    `train-00000-of-00041.parquet`, `train.jsonl.gz`.
    """
    found = set()
    for path in paths:
        *folders, file = path.split("/")
        inside = "/".join(folders)
        if config and not (f"/{inside}/").endswith((f"/{config}/", f"/{config}/{split}/")):
            continue
        if split in folders[-1:] or re.match(rf"{re.escape(split)}([-_.]|$)", file):
            found.add(path)
    return found


def local_path(file: HubFile) -> str:
    """Returns the file on this machine; downloads it if it is not there yet.

    Raises ValueError, one line, if that fails.
    """
    import huggingface_hub  # noqa: PLC0415 - takes 0.5 s, and only these sources need it

    try:
        return huggingface_hub.hf_hub_download(
            file.name, file.path, repo_type="dataset", revision=file.commit
        )
    except Exception as error:  # many kinds: no network, a full disk, access withdrawn
        raise ValueError(
            f"hf:{file.name}: {file.path} cannot be downloaded ({_reason(error)}); the same command"
            " goes on with what is there"
        ) from error


def _listed(data_set, branch):
    """Returns all files of a branch; none if there is no such branch."""
    import huggingface_hub  # noqa: PLC0415 - as above
    from huggingface_hub import errors  # noqa: PLC0415

    api = huggingface_hub.HfApi()
    try:
        info = _in_time(
            lambda: api.dataset_info(
                data_set.name, revision=branch, files_metadata=True, timeout=SECONDS
            )
        )
    except errors.RevisionNotFoundError:
        return []
    except errors.RepositoryNotFoundError as error:
        raise ValueError(
            f"{data_set}: the Hub knows no data set {data_set.name}, or it needs an account whose"
            " token is in HF_TOKEN"
        ) from error
    except Exception as error:  # many kinds: no network, no name server, a proxy
        raise Unreachable(
            f"{data_set} cannot be listed at {api.endpoint} ({_reason(error)}); without a network"
            " read your own files, data.source=text:GLOB, or data.source=builtin"
        ) from error

    return [
        HubFile(
            name=data_set.name,
            commit=info.sha,
            path=entry.rfilename,
            bytes=entry.size or 0,
            digest=entry.lfs["sha256"] if entry.lfs else entry.blob_id or "",
        )
        for entry in info.siblings or ()
    ]


def _in_time(work: Callable[[], Any]) -> Any:
    """Returns what `work()` returns, or raises TimeoutError after `SECONDS` in all.

    A time-out of the library is for one attempt to connect and one read, of which there may be
    many: each address of a name and each retry has its own.
    """
    results: list[tuple[Any, BaseException | None]] = []

    def run():
        try:
            results.append((work(), None))
        except BaseException as error:
            results.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS)
    if not results:
        raise TimeoutError(f"no answer in {SECONDS} s")

    value, error = results[0]
    if error is not None:
        raise error
    return value


def _reason(error):
    return f"{type(error).__name__}: {text_files.one_line(error)}"
