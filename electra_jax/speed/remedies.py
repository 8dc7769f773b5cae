# SPDX-License-Identifier: Apache-2.0
"""Which settings are tried for a configuration on a topology, in which order, and until when.

    fits, but recomputes values   -> less of model.remat
    does not fit                  -> single settings; if none of them makes it fit, pairs
    rows cannot be split          -> the smallest mesh.tensor with which they can be; if it does not
                                     fit then, single settings and pairs as above, beside it

For TPUs a program that does not fit is refused within seconds, and one that fits takes minutes to
compile. So the values of a setting are tried from the mildest on, and the first that fits is the
last that is tried. `model.remat`, `mesh.fsdp` and `schedule.accumulation` are each tried alone. If
none of them is enough, `mesh.tensor` follows, which adds exchanges within each layer, and then the
pairs; there the first trial that fits ends the search. Only settings are tried that suit the rows
of all stages. If a trial is refused nevertheless, its problem is reported and the search continues.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator

import ml_collections

from electra_jax import config as config_lib
from electra_jax.config import row_split, stages
from electra_jax.speed import ahead_of_time, chips

Compile = Callable[[ml_collections.ConfigDict], ahead_of_time.StepOnChips]
Changes = dict[str, object]  # by path: {"model.remat": "full"}
REMAT = ("none", "dots", "full")  # from the least that is recomputed to the most


@dataclasses.dataclass(frozen=True)
class Trial:
    """Changed settings and what compiling with them gave; no change: the configuration itself."""

    changes: Changes
    found: ahead_of_time.StepOnChips

    def __str__(self) -> str:
        return " ".join(f"--config.{path}={value}" for path, value in self.changes.items())


def trials(
    tree: ml_collections.ConfigDict,
    topology: chips.Topology,
    compile_: Compile,
    try_remedies: bool,
    announce: Callable[[str], None] = lambda line: None,
) -> Iterator[Trial]:
    """Compiles the configuration and, if `try_remedies`, settings that may suit it better.

    `announce` gets a line before anything beside the configuration itself is compiled. If the rows
    of a step or of an evaluation cannot be split, the first trial is not compiled: that is its
    problem.

    Raises ConfigError if the configuration itself does not suit the topology.
    """

    def attempt(changes):
        try:
            return Trial(changes, compile_(_changed(tree, changes)))
        except config_lib.ConfigError as error:
            return Trial(changes, ahead_of_time.StepOnChips(problem=str(error)))

    undivided = _undivided(tree, topology)
    if problem := undivided or _evaluation_undivided(tree, topology):
        first = Trial({}, ahead_of_time.StepOnChips(problem=problem))
    else:
        first = Trial({}, compile_(_changed(tree, {})))
    yield first
    if not try_remedies:
        return

    if first.found.fits(topology.chip):
        if milder := [{"model.remat": kind} for kind in REMAT[: REMAT.index(tree.model.remat)]]:
            announce("it fits; trying whether it still does if the backward pass recomputes less")
        yield from _until_one_fits(milder, attempt, topology)
    elif undivided:
        yield from _with_splittable_rows(tree, topology, attempt, announce)
    elif first.found.peak:
        yield from _until_it_fits(tree, topology, attempt, {}, announce)


def _with_splittable_rows(tree, topology, attempt, announce):
    """Trials for rows that cannot be split: more devices share the same rows, if that helps."""
    tensor = row_split.dividing_tensor(_parsed(tree), topology.chips, topology.slices)
    if tensor is None:
        return

    announce("its rows cannot be split; trying mesh.tensor, with which they can")
    base = {"mesh.data": -1, "mesh.tensor": tensor}
    trial = attempt(base)
    yield trial
    if trial.found.peak and not trial.found.fits(topology.chip):
        yield from _until_it_fits(_changed(tree, base), topology, attempt, base, announce)


def _until_it_fits(tree, topology, attempt, base, announce):
    """Trials of changes that may make a configuration fit; `base` is changed in `tree` already."""
    recompute, split, accumulate = (
        [base | changes for changes in candidates]
        for candidates in (_recompute(tree), _split(tree, topology), _accumulate(tree, topology))
    )
    products = [base | changes for changes in _split_products(tree, topology)]
    if recompute or split or accumulate or products:
        announce("it does not fit; trying what may make it fit")

    one_fits = False
    for candidates in (recompute, split, accumulate):
        for trial in _until_one_fits(candidates, attempt, topology):
            one_fits |= trial.found.fits(topology.chip)
            yield trial

    # Only if nothing has fitted. The first setting of a pair has its strongest value, which alone
    # was not enough.
    further = [
        products,
        *(
            [strong[-1] | changes for changes in mild]
            for strong, mild in ((recompute, accumulate), (recompute, split), (split, accumulate))
            if strong
        ),
    ]
    for candidates in further:
        for trial in _until_one_fits([] if one_fits else candidates, attempt, topology):
            one_fits |= trial.found.fits(topology.chip)
            yield trial


def _until_one_fits(
    candidates: Iterable[Changes], attempt: Callable[[Changes], Trial], topology: chips.Topology
) -> Iterator[Trial]:
    """A trial of each candidate in turn, up to the first that fits."""
    for changes in candidates:
        trial = attempt(changes)
        yield trial
        if trial.found.fits(topology.chip):
            return


def _undivided(tree, topology):
    """Why the rows of a step cannot be split over the mesh on these chips; '' if they can."""
    parts = _row_devices(tree, topology)
    if not parts:
        return ""
    return row_split.refused(_parsed(tree), parts, topology.chips, topology.slices)


def _evaluation_undivided(tree, topology):
    """The same of the rows of an evaluation: what fits here must not be refused by a run."""
    parts = _row_devices(tree, topology)
    return row_split.evaluation_refused(_parsed(tree), parts) if parts else ""


def _row_devices(tree, topology):
    """The number of parts that the mesh splits rows into; 0 if these chips cannot form the mesh.

    That is not judged here: compiling refuses it.
    """
    mesh = tree.mesh
    data = mesh.data if mesh.data > 0 else topology.chips // (mesh.fsdp * mesh.tensor)
    return data * mesh.fsdp if data * mesh.fsdp * mesh.tensor == topology.chips else 0


def _parsed(tree):
    return config_lib.parse(ml_collections.ConfigDict(tree.to_dict()))


def _changed(tree, changes):
    """A copy of the settings with some changed."""
    copy = ml_collections.ConfigDict(tree.to_dict())
    for path, value in changes.items():
        section, field = path.split(".")
        copy[section][field] = value
    return copy


def _recompute(tree):
    for kind in REMAT[REMAT.index(tree.model.remat) + 1 :]:
        yield {"model.remat": kind}


def _split(tree, topology):
    """More chips that share one copy of the state: up to a host's 8, then up to a slice's."""
    for size in (2, 4, 8, 16, 32, 64):
        free = topology.chips_per_slice // tree.mesh.tensor
        if tree.mesh.fsdp < size <= free and free % size == 0:
            yield {"mesh.data": -1, "mesh.fsdp": size}


def _accumulate(tree, topology):
    """Micro-batches: numbers of them with which each chip still has whole rows in all stages."""
    ways, run_stages = topology.chips // tree.mesh.tensor, stages.distinct(_parsed(tree))
    for count in (2, 4, 8, 16):
        divided = all(stage.batch_size % (ways * count) == 0 for stage in run_stages)
        if count > tree.schedule.accumulation and divided:
            yield {"schedule.accumulation": count}


def _split_products(tree, topology):
    """More chips that share the products of a layer, with whole heads of the main network each."""
    free, heads = topology.chips_per_slice // tree.mesh.fsdp, tree.model.discriminator.heads
    for size in (2, 4, 8, 16):
        if tree.mesh.tensor < size <= free and free % size == 0 and heads % size == 0:
            yield {"mesh.data": -1, "mesh.tensor": size}
