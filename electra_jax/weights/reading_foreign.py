# SPDX-License-Identifier: Apache-2.0
"""Reading the weights of other programs: Hugging Face folders and checkpoints of Google's code.

`formats` turns the files into arrays by our paths. This module puts networks together: which is the
discriminator, whether a generator beside it belongs to it and what both share, with checks in
between, and pads the tables by token to the size that our networks use.
"""

import dataclasses
import glob
import os
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from absl import logging
from jax import numpy as jnp

from electra_jax import config as config_lib
from electra_jax.core import trees
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.model import encoder_config, networks
from electra_jax.weights import trained_weights
from electra_jax.weights.formats import (
    google,
    hugging_face,
    json_files,
    modern_electra,
    tensor_files,
    tensorflow_bundle,
    tokenizer_files,
)

_PADDING = 1024  # rows of a table beyond the tokens, at most: to round its size up


def hugging_face_folders(path: str | os.PathLike) -> list[str]:
    """Returns those of the folder and its subfolders that have Hugging Face's config.json.

    Beside a network in the folder itself only one in its subfolder `discriminator` or `generator`
    counts: others are what its trainer has left, such as `checkpoint-500`.
    """
    own, below = os.fspath(path), sorted(glob.glob(os.path.join(glob.escape(path), "*")))
    if _has_network(own):
        named = ("discriminator", "generator")
        return [own, *(x for x in below if os.path.basename(x) in named and _has_network(x))]
    return [folder for folder in below if _has_network(folder)]


def _has_network(folder):
    return "model_type" in json_files.read(os.path.join(folder, "config.json"))


def why_no_network(path: str) -> str:
    """What the config.json of an old folder of Hugging Face lacks, in one line; '' of any other."""
    about = json_files.read(os.path.join(path, "config.json"))
    if "hidden_size" not in about or "model_type" in about:
        return ""
    return (
        f'{path}/config.json names no model_type; add "model_type": "bert", or "electra" if it is'
        " one"
    )


def check_tensors(path: str) -> None:
    """Raises ConfigError if the files with the weights of Hugging Face's folders are missing.

    No weights are read, and other paths are none of those.
    """
    for folder in hugging_face_folders(path):
        try:
            tensor_files.check(folder)
        except ValueError as error:
            raise config_lib.ConfigError(str(error)) from error


@dataclasses.dataclass(frozen=True)
class Pair:
    """One network in Hugging Face's folders, or a discriminator and its generator."""

    shapes: Mapping[str, hugging_face.HuggingFaceShape]  # folder -> what its config.json says
    main: str  # folder of the main network
    generator: str | None  # folder
    vocabulary: vocabulary_lib.Vocabulary
    shape: networks.NetworksConfig  # of both in our terms, with shared tables

    def roles(self) -> dict[str, str]:
        """What each network's head does here, as `trained_weights.Weights.role` has it."""
        folders = {"discriminator": self.main, "generator": self.generator}
        return {name: _role_here(self.shapes[at]) for name, at in folders.items() if at is not None}


def pair(path: str, folders: list[str]) -> Pair:
    """Reads what Hugging Face's folders hold, but for the weights.

    A config.json without `architectures` is helped by the names of the tensors beside it.

    Args:
      path: the folder that was asked for.
      folders: those of `hugging_face_folders`.

    Raises ConfigError.
    """
    shapes = {}
    for folder in folders:
        about = json_files.read(os.path.join(folder, "config.json"))
        names = () if about.get("architectures") else _names_of_tensors(folder)
        try:
            shapes[folder] = hugging_face.from_config(about, names)
        except ValueError as error:
            raise config_lib.ConfigError(f"{folder}/config.json: {error}") from error

    main, other = _main_and_generator(path, shapes)
    vocabulary = _tokenizer_of(main)
    _check_pair(shapes, main, other, vocabulary)
    shape = _networks_config(shapes[main], shapes[other] if other else shapes[main], vocabulary)
    return Pair(shapes, main, other, vocabulary, shape)


def _names_of_tensors(folder):
    try:
        return tensor_files.names(folder)
    except ValueError as error:
        raise config_lib.ConfigError(str(error)) from error


def of_hugging_face(path: str, folders: list[str]) -> trained_weights.Weights:
    """Reads one network, or a discriminator with its generator.

    If the generator's tables differ from the discriminator's, nothing is shared between them.

    Args:
      path: the folder that was asked for.
      folders: those of `hugging_face_folders`.

    Raises ConfigError.
    """
    found = pair(path, folders)
    main, other, vocabulary, shape = found.main, found.generator, found.vocabulary, found.shape

    own = _read_network(main, found.shapes[main], "discriminator", shape, vocabulary)
    params = {"embeddings": own.pop("embeddings"), "discriminator": own}
    if other:
        own = _read_network(other, found.shapes[other], "generator", shape, vocabulary)
        tables = own.pop("embeddings")
        if not jax.tree.all(jax.tree.map(np.array_equal, tables, params["embeddings"])):
            shape = dataclasses.replace(shape, sharing="none")
            own["embeddings"] = tables
        params["generator"] = own
    rotary = found.shapes[main].trunk["positions"] == "rotary"
    return trained_weights.Weights(
        path,
        0,
        shape,
        jax.tree.map(jnp.asarray, params),
        vocabulary,
        trained_tokens=found.shapes[main].max_positions if rotary else 0,
    )


def _main_and_generator(path, shapes):
    """Returns (folder of the main network, folder of the generator or None)."""
    if len(shapes) > 2:
        raise config_lib.ConfigError(
            f"{path} holds {len(shapes)} networks; take one, or a discriminator and its generator"
        )

    predicting = [folder for folder in shapes if shapes[folder].role == "predicts"]
    if len(shapes) == 1:
        return next(iter(shapes)), None
    if len(predicting) == 2:  # two masked language models: the name says which is the generator
        predicting.sort(key=lambda folder: "generator" not in os.path.basename(folder))
    if not predicting:
        raise config_lib.ConfigError(f"{path} holds two networks and neither is a generator")

    generator = predicting[0]
    return next(folder for folder in shapes if folder != generator), generator


def _check_pair(shapes, main, other, vocabulary):
    """Raises ConfigError unless vocabulary, main network and generator fit together."""
    shape = shapes[main]
    if vocabulary.size > shape.vocab_size:
        raise config_lib.ConfigError(
            f"{main} has {shape.vocab_size} rows for a vocabulary of {vocabulary.size}; the"
            " tokenizer's files are of another model"
        )
    if vocabulary.size + _PADDING < shape.vocab_size:
        raise config_lib.ConfigError(
            f"{main} has {shape.vocab_size} rows for a vocabulary of {vocabulary.size}; at most"
            f" {_PADDING} can be padding, so the tokenizer's files are of another model"
        )
    if vocabulary.size < shape.vocab_size:
        logging.info("%s: rows above %d are no token and stay behind", main, vocabulary.size)

    if other and _tokenizer_of(other).sha256 != vocabulary.sha256:
        raise config_lib.ConfigError(
            f"{main} and {other} have different vocabularies; they are no pair, convert one of them"
        )
    for field in ("vocab_size", "embedding_size", "max_positions") if other else ():
        if getattr(shape, field) != getattr(shapes[other], field):
            raise config_lib.ConfigError(
                f"{main} and {other} differ in {field}: {getattr(shape, field)} and"
                f" {getattr(shapes[other], field)}; they are no pair, convert one of them"
            )


def _networks_config(main, other, vocabulary):
    return networks.NetworksConfig(
        vocab_size=vocabulary.size,
        embedding_size=main.embedding_size,
        max_positions=main.max_positions if main.trunk["positions"] == "learned" else 0,
        generator=_encoder_config(other, other.trunk),
        discriminator=_encoder_config(main, main.trunk),
        dtype="float32",
        sharing="embeddings",
        discriminator_head=main.head if main.role == "judges" and main.head else "token",
    )


def _read_network(folder, shape, network, config, vocabulary) -> dict[str, Any]:
    """Reads the files of one network into a nested dict of arrays as `networks.alone` names them.

    Of a fine-tuned network only the encoder is read; the log says what stays behind.

    Args:
      shape: what its config.json says.
      network: 'discriminator' or 'generator', the place that it gets here.
      config: the shapes of our networks.
    """
    role = _role_here(shape)
    init = {
        ("discriminator", "judges"): networks.init_discriminator,
        ("discriminator", "encodes"): networks.init_discriminator,
        ("discriminator", "predicts"): networks.init_predictor,
        ("generator", "predicts"): networks.init_generator,
    }[network, role]

    key = jax.random.key(0)
    tree = dict(jax.eval_shape(lambda: init(config, key)))
    if role == "encodes":
        tree.pop("head")
    tree["embeddings"] = jax.eval_shape(lambda: networks.init_embeddings(config, key))

    shapes = {path: x.shape for path, x in trees.flat(tree).items()}
    by_token = [path for path in hugging_face.BY_TOKEN if path in shapes]
    shapes |= {path: (shape.vocab_size, *shapes[path][1:]) for path in by_token}
    try:
        tensors, left = hugging_face.without_unread(tensor_files.read(folder), shape)
        for part in left:
            logging.info("%s: %s stays behind", folder, part)
        found = hugging_face.from_tensors(tensors, shapes, role, shape.model_type)
    except ValueError as error:
        text = str(error)
        raise config_lib.ConfigError(text if folder in text else f"{folder}: {text}") from error

    for path in by_token:  # rows above the vocabulary's size belong to no token
        rows = found[path][: vocabulary.size]
        found[path] = np.zeros((config.padded_vocab_size, *rows.shape[1:]), np.float32)
        found[path][: vocabulary.size] = rows
    return trees.nested(found)


def _role_here(shape):
    """What a network's head does here, where that of a task is left out."""
    return "encodes" if shape.role in hugging_face.TASK_ROLES else shape.role


def of_google(prefix: str) -> trained_weights.Weights:
    """Reads a TensorFlow checkpoint, with its vocab.txt beside it, and Adam's moments if any.

    Raises ConfigError.
    """
    found, vocabulary = _google(prefix)
    shape = _shape_of_google(found)
    _check_parameters(prefix, shape, trees.nested(found.params))
    moments = {name: _with_padded_rows(getattr(found, name), shape) for name in ("mu", "nu")}
    return trained_weights.Weights(
        prefix,
        found.step or 0,
        shape,
        jax.tree.map(jnp.asarray, trees.nested(_with_padded_rows(found.params, shape))),
        vocabulary,
        moments=moments if found.mu and found.nu else None,
    )


def outline_of_google(prefix: str) -> tuple[networks.NetworksConfig, list[str]]:
    """(the shapes of a TensorFlow checkpoint, the paths of its parameters). Raises ConfigError."""
    found, _ = _google(prefix)
    return _shape_of_google(found), list(found.params)


def _google(prefix):
    """(a TensorFlow checkpoint in our terms, its vocabulary). Raises ConfigError."""
    vocabulary = _tokenizer_of(os.path.dirname(prefix) or os.curdir)
    try:
        found = google.read(tensorflow_bundle.Bundle(prefix))
    except ValueError as error:
        text = str(error)
        raise config_lib.ConfigError(text if prefix in text else f"{prefix}: {text}") from error
    if vocabulary.size != found.vocab_size:
        raise config_lib.ConfigError(
            f"{prefix} has {found.vocab_size} rows for a vocabulary of {vocabulary.size}; put the"
            " vocab.txt that it was trained with beside it"
        )
    return found, vocabulary


def _shape_of_google(found):
    return networks.NetworksConfig(
        vocab_size=found.vocab_size,
        embedding_size=found.embedding_size,
        max_positions=found.max_positions,
        generator=_encoder_config(found.generator or found.discriminator),
        discriminator=_encoder_config(found.discriminator),
        dtype="float32",
        sharing=found.sharing,
        discriminator_head="token",
    )


def _tokenizer_of(folder):
    """Reads the vocabulary of a folder. Raises ConfigError if there is none that can be read."""
    try:
        return tokenizer_files.read(folder)
    except ValueError as error:
        raise config_lib.ConfigError(str(error)) from error


def _check_parameters(prefix, shape, params):
    """Raises ConfigError unless exactly the parameters of these networks are there."""
    whole = jax.eval_shape(lambda: networks.init(shape, jax.random.key(0)))
    if "generator" not in params:
        whole.pop("generator")
    if "head" not in params["discriminator"]:
        whole["discriminator"].pop("head")
    wanted, there = trees.flat(whole), trees.flat(params)
    for path in sorted(wanted | there):
        if path not in there:
            raise config_lib.ConfigError(f"{prefix} has no tensor for {path}; copy the files anew")
        ours = tuple(wanted[path].shape) if path in wanted else None
        if ours and path.endswith(hugging_face.BY_TOKEN):
            ours = (shape.vocab_size, *ours[1:])
        if ours != there[path].shape:
            raise config_lib.ConfigError(
                f"{prefix}: {path} is {there[path].shape} there, {ours or 'nothing'} here"
            )


def _with_padded_rows(leaves, shape):
    """Returns the arrays with their tables by token padded with zeros to the padded vocabulary."""
    tail = shape.padded_vocab_size - shape.vocab_size
    return {
        path: np.pad(x, ((0, tail),) + ((0, 0),) * (x.ndim - 1))
        if path.endswith(hugging_face.BY_TOKEN)
        else x
        for path, x in leaves.items()
    }


def _encoder_config(shape, trunk=modern_electra.PUBLISHED):
    """An encoder of this shape; weights that were read are not trained, so none drops."""
    return encoder_config.EncoderConfig(
        shape.layers, shape.width, shape.heads, shape.feed_forward,
        dropout=0.0, attention_dropout=0.0, dropout_bits=8, initial_scale=0.02,
        **trunk, **encoder_config.PORTABLE,
    )  # fmt: skip
