# SPDX-License-Identifier: Apache-2.0
"""Data sets of tensorflow_datasets as random-access sequences, without TensorFlow."""

import importlib

from electra_jax.data import text_files


def name_and_split(rest):
    name, _, split = rest.partition(":")
    return name, split or "train"


def builder_of(name):
    """The builder of a data set; TensorFlow is never imported and nothing is downloaded."""
    import tensorflow_datasets as tfds  # noqa: PLC0415 - a second that only TFDS needs

    try:
        importlib.import_module("tensorflow_datasets.text")  # registers wikipedia, c4, glue
        return tfds.builder(name, file_format="array_record")
    except Exception as error:  # whatever an unknown name makes TFDS raise
        raise ValueError(
            f"tfds:{name} is not known ({_reason(error)}); your own files: data.source=text:GLOB"
        ) from error


def random_access(name, split):
    """The split as a random-access sequence, downloaded and prepared if need be."""
    builder = builder_of(name)
    try:
        builder.download_and_prepare()
        return builder.as_data_source(split=split)
    except Exception as error:  # whatever a missing network, split or extra makes TFDS raise
        raise ValueError(
            f"tfds:{name}:{split} cannot be had ({_reason(error)}); without network or the extra"
            " electra_jax[wikipedia], read your own files: data.source=text:GLOB"
        ) from error


def _reason(error):
    return f"{type(error).__name__}: {text_files.one_line(error)}"
