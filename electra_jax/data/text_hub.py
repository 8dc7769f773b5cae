# SPDX-License-Identifier: Apache-2.0
"""Data sets of the Hugging Face Hub: which files hold a split, and a file brought to this machine.

    hf:OWNER/NAME[/CONFIG][:SPLIT]  ->  parse      ->  DataSet
    DataSet                         ->  files      ->  HubFile, HubFile, ...   (one request)
    HubFile                         ->  .local_path ->  a file in the Hub's cache on this machine

A file is downloaded when it is first read, by the worker that reads it. A download that was broken
off continues where it stopped, and what is complete is never fetched again. The cache is where
HF_HOME or HF_HUB_CACHE say; HF_TOKEN opens data sets that need an account, and HF_ENDPOINT names
another server that speaks the Hub's protocol.

Of a data set that has no such files on its main branch, those of the branch `refs/convert/parquet`
are read, on which the Hub keeps a copy of most data sets as CONFIG/SPLIT/NUMBER.parquet.
"""

import contextlib
import dataclasses
import functools
import glob
import itertools
import os
import re
from collections.abc import Sequence
from typing import Any

from electra_jax.data import hub_errors, servers

_CONVERTED = "refs/convert/parquet"
_PAGE = 1000  # entries that the Hub lists at a time
_READABLE = re.compile(r"\.(parquet|(jsonl|json|ndjson|txt)(\.(gz|xz|zst|bz2))?)$", re.IGNORECASE)


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

    data_set: str  # OWNER/NAME
    commit: str
    name: str  # the path in the repository
    bytes: int
    digest: str  # of its content

    @property
    def address(self) -> str:
        """The same in a line."""
        return f"{self.data_set}/{self.name}"

    def local_path(self) -> str:
        """Returns the file on this machine; downloads it if it is not there yet.

        Raises error_causes.MayPass, one line, if that fails; ValueError if the Hub refuses.
        """
        import huggingface_hub  # noqa: PLC0415 - takes 0.5 s, and only these sources need it

        try:
            return huggingface_hub.hf_hub_download(
                self.data_set,
                self.name,
                repo_type="dataset",
                revision=self.commit,
                tqdm_class=_no_bar(),
            )
        except Exception as error:  # many kinds: no network, a full disk, access withdrawn
            raise hub_errors.not_downloaded(
                error, f"hf:{self.data_set}", self.data_set, kind=ValueError, file=self.name
            ) from error

    def bytes_here(self) -> int:
        """How much of the file is on this machine, also of one that is being downloaded."""
        import huggingface_hub  # noqa: PLC0415 - as above
        from huggingface_hub import constants  # noqa: PLC0415 - as above

        found = huggingface_hub.try_to_load_from_cache(
            self.data_set, self.name, repo_type="dataset", revision=self.commit
        )
        if isinstance(found, str):
            return self.bytes

        folder = f"datasets--{self.data_set.replace('/', '--')}"
        begun = os.path.join(constants.HF_HUB_CACHE, folder, "blobs", f"{self.digest}*.incomplete")
        with contextlib.suppress(OSError):  # one that has just been completed
            return max(map(os.path.getsize, glob.glob(begun)), default=0)
        return 0


def parse(rest: str) -> DataSet:
    """Parses `OWNER/NAME[/CONFIG][:SPLIT]`; the split is 'train' if none is given.

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
def files(data_set: DataSet, otherwise: str = servers.OTHER_TEXT) -> list[HubFile]:
    """Asks the Hub for the files of a split, sorted by path; downloads none of them.

    Each process asks once, so that all its parts speak of the same commit.

    Raises Unreachable, one line that offers `otherwise`, if the Hub does not answer within
    `servers.SECONDS`; ValueError, one line, if it does not know the data set, or the data set has
    no such configuration or split, or has several configurations and none is named.
    """
    every: list[HubFile] = []
    for branch in ("main", _CONVERTED):
        listed = _listed(data_set, branch, otherwise)
        found = [file for file in listed if _READABLE.search(file.name)]
        mine = matching([file.name for file in found], data_set.config, data_set.split)
        if mine:
            _refuse_several(data_set, mine)
            _refuse_copies(data_set, mine)
            return sorted((f for f in found if f.name in mine), key=lambda file: file.name)
        every += found

    known = sorted({re.sub(r"[^/]*$", "", file.name).rstrip("/") or file.name for file in every})
    there = f"; it has files in {', '.join(known[:8])}" if known else "; it has no readable file"
    raise ValueError(
        f"{data_set} has no parquet, JSON lines or text file of this configuration and"
        f" split{there}{', ...' if len(known) > 8 else ''}"
    )


def _refuse_copies(data_set, paths):
    """Raises ValueError for two files of one name with different endings: rows would come twice."""
    known: dict[str, str] = {}
    for path in sorted(paths):
        other = known.setdefault(path[: _READABLE.search(path).start()], path)
        if other != path:
            raise ValueError(
                f"{data_set} has {other} and {path}, which probably hold the same rows; name the"
                f" one to read: text:https://huggingface.co/datasets/{data_set.name}/resolve/main/"
                f"{path}"
            )


def matching(paths: Sequence[str], config: str, split: str) -> set[str]:
    """Returns the paths of a configuration's split.

    A configuration is a folder. A split is a folder too, or the beginning of file names:
    `train-00000-of-00041.parquet`, `train.jsonl.gz`. Only if no file has its very name are longer
    ones taken, such as `train_sft.parquet`.
    """
    found, exact = set(), set()
    # `train.`, `train-0.`, `train-00000-of-00041.`, and the last with a digest behind it.
    numbered = re.compile(rf"{re.escape(split)}(-\d+(-of-\d+(-\w+)?)?)?\.")
    for path in paths:
        *folders, file = path.split("/")
        inside = f"/{'/'.join(folders)}/"
        if config and not inside.endswith((f"/{config}/", f"/{config}/{split}/")):
            continue

        if split in folders[-1:] or re.match(rf"{re.escape(split)}([-_.]|$)", file):
            found.add(path)
            if split in folders[-1:] or numbered.match(file):
                exact.add(path)
    return exact or found


def _no_bar():
    """A class of progress bars that are never drawn: those of several workers would overlap."""
    from huggingface_hub import utils  # noqa: PLC0415 - as above

    class NoBar(utils.tqdm):
        def __init__(self, *arguments, **names):
            super().__init__(*arguments, **names | {"disable": True})

    return NoBar


def _refuse_several(data_set, paths):
    """Raises ValueError if no configuration is named and the files are those of several.

    Otherwise `hf:wikimedia/wikipedia` would be all languages one after the other.
    """
    folders = {path.rpartition("/")[0].removesuffix(f"/{data_set.split}") for path in paths}
    if not data_set.config and len(folders) > 1:
        several = sorted(folders)
        raise ValueError(
            f"{data_set} has {len(several)} configurations; name one, as in"
            f" hf:{data_set.name}/{several[0]}: {', '.join(several[:8])}"
            f"{', ...' if len(several) > 8 else ''}"
        )


def _listed(data_set, branch, otherwise):
    """Returns all files of a branch; none if there is no such branch."""
    import huggingface_hub  # noqa: PLC0415 - as above
    from huggingface_hub import errors  # noqa: PLC0415 - as above

    api = huggingface_hub.HfApi()
    try:
        commit = servers.in_time(
            lambda: api.dataset_info(data_set.name, revision=branch, timeout=servers.SECONDS).sha
        )
        # Page by page: the list that dataset_info has may end early from a thousand files on.
        tree = iter(
            api.list_repo_tree(data_set.name, recursive=True, revision=commit, repo_type="dataset")
        )
        entries: list[Any] = []
        while page := servers.in_time(lambda: list(itertools.islice(tree, _PAGE))):
            entries += page
    except errors.RevisionNotFoundError:
        return []
    except Exception as error:  # many kinds: no network, no name server, a proxy
        remedy = f"without a network {otherwise}"
        raise hub_errors.not_listed(
            error, str(data_set), data_set.name, what="data set", remedy=remedy, kind=ValueError
        ) from error

    return [
        HubFile(
            data_set=data_set.name,
            commit=commit,
            name=entry.path,
            bytes=entry.size,
            digest=entry.lfs.sha256 if entry.lfs else entry.blob_id,
        )
        for entry in entries
        if isinstance(entry, huggingface_hub.RepoFile)
    ]
