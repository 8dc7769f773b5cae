# SPDX-License-Identifier: Apache-2.0
"""Opening trained weights of any kind: `open(path)` reads them onto one device.

A path may name:

    a workdir, or one of its checkpoints/STEP (averaged weights if the run was evaluated by them)
    an export of `convert --to=orbax`
    a Hugging Face folder of an ELECTRA or a BERT, or one with several: discriminator, generator
    a checkpoint of google-research/electra, with its vocab.txt beside it
    hf:OWNER/NAME[@REVISION], a repository of the Hugging Face Hub, which is downloaded first

This module decides what a path holds; `reading_workdir` and `reading_foreign` read it. Only the
vocabulary must be there, no text and no prepared records.
"""

import dataclasses
import os
from collections.abc import Callable

import jax
from jax import numpy as jnp

from electra_jax import config as config_lib
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.host import cluster, staging
from electra_jax.model import encoder_config, networks
from electra_jax.weights import (
    encoding,
    hub,
    reading_foreign,
    reading_workdir,
    trained_weights,
)
from electra_jax.weights.formats import (
    orbax_export,
    tensorflow_bundle,
)
from electra_jax.workdir import metadata


def open(
    path: str | os.PathLike, step: int | None = None, data_dir: str = ""
) -> trained_weights.Weights:
    """Reads the weights at a path.

    Args:
      path: a folder, file or address of one of the kinds above.
      step: the checkpoint of a workdir; None means the newest that can be read.
      data_dir: the folder of a workdir's prepared data, if it is not where its configuration says.

    Raises ConfigError or CheckpointError, in one line, if there is nothing, or it is damaged or of
    an unknown kind.
    """
    if hub.is_address(path):
        found = open(hub.folder(os.fspath(path)), step, data_dir)
        return dataclasses.replace(_called(found, path), source=os.fspath(path))

    path = staging.copied(path, "path", config_lib.ConfigError)
    path = os.path.normpath(path)
    parent, name = os.path.split(path)
    if os.path.basename(parent) == staging.CHECKPOINTS and name.isdecimal():
        if step not in (None, int(name)):
            raise config_lib.ConfigError(f"step={step}, but {path} is one checkpoint; leave it out")
        return reading_workdir.read(os.path.dirname(parent), int(name), data_dir)
    if metadata.steps(metadata.directory(path)):
        return reading_workdir.read(path, step, data_dir)
    if step is not None and os.path.exists(path):
        raise config_lib.ConfigError(
            f"step={step} chooses a checkpoint of a workdir, and {path} is none; leave it out"
        )
    if orbax_export.is_one(path):
        return _of_export(path)
    if folders := reading_foreign.hugging_face_folders(path):
        return _called(reading_foreign.of_hugging_face(path, folders), path)
    if prefix := tensorflow_bundle.prefix_of(path):
        return _called(reading_foreign.of_google(prefix), path)

    if why := reading_foreign.why_no_network(path):
        raise config_lib.ConfigError(why)
    if not os.path.exists(path):
        raise config_lib.ConfigError(
            f"there is no workdir or folder of weights {path}{hub.meant(path)}"
        )
    raise config_lib.ConfigError(
        f"{path} is neither a workdir with checkpoints, nor an export, nor a Hugging Face folder,"
        " nor a TensorFlow checkpoint; a fine-tuned task is opened by electra_jax.load_tuned"
    )


def is_foreign(path: str) -> bool:
    """Returns True if `path` holds an export or files of another program, not a checkpoint.

    A repository of the Hub is downloaded for it, so that what it lacks is known at once.
    """
    if hub.is_address(path):
        path = hub.folder(path)
    if orbax_export.is_one(path) or reading_foreign.hugging_face_folders(path):
        return True
    return tensorflow_bundle.prefix_of(path) is not None


def vocabulary_of_hugging_face(path: str) -> vocabulary_lib.Vocabulary | None:
    """Returns the vocabulary of Hugging Face's folders; None if these are none.

    No weights are read. Raises ConfigError.
    """
    found = pair_of_hugging_face(path)
    return None if found is None else found.vocabulary


def pair_of_hugging_face(path: str) -> reading_foreign.Pair | None:
    """Returns what is in Hugging Face's folders, but for the weights; None if these are none.

    Raises ConfigError.
    """
    if hub.is_address(path):
        path = hub.folder(path)
    folders = reading_foreign.hugging_face_folders(path)
    return reading_foreign.pair(path, folders) if folders else None


def shape(path: str) -> networks.NetworksConfig:
    """The shapes of the networks in an export or in files of another program.

    Of an export and of Hugging Face's folders no weights are read; tables count as shared there.
    Raises as `open` does.
    """
    if hub.is_address(path):
        path = hub.folder(path)
    if orbax_export.is_one(path):
        return _shape_of_export(orbax_export.about(path))
    if folders := reading_foreign.hugging_face_folders(path):
        return reading_foreign.pair(path, folders).shape
    return open(path).networks


def load_encoder(
    path: str | os.PathLike, network: str | None = None, dtype: str = "float32"
) -> tuple[Callable[..., encoding.Encoded], dict, encoding.Tokenizer]:
    """Returns (apply, params, tokenizer); see `electra_jax.load_encoder`.

    The path is one that `open` reads.
    """
    dtype = _dtype(dtype)
    cluster.check_chips_are_free()
    found = open(path)
    name = network or found.main()
    if found.role(name) is None:
        raise config_lib.ConfigError(f"{found.source} has no {name} with an encoder of its own")

    one = found.alone(name)
    config = dataclasses.replace(one.networks, dtype=dtype)
    pad_id = found.vocabulary.pad_id

    @jax.jit
    def apply(params, ids_BL, mask_BL=None, types_BL=None):
        """Encodes a batch.

        Without `mask_BL` tokens with the id of padding are padding; without `types_BL` all types
        are 0.
        """
        ids_BL = jnp.asarray(ids_BL)
        mask_BL = ids_BL != pad_id if mask_BL is None else mask_BL
        types_BL = jnp.zeros_like(ids_BL) if types_BL is None else types_BL
        return encoding.encode(config, params, ids_BL, mask_BL, types_BL)

    return apply, one.params, tokenizer(found)


def _dtype(given):
    """The name of a dtype to compute in. Raises ConfigError for what is none."""
    try:
        found = jnp.dtype(given)
    except TypeError:
        found = None
    if found is None or not jnp.issubdtype(found, jnp.floating):
        raise config_lib.ConfigError(
            f"dtype={given!r} cannot be computed in; use float32 or bfloat16"
        )
    return found.name


def tokenizer(found: trained_weights.Weights) -> encoding.Tokenizer:
    """Returns what makes rows of texts for these weights."""
    trained = found.trained_tokens if found.networks.max_positions else 0  # of learned positions
    return encoding.Tokenizer(found.vocabulary, found.limit, trained)


def _called(found, path):
    """Weights that were not trained here, named after the path that was asked for."""
    return dataclasses.replace(found, began_with={"main": trained_weights.name_of(path)})


def _of_export(path):
    """Reads an export of `exporting.to_orbax`."""
    about = orbax_export.about(path)
    vocabulary = vocabulary_lib.load(os.path.join(path, orbax_export.VOCABULARY))
    params = jax.tree.map(jnp.asarray, orbax_export.read(path))
    config = config_lib.parse_saved(about["config"]) if about["config"] else None
    # Exports of earlier versions do not say how long the rows were.
    first = config.data.sequence_length if config else 0
    return trained_weights.Weights(
        path,
        about["step"],
        _shape_of_export(about),
        params,
        vocabulary,
        config,
        environment=about.get("environment"),
        only=about.get("only"),
        stage_rows=tuple(about.get("stage_rows", ())),
        began_with=_began_with(path, about, config),
        trained_tokens=about.get("trained_tokens", first),
    )


def _began_with(path, about, config):
    """What an export's run started from. Exports of earlier versions have its settings alone."""
    if "began_with" in about or config is None:
        return about.get("began_with", {})
    return reading_workdir.began_with(path, config)


def _shape_of_export(about):
    """The shapes of the networks, from what an export says of itself."""
    trunks = {
        name: encoder_config.EncoderConfig(**about["networks"][name] | encoder_config.PORTABLE)
        for name in trained_weights.NETWORKS
    }
    return networks.NetworksConfig(**about["networks"] | trunks)
