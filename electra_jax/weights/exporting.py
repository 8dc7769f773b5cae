# SPDX-License-Identifier: Apache-2.0
"""Weights out, and in: what `electra_jax.convert` does.

    to_hugging_face    a folder a network, which transformers loads
    to_orbax           parameters for whoever has orbax
    to_stablehlo       a program for whoever has jax
    to_workdir         a Hugging Face folder, or Google's checkpoint, as the beginning of a run

Each writes a folder that is there as a whole or not at all, and reads it again before that.
"""

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Mapping

import jax
import numpy as np
from absl import logging

from electra_jax import config as config_lib
from electra_jax.data import vocabulary
from electra_jax.host import whole_folder
from electra_jax.model import networks
from electra_jax.report import writers
from electra_jax.step import build, train_step
from electra_jax.weights import reading, trained_weights, trees, warm_start
from electra_jax.weights.formats import (
    card,
    hugging_face,
    orbax_export,
    stablehlo,
    tensor_files,
    tokenizer_files,
)
from electra_jax.workdir import saved_config

CURVES = "curves.png"
_BERTS = {  # settings of a trunk that Hugging Face's ELECTRA has
    "positions": "learned",
    "feed_forward_kind": "gelu",
    "norm_place": "post",
    "norm_kind": "layer",
    "biases": True,
    "local_window": 0,
}
_FOLDERS = {"judges": "discriminator", "predicts": "masked_lm", "encodes": "encoder"}


def to_hugging_face(
    found: trained_weights.Weights, out: str, only: str | None = None, licence: str = ""
) -> dict:
    """Writes OUT/discriminator and OUT/generator, or OUT/masked_lm; what there is.

    Raises ConfigError, one line: a setting that Hugging Face's ELECTRA does not have.
    """
    chosen = _chosen(found, only, "Hugging Face's ELECTRA has no such generator")
    check_trunk(found.networks)
    _check_setting("model.discriminator_head", found.networks.discriminator_head, "token")
    written = {}
    with whole_folder.new(out) as folder:
        for network in chosen:
            role = found.role(network)
            name = "generator" if network == "generator" else _FOLDERS[role]
            written[name] = _one(found, network, os.path.join(folder, name), licence)
        again = reading.open(folder)
        for network, name in zip(chosen, written):
            one = reading.open(os.path.join(folder, name)) if len(chosen) > 1 else again
            trained_weights.check_same(found, network, one, one.main())
    return {"out": os.path.abspath(out), "networks": written, "left_out": left_out(found)}


def to_orbax(found: trained_weights.Weights, out: str, only: str | None = None) -> dict:
    """Writes all parameters as they are shared, or those of one network by itself."""
    if only:
        _chosen(found, only, "it is written with both: leave --only out")
        found = found.alone(only)
    with whole_folder.new(out) as folder:
        write_tokenizer(found, folder)
        name = os.path.basename(os.path.abspath(out))
        orbax_export.write(folder, found.params, about(found), name, _title(found))
    return {"out": os.path.abspath(out), "networks": sorted(found.params)}


def to_stablehlo(found: trained_weights.Weights, out: str, only: str | None = None) -> dict:
    """Writes one network's encoder as a program; without `only` that which is fine-tuned."""
    (network,) = _chosen(found, only or found.main(), "it has no encoder of the usual kind")
    one = found.alone(network)
    params = {
        "embeddings": one.params["embeddings"],
        "discriminator": dict(one.params["discriminator"]),
    }
    params["discriminator"].pop("head", None)
    shape = dataclasses.replace(
        one.networks, discriminator=dataclasses.replace(one.networks.discriminator, scan=True)
    )
    with whole_folder.new(out) as folder:
        write_tokenizer(found, folder)
        words = found.vocabulary
        stablehlo.write(
            folder, shape, params, about(one), _title(found), (words.cls_id, words.sep_id)
        )
    return {"out": os.path.abspath(out), "networks": [network]}


def to_workdir(source: str, recipe: config_lib.Config, workdir: str) -> dict:
    """Makes a workdir whose run begins with these weights: `main --workdir=WORKDIR` goes on.

    Shapes, sharing and vocabulary are the folder's; everything else is the recipe's. Its
    init.optimizer='restored' takes Adam's moments along.

    Raises ConfigError, one line: what is there is damaged, or does not go with the recipe.
    """
    found = reading.open(source)
    if found.config is not None:
        raise config_lib.ConfigError(
            f"{source} was trained here; begin with it directly: --config.init.from={source}"
        )
    config = _as_found(found, recipe, os.path.abspath(workdir))
    for text in sum(config_lib.differences(recipe, config), []):
        logging.info("as the weights say: %s", text)
    optimizer, named = None, f"--from={source}"
    if config.init.weights == "ema":
        raise config_lib.ConfigError(
            f"init.weights='ema', but {source} holds no averages; leave out --config.init.weights"
        )
    if config.init.optimizer == "restored":
        optimizer = _optimizer(named, found, config)
    elif found.moments is not None:
        logging.info("Adam's moments stay behind; init.optimizer='restored' takes them along")
    if config.init.missing_generator == "discriminator" and not found.role("generator"):
        _, fresh = _fresh(found, config)
        warm_start.lower_layers(named, trees.flat(found.params), trees.flat(fresh.params))
    with whole_folder.new(workdir) as folder:
        found.vocabulary.save(os.path.join(folder, "vocab"))
        reading.save(os.path.join(folder, "checkpoints"), found, config, optimizer)
        saved_config.write(folder, config)
        again = reading.open(folder)
        for network in trained_weights.NETWORKS:
            if found.role(network):
                trained_weights.check_same(found, network, again, network)
    return {
        "workdir": os.path.abspath(workdir),
        "networks": [network for network in trained_weights.NETWORKS if found.role(network)],
        "objective": config.objective.name,
    }


def check_trunk(shape: networks.NetworksConfig) -> None:
    """Raises ConfigError for a setting of the encoder that Hugging Face's ELECTRA has not."""
    for name, theirs in _BERTS.items():
        _check_setting(f"model.{name}", getattr(shape.discriminator, name), theirs)


def write_network(
    folder: str,
    one: trained_weights.Weights,
    flat: Mapping[str, np.ndarray],
    role: str,
    dropouts: tuple[float, float] = (0.1, 0.1),
    task: Mapping | None = None,
) -> dict[str, np.ndarray]:
    """Writes one network's files but the card, into a folder that need not be there.

    Args:
      flat: its arrays by path, as `networks.alone` calls them.
      role: a class of theirs, as `hugging_face` names it.
      dropouts: of states and of attention, for whoever trains on.
      task: fields of a fine-tuned network's config.json.

    Returns their tensors. Raises ConfigError.
    """
    words, shape = one.vocabulary, one.networks
    trunk = shape.discriminator
    try:
        tensors = hugging_face.to_tensors(flat, role, words.size)
        os.makedirs(folder, exist_ok=True)
        tokenizer_files.write(words, folder, one.limit)
    except ValueError as error:
        raise config_lib.ConfigError(str(error)) from error
    config = hugging_face.to_config(
        hugging_face.Shape(
            role=role,
            vocab_size=words.size,
            embedding_size=shape.embedding_size,
            max_positions=shape.max_positions,
            layers=trunk.layers,
            width=trunk.width,
            heads=trunk.heads,
            feed_forward=trunk.feed_forward,
        ),
        dropout=dropouts[0],
        attention_dropout=dropouts[1],
        initial_scale=one.config.model.initial_scale if one.config else 0.02,
        pad_id=words.pad_id,
        task=task,
    )
    write_text(os.path.join(folder, "config.json"), json.dumps(config, indent=2) + "\n")
    tensor_files.write(os.path.join(folder, tensor_files.SAFETENSORS), tensors)
    return tensors


def write_tokenizer(found: trained_weights.Weights, folder: str) -> None:
    """vocab/ always; tokenizer/ where a SentencePiece model can be said so."""
    found.vocabulary.save(os.path.join(folder, orbax_export.VOCABULARY))
    target = os.path.join(folder, orbax_export.TOKENIZER)
    try:
        tokenizer_files.write(found.vocabulary, target, found.limit)
    except ValueError as error:
        logging.warning("no tokenizer/: %s", error)
        shutil.rmtree(target, ignore_errors=True)


def write_text(path: str, text: str) -> None:
    """A whole file, in UTF-8."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def sha256(path: str) -> str:
    """Of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def about(found: trained_weights.Weights) -> dict:
    """What an export says of itself beside its arrays."""
    words = found.vocabulary
    return {
        "step": found.step,
        "networks": reading.shapes_of(found.networks),
        "vocabulary": {
            "kind": words.kind,
            "size": words.size,
            "sha256": words.sha256,
            "pad_id": words.pad_id,
            "unk_id": words.unk_id,
            "cls_id": words.cls_id,
            "sep_id": words.sep_id,
            "mask_id": words.mask_id,
        },
        "config": config_lib.to_tree(found.config) if found.config else None,
    }


def left_out(found: trained_weights.Weights) -> list[str]:
    """What was trained and has no place in Hugging Face's ELECTRA."""
    generator, main = (found.params.get(name, {}) for name in ("generator", "discriminator"))
    parts = {
        "the two towers of the generator": "left" in generator,
        "the baseline of the adversarial generator": "baseline" in generator,
        "the copy gate of the output: what remains is the softmax beneath it": "copy" in main,
    }
    return [part for part, there in parts.items() if there]


def training_facts(found: trained_weights.Weights) -> dict[str, str]:
    """What the card's table says; empty where nothing is known."""
    c, data = found.config, found.data
    if c is None:
        return {}
    facts = {"objective": c.objective.name, "steps": f"{found.step:,}"}
    facts["batch"] = f"{c.data.batch_size} rows of {c.data.sequence_length} tokens"
    if tokens := _last(found, "tokens_seen"):
        facts["tokens seen"] = f"{tokens:,.0f}, padding not counted"
    words = found.vocabulary
    objective = build.objective(c, words, np.ones(words.size))
    flops = objective.flops(c.data.sequence_length).train * c.data.batch_size * found.step
    facts["FLOPs"] = f"{flops:.3g} (3 x forward matrix products, both networks)"
    facts["data"] = c.data.source
    if data is not None:
        facts["documents"] = f"{data.totals['documents']:,}"
        facts["tokens in the data"] = f"{data.totals['tokens']:,}"
        facts["hash of the data"] = data.hash[:16]
    facts["vocabulary"] = f"{words.kind}, {words.size:,} pieces, {words.sha256[:16]}"
    facts["optimizer"] = f"{c.optimizer.name}, peak rate {c.optimizer.learning_rate:g}"
    facts["warmup"] = f"{c.schedule.warmup_steps:,} steps, then {c.schedule.shape}"
    facts["jax"] = jax.__version__ + " (at conversion)"
    return facts


def _one(found, network, folder, licence):
    """Writes the folder of one network and says what it is."""
    one, role = found.alone(network), found.role(network)
    flat = trees.flat(jax.device_get({"embeddings": one.params["embeddings"]}))
    flat |= trees.flat(jax.device_get(one.params["discriminator"]))
    model = found.config.model if found.config else None
    dropouts = (model.dropout, model.attention_dropout) if model else (0.1, 0.1)
    tensors = write_network(folder, one, flat, role, dropouts)
    path = os.path.join(folder, tensor_files.SAFETENSORS)
    picture = os.path.join(found.source, "report.png")
    if found.config and os.path.exists(picture):
        shutil.copyfile(picture, os.path.join(folder, CURVES))
    parameters = sum(x.size for x in tensors.values())
    text = card.text(
        name=os.path.basename(folder),
        role=role,
        licence=licence,
        training={"parameters": f"{parameters:,}"} | training_facts(found),
        metrics=_evaluation(found),
        curves=CURVES if os.path.exists(os.path.join(folder, CURVES)) else "",
        differences=tokenizer_files.DIFFERENCES[found.vocabulary.kind],
        left_out=left_out(found),
        checksums={tensor_files.SAFETENSORS: sha256(path)},
    )
    write_text(os.path.join(folder, "README.md"), text)
    return {"class": hugging_face.ROLES[role], "parameters": parameters}


def _chosen(found, only, why_not):
    """The networks that are asked for. Raises ConfigError where one of them is not there."""
    if only is None:
        return [name for name in trained_weights.NETWORKS if found.role(name)] or [found.main()]
    if found.role(only) is None:
        there = "" if only not in found.params else f" of the usual kind; {why_not}"
        raise config_lib.ConfigError(f"--only={only}: {found.source} has no {only}{there}")
    return [only]


def _check_setting(name, value, theirs):
    if value != theirs:
        raise config_lib.ConfigError(
            f"{name}={value!r} has no place in Hugging Face's ELECTRA, which knows {theirs!r};"
            " try --to=orbax, which keeps everything"
        )


def _as_found(found, recipe, workdir):
    """The recipe with the shapes that are there, checked."""
    shape, words, model = found.networks, found.vocabulary, recipe.model
    for name, value in (_BERTS | {"discriminator_head": "token"}).items():
        if getattr(model, name) != value:
            raise config_lib.ConfigError(
                f"model.{name}={getattr(model, name)!r} does not go with these weights, which are"
                f" made for {value!r}; leave it out"
            )

    def network(trunk):
        return config_lib.Network(trunk.layers, trunk.width, trunk.heads, trunk.feed_forward)

    changes = {
        "embedding_size": shape.embedding_size,
        "max_positions": shape.max_positions,
        "discriminator": network(shape.discriminator),
        "sharing": shape.sharing,
    }
    if found.role("generator"):
        changes["generator"] = network(shape.generator)
    data = dataclasses.replace(
        recipe.data,
        vocab=os.path.join(workdir, "vocab", vocabulary.FILES[words.kind]),
        lower_case=words.lower_case,
        strip_accents=words.strip_accents,
        sequence_length=min(recipe.data.sequence_length, shape.max_positions),
    )
    config = dataclasses.replace(
        recipe,
        name=os.path.basename(workdir),
        data=data,
        model=dataclasses.replace(model, **changes),
        objective=dataclasses.replace(recipe.objective, name=_objective(found, recipe)),
        init=dataclasses.replace(recipe.init, from_=workdir),
    )
    return config_lib.parse(config_lib.to_tree(config))


def _optimizer(named, found, config):
    """Its state before the first step: moments, and zeros for what the weights do not have."""
    objective, fresh = _fresh(found, config)
    moments = warm_start.moments_of_others(named, found, config, fresh, objective.phases)
    leaves = [
        moments.get(path, np.zeros(x.shape, x.dtype))
        for path, x in trees.flat(fresh.optimizer).items()
    ]
    return jax.tree.unflatten(jax.tree.structure(fresh.optimizer), leaves)


def _fresh(found, config):
    """(the run's objective, the shapes of its state before the first step)."""
    objective = build.objective(config, found.vocabulary, np.ones(found.vocabulary.size))
    return objective, jax.eval_shape(
        lambda: train_step.init_state(objective, build.optimizer_of(config), build.run_key(config))
    )


def _objective(found, recipe):
    """The recipe's, if it has these networks; a masked language model goes on as one."""
    name = recipe.objective.name
    if found.role("discriminator") == "predicts":
        fitting = ("replace_mlm", "all_tokens_mlm") if found.role("generator") else ("masked_lm",)
        return name if name in fitting else fitting[0]
    if name in ("masked_lm", "replace_mlm", "all_tokens_mlm", "electric"):
        raise config_lib.ConfigError(
            f"objective.name={name!r} has another main network than a discriminator; leave it out,"
            f" or begin such a run with --config.init.from={found.source}"
        )
    return name


def _title(found):
    name = found.config.name if found.config else os.path.basename(found.source)
    return f"{name}, step {found.step:,}" if found.config else name


def _rows(found):
    """What metrics.jsonl says up to this step."""
    path = os.path.join(found.source, "metrics.jsonl")
    if found.config is None or not os.path.exists(path):
        return []
    return [row for row in writers.read(path) if row["step"] <= found.step]


def _last(found, name):
    return next((row[name] for row in reversed(_rows(found)) if row.get(name)), None)


def _evaluation(found):
    rows = [row for row in _rows(found) if row["kind"] == "eval"]
    if not rows:
        return {}
    numbers = {"step": rows[-1]["step"]} | rows[-1]
    return {
        name: value
        for name, value in numbers.items()
        if isinstance(value, int | float) and name != "tokens_seen"
    }
