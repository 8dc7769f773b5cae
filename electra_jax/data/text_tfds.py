# SPDX-License-Identifier: Apache-2.0
"""Data sets of tensorflow_datasets as random-access sequences, without importing TensorFlow."""

import functools
import importlib
import pathlib
import urllib.parse
from typing import Any

from electra_jax.data import servers, text_files
from electra_jax.host import error_causes

_WIKIPEDIA = "hf:wikimedia/wikipedia/20231101.en"


def name_and_split(rest: str) -> tuple[str, str]:
    """Splits `NAME[/CONFIG][:SPLIT]`; the split is 'train' if none is given."""
    name, _, split = rest.partition(":")
    return name, split or "train"


def builder_of(name: str, otherwise: str = servers.OTHER_TEXT) -> Any:
    """Returns the builder of a data set; downloads nothing.

    Raises ValueError, one line, if the name is unknown. The line offers `otherwise`.
    """
    import tensorflow_datasets as tfds  # noqa: PLC0415 - takes a second, and only TFDS needs it

    try:
        importlib.import_module("tensorflow_datasets.text")  # registers wikipedia, c4, glue
        return tfds.builder(name, file_format="array_record")
    except Exception as error:  # TFDS raises many kinds of errors for unknown names
        raise ValueError(
            f"tfds:{name} is not known ({text_files.reason(error)}); {otherwise}"
        ) from error


def random_access(name: str, split: str, otherwise: str = servers.OTHER_TEXT) -> Any:
    """Returns the split as a random-access sequence; downloads and prepares it if need be.

    Raises Unreachable, one line, if the data must be downloaded and its server does not answer
    within `servers.SECONDS`; ValueError, one line, for any other reason. The line offers
    `otherwise`.
    """
    builder = builder_of(name, otherwise)
    if not builder.data_path.exists() and not _has_downloads(builder):
        _ask_servers(f"tfds:{name}:{split}", builder, otherwise)

    try:
        builder.download_and_prepare()
        return builder.as_data_source(split=split)
    except Exception as error:  # no such split, a missing package, a full disk: all kinds
        kind = error_causes.MayPass if servers.may_pass(error) else ValueError
        raise kind(
            f"tfds:{name}:{split} cannot be had ({servers.why(error)});"
            f" {_about_beam(builder)}{otherwise}"
        ) from error


def _has_downloads(builder):
    """Returns whether TFDS has downloaded files of a data set before; those need no network."""
    above = 2 if builder.builder_config else 1  # data_path is ROOT/NAME[/CONFIG]/VERSION
    downloads = pathlib.Path(builder.data_path).parents[above] / "downloads" / builder.name
    return any(downloads.glob("*.INFO"))  # TFDS writes one beside each file that is complete


def _about_beam(builder):
    """Returns what to know of a data set that TFDS makes with Apache Beam, as a part of a line."""
    import tensorflow_datasets as tfds  # noqa: PLC0415 - as above

    if not isinstance(builder, tfds.core.BeamBasedBuilder):
        return ""
    ready = f"; {_WIKIPEDIA} needs no such thing" if builder.name == "wikipedia" else ""
    return f"TFDS makes this set with Apache Beam (pip install apache-beam){ready}; "


def _ask_servers(spec, builder, otherwise):
    """Raises Unreachable if none of the servers that TFDS may download from answers.

    TFDS itself asks a server eleven times, for minutes. It lists the files of all versions of a
    data set, so a server that is gone says nothing about the others.
    """
    import requests  # noqa: PLC0415 - TFDS downloads with it, and only TFDS needs it

    urls = [url for url in builder.url_infos or () if url.startswith(("http://", "https://"))]
    one_of_each = {urllib.parse.urlsplit(url).netloc: url for url in urls}
    if not one_of_each:
        return
    try:
        servers.first_in_time(
            [
                functools.partial(requests.head, url, timeout=servers.SECONDS)
                for url in one_of_each.values()
            ]
        )
    except Exception as error:  # no network, no name server, a proxy that refuses
        hosts = ", ".join(list(one_of_each)[:3]) + ", ..." * (len(one_of_each) > 3)
        raise servers.Unreachable(
            f"{spec} cannot be downloaded from {hosts} ({servers.why(error)});"
            f" {_about_beam(builder)}without a network {otherwise}"
        ) from error
