# SPDX-License-Identifier: Apache-2.0
"""The encoder that is fine-tuned, out of a pre-training workdir: its shape, vocabulary, weights.

    WORKDIR/config.json -> shape     WORKDIR/data/.../vocab -> vocabulary
    WORKDIR/checkpoints/STEP -> the main network and the tables that it reads; no head, no generator

Where the run keeps averages of its weights, those are taken, as in its evaluations.
"""

import dataclasses
import glob
import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

import jax
from jax.sharding import Mesh

from electra_jax import accounting, build, checkpoint, initial, sharding
from electra_jax import config as config_lib
from electra_jax.data import vocabulary
from electra_jax.finetuning import config as finetuning_config
from electra_jax.model import networks


@dataclasses.dataclass(frozen=True)
class Encoder:
    """What every task starts from."""

    networks: networks.NetworksConfig  # with the dropout of fine-tuning
    vocabulary: vocabulary.Vocabulary
    trunk: dict | None  # in the form of `networks.main_trunk`; None: fresh ones, by seed
    parameters: int
    max_tokens: int  # the longest row that it can read; 0: any
    pretrained_tokens: int  # length of the rows that it was pre-trained on
    about: Mapping[str, Any]  # for people: where from, which step
    identity: str  # changes with any weight


def open_workdir(config: finetuning_config.Config, workdir: str, mesh: Mesh) -> Encoder:
    """Reads, never writes. Raises ConfigError, CheckpointError."""
    trained = _config_of(workdir)
    words = vocabulary.load(_vocabulary_path(config, trained, workdir))
    shape = _networks(config, trained, words.size, mesh)
    fresh = jax.eval_shape(lambda: networks.init_trunk(shape, jax.random.key(0)))
    trunk, about, identity = None, {"from": f"random, shape of {workdir}"}, "fresh"
    if config.encoder.init == "pretrained":
        path, step = _checkpoint(config, workdir)
        params = initial.load(path, words, mesh, config.encoder.weights, "encoder.weights")
        own = build.networks_config(_plain(trained), words.size, mesh)
        trunk = jax.jit(
            lambda params: networks.main_trunk(own, params),
            out_shardings=sharding.replicated(mesh),
        )(params)
        _check_shape(trunk, fresh, path)
        about = {"from": workdir, "step": step}
        identity = identity_of(trunk)
    count = sum(accounting.parameters(fresh).values())
    return Encoder(
        networks=shape,
        vocabulary=words,
        trunk=trunk,
        parameters=count,
        max_tokens=shape.max_positions,
        pretrained_tokens=trained.data.sequence_length,
        about=about | {"parameters": count},
        identity=identity,
    )


def identity_of(trunk: dict) -> str:
    """One word for all weights, the same on any mesh."""
    digest = json.dumps(checkpoint.digest(trunk), sort_keys=True)
    return hashlib.blake2b(digest.encode(), digest_size=8).hexdigest()


def _config_of(workdir):
    path = os.path.join(workdir, "config.json")
    if not os.path.exists(path):
        raise config_lib.ConfigError(
            f"{workdir} holds no config.json; give --workdir of a pre-training run, or make one:"
            " python -m electra_jax.main --config=configs/tiny.py"
        )
    with open(path, encoding="utf-8") as file:
        return config_lib.parse(json.load(file))


def _vocabulary_path(config, trained, workdir):
    """The one that the checkpoints were trained with, among those that were prepared."""
    if config.encoder.vocab:
        return config.encoder.vocab
    root = trained.data.dir or os.path.join(workdir, "data")
    found = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(root), "*", "vocab"))):
        with open(os.path.join(path, "vocabulary.json"), encoding="utf-8") as file:
            found.setdefault(json.load(file)["sha256"], path)
    kept = checkpoint.steps(os.path.join(workdir, "checkpoints"))
    if kept:
        about = checkpoint.metadata(os.path.join(workdir, "checkpoints", str(kept[-1])))
        found = {sha: path for sha, path in found.items() if sha == about["vocabulary"]}
    if len(found) != 1:
        raise config_lib.ConfigError(
            f"{root} holds {len(found)} vocabularies that {workdir} may be trained with; give"
            " --config.encoder.vocab the file or folder"
        )
    return next(iter(found.values()))


def _checkpoint(config, workdir):
    directory, step = os.path.join(workdir, "checkpoints"), config.encoder.step
    found = checkpoint.steps(directory)
    if not found:
        raise config_lib.ConfigError(
            f"no checkpoint in {directory}; train first: python -m electra_jax.main"
            f" --workdir={workdir}, or take --config.encoder.init=fresh"
        )
    if step and step not in found:
        raise config_lib.ConfigError(
            f"encoder.step={step} is not in {directory}; there are {', '.join(map(str, found))}"
        )
    step = step or found[-1]
    return os.path.join(directory, str(step)), step


def _plain(trained):
    """Its shapes, in a form that any device can compute."""
    model = dataclasses.replace(trained.model, attention="einsum")
    return dataclasses.replace(trained, model=model)


def _networks(config, trained, vocab_size, mesh):
    model = dataclasses.replace(
        trained.model,
        attention="einsum",  # rows are short, and it can drop probabilities
        dropout=config.recipe.dropout,
        attention_dropout=config.recipe.attention_dropout,
        dtype=config.run.dtype,
        scan=trained.model.scan if config.run.scan == "auto" else config.run.scan,
    )
    shape = build.networks_config(dataclasses.replace(trained, model=model), vocab_size, mesh)
    shape = dataclasses.replace(shape, sharing="embeddings")
    return shape.placed(sharding.keep_rows(mesh), sharding.as_they_are)


def _check_shape(trunk, fresh, path):
    def shapes(tree):
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        return {jax.tree_util.keystr(p, simple=True, separator="/"): x.shape for p, x in leaves}

    if shapes(trunk) != shapes(fresh):
        raise config_lib.ConfigError(
            f"{path} does not have the shapes that config.json beside it describes"
        )
