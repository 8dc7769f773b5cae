# SPDX-License-Identifier: Apache-2.0
"""Weights in repositories of the Hugging Face Hub: an address becomes a folder of this machine.

    hf:OWNER/NAME[@REVISION]  ->  the list of its files, asked for once per process
                              ->  config.json, which says whether there is an ELECTRA or a BERT
                              ->  the files that `reading` needs, in the Hub's cache

HF_HOME or HF_HUB_CACHE say where the cache is, HF_TOKEN opens private repositories, and HF_ENDPOINT
names another server that speaks the Hub's protocol. If the Hub does not answer, what the cache
holds of the revision is used. `publishing` is the other direction.
"""

import dataclasses
import functools
import os
import re
from collections.abc import Sequence

from absl import logging

from electra_jax import config as config_lib
from electra_jax.data import hub_errors, servers
from electra_jax.weights.formats import (
    hugging_face,
    json_files,
    tensor_files,
    tokenizer_files,
)

PREFIX = "hf:"
NAME = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_CONFIG = "config.json"
_SMALL = (
    _CONFIG,
    tokenizer_files.TOKENIZER,
    tokenizer_files.TOKENIZER_CONFIG,
    tokenizer_files.VOCAB_TXT,
    "added_tokens.json",
    "special_tokens_map.json",
)


@dataclasses.dataclass(frozen=True)
class _Repository:
    """The files of a repository at one commit."""

    commit: str
    files: tuple[str, ...]


def is_address(path: str | os.PathLike) -> bool:
    """Returns whether a path names a repository of the Hub, not a folder."""
    return os.fspath(path).startswith(PREFIX)


def meant(path: str) -> str:
    """The end of a message about a path that is not there, if it may be a repository's name."""
    owner = os.path.dirname(path)
    return "" if not NAME.fullmatch(path) or os.path.exists(owner) else f"; did you mean hf:{path}?"


def parse(address: str) -> tuple[str, str]:
    """Returns (OWNER/NAME, revision) of an address. Raises ConfigError for anything else."""
    name, at, revision = address.removeprefix(PREFIX).partition("@")
    if not NAME.fullmatch(name) or bool(at) != bool(revision):
        raise config_lib.ConfigError(
            f"{address} names no repository of the Hub; write hf:OWNER/NAME or"
            " hf:OWNER/NAME@REVISION"
        )
    return name, revision or "main"


def folder(address: str) -> str:
    """Returns a folder of this machine with the weights of `hf:OWNER/NAME[@REVISION]`.

    Raises ConfigError, in one line, if the address is none, the Hub knows no such repository or
    does not answer within `servers.SECONDS` and the cache has nothing, or the repository holds
    neither an ELECTRA nor a BERT; error_causes.MayPass, in one line too, if a download fails.
    """
    name, revision = parse(address)
    try:
        repository = _listed(address, name, revision)
    except servers.Unreachable as error:
        found = _cached(name, revision)
        if found is None:
            raise config_lib.ConfigError(str(error)) from error
        logging.warning("%s; what was downloaded before is used", str(error).partition(";")[0])
        return found

    places = _folders(repository.files)
    configs = [_join(place, _CONFIG) for place in places]
    if not configs:
        raise config_lib.ConfigError(
            f"{address} holds no {_CONFIG}, so neither an ELECTRA nor a BERT; {_TAKES}"
        )
    # By the name of the revision, so that the cache knows it by that name without a network.
    local = _download(address, name, revision, configs)
    _check_kinds(address, local, places)
    return _download(address, name, repository.commit, needed(repository.files))


def needed(files: Sequence[str]) -> list[str]:
    """Returns the files that are read: settings, tokenizer, and the tensors in one format."""
    found = []
    for place in _folders(files):
        here = [
            path.removeprefix(f"{place}/") if place else path
            for path in files
            if not place or path.startswith(f"{place}/")
        ]
        wanted = [
            name
            for name in here
            if name in _SMALL or re.fullmatch(rf"{tokenizer_files.FOLDER}/[^/]+", name)
        ]
        found += [_join(place, name) for name in wanted + _tensors(here)]
    return found


_TAKES = "take a repository with the files of transformers, such as an export of --to=hugging_face"


@functools.cache
def _listed(address, name, revision):
    """Asks the Hub for the files; once per process, so that all its parts read one commit.

    Raises ConfigError if there is no such repository or revision, Unreachable without an answer.
    """
    import huggingface_hub  # noqa: PLC0415 - takes 0.5 s, and only these addresses need it
    from huggingface_hub import errors  # noqa: PLC0415 - as above

    api = huggingface_hub.HfApi()
    try:
        info = servers.in_time(
            lambda: api.model_info(name, revision=revision, timeout=servers.SECONDS)
        )
    except errors.RevisionNotFoundError as error:
        raise config_lib.ConfigError(f"{address}: {name} has no revision {revision!r}") from error
    except Exception as error:  # many kinds: no network, no name server, a proxy
        remedy = "download it where there is a network, and give the folder"
        raise hub_errors.not_listed(
            error, address, name, what="repository", remedy=remedy, kind=config_lib.ConfigError
        ) from error
    return _Repository(info.sha, tuple(entry.rfilename for entry in info.siblings or ()))


def _cached(name, revision):
    """Returns the folder in which the cache holds a revision; None if it does not."""
    import huggingface_hub  # noqa: PLC0415 - as above
    from huggingface_hub import errors  # noqa: PLC0415 - as above

    try:
        return huggingface_hub.snapshot_download(name, revision=revision, local_files_only=True)
    except errors.LocalEntryNotFoundError as error:
        # Files that are not read were never downloaded, so the snapshot is not the whole commit.
        return getattr(error, "snapshot_path", None)


def _folders(files):
    """Returns the folders of networks: the top, with generator/ in it, or else those below it."""
    found = sorted(path.rpartition("/")[0] for path in files if _is_config(path))
    if "" in found:
        # Others below it are copies for other programs, such as onnx/.
        return [place for place in found if place in ("", "generator")]
    return found


def _is_config(path):
    return path.rpartition("/")[2] == _CONFIG and path.count("/") <= 1


def _check_kinds(address, local, places):
    """Raises ConfigError unless each config.json is that of an ELECTRA or a BERT."""
    for place in places:
        try:
            hugging_face.from_config(json_files.read(os.path.join(local, place, _CONFIG)))
        except ValueError as error:
            raise config_lib.ConfigError(
                f"{address}: {_join(place, _CONFIG)}: {error}; {_TAKES}"
            ) from error


def _tensors(names):
    """Returns the files that `tensor_files.read` reads: the first format, whole or in parts."""
    for whole in (tensor_files.SAFETENSORS, tensor_files.PYTORCH):
        if whole in names:
            return [whole]
        if whole + tensor_files.INDEX in names:
            stem, ending = os.path.splitext(whole)
            part = re.compile(rf"{stem}-\d+-of-\d+{re.escape(ending)}")
            return [whole + tensor_files.INDEX, *filter(part.fullmatch, names)]
    return []


def _download(address, name, revision, files):
    """Brings files into the cache and returns their folder.

    Raises error_causes.MayPass, in one line; ConfigError if the Hub refuses.
    """
    import huggingface_hub  # noqa: PLC0415 - as above

    try:
        return huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=files)
    except Exception as error:  # many kinds: no network, a full disk, access withdrawn
        raise hub_errors.not_downloaded(
            error, address, name, kind=config_lib.ConfigError
        ) from error


def _join(place, name):
    return f"{place}/{name}" if place else name
