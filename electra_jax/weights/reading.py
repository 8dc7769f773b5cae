# SPDX-License-Identifier: Apache-2.0
"""Trained weights wherever they lie: `open(path)` reads each of these onto one device.

    a workdir, or one of its checkpoints/STEP; its averages, if it was evaluated by those
    an export of `convert --to=orbax`
    a Hugging Face folder, or a folder of several: discriminator, generator, or both
    a checkpoint of google-research/electra, with its vocab.txt beside it

Neither text nor prepared records need be there, only the vocabulary.
"""

import builtins
import dataclasses
import glob
import json
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from absl import logging
from jax import numpy as jnp

from electra_jax import config as config_lib
from electra_jax.data import preparation, records, vocabulary
from electra_jax.model import encoder, networks
from electra_jax.step import build
from electra_jax.weights import checkpoint, checkpoint_series, encoding, trees
from electra_jax.weights.formats import (
    google,
    hugging_face,
    orbax_export,
    tensor_files,
    tensorflow_bundle,
    tokenizer_files,
)
from electra_jax.workdir import metadata, prepared_data

NETWORKS = ("discriminator", "generator")
_NO_LIMIT = 65_536  # tokens of a row, where positions are turned and nobody says more


@dataclasses.dataclass(frozen=True)
class Weights:
    """Networks that were trained, and what is known of how."""

    source: str
    step: int
    networks: networks.NetworksConfig  # computes in float32, with plain products
    params: dict  # shared as they were trained
    vocabulary: vocabulary.Vocabulary
    config: config_lib.Config | None = None  # None where only the shapes are known
    data: records.Manifest | None = None
    moments: dict[str, dict] | None = None  # Google's: {'mu', 'nu'}, each flat by path

    def role(self, network: str) -> str | None:
        """'judges', 'predicts' or 'encodes' (no head); None where there is no such network."""
        own = self.params.get(network)
        if own is None or not ("encoder" in own or "encoder" in self.params):
            return None
        head = own.get("head", {})
        return "judges" if "output" in head else "predicts" if "bias" in head else "encodes"

    def alone(self, network: str) -> "Weights":
        """One network as the main one, with tables of its own and nothing of the other."""
        own = dict(networks.alone(self.networks, self.params, network))
        params = {"embeddings": own.pop("embeddings"), "discriminator": own}
        shape = getattr(self.networks, network)
        config = dataclasses.replace(self.networks, discriminator=shape, sharing="embeddings")
        return dataclasses.replace(self, params=params, networks=config, moments=None)

    @property
    def limit(self) -> int:
        """The most tokens of a row."""
        learned = self.networks.max_positions
        return learned or (self.config.model.max_positions if self.config else _NO_LIMIT)

    def main(self) -> str:
        """The network that is asked for where nobody says which: the one that is fine-tuned."""
        found = next((name for name in NETWORKS if self.role(name)), None)
        if found is None:
            raise config_lib.ConfigError(f"{self.source} holds no network with an encoder")
        return found


def open(path: str | os.PathLike, step: int | None = None, data_dir: str = "") -> Weights:
    """Reads whatever lies there.

    Args:
      step: which checkpoint of a workdir; None is the newest that can be read.
      data_dir: where a workdir's prepared data is, if not where its configuration says.

    Raises:
      ConfigError, CheckpointError: one line; nothing there, damaged, or of a kind we do not have.
    """
    path = os.path.normpath(os.fspath(path))
    parent, name = os.path.split(path)
    if os.path.basename(parent) == "checkpoints" and name.isdecimal():
        return _of_workdir(os.path.dirname(parent), int(name), data_dir)
    if metadata.steps(os.path.join(path, "checkpoints")):
        return _of_workdir(path, step, data_dir)
    if orbax_export.is_one(path):
        return _of_export(path)
    if folders := hugging_face_folders(path):
        return _of_hugging_face(path, folders)
    if prefix := tensorflow_bundle.prefix_of(path):
        return _of_google(prefix)
    if not os.path.exists(path):
        raise config_lib.ConfigError(f"there is no workdir or folder of weights {path}")
    raise config_lib.ConfigError(
        f"{path} is neither a workdir with checkpoints, nor an export, nor a Hugging Face folder,"
        " nor a TensorFlow checkpoint"
    )


def is_foreign(path: str) -> bool:
    """Whether `path` is an export or other people's weights, and no checkpoint of a run."""
    if orbax_export.is_one(path) or hugging_face_folders(path):
        return True
    return tensorflow_bundle.prefix_of(path) is not None


def load_encoder(
    path: str | os.PathLike, network: str | None = None, dtype: str = "float32"
) -> tuple[Callable[..., encoding.Encoded], dict, encoding.Tokenizer]:
    """An encoder to use: (apply, params, tokenizer), from whatever `open` reads.

        found = apply(params, **tokenizer(["A sentence."]))
        found.tokens_BLD, found.pooled_BD

    Args:
      network: 'discriminator' or 'generator'; None is the one that is fine-tuned.
      dtype: of the computation; 'bfloat16' is faster on accelerators.
    """
    found = open(path)
    name = network or found.main()
    if found.role(name) is None:
        raise config_lib.ConfigError(f"{found.source} has no {name} with an encoder of its own")
    one = found.alone(name)
    config = dataclasses.replace(one.networks, dtype=dtype)
    pad_id = found.vocabulary.pad_id

    @jax.jit
    def apply(params, ids_BL, mask_BL=None, types_BL=None):
        """Padding is where `mask_BL` is 0, or else where the padding's id is; types are 0."""
        ids_BL = jnp.asarray(ids_BL)
        mask_BL = ids_BL != pad_id if mask_BL is None else mask_BL
        types_BL = jnp.zeros_like(ids_BL) if types_BL is None else types_BL
        return encoding.encode(config, params, ids_BL, mask_BL, types_BL)

    return apply, one.params, encoding.Tokenizer(found.vocabulary, found.limit)


def hugging_face_folders(path: str | os.PathLike) -> list[str]:
    """The folder itself or those in it that have Hugging Face's config.json."""
    return [
        folder
        for folder in (os.fspath(path), *sorted(glob.glob(os.path.join(glob.escape(path), "*"))))
        if "model_type" in _json(os.path.join(folder, "config.json"))
    ]


def save(directory: str, found: Weights, config: config_lib.Config, optimizer: Any = None) -> None:
    """Writes them as the first checkpoint of a run that begins with them (`checkpoints/0`).

    Args:
      optimizer: its state, where the run goes on with moments; read again and compared.
    """
    tree = {"params": found.params} | ({} if optimizer is None else {"optimizer": optimizer})
    with checkpoint_series.Checkpoints(directory, keep_last=1) as saved:
        about = {
            "config": config_lib.to_tree(config),
            "data": "",
            "vocabulary": found.vocabulary.sha256,
            "jax": jax.__version__,
            metadata.WEIGHTS_ONLY: True,
        }
        saved.save(0, tree, about)
    if optimizer is not None:
        checkpoint.restore(os.path.join(directory, "0"), {"optimizer": _placed(optimizer)})


def shapes_of(config: networks.NetworksConfig) -> dict:
    """Shapes and kinds of both networks as JSON has them; `_of_export` takes them back."""
    return {
        field.name: _trunk(getattr(config, field.name))
        if field.name in NETWORKS
        else getattr(config, field.name)
        for field in dataclasses.fields(config)
    }


def _of_workdir(workdir, step, data_dir):
    directory = os.path.join(workdir, "checkpoints")
    found = metadata.steps(directory)
    if step is not None and step not in found:
        raise config_lib.ConfigError(
            f"no checkpoint of step {step} in {directory}; there are {', '.join(map(str, found))}"
        )
    for number in reversed(found) if step is None else [step]:
        path = os.path.join(directory, str(number))
        try:
            about = metadata.read(path)
            config = config_lib.parse(about["config"])
            words, data = vocabulary_of(workdir, config, about["vocabulary"], data_dir)
            part = "ema" if any(name.startswith("ema/") for name in about["digest"]) else "params"
            shapes = stored_shapes(config, words, about["digest"], part)
            params = checkpoint.restore(path, {part: _placed(shapes)}).tree[part]
        except metadata.CheckpointError as error:
            logging.error("checkpoint %d cannot be used: %s", number, error)
            continue
        shape = _plain(config, words)
        return Weights(workdir, number, shape, params, words, config, data)
    raise metadata.CheckpointError(f"no checkpoint in {directory} can be read")


def stored_shapes(config: config_lib.Config, words, digest: dict[str, str], part: str) -> dict:
    """The tree of parameters that a checkpoint holds: all of its objective's, or some networks'."""
    objective = build.objective(config, words, np.ones(words.size))
    whole = jax.eval_shape(objective.init, build.run_key(config))
    return trees.nested(
        {path: x for path, x in trees.flat(whole).items() if f"{part}/{path}" in digest}
    )


def vocabulary_of(
    workdir: str, config: config_lib.Config, sha256: str, data_dir: str = ""
) -> tuple[vocabulary.Vocabulary, records.Manifest | None]:
    """(the vocabulary with this hash, the manifest of the data beside it if there is one)."""
    if data_dir:
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, dir=data_dir))
    root, inside = prepared_data.root(config, workdir), os.path.join(workdir, "data")
    places = [os.path.join(workdir, prepared_data.VOCABULARY)]
    for folder in dict.fromkeys((root, inside)):
        places += sorted(glob.glob(os.path.join(glob.escape(folder), "*", preparation.VOCABULARY)))
    for place in places:
        if _json(os.path.join(place, "vocabulary.json")).get("sha256") != sha256:
            continue
        try:
            words = vocabulary.load(place)
        except ValueError as error:
            logging.error("%s cannot be used: %s", place, error)
            continue
        return words, prepared_data.manifest(config, workdir) or _manifest(os.path.dirname(place))
    raise config_lib.ConfigError(
        f"the vocabulary {sha256[:12]} of {workdir} is neither in {places[0]} nor under {root};"
        " copy it there, or give --config.data.dir the folder of its prepared data"
    )


def _manifest(folder):
    """What the folder of a vocabulary says of the rows beside it; None if it says nothing."""
    try:
        return records.read_manifest(folder)
    except ValueError:
        return None


def _trunk(config):
    """What an encoder is, without how it runs."""
    placed = ("keep_rows", "headwise", "scan", "remat", "attention")
    fields = [field.name for field in dataclasses.fields(config) if field.name not in placed]
    return {name: getattr(config, name) for name in fields}


def _plain(config, words):
    """Shapes that compute the same anywhere: plain products in float32."""
    model = dataclasses.replace(config.model, attention="einsum", dtype="float32", remat="none")
    return build.networks_config(dataclasses.replace(config, model=model), words.size)


def _of_export(path):
    about = orbax_export.about(path)
    words = vocabulary.load(os.path.join(path, orbax_export.VOCABULARY))
    trunks = {name: encoder.EncoderConfig(**about["networks"][name]) for name in NETWORKS}
    shape = networks.NetworksConfig(**about["networks"] | trunks)
    params = jax.tree.map(jnp.asarray, orbax_export.read(path))
    config = config_lib.parse(about["config"]) if about["config"] else None
    return Weights(path, about["step"], shape, params, words, config)


def _of_hugging_face(path, folders):
    shapes = {}
    for folder in folders:
        try:
            shapes[folder] = hugging_face.from_config(_json(os.path.join(folder, "config.json")))
        except ValueError as error:
            raise config_lib.ConfigError(f"{folder}/config.json: {error}") from error
    main, other = _who_is_who(path, shapes)
    words = tokenizer_files.read(main)
    _check_together(shapes, main, other, words)
    shape = _networks_config(shapes[main], shapes[other] if other else shapes[main], words)
    own = _read(main, shapes[main], "discriminator", shape, words)
    params = {"embeddings": own.pop("embeddings"), "discriminator": own}
    if other:
        own = _read(other, shapes[other], "generator", shape, words)
        tables = own.pop("embeddings")
        if not jax.tree.all(jax.tree.map(np.array_equal, tables, params["embeddings"])):
            shape = dataclasses.replace(shape, sharing="none")
            own["embeddings"] = tables
        params["generator"] = own
    return Weights(path, 0, shape, jax.tree.map(jnp.asarray, params), words)


def _who_is_who(path, shapes):
    """(folder of the main network, folder of the generator or None)."""
    if len(shapes) > 2:
        raise config_lib.ConfigError(
            f"{path} holds {len(shapes)} networks; take one, or a discriminator and its generator"
        )
    predicting = [folder for folder in shapes if shapes[folder].role == "predicts"]
    if len(shapes) == 1:
        return next(iter(shapes)), None
    if len(predicting) == 2:  # one of them is the generator by name
        predicting.sort(key=lambda folder: "generator" not in os.path.basename(folder))
    if not predicting:
        raise config_lib.ConfigError(f"{path} holds two networks and neither is a generator")
    generator = predicting[0]
    return next(folder for folder in shapes if folder != generator), generator


def _check_together(shapes, main, other, words):
    shape = shapes[main]
    if words.size > shape.vocab_size:
        raise config_lib.ConfigError(
            f"{main} has {shape.vocab_size} rows for a vocabulary of {words.size}; the tokenizer's"
            " files are of another model"
        )
    if words.size < shape.vocab_size:
        logging.info("%s: rows above %d are no token and stay behind", main, words.size)
    if other and tokenizer_files.read(other).sha256 != words.sha256:
        raise config_lib.ConfigError(
            f"{main} and {other} have different vocabularies; they are no pair, convert one of them"
        )
    for field in ("vocab_size", "embedding_size", "max_positions") if other else ():
        if getattr(shape, field) != getattr(shapes[other], field):
            raise config_lib.ConfigError(
                f"{main} and {other} differ in {field}: {getattr(shape, field)} and"
                f" {getattr(shapes[other], field)}; they are no pair, convert one of them"
            )


def _networks_config(main, other, words):
    return networks.NetworksConfig(
        vocab_size=words.size,
        embedding_size=main.embedding_size,
        max_positions=main.max_positions,
        generator=_berts_trunk(other),
        discriminator=_berts_trunk(main),
    )


def _berts_trunk(shape):
    return encoder.EncoderConfig(
        shape.layers, shape.width, shape.heads, shape.feed_forward,
        dropout=0.0, attention_dropout=0.0,
    )  # fmt: skip


def _of_google(prefix):
    words = tokenizer_files.read(os.path.dirname(prefix) or os.curdir)
    try:
        found = google.read(tensorflow_bundle.Bundle(prefix))
    except ValueError as error:
        text = str(error)
        raise config_lib.ConfigError(text if prefix in text else f"{prefix}: {text}") from error
    if words.size != found.vocab_size:
        raise config_lib.ConfigError(
            f"{prefix} has {found.vocab_size} rows for a vocabulary of {words.size}; put the"
            " vocab.txt that it was trained with beside it"
        )
    shape = networks.NetworksConfig(
        vocab_size=words.size,
        embedding_size=found.embedding_size,
        max_positions=found.max_positions,
        generator=_berts_trunk(found.generator or found.discriminator),
        discriminator=_berts_trunk(found.discriminator),
        sharing=found.sharing,
    )
    _check_tree(prefix, shape, trees.nested(found.params))
    moments = {name: _with_tail(getattr(found, name), shape) for name in ("mu", "nu")}
    return Weights(
        prefix,
        found.step or 0,
        shape,
        jax.tree.map(jnp.asarray, trees.nested(_with_tail(found.params, shape))),
        words,
        moments=moments if found.mu and found.nu else None,
    )


def _with_tail(leaves, shape):
    """Rows of tokens up to the padded size of the vocabulary; the tail is no token's."""
    tail = shape.padded_vocab_size - shape.vocab_size
    return {
        path: np.pad(x, ((0, tail),) + ((0, 0),) * (x.ndim - 1))
        if path.endswith(hugging_face.BY_TOKEN)
        else x
        for path, x in leaves.items()
    }


def _check_tree(prefix, shape, params):
    """Every parameter of these networks is there, in its shape, and nothing else."""
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
        if ours and ours[0] == shape.padded_vocab_size:
            ours = (shape.vocab_size, *ours[1:])
        if ours != there[path].shape:
            raise config_lib.ConfigError(
                f"{prefix}: {path} is {there[path].shape} there, {ours or 'nothing'} here"
            )


def _read(folder, shape, network, config, words) -> dict[str, Any]:
    """One network as `networks.alone` gives it, out of its files; of a tuned one the encoder."""
    tuned = shape.role in hugging_face.TASK_ROLES
    role = "encodes" if tuned else shape.role
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
        tensors = tensor_files.read(folder)
        if tuned:
            logging.info("%s: the head of its task stays behind", folder)
            tensors = hugging_face.without_head(tensors)
        found = hugging_face.from_tensors(tensors, shapes, role)
    except ValueError as error:
        text = str(error)
        raise config_lib.ConfigError(text if folder in text else f"{folder}: {text}") from error
    for path in by_token:  # the padded tail is no token's
        rows = found[path][: words.size]
        found[path] = np.zeros((config.padded_vocab_size, *rows.shape[1:]), np.float32)
        found[path][: words.size] = rows
    return trees.nested(found)


def _placed(tree):
    """The same shapes, to be loaded onto one device."""
    where = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where), tree)


def _json(path) -> dict:
    """A JSON object, or an empty one where there is none."""
    try:
        with builtins.open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
