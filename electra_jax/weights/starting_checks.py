# SPDX-License-Identifier: Apache-2.0
"""Refusing what the section `init` names before text is prepared, which may take hours.

`starting_weights.open` and `warm_start.state` refuse the same and more, but only when the run's
vocabulary is known. Here only metadata are read: those of a checkpoint or an export, config.json
and vocabulary of a Hugging Face folder. What they do not tell is left to `open` and `state`. The
exception are Google's checkpoints, whose shapes are those of their arrays.
"""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping

import jax
import numpy as np
from absl import logging

from electra_jax import config as config_lib
from electra_jax.core import trees
from electra_jax.data import planning
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.host import staging
from electra_jax.model import networks
from electra_jax.step import plans
from electra_jax.weights import (
    hub,
    reading,
    reading_foreign,
    starting_weights,
    trained_weights,
    warm_start,
)
from electra_jax.workdir import metadata, prepared_data, saved_config


def check(config: config_lib.Config) -> None:
    """Raises ConfigError or CheckpointError if a run cannot begin with the weights of `init`."""
    check_paths(config.init)
    check_parts(config)
    check_shapes(config)
    check_vocabularies(config)


def check_paths(init: config_lib.Init) -> None:
    """Raises ConfigError or CheckpointError if there are no weights at the paths of `init`.

    Of Hugging Face's folders the files that hold them must be there.
    """
    for setting, path in _given(init):
        path = staging.copied(path, setting, config_lib.ConfigError)
        if metadata.steps(metadata.directory(path)):
            continue
        if reading.is_foreign(path):
            reading_foreign.check_tensors(hub.folder(path) if hub.is_address(path) else path)
            continue
        if not starting_weights.is_folder(path):
            raise starting_weights.nothing_there(setting, path)
        _refuse_tuned(setting, path)
        if why := reading_foreign.why_no_network(path):
            raise config_lib.ConfigError(f"{setting}: {why}")
        if os.path.exists(os.path.join(path, saved_config.NAME)):
            raise config_lib.ConfigError(
                f"{setting}={path!r} is a workdir without a checkpoint; train it first, or name"
                " another"
            )
        metadata.read(path)


def check_parts(config: config_lib.Config) -> None:
    """Raises ConfigError if the weights lack the averages or the moments that `init` asks for.

    The moments of Google's files are left to `starting_weights.open`.
    """
    init = config.init
    for setting, path in _given(init):
        path = staging.copied(path, setting, config_lib.ConfigError)
        if reading.is_foreign(path):
            if init.weights == "ema":
                raise starting_weights.no_averages(path)
            continue
        for about in _newest_metadata(path):
            if init.weights == "ema" and not starting_weights.holds(about, "ema"):
                raise starting_weights.no_averages(path)
            if init.optimizer == "restored" and setting == "init.from":
                named, trained = f"{setting}={path!r}", config_lib.parse_saved(about["config"])
                if not starting_weights.holds(about, "optimizer"):
                    raise starting_weights.no_moments(named)
                starting_weights.check_optimizer_name(
                    named, ours=config.optimizer.name, theirs=trained.optimizer.name
                )
            break


def check_vocabularies(config: config_lib.Config) -> None:
    """Raises ConfigError if the run's vocabulary is known not to be that of the weights.

    Known are a vocabulary that `data.vocab` names as a file, and the kind and the size of one that
    is trained.
    """
    init, section = config.init, config.data
    if init.new_tokens != "refuse":
        return

    for setting, path in _given(init):
        found = _vocabulary_ahead(setting, path)
        if found is None:
            continue
        sha256, theirs = found
        named = f"{setting}={path!r}"
        if section.added_pieces:
            raise config_lib.ConfigError(
                f"{named} has a vocabulary of its own, to which"
                f" data.added_pieces={section.added_pieces} adds; let the new pieces begin as the"
                " mean of those that spell them: init.new_tokens='mean'"
            )
        if not section.vocab.startswith("train:"):
            vocabulary = planning.load_vocabulary(planning.DataSettings.of(section, config.seed))
            starting_weights.check_init_vocabulary(named, init, sha256, vocabulary, theirs)
        elif theirs is None and (where := _of_other_text(path, section)):
            raise config_lib.ConfigError(
                f"{named} has a vocabulary of its own, and data.vocab={section.vocab!r} would train"
                f" another on other text; give data.vocab={where!r}, or take its tokens along into"
                " the new one: init.new_tokens='mean'"
            )
        elif theirs is not None and not _may_be_trained(section.vocab, theirs):
            raise config_lib.ConfigError(
                f"{named} has a vocabulary of its own, of {theirs.size:,} pieces, and"
                f" data.vocab={section.vocab!r} would train another; give data.vocab its file"
                f" ({vocabulary_lib.FILES[theirs.kind]}), or take its tokens along into the new"
                " one: init.new_tokens='mean'"
            )


def check_shapes(config: config_lib.Config) -> None:
    """Raises ConfigError if the encoders that `init` names have other shapes than this run's.

    A checkpoint without readable metadata is left to `warm_start.state`, and so is a generator of
    an export or of Google's.
    """
    init, ours = config.init, _any_vocabulary(config)
    leaves = _leaves(ours)
    has_generator = config.objective.name not in (*config_lib.WITHOUT_GENERATOR, "electric")

    if init.from_:
        named = f"init.from={init.from_!r}"
        shape, theirs, _ = _networks_ahead("init.from", init.from_, ours)
        if shape is not None:
            found, fresh = _main_shapes(shape), _main_shapes(ours)
            for path in fresh:
                if path.startswith(warm_start.TRUNKS) or path in found:
                    warm_start.check_main_shape(named, path, found, fresh)
            _warn_of_other_attention(named, shape.discriminator, ours.discriminator)
        # A generator that is not taken as it is becomes the lowest layers of the main network.
        if theirs and has_generator and init.missing_generator == "discriminator":
            if not _same_encoder(theirs, leaves):
                warm_start.lower_layers(named, theirs, leaves)

    if init.generator_from and has_generator:
        named = f"init.generator_from={init.generator_from!r}"
        _, theirs, roles = _networks_ahead("init.generator_from", init.generator_from, ours)
        _check_predicts(named, roles)
        prefix = "generator/" if _has(theirs, "generator/") else "discriminator/"
        # One without an encoder of its own is refused with other words.
        if _has(theirs, f"{prefix}encoder/"):
            for ours_path in _generator_encoder(leaves):
                path = ours_path.removeprefix("generator/")
                warm_start.check_generator(named, path, theirs.get(prefix + path), leaves)


def _given(init):
    """(setting, path) of each of both settings that names weights."""
    named = (("init.from", init.from_), ("init.generator_from", init.generator_from))
    return [(setting, path) for setting, path in named if path]


def _refuse_tuned(setting, path):
    """Raises ConfigError if a path is that of a task that fine-tuning has left, or its weights."""
    weights = os.path.join(path, "weights")
    newest = [os.path.join(weights, str(number)) for number in metadata.steps(weights)[-1:]]
    for folder in (path, *newest):
        with contextlib.suppress(metadata.CheckpointError):
            if task := metadata.read(folder).get("task"):
                raise config_lib.ConfigError(
                    f"{setting}={path!r} holds weights that were fine-tuned for {task}, and a run"
                    " begins with those of pre-training; name the workdir or export that the task"
                    " was tuned from"
                )


def _newest_metadata(path: str) -> Iterator[Mapping]:
    """Yields the metadata of a workdir's checkpoints, newest first, or those of one checkpoint."""
    folder = metadata.directory(path)
    if not metadata.steps(folder):
        yield metadata.read(path)
    for _, about in metadata.readable(folder):
        yield about


def _vocabulary_ahead(setting, path):
    """(hash, the vocabulary if it can be read) of weights that are not read; None if not known."""
    path = staging.copied(path, setting, config_lib.ConfigError)
    folder = metadata.directory(path)
    if metadata.steps(folder):
        return next(((about["vocabulary"], None) for _, about in metadata.readable(folder)), None)
    theirs = reading.vocabulary_of_hugging_face(path)
    return None if theirs is None else (theirs.sha256, theirs)


def _of_other_text(path, section):
    """The vocabulary in a workdir whose run was trained on another source than this one, or ''."""
    workdir = staging.copied(path, "init.from", config_lib.ConfigError)
    about = next(_newest_metadata(workdir))
    if config_lib.parse_saved(about["config"]).data.source == section.source:
        return ""  # the same text may give the same vocabulary
    return os.path.join(path, prepared_data.VOCABULARY)


def _may_be_trained(vocab, theirs):
    """Whether training could give this vocabulary, as for weights of a run on the same text."""
    kind, size = planning.trained_kind(vocab)
    return theirs.kind == kind and theirs.size <= size


def _networks_ahead(setting, path, ours):
    """(the shapes of the networks at a path or None, arrays without content by path, roles).

    The arrays are {} for exports and Google's checkpoints. Those of Hugging Face's folders are
    without tables, and their heads may be others: what each does is its role, {} elsewhere.
    """
    path = staging.copied(path, setting, config_lib.ConfigError)
    if reading.is_foreign(path):
        pair = reading.pair_of_hugging_face(path)
        if pair is None:
            return (reading.shape(path) if setting == "init.from" else None), {}, {}
        roles, leaves = pair.roles(), _leaves(pair.shape)
        return pair.shape, {n: x for n, x in leaves.items() if n.partition("/")[0] in roles}, roles

    for about in _newest_metadata(path):
        trained = config_lib.parse_saved(about["config"])
        shape = _any_vocabulary(trained)
        held = {name.partition("/")[2] for name in about["digest"]}
        leaves = {name: x for name, x in _leaves(shape).items() if name in held}
        whole = functools.partial(
            warm_start.own_layers, there=shape.shared_layers, here=ours.shared_layers
        )
        return shape, _without_content(jax.eval_shape(whole, leaves)), {}
    return None, {}, {}


def _leaves(shape):
    """The parameters of both networks by path, as arrays that have a shape and no content."""
    return _without_content(
        trees.flat(jax.eval_shape(lambda: networks.init(shape, jax.random.key(0))))
    )


def _without_content(shapes):
    """Arrays of these shapes, by path, that take no memory."""
    return {path: np.broadcast_to(np.float32(0), x.shape) for path, x in shapes.items()}


def _any_vocabulary(config):
    """The shapes of a run's networks but for the number of tokens."""
    return plans.networks_config(trained_weights.portable(config), vocab_size=1)


def _main_shapes(shape):
    """The shapes of the main network's encoder and tables, by path, for one token and position."""
    learned = min(1, shape.max_positions)
    shape = dataclasses.replace(shape, vocab_size=1, max_positions=learned)
    parts = (*warm_start.TRUNKS, "embeddings/")
    return {path: x for path, x in _leaves(shape).items() if path.startswith(parts)}


def _warn_of_other_attention(named, theirs, ours):
    """Warns if layers of the same shapes see other places of a row than those of the weights."""
    if theirs.positions != ours.positions:
        return  # the tables differ, which is reported with what is taken
    names = ["rotary_base"] if ours.positions == "rotary" else []
    names += ["local_window"]
    names += ["global_every"] if theirs.local_window and ours.local_window else []
    for name in names:
        there, here = getattr(theirs, name), getattr(ours, name)
        if there != here:
            logging.warning(
                "%s was trained with model.%s=%s, and this run has %s: at first the same weights"
                " compute something else", named, name, f"{there:,}", f"{here:,}",
            )  # fmt: skip


def _check_predicts(named, roles):
    """Raises ConfigError if Hugging Face's config.json says that no network predicts tokens."""
    network = "generator" if "generator" in roles else "discriminator"
    if roles and roles[network] != "predicts":
        raise warm_start.no_generator(named, network, roles[network])


def _generator_encoder(leaves):
    """The paths of a generator's encoder."""
    return [path for path in leaves if path.startswith("generator/encoder/")]


def _same_encoder(theirs, ours):
    """Whether both generators have encoders of the same shape."""
    return all(
        path in theirs and theirs[path].shape == ours[path].shape
        for path in _generator_encoder(ours)
    )


def _has(leaves, prefix):
    return any(path.startswith(prefix) for path in leaves)
