# SPDX-License-Identifier: Apache-2.0
"""Beginning a run with trained weights: the first state, as the section `init` says.

    1. `starting_weights.open` reads the source: arrays by path, vocabulary, Adam's moments.
    2. Tables by token and by position are fitted to this run's sizes (`resizing`).
    3. Arrays replace those of the fresh state that have the same path.

    init.from             the networks, and with init.optimizer='restored' their moments
    init.generator_from   a generator with its tables, to be trained on or to be frozen; if that run
                          has no generator, its main network, provided that it predicts tokens

A parameter is matched by its path alone; its shape is only checked. Since the paths of different
heads overlap, a head is taken only by a head of the same kind: one that predicts tokens never
becomes one that detects replacements. A generator is taken whole, encoder and head, or not at all;
layers that it shared with the discriminator and that are its own in this run are copied.
Parameters that the source does not have stay fresh, and the log names them.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from absl import logging
from jax import numpy as jnp

from electra_jax import config as config_lib
from electra_jax.core import sharding, trees
from electra_jax.step import train_step
from electra_jax.weights import resizing, starting_weights, trained_weights

TRUNKS = ("discriminator/encoder/", "encoder/")
_ENCODER = "generator/encoder/"
_UPPER = "generator/upper_layers/"  # of a generator that shares the others
_BESIDE_A_GENERATOR = ("generator/embeddings/", "generator/baseline/")
_DOES = {  # role of a network -> what its head does, for users
    "judges": "detects replaced tokens",
    "predicts": "predicts tokens",
    "towers": "guesses by two towers",
}


def state(run: starting_weights.FreshRun) -> train_step.TrainState:
    """Returns the run's fresh state with the weights that `init` names in it.

    Raises ConfigError or CheckpointError.
    """
    fresh, init = run.fresh, run.init
    leaves, moments = trees.flat(fresh.params), trees.flat(fresh.optimizer)

    # By path: what init.from gives, its generator too if that fits; what replaces or adds to it.
    source, main, others = None, {}, {}
    if init.from_:
        source = _with_own_layers(run, starting_weights.open("init.from", run))
        main = _main_network(run, source, leaves)
        others = _tables_of_its_generator(run, source, main, leaves)

    if init.generator_from:
        other = _with_own_layers(run, starting_weights.open("init.generator_from", run))
        generator = _generator(run, other, leaves)
        deltas = _deltas_kept(run, main | others, generator, leaves)
        others |= generator | deltas
    elif source:
        others |= _missing_generator(run, source, main | others, leaves)

    taken = main | others
    if source:
        _log_what_is_taken(source, taken, leaves, init)
    if init.optimizer == "restored":
        as_trained = main.keys() - others.keys()
        moments = _with_moments(run, source, moments, as_trained, leaves)

    params = _placed(leaves | taken, fresh.params)
    return dataclasses.replace(
        fresh,
        params=params,
        optimizer=_placed(moments, fresh.optimizer),
        ema=None if fresh.ema is None else jax.tree.map(jnp.copy, params),
    )


def _with_own_layers(run, source):
    """Returns the source with the layers in its generator that are the generator's own here."""
    params = own_layers(source.params, source.shared_layers, run.shared_layers)
    return dataclasses.replace(source, params=params)


def own_layers(params: Mapping[str, jax.Array], there: int, here: int) -> Mapping[str, jax.Array]:
    """Returns a source's arrays by path, in its generator the layers above the lowest `here`.

    In the source the lowest `there` are the discriminator's. If these are fewer, the layers between
    have no place, and the generator has no encoder that could be taken.
    """
    if there == here or not _has(params, _UPPER):
        return params
    found = {path: x for path, x in params.items() if not path.startswith(_UPPER)}
    if there < here:
        return found

    for path in params.keys() - found.keys():
        part, own = path.removeprefix(_UPPER), params[path]
        if part.startswith(("attention/", "feed_forward/")):
            own = jnp.concatenate([params[f"discriminator/encoder/{part}"][here:there], own])
        found[f"{_UPPER if here else _ENCODER}{part}"] = own
    if not here:
        for path in [path for path in params if path.startswith("discriminator/projection/")]:
            # Copied: a training step donates the memory of each array once.
            found[path.replace("discriminator", "generator", 1)] = jnp.copy(params[path])
    return found


def lower_layers(
    named: str, params: Mapping[str, jax.Array], fresh: Mapping[str, Any]
) -> dict[str, jax.Array]:
    """Returns a generator's encoder made of a discriminator's lowest layers, by path.

    Args:
      named: what messages call the weights.
      params: the discriminator's parameters.
      fresh: parameters before the first step, or their shapes.

    Raises ConfigError if the shapes differ in more than the number of layers.
    """
    try:
        return resizing.lower_layers(params, fresh)
    except ValueError as error:
        raise config_lib.ConfigError(
            f"init.missing_generator='discriminator': {named}: {error}"
        ) from error


def _main_network(run, source, fresh):
    """Returns what is taken from `init.from`, by path: the main network, and a fitting generator.

    A missing or different part of the encoder raises ConfigError; a head of another kind stays
    fresh.
    """
    found = _fitted(run, source, source.params, fresh)
    # A generator is taken as a whole or not at all, below; a head only by one of its own kind.
    other_head = _role(source.params, "discriminator") != _role(fresh, "discriminator")
    apart = ("generator/", "discriminator/head/") if other_head else ("generator/",)
    taken = {path: x for path, x in found.items() if path in fresh and not path.startswith(apart)}

    for path in fresh:
        if path not in taken and not path.startswith(TRUNKS):
            continue
        check_main_shape(source.named, path, found, fresh)

    return taken | _correction(run, source, fresh) | _own_generator(run, source, found, fresh)


def _correction(run, source, fresh):
    """The head by which a discriminator corrects, if the source's main network predicts tokens.

    It is the same head, which reads the states that it was trained with. {} where it has no place.
    """
    theirs, ours = "discriminator/head/", "discriminator/correction/"
    if _role(source.params, "discriminator") != "predicts" or not _has(fresh, ours):
        return {}
    renamed = {
        path.replace(theirs, ours): x
        for path, x in source.params.items()
        if path.startswith(theirs)
    }
    found = _fitted(run, source, renamed, fresh)
    return {path: x for path, x in found.items() if path in fresh and x.shape == fresh[path].shape}


def _log_what_is_taken(source, taken, fresh, init):
    """Logs what of a run is taken from `init.from`, what stays fresh and what is lost."""
    logging.info("starting from the weights of %s%s", source.named, _fresh_parts(fresh, taken))

    # Heads and generators that have no place here change nothing in what the others compute. Any
    # other parameter left behind does, so it is reported.
    other_head = _role(source.params, "discriminator") != _role(fresh, "discriminator")
    no_loss = ("discriminator/head/",) if other_head else ()
    same_head = _role(fresh, "generator") == _role(source.params, "generator")
    if not _has(fresh, "generator/") or not same_head or init.generator_from:
        no_loss += ("generator/",)
    if _has(fresh, "discriminator/embeddings_delta/"):
        no_loss += ("generator/embeddings/",)  # became the tables, or their generator is not taken
    behind = sorted(
        path
        for path in source.params.keys() - fresh.keys()
        if not path.startswith((*no_loss, "generator/head/"))
    )
    if behind:
        logging.warning(
            "%s: this run has no parameters for %s, so what they did there is lost; look at"
            " model.sharing and the other settings of model", source.named, ", ".join(behind[:5]),
        )  # fmt: skip


def check_main_shape(
    named: str, path: str, found: Mapping[str, Any], fresh: Mapping[str, Any]
) -> None:
    """Raises ConfigError if the parameter of the main network at this path has another shape."""
    theirs = found[path].shape if path in found else "not there"
    if theirs != fresh[path].shape:
        what = "encoder" if path.startswith(TRUNKS) else "main network"
        raise config_lib.ConfigError(
            f"{named} has no {what} of this shape: {path} is {theirs}, here"
            f" {fresh[path].shape}; give model.* the shapes of that run"
        )


def _own_generator(run, source, found, fresh):
    """Returns the source's generator if all of it has a place here; {} if kind or shape differs."""
    if not _has(fresh, "generator/"):
        return {}
    if _role(source.params, "generator") != _role(fresh, "generator"):
        return {}

    ours = [path for path in fresh if path.startswith("generator/")]
    # Its own tables and the baseline may be missing: it predicts without them.
    needed = [path for path in ours if not path.startswith(_BESIDE_A_GENERATOR)]
    if any(path not in found or found[path].shape != fresh[path].shape for path in needed):
        return {}
    taken = {path: found[path] for path in ours if path in found}

    # Where the source's networks share tables, its generator reads those.
    shared = {
        path: source.params[path.removeprefix("generator/")]
        for path in ours
        if path not in found and path.removeprefix("generator/") in source.params
    }
    for path, x in _fitted(run, source, shared, fresh).items():
        if x.shape == fresh[path].shape:
            taken[path] = jnp.copy(x)  # a training step donates the memory of each array once
    return taken


def _tables_of_its_generator(run, source, taken, fresh):
    """Tables of the source's generator and the deltas to its main network's, for a run with gdes.

    An export of such a run has both tables, each as its network reads it. {} if this run has no
    deltas, or if the source's generator has no tables of its own or is not taken.
    """
    if not _has(fresh, "discriminator/embeddings_delta/") or not _has(taken, _ENCODER):
        return {}
    own = {
        path.removeprefix("generator/"): x
        for path, x in source.params.items()
        if path.startswith("generator/embeddings/")
    }
    tables = _fitted(run, source, own, fresh)
    return tables | _deltas_kept(run, taken, tables, fresh)


def _deltas_kept(run, taken, generator, fresh):
    """Deltas, by path, that keep the main network of `init.from` beside the generator's tables.

    With gdes the main network reads the sum of the generator's tables and of its own deltas, so the
    deltas take up the difference. Without, a warning says that its tables were replaced.
    """
    deltas, replaced = {}, []
    for path in sorted(generator.keys() & taken.keys()):
        if not path.startswith("embeddings/"):
            continue
        was, now = _on_host(taken[path], run.mesh), _on_host(generator[path], run.mesh)
        if np.array_equal(was, now):
            continue
        delta = f"discriminator/embeddings_delta/{path.removeprefix('embeddings/')}"
        if delta in fresh:
            own = _on_host(taken[delta], run.mesh) if delta in taken else 0.0
            deltas[delta] = jnp.asarray(was + own - now)
        else:
            replaced.append(path)

    if replaced:
        logging.warning(
            "init.generator_from=%r: its %s replaces that of init.from, which the main network was"
            " trained with; model.sharing='gdes' or 'none' keeps both",
            run.init.generator_from, ", ".join(replaced),
        )  # fmt: skip
    return deltas


def _role(leaves, network):
    """Returns what a network's head does, by its parameters' paths; None without a head.

    As `trained_weights.role_of`, which knows no network of two towers: only a run takes one.
    """
    if _has(leaves, f"{network}/left/"):
        return "towers"
    role = trained_weights.role_of(leaves, network)
    return role if role != "encodes" else None


def _generator(run, source, fresh):
    """Returns the generator that `init.generator_from` names, with its tables, by path.

    Raises ConfigError unless it predicts masked tokens, has an encoder of its own and fits.
    """
    network = "generator" if _has(source.params, "generator/") else "discriminator"
    role = _role(source.params, network)
    if role != "predicts":
        raise no_generator(source.named, network, role)

    prefix = f"{network}/"
    own = {
        path.removeprefix(prefix): x for path, x in source.params.items() if path.startswith(prefix)
    }
    if not _has(own, "encoder/"):
        raise config_lib.ConfigError(
            f"{source.named} shares one encoder between its networks; take a run whose generator is"
            " its own"
        )
    # The tables that it reads: its own, or those that it shares with the main network.
    read = own if _has(own, "embeddings/") else source.params
    read = {path: x for path, x in read.items() if path.startswith("embeddings/")}
    # Where they go depends on this run's parameters, not on model.sharing: an objective without a
    # generator has one set of tables in any case.
    tables = "generator/embeddings" if _has(fresh, "generator/embeddings/") else "embeddings"
    found = {f"generator/{path}": x for path, x in own.items() if path not in read}
    found |= {f"{tables}/{path.removeprefix('embeddings/')}": x for path, x in read.items()}

    found = _fitted(run, source, found, fresh)
    needed = [
        path
        for path in fresh
        if path.startswith(("generator/", f"{tables}/"))
        and not path.startswith("generator/baseline/")  # stays fresh: it predicts no tokens
    ]

    for path in needed:
        check_generator(source.named, path.removeprefix("generator/"), found.get(path), fresh)
    logging.info("the generator is that of %s", source.named)
    return {path: found[path] for path in needed}


def no_generator(named: str, network: str, role: str | None) -> config_lib.ConfigError:
    """The error for weights without a network that predicts tokens.

    Args:
      named: what messages call the weights.
      network: that would be the generator.
      role: of that network.
    """
    who = "generator" if network == "generator" else "only network"
    does = _DOES.get(role, "has no head")
    return config_lib.ConfigError(
        f"{named} has no generator to take: its {who} {does}; take a run with a generator that"
        " predicts masked tokens, one of objective.name='masked_lm', or a folder whose config.json"
        " names such a class (BertForMaskedLM)"
    )


def check_generator(
    named: str, path: str, theirs: jax.Array | None, fresh: Mapping[str, Any]
) -> None:
    """Raises ConfigError if a generator's parameter, named without its network, does not fit."""
    ours = f"generator/{path}" if f"generator/{path}" in fresh else path  # a table that is shared
    if theirs is None or theirs.shape != fresh[ours].shape:
        there = "not there" if theirs is None else theirs.shape
        raise config_lib.ConfigError(
            f"{named} has no generator of this shape: {ours} is {there}, here"
            f" {fresh[ours].shape}; give model.generator the shapes of that run"
        )


def _missing_generator(run, source, taken, fresh):
    """Returns the parameters of a generator that the source lacks, by path.

    With init.missing_generator='discriminator' it begins as the lowest layers of the discriminator,
    with its tables, and with its head if that predicts tokens; {} if nothing is missing or if the
    generator begins fresh. The head of a masked language model of three layers on the first of them
    began at 4.67 nats, a fresh one at 10.13; after 240 steps they were at 4.43 and 4.89.
    """
    needed = [path for path in fresh if path.startswith(_ENCODER)]
    if not needed or all(path in taken for path in needed):
        return {}
    if run.init.missing_generator == "fresh":
        logging.info("%s has no such generator: it begins fresh", source.named)
        return {}

    taken = lower_layers(source.named, source.params, fresh)
    layers = next(len(x) for path, x in taken.items() if path.startswith(f"{_ENCODER}attention"))

    if _has(fresh, "generator/embeddings/"):  # the networks share no tables
        tables = {
            f"generator/{path}": x
            for path, x in source.params.items()
            if path.startswith("embeddings/")
        }
        tables = _fitted(run, source, tables, fresh)
        taken |= {
            path: x for path, x in tables.items() if path in fresh and x.shape == fresh[path].shape
        }
    head = _head_of_discriminator(run, source, fresh)
    logging.info(
        "%s has no such encoder of a generator: it begins as the lowest %d layers of the"
        " discriminator%s",
        source.named, layers, ", with its head" if head else "",
    )  # fmt: skip
    taken |= head
    # Copies, since a training step donates the memory of each array once.
    return {path: jnp.copy(x) for path, x in taken.items()}


def _head_of_discriminator(run, source, fresh):
    """The head of the source's discriminator for the generator, by path; {} if it does not fit."""
    theirs = "discriminator/head/"
    if _role(source.params, "discriminator") != "predicts":
        return {}
    head = {
        f"generator/head/{path.removeprefix(theirs)}": x
        for path, x in source.params.items()
        if path.startswith(theirs)
    }
    head = _fitted(run, source, head, fresh)
    fits = all(path in fresh and x.shape == fresh[path].shape for path, x in head.items())
    return head if fits else {}


def _fitted(run, source, found, fresh):
    """Returns the source's arrays with tables by token and by position in this run's sizes."""
    fitted, mesh = dict(found), run.mesh
    # Sorted, since `_on_host` is a collective operation: all processes need the same order.
    for path in sorted(found.keys() & fresh.keys()):
        x, ours = found[path], fresh[path]
        if x.shape[1:] != ours.shape[1:]:
            continue  # another width, which resizing rows cannot fix
        if source.tokens is not None and path.endswith(resizing.BY_TOKEN):
            fitted[path] = resizing.rows(_on_host(x, mesh), _on_host(ours, mesh), source.tokens)
        elif path.endswith(resizing.BY_POSITION) and x.shape != ours.shape:
            how = run.init.longer_positions
            fitted[path] = resizing.positions(_on_host(x, mesh), _on_host(ours, mesh), how)
            verb = how if len(x) < len(ours) else "cut"
            logging.info("%s: %d positions become %d, %s", path, len(x), len(ours), verb)
    return fitted


def _with_moments(run, source, fresh, as_trained, leaves):
    """Returns the optimizer's arrays by path, with the source's moments.

    Args:
      fresh: the optimizer's arrays before the first step, by path.
      as_trained: paths of the parameters that the run has as the source trained them; the moments
        of others stay fresh.
      leaves: all parameters by path.

    Raises ConfigError if the source has no moments.
    """
    if source.moments is None:
        raise starting_weights.no_moments(source.named)

    found, left, mesh = dict(fresh), set(), run.mesh
    for path, zeros in fresh.items():
        param = starting_weights.parameter_of(path, leaves)
        x = source.moments.get(path)
        if x is None or param is not None and param not in as_trained:
            left.add(param or path)
            continue
        if param is not None and param.endswith(resizing.BY_TOKEN) and source.tokens is not None:
            x = resizing.kept_rows(_on_host(x, mesh), _on_host(zeros, mesh), source.tokens)
        elif param is not None and param.endswith(resizing.BY_POSITION) and x.shape != zeros.shape:
            how = run.init.longer_positions
            x = resizing.kept_positions(_on_host(x, mesh), _on_host(zeros, mesh), how)

        if x.shape != zeros.shape:
            left.add(param or path)
            continue
        found[path] = x

    names = {starting_weights.parameter_of(path, leaves) or path for path in fresh}
    logging.info(
        "the optimizer continues with the moments of %s%s",
        source.named, _fresh_parts(sorted(names), names - left),
    )  # fmt: skip
    return found


def _placed(leaves, like):
    """Returns `leaves` as a tree like `like`, with the same sharding for each array."""
    paths = jax.tree_util.tree_leaves_with_path(like)
    placed = [jax.device_put(leaves[trees.path_name(path)], x.sharding) for path, x in paths]
    return jax.tree.unflatten(jax.tree.structure(like), placed)


def _on_host(x, mesh):
    """Returns an array as numpy on this host, even if it lies on devices of several hosts."""
    if isinstance(x, jax.Array) and not x.is_fully_addressable:
        x = jax.device_put(x, sharding.replicated(mesh))
    return np.asarray(x)


def _has(leaves, prefix):
    return any(path.startswith(prefix) for path in leaves)


def _fresh_parts(leaves, taken):
    """Returns the end of a log line on what stays fresh: '; fresh: generator/head', or ''.

    Whole subtrees of which nothing was taken are named by their common path.
    """
    parts = {}
    for path in leaves:
        if path in taken:
            continue

        names = path.split("/")
        for depth in range(min(2, len(names)), len(names) + 1):
            part = "/".join(names[:depth])
            if part == path or not _has(taken, f"{part}/"):
                break
        parts[part] = None
    return f"; fresh: {', '.join(parts)}" if parts else ""
