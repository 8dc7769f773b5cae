# SPDX-License-Identifier: Apache-2.0
"""Writing trained weights for other programs: `electra_jax.convert --to`.

    write              one of these, by name
    to_hugging_face    one folder per network, which transformers loads
    to_orbax           parameters, for users who have orbax
    to_stablehlo       the encoder as a program, for users who have jax

Each function writes a whole folder or nothing: files go to a temporary folder, are read again and
compared, and only then is the folder renamed. The other direction is in `importing`.
"""

import dataclasses
import hashlib
import json
import math
import os
import shutil
from collections.abc import Mapping

import jax
import numpy as np
from absl import logging

from electra_jax import config as config_lib
from electra_jax.core import trees
from electra_jax.host import safe_files, whole_folder
from electra_jax.model import encoder_config, networks
from electra_jax.weights import card_facts, reading, trained_weights
from electra_jax.weights.formats import (
    card,
    hugging_face,
    modern_electra,
    orbax_export,
    stablehlo,
    tensor_files,
    tokenizer_files,
)

FORMATS = ("hugging_face", "orbax", "stablehlo")
CURVES = "curves.png"
_FOLDERS = {"judges": "discriminator", "predicts": "masked_lm", "encodes": "encoder"}


def write(
    found: trained_weights.Weights,
    out: str,
    to: str,
    only: str | None = None,
    publication: card.Publication = card.UNPUBLISHED,
) -> dict:
    """Writes weights in one of `FORMATS`; see the function for that format.

    `publication` is for the model cards of Hugging Face.
    """
    check_format(to)
    if to == "hugging_face":
        return to_hugging_face(found, out, only, publication)
    if to == "orbax":
        return to_orbax(found, out, only)
    return to_stablehlo(found, out, only)


def check_format(to: str) -> None:
    """Raises ConfigError if there is no such format."""
    if to not in FORMATS:
        raise config_lib.ConfigError(f"to={to!r} is unknown; use one of {', '.join(FORMATS)}")


def to_hugging_face(
    found: trained_weights.Weights,
    out: str,
    only: str | None = None,
    publication: card.Publication = card.UNPUBLISHED,
) -> dict:
    """Writes OUT/discriminator and OUT/generator, or OUT/masked_lm, depending on the networks.

    Args:
      only: the name of one network; None for all.
      publication: what the model cards say of licence, languages and the place on the Hub.

    Returns a summary for printing. Raises ConfigError, in one line, for a network or a vocabulary
    that Hugging Face's files cannot hold.
    """
    found = trained_weights.without_own_layer(found)
    chosen = _chosen(found, only, "Hugging Face's ELECTRA has no such generator")
    written = {}
    with whole_folder.new(out) as folder:
        for network in chosen:
            role = found.role(network)
            name = "generator" if network == "generator" else _FOLDERS[role]
            below = name if network == "generator" and len(chosen) > 1 else ""
            card_of = _card_of(publication.repository, below, name)
            to = os.path.join(folder, name)
            written[name] = _write_folder(found, network, to, publication, card_of)

        # Each network must be readable alone, and two of them also as a pair.
        again = reading.open(folder)
        for network, name in zip(chosen, written):
            one = reading.open(os.path.join(folder, name)) if len(chosen) > 1 else again
            trained_weights.check_same(found, network, one, one.main())
    return {
        "out": os.path.abspath(out),
        "networks": written,
        "left_out": card_facts.left_out(found),
    }


def to_orbax(found: trained_weights.Weights, out: str, only: str | None = None) -> dict:
    """Writes all parameters, shared as in training, or those of one network alone."""
    if only:
        _chosen(found, only, "it is written with both: leave --only out")
        found = found.alone(only)
    with whole_folder.new(out) as folder:
        write_tokenizer(found, folder)
        name = os.path.basename(os.path.abspath(out))
        learnt = found.learnt("discriminator") or ""
        orbax_export.write(folder, found.params, about(found), name, _title(found), learnt)
    return {"out": os.path.abspath(out), "networks": sorted(found.params)}


def to_stablehlo(found: trained_weights.Weights, out: str, only: str | None = None) -> dict:
    """Writes one network's encoder as a program; without `only`, the one that is fine-tuned."""
    (network,) = _chosen(found, only or found.main(), "it has no encoder of the usual kind")
    one = found.alone(network)
    params = {
        "embeddings": one.params["embeddings"],
        "discriminator": dict(one.params["discriminator"]),
    }
    for part in trained_weights.HEADS:
        params["discriminator"].pop(part, None)
    shape = dataclasses.replace(
        one.networks, discriminator=dataclasses.replace(one.networks.discriminator, scan=True)
    )

    with whole_folder.new(out) as folder:
        write_tokenizer(found, folder)
        vocabulary = found.vocabulary
        stablehlo.write(
            folder, shape, params, about(one), _title(found), (vocabulary.cls_id, vocabulary.sep_id)
        )
    return {"out": os.path.abspath(out), "networks": [network]}


def hugging_face_shape(
    one: trained_weights.Weights, role: str, task_head: str | None = None
) -> hugging_face.HuggingFaceShape:
    """Returns what the config.json of one network says.

    Args:
      one: the network, as the main network of `Weights.alone`.
      role: what its head does, a key of `hugging_face.ROLES` or `TASK_ROLES`.
      task_head: the kind of a fine-tuned network's head, one of `task_heads.INITS`.
    """
    shape, trunk = one.networks, one.networks.discriminator
    settings = modern_electra.trunk_of(trunk)
    head = shape.discriminator_head if role == "judges" else task_head
    if head not in modern_electra.HEADS:
        head = None

    kind = {}
    if head or not modern_electra.is_published(settings):
        kind = {"model_type": modern_electra.MODEL_TYPE, "trunk": settings, "head": head}
    return hugging_face.HuggingFaceShape(
        role=role,
        vocab_size=one.vocabulary.size,
        embedding_size=shape.embedding_size,
        max_positions=shape.max_positions or one.limit,
        layers=trunk.layers,
        width=trunk.width,
        heads=trunk.heads,
        feed_forward=trunk.feed_forward,
        **kind,
    )


def write_network(
    folder: str,
    one: trained_weights.Weights,
    flat: Mapping[str, np.ndarray],
    shape: hugging_face.HuggingFaceShape,
    dropouts: tuple[float, float] = (0.1, 0.1),
    task: Mapping | None = None,
) -> dict[str, str]:
    """Writes the files of one network except the model card; the folder is made if necessary.

    Args:
      one: the network, as the main network of `Weights.alone`.
      flat: its arrays by path, as `networks.alone` names them.
      shape: that of `hugging_face_shape`.
      dropouts: rates for states and for attention, which config.json keeps for further training.
      task: fields of a fine-tuned network's config.json.

    Returns the SHA-256 of the tensors' file and of the code beside it, if there is any, by name.
    Raises ConfigError.
    """
    vocabulary = one.vocabulary
    try:
        tensors = hugging_face.to_tensors(flat, shape.role, vocabulary.size, shape.model_type)
        os.makedirs(folder, exist_ok=True)
        tokenizer_files.write(vocabulary, folder, one.limit)
    except ValueError as error:
        raise config_lib.ConfigError(str(error)) from error

    config = hugging_face.to_config(
        shape,
        dropout=dropouts[0],
        attention_dropout=dropouts[1],
        initial_scale=one.config.model.initial_scale if one.config else 0.02,
        pad_id=vocabulary.pad_id,
        task=task,
    )

    text = json.dumps(config, indent=2) + "\n"
    safe_files.write(os.path.join(folder, "config.json"), text.encode())
    tensor_files.write(os.path.join(folder, tensor_files.SAFETENSORS), tensors)
    files = [tensor_files.SAFETENSORS]
    if shape.model_type == modern_electra.MODEL_TYPE:
        code = modern_electra.CODE
        safe_files.write(os.path.join(folder, code.name), code.read_bytes())
        files.append(code.name)
    return {name: sha256(os.path.join(folder, name)) for name in files}


def parameter_count(flat: Mapping[str, np.ndarray], shape: hugging_face.HuggingFaceShape) -> int:
    """Returns the number of exported parameters; padded rows are not exported."""
    return sum(
        math.prod((shape.vocab_size, *x.shape[1:]) if path in hugging_face.BY_TOKEN else x.shape)
        for path, x in flat.items()
    )


def write_tokenizer(found: trained_weights.Weights, folder: str) -> None:
    """Writes vocab/, and tokenizer/ if the vocabulary can be written in that format."""
    found.vocabulary.save(os.path.join(folder, orbax_export.VOCABULARY))
    target = os.path.join(folder, orbax_export.TOKENIZER)
    try:
        tokenizer_files.write(found.vocabulary, target, found.limit)
    except ValueError as error:
        logging.warning("no tokenizer/: %s", error)
        shutil.rmtree(target, ignore_errors=True)


def sha256(path: str) -> str:
    """Returns the SHA-256 of a file as hex digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def about(found: trained_weights.Weights) -> dict:
    """Returns what metadata.json says beside the arrays: step, shapes, config, environment, ..."""
    vocabulary = found.vocabulary
    return {
        "step": found.step,
        "networks": _shapes_of(found.networks),
        "vocabulary": vocabulary.description(),
        "config": config_lib.to_tree(found.config) if found.config else None,
        "environment": card_facts.public(found.environment),
        "only": found.only,
        "stage_rows": list(found.stage_rows),
        "began_with": found.began_with,
        "trained_tokens": found.trained_tokens,
    }


def _card_of(repository, below, name):
    """Returns what a card calls a network: its name, or its repository and its folder there."""
    if not repository:
        return {"name": name}
    place = f'"{repository}", subfolder="{below}"' if below else f'"{repository}"'
    return {"name": f"{repository}, {below}" if below else repository, "place": place}


def _write_folder(found, network, folder, publication, card_of):
    """Writes the folder of one network with its card; returns class and number of parameters."""
    one = found.alone(network)
    shape = hugging_face_shape(one, found.role(network))
    flat = trees.flat(jax.device_get({"embeddings": one.params["embeddings"]}))
    flat |= trees.flat(jax.device_get(one.params["discriminator"]))
    model = found.config.model if found.config else None
    dropouts = (model.dropout, model.attention_dropout) if model else (0.1, 0.1)

    checksums = write_network(folder, one, flat, shape, dropouts)
    picture = os.path.join(found.source, "report.png")
    if found.config and os.path.exists(picture):
        shutil.copyfile(picture, os.path.join(folder, CURVES))

    parameters = parameter_count(flat, shape)
    text = card.text(
        **card_of,
        shape=shape,
        learnt=found.learnt(network),
        publication=publication,
        training={"parameters": f"{parameters:,}"} | card_facts.training_facts(found),
        metrics=card_facts.last_evaluation(found),
        curves=CURVES if os.path.exists(os.path.join(folder, CURVES)) else "",
        differences=tokenizer_files.DIFFERENCES[found.vocabulary.kind],
        left_out=card_facts.left_out(found),
        base=card_facts.base_models(found, network),
        checksums=checksums,
    )
    safe_files.write(os.path.join(folder, "README.md"), text.encode())
    return {
        "class": hugging_face.class_of(shape.role, shape.model_type),
        "parameters": parameters,
    }


def _chosen(found, only, why_not):
    """Returns the networks to write. Raises ConfigError if `only` is not there.

    Args:
      why_not: the end of the message if the network exists without an encoder of the usual kind.
    """
    if only is None:
        return [name for name in trained_weights.NETWORKS if found.role(name)] or [found.main()]
    if found.role(only) is None:
        there = "" if only not in found.params else f" of the usual kind; {why_not}"
        raise config_lib.ConfigError(f"--only={only}: {found.source} has no {only}{there}")
    return [only]


def _shapes_of(config: networks.NetworksConfig) -> dict:
    """Returns shapes and kinds of both networks for JSON; `reading._of_export` reads them."""
    return {
        field.name: _trunk(getattr(config, field.name))
        if field.name in trained_weights.NETWORKS
        else getattr(config, field.name)
        for field in dataclasses.fields(config)
    }


def _trunk(config):
    """Returns the fields of an encoder's configuration, except those on how it is computed."""
    fields = dataclasses.asdict(config)
    return {name: value for name, value in fields.items() if name not in encoder_config.PORTABLE}


def _title(found):
    name = found.config.name if found.config else os.path.basename(found.source)
    return f"{name}, step {found.step:,}" if found.config else name
