# SPDX-License-Identifier: Apache-2.0
"""Data sets of tensorflow_datasets as random-access sequences, without importing TensorFlow."""

import importlib
from typing import Any

from electra_jax.data import text_files


def name_and_split(rest: str) -> tuple[str, str]:
    """Splits `NAME[/CONFIG][:SPLIT]`; the split is 'train' if none is given."""
    name, _, split = rest.partition(":")
    return name, split or "train"


def builder_of(name: str) -> Any:
    """Returns the builder of a data set; downloads nothing.

    Raises ValueError, one line, if the name is unknown.
    """
    import tensorflow_datasets as tfds  # noqa: PLC0415 - takes a second, and only TFDS needs it

    try:
        importlib.import_module("tensorflow_datasets.text")  # registers wikipedia, c4, glue
        return tfds.builder(name, file_format="array_record")
    except Exception as error:  # TFDS raises many kinds of errors for unknown names
        raise ValueError(
            f"tfds:{name} is not known ({text_files.reason(error)});"
            " your own files: data.source=text:GLOB"
        ) from error


def random_access(name: str, split: str) -> Any:
    """Returns the split as a random-access sequence; downloads and prepares it if need be.

    Raises ValueError, one line, if that fails.
    """
    builder = builder_of(name)

    try:
        builder.download_and_prepare()
        return builder.as_data_source(split=split)
    except Exception as error:  # no network, no such split, a missing extra: all of other classes
        raise ValueError(
            f"tfds:{name}:{split} cannot be had ({text_files.reason(error)});"
            " without network or the extra electra_jax[wikipedia], read your own files:"
            " data.source=text:GLOB"
        ) from error
