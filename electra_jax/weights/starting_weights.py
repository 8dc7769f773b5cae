# SPDX-License-Identifier: Apache-2.0
"""Opening the weights that a run begins with: what `init.from` and `init.generator_from` name.

    a workdir                  its newest checkpoint that can be read, else the one before it
    WORKDIR/checkpoints/STEP   this checkpoint
    anything else that `reading.open` knows: an export, a Hugging Face folder, hf:OWNER/NAME,
    Google's checkpoint

From each come the arrays by path, how its tokens grow if the vocabulary is another one, and Adam's
moments with init.optimizer='restored'. Everything that can be refused without looking at single
parameters is refused here; `warm_start` then puts the arrays into the run's first state.
`starting_checks` refuses earlier what can be known before text is prepared.
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import jax
from absl import logging
from jax.sharding import Mesh

from electra_jax import config as config_lib
from electra_jax.core import sharding, trees
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.host import processes, staging
from electra_jax.objectives.objective import Phase
from electra_jax.step import plans, train_step
from electra_jax.weights import (
    checkpoint,
    hub,
    reading,
    reading_workdir,
    resizing,
    trained_weights,
)
from electra_jax.workdir import metadata


@dataclasses.dataclass(frozen=True)
class FreshRun:
    """A run before its first step, which is to begin with trained weights."""

    init: config_lib.Init  # the section of the configuration
    optimizer: str  # its name in the configuration
    fresh: train_step.TrainState  # placed on the run's devices; or its shapes
    phases: tuple[Phase, ...]  # of the run's objective
    vocabulary: vocabulary_lib.Vocabulary
    mesh: Mesh | None = None  # None if only shapes are compared
    shared_layers: int = 0  # the lowest layers that both networks share


@dataclasses.dataclass(frozen=True)
class StartingWeights:
    """Weights that a setting names, with arrays by path."""

    named: str  # for messages: init.from='...'
    params: dict[str, jax.Array]
    tokens: resizing.Tokens | None  # None if the vocabulary is the same
    moments: dict[str, Any] | None  # by the paths of a fresh optimizer state; None if not read
    shared_layers: int = 0  # the lowest layers of its generator, which are the discriminator's


def open(setting: str, run: FreshRun) -> StartingWeights:
    """Opens a workdir, one checkpoint folder, or weights that no run of this package made.

    Averages are taken if the run was evaluated by them, unless `init.weights` says otherwise.

    Args:
      setting: 'init.from' or 'init.generator_from'.
      run: the run that begins with them.

    Raises ConfigError or CheckpointError.
    """
    init, vocabulary = run.init, run.vocabulary
    path = init.from_ if setting == "init.from" else init.generator_from
    path = staging.copied(path, setting, config_lib.ConfigError)
    named, wants = f"{setting}={path!r}", init.optimizer == "restored" and setting == "init.from"
    steps = processes.of_first(lambda: metadata.steps(metadata.directory(path)))

    # Each process looks on its own disk, which may lack what another one has.
    def looked_up():
        if steps:
            return None
        if reading.is_foreign(path):
            return reading.open(path)
        if not is_folder(path):
            raise nothing_there(setting, path)
        return path

    kinds = (config_lib.ConfigError, metadata.CheckpointError, ValueError, OSError)
    found = processes.agree(looked_up, *kinds)

    if isinstance(found, trained_weights.Weights):
        check_init_vocabulary(named, init, found.vocabulary.sha256, vocabulary, found.vocabulary)
        if init.weights == "ema":
            raise no_averages(path)
        tokens = _grown_tokens(named, found.vocabulary, vocabulary)
        moments = google_moments(named, found, run) if wants else None
        params, shared = trees.flat(found.params), found.networks.shared_layers
        return StartingWeights(named, params, tokens, moments, shared)
    if found is not None:
        return _of_checkpoint(named, found, wants, run)

    directory = metadata.directory(path)
    newest = metadata.newest_good(
        directory,
        steps,
        lambda folder: _of_checkpoint(named, folder, wants, run),
        named,
    )
    if newest is None:
        raise metadata.CheckpointError(
            f"{named}: no checkpoint in {directory} can be read; copy the workdir anew, or name"
            " another"
        )
    return newest[0]


def holds(about: Mapping, part: str) -> bool:
    """Whether a checkpoint with these metadata has this part: `ema`, `optimizer`."""
    return any(name.startswith(f"{part}/") for name in about["digest"])


def is_folder(path: str) -> bool:
    """Whether there may be a checkpoint: a folder of this machine, or one of a bucket."""
    return os.path.isdir(path) or bool(staging.address(path))


def check_vocabulary(
    about: Mapping, vocabulary: vocabulary_lib.Vocabulary, where: str, remedy: str = ""
) -> None:
    """Raises ConfigError if weights were trained with another vocabulary, that is other token ids.

    Args:
      about: the metadata of their checkpoint.
      where: what the message calls them.
      remedy: the end of the message.
    """
    if about["vocabulary"] != vocabulary.sha256:
        raise config_lib.ConfigError(
            f"{where} was trained with vocabulary {about['vocabulary'][:12]}, the data here has"
            f" {vocabulary.sha256[:12]}; give data.vocab the file that it was trained with{remedy}"
        )


def google_moments(named: str, found: trained_weights.Weights, run: FreshRun) -> dict[str, Any]:
    """Returns Adam's moments of Google's weights, by the paths of a fresh optimizer state.

    Args:
      named: what messages call the weights.
      found: the weights.
      run: the run that begins with them; shapes of its state are enough.

    Raises ConfigError if they have none, or if this run has another optimizer than theirs.
    """
    if found.moments is None:
        raise no_moments(named)
    # Google's code trains all parameters together with its own AdamW.
    _check_optimizer(named, run, "reference_adamw", [("joint", None)])

    leaves, moments = trees.flat(run.fresh.params), {}
    for path in trees.flat(run.fresh.optimizer):
        param = parameter_of(path, leaves)
        kind = path.removesuffix(f"/{param}").rpartition("/")[2]
        if param in found.moments.get(kind, {}):
            moments[path] = found.moments[kind][param]
    return moments


def parameter_of(path: str, leaves: Mapping[str, Any]) -> str | None:
    """Returns the parameter that a path of the optimizer state belongs to; None for a counter.

    For example `embeddings/token` for `1/mu/embeddings/token`.

    Args:
      leaves: the parameters by path.
    """
    parts = path.split("/")
    ends = ("/".join(parts[n:]) for n in range(1, len(parts)))
    return next((end for end in ends if end in leaves), None)


def no_averages(path: str) -> config_lib.ConfigError:
    """Returns the error for weights without averages where averages were asked for."""
    return config_lib.ConfigError(
        f"init.weights='ema', but {path} holds no averages; use 'auto' or 'raw'"
    )


def no_moments(named: str) -> config_lib.ConfigError:
    """Returns the error for weights without moments where moments were asked for."""
    return config_lib.ConfigError(
        f"init.optimizer='restored', but {named} holds no moments; use 'fresh'"
    )


def _of_checkpoint(named, folder, wants, run) -> StartingWeights:
    """Reads a checkpoint of this package; `wants` asks for the optimizer's moments too."""
    about = processes.agree(lambda: metadata.read(folder), metadata.CheckpointError)
    trained = config_lib.parse_saved(about["config"])
    init, vocabulary = run.init, run.vocabulary
    check_init_vocabulary(named, init, about["vocabulary"], vocabulary)

    old = vocabulary
    if about["vocabulary"] != vocabulary.sha256:
        old = processes.agree(
            lambda: _old_vocabulary(named, folder, trained, about["vocabulary"]),
            config_lib.ConfigError,
        )

    tokens = _grown_tokens(named, old, vocabulary)
    averaged = holds(about, "ema")
    if init.weights == "ema" and not averaged:
        raise no_averages(folder)

    part = "ema" if averaged and init.weights != "raw" else "params"
    shapes = {part: reading_workdir.stored_shapes(trained, old, about["digest"], part)}

    moments = None
    if wants and holds(about, "optimizer"):
        plan = plans.make_plan(trained_weights.portable(trained), old)
        theirs = [(phase.name, phase.trains) for phase in plan.objective.phases]
        _check_optimizer(named, run, trained.optimizer.name, theirs)

        shapes["optimizer"] = plan.state_shapes.optimizer
        if part == "ema":
            logging.warning("%s: moments of the last weights beside averages; init.weights='raw'"
                            " takes those that they belong to", named)  # fmt: skip

    abstract = trees.shapes_at(shapes, sharding.shardings(shapes, run.mesh))
    tree = checkpoint.restore(folder, abstract).tree
    if "optimizer" in shapes:
        moments = trees.flat(tree["optimizer"])
    shared = plans.networks_config(trained, old.size).shared_layers
    return StartingWeights(named, trees.flat(tree[part]), tokens, moments, shared)


def _old_vocabulary(named, folder, trained, sha256):
    """Returns the vocabulary of a checkpoint. Raises ConfigError if it cannot be found."""
    # Of a workdir in a bucket its copy, in which the vocabulary is.
    workdir = os.path.dirname(os.path.dirname(os.path.abspath(staging.local(folder))))
    try:
        return reading_workdir.vocabulary_of(workdir, trained, sha256)[0]
    except config_lib.ConfigError as error:
        raise config_lib.ConfigError(
            f"init.new_tokens='mean' needs the vocabulary {sha256[:12]} of {named}, which is gone;"
            f" copy the folder vocab of its prepared data to {workdir}/vocab"
        ) from error


def _grown_tokens(named, old, vocabulary):
    """Returns how the tables by token are made from the old ones; None for the same vocabulary."""
    if old.sha256 == vocabulary.sha256:
        return None
    tokens = resizing.tokens(old, vocabulary)
    logging.info("%s: of %d tokens here %s", named, vocabulary.size, tokens)
    return tokens


def check_init_vocabulary(
    named: str,
    init: config_lib.Init,
    sha256: str,
    vocabulary: vocabulary_lib.Vocabulary,
    theirs: vocabulary_lib.Vocabulary | None = None,
) -> None:
    """Raises ConfigError if the run's vocabulary is another one and `init` refuses that.

    Args:
      named: what messages call the weights.
      init: the section of the configuration.
      sha256: the hash of the weights' vocabulary.
      vocabulary: the run's.
      theirs: that of the weights, if it can be read.
    """
    if init.new_tokens != "refuse" or sha256 == vocabulary.sha256:
        return
    if theirs is not None and theirs.pieces == vocabulary.pieces:
        raise config_lib.ConfigError(
            f"{named} and the data here have the same pieces, but {_unlike(theirs, vocabulary)}"
        )
    remedy = ", or take its tokens along into another vocabulary: init.new_tokens='mean'"
    check_vocabulary({"vocabulary": sha256}, vocabulary, named, remedy)


def _unlike(theirs, ours):
    """How two vocabularies of the same pieces differ, and the remedy."""
    if theirs.kind != ours.kind:
        files = vocabulary_lib.FILES
        return (
            f"it reads them from {files[theirs.kind]} and data.vocab is {files[ours.kind]}, which"
            f" may cut text otherwise; give data.vocab its {files[theirs.kind]}"
        )
    for setting in ("lower_case", "strip_accents"):
        if getattr(theirs, setting) != getattr(ours, setting):
            return (
                f"it has {setting}={getattr(theirs, setting)}; set"
                f" data.{setting}={getattr(theirs, setting)}"
            )
    return "normalise text otherwise; give data.vocab the file that it was trained with"


def _check_optimizer(named, run, name, theirs):
    """Raises ConfigError unless moments come from the same optimizer over the same parameters."""
    check_optimizer_name(named, run.optimizer, name)
    ours = [(phase.name, phase.trains) for phase in run.phases]
    if theirs != ours:
        raise config_lib.ConfigError(
            f"init.optimizer='restored': {named} was trained in the phases"
            f" {', '.join(name for name, _ in theirs)}, this objective has others or trains other"
            " parameters in them; use init.optimizer='fresh'"
        )


def check_optimizer_name(named: str, ours: str, theirs: str) -> None:
    """Raises ConfigError if the moments would be those of another optimizer."""
    if ours != theirs:
        raise config_lib.ConfigError(
            f"init.optimizer='restored': {named} was trained with optimizer.name={theirs!r}, not"
            f" {ours!r}; set that, or init.optimizer='fresh'"
        )


def nothing_there(setting: str, path: str) -> config_lib.ConfigError:
    """Returns the error for a path that holds no weights."""
    return config_lib.ConfigError(
        f"{setting}={path!r} is neither a workdir with checkpoints nor a checkpoint folder, nor an"
        f" export, nor a Hugging Face folder, nor a TensorFlow checkpoint{hub.meant(path)}"
    )
