# SPDX-License-Identifier: Apache-2.0
"""Reads TFDS data sets as records of plain text and numbers, without importing TensorFlow.

    'tfds:glue/cola:validation'  ->  {'sentence': 'A cat .', 'label': 'acceptable', 'idx': 0}, ...

TFDS returns text as bytes and classes as numbers. Here bytes are decoded and class numbers are
replaced by class names.
"""

import functools
import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np

_READ_SIZE = 1024  # records per read; reading one by one is half as fast


def records(spec: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (place, record) for each record of 'tfds:NAME:SPLIT'.

    The data set is downloaded and prepared if it is not there yet. Raises ValueError if that fails.
    """
    name, split = _name_and_split(spec)
    builder = _builder(name)
    try:
        builder.download_and_prepare()
        source = builder.as_data_source(split=split)
    except Exception as error:  # TFDS raises many types: no network, no such split, missing package
        raise ValueError(
            f"{spec} cannot be had ({_reason(error)}); without network, give the official files in"
            " a folder"
        ) from error

    features = builder.info.features
    for begin in range(0, len(source), _READ_SIZE):
        numbers = range(begin, min(begin + _READ_SIZE, len(source)))
        for number, record in zip(numbers, source.__getitems__(list(numbers)), strict=True):
            place = f"{spec}:{number}"
            yield place, {key: _plain(value, features[key]) for key, value in record.items()}


def classes(spec: str, field: str | None) -> tuple[str, ...]:
    """Returns the class names of a field in the order of their numbers, or () if it has none."""
    if field is None:
        return ()
    feature = _builder(_name_and_split(spec)[0]).info.features[field]
    return tuple(getattr(feature, "names", None) or ())


@functools.cache
def _builder(name):
    import tensorflow_datasets as tfds  # noqa: PLC0415 - takes a second, so only if TFDS is used

    try:
        importlib.import_module("tensorflow_datasets.text")  # registers glue
        return tfds.builder(name, file_format="array_record")
    except Exception as error:  # TFDS raises many types for an unknown name
        raise ValueError(
            f"tfds:{name} is not known ({_reason(error)}); give the official files in a folder"
        ) from error


def _plain(value, feature):
    """Turns bytes into text, class numbers into names and arrays into lists, also when nested."""
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, dict):
        inner = getattr(feature, "feature", feature)  # a sequence of records wraps their feature
        return {key: _plain(part, inner[key]) for key, part in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        inner = getattr(feature, "feature", feature)
        return [_plain(part, inner) for part in value]
    if getattr(feature, "names", None):
        return feature.names[int(value)] if value >= 0 else None
    return value.item() if isinstance(value, np.generic) else value


def _reason(error):
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"


def _name_and_split(spec):
    """Returns (name, split) of 'tfds:NAME:SPLIT'; the split is 'train' if it is left out."""
    name, _, split = spec.removeprefix("tfds:").partition(":")
    return name, split or "train"
