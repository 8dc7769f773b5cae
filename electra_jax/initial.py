# SPDX-License-Identifier: Apache-2.0
"""First weights out of other runs' checkpoints.

    init.from             every parameter that is there under the same path and in the same shape,
                          from a workdir, an export of `convert` or a Hugging Face folder
    init.generator_from   a generator with its tables, to go on with or to be frozen; of a run
                          without one the main network, if it predicts tokens as a generator does

What another run does not have stays fresh and is named in the log.
"""

import os
from collections.abc import Mapping

import jax
from absl import logging
from jax.sharding import Mesh

from electra_jax import checkpoint, sharding
from electra_jax import config as config_lib
from electra_jax import weights as weights_lib
from electra_jax.data import vocabulary

_NO_AVERAGES = "init.weights='ema', but {} holds no averages; use 'auto' or 'raw'"
_TRUNKS = ("discriminator/encoder/", "encoder/")


def params(
    config: config_lib.Config, fresh: dict, words: vocabulary.Vocabulary, mesh: Mesh
) -> dict:
    """Fresh parameters with those of `init` laid over them. Raises ConfigError."""
    leaves = _flat(fresh)
    if config.init.from_:
        leaves |= _main(config.init.from_, config.init.weights, leaves, words, mesh)
    if config.init.generator_from:
        leaves |= _generator(config, leaves, words, mesh)
    paths = jax.tree_util.tree_leaves_with_path(fresh)
    placed = [jax.device_put(leaves[_name(path)], x.sharding) for path, x in paths]
    return jax.tree.unflatten(jax.tree.structure(fresh), placed)


def check_vocabulary(about: Mapping, words: vocabulary.Vocabulary, where: str) -> None:
    """Refuses weights that were trained with other token ids."""
    if about["vocabulary"] != words.sha256:
        raise config_lib.ConfigError(
            f"{where} was trained with vocabulary {about['vocabulary'][:12]}, the data here has"
            f" {words.sha256[:12]}; give data.vocab the file that it was trained with"
        )


def _main(source, weights, fresh, words, mesh):
    found = _flat(_load(source, "init.from", weights, words, mesh))
    taken = {path: x for path, x in found.items() if path in fresh and fresh[path].shape == x.shape}
    if not any(path.startswith(_TRUNKS) for path in taken):
        path = next(path for path in fresh if path.startswith(_TRUNKS))
        theirs = found[path].shape if path in found else "not there"
        raise config_lib.ConfigError(
            f"init.from={source!r} has no encoder of this shape: {path} is {theirs}, here"
            f" {fresh[path].shape}; give model.* the shapes of that run"
        )
    left = [path for path in fresh if path not in taken]
    logging.info(
        "starting from the weights of %s%s", source, f"; fresh: {_heads(left)}" if left else ""
    )
    return taken


def _generator(config, fresh, words, mesh):
    source = config.init.generator_from
    other = _load(source, "init.generator_from", config.init.weights, words, mesh)
    network = dict(other.get("generator", other["discriminator"]))
    own = network.pop("embeddings", other["embeddings"])
    if "encoder" not in network:
        raise config_lib.ConfigError(
            f"init.generator_from={source!r} shares one encoder between its networks; take a run"
            " whose generator is its own"
        )
    found = {f"generator/{path}": x for path, x in _flat(network).items()}
    tables = "generator/embeddings" if config.model.sharing == "none" else "embeddings"
    found |= {f"{tables}/{path}": x for path, x in _flat(own).items()}
    needed = [path for path in fresh if path.startswith(("generator/", f"{tables}/"))]
    for path in needed:
        theirs = found[path].shape if path in found else "not there"
        if theirs != fresh[path].shape:
            raise config_lib.ConfigError(
                f"init.generator_from={source!r} has no generator of this shape: {path} is"
                f" {theirs}, here {fresh[path].shape}; give model.generator the shapes of that run"
            )
    logging.info("the generator is that of %s", source)
    return {path: found[path] for path in needed}


def _load(source, setting, weights, words, mesh) -> dict:
    """All parameters of a workdir's newest checkpoint, or of one checkpoint folder.

    They are the averages that were evaluated there, unless `init.weights` says otherwise.
    """
    steps = checkpoint.steps(os.path.join(source, "checkpoints"))
    path = os.path.join(source, "checkpoints", str(steps[-1])) if steps else source
    if not os.path.isdir(path):
        raise config_lib.ConfigError(
            f"{setting}={source!r} is neither a workdir with checkpoints nor a checkpoint folder,"
            " nor an export, nor a Hugging Face folder"
        )
    if not steps and weights_lib.is_foreign(path):
        found = weights_lib.open(path)
        check_vocabulary({"vocabulary": found.vocabulary.sha256}, words, path)
        if weights == "ema":
            raise config_lib.ConfigError(_NO_AVERAGES.format(path))
        return found.params
    about = checkpoint.metadata(path)
    check_vocabulary(about, words, path)
    trained = config_lib.parse(about["config"])
    averaged = any(name.startswith("ema/") for name in about["digest"])
    if weights == "ema" and not averaged:
        raise config_lib.ConfigError(_NO_AVERAGES.format(path))
    part = "ema" if averaged and weights != "raw" else "params"
    shapes = {part: weights_lib.stored_shapes(trained, words, about["digest"], part)}
    abstract = jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
        shapes,
        sharding.shardings(shapes, mesh),
    )
    return checkpoint.restore(path, abstract).tree[part]


def _flat(tree) -> dict[str, jax.Array]:
    return {_name(path): x for path, x in jax.tree_util.tree_leaves_with_path(tree)}


def _name(path):
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _heads(paths):
    """Paths by their first two parts: generator/head, discriminator/head."""
    return ", ".join(dict.fromkeys("/".join(path.split("/")[:2]) for path in paths))
