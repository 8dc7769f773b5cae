# SPDX-License-Identifier: Apache-2.0
"""A run before its first step: data, networks, compiled functions, and the state to go on from."""

import collections
import dataclasses
import json
import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from absl import logging
from jax import numpy as jnp
from jax.sharding import Mesh

from electra_jax import config as config_lib
from electra_jax.config import stages
from electra_jax.core import metrics, sharding
from electra_jax.data import pipeline, preparation, records, vocabulary
from electra_jax.host import processes, safe_files
from electra_jax.step import build, evaluation, train_step
from electra_jax.training import budget
from electra_jax.weights import checkpoint_series, starting_weights, warm_start
from electra_jax.workdir import metadata, prepared_data

SPENT = "spent.json"  # in the workdir of a run that went back: `note_spent`


@dataclasses.dataclass(frozen=True)
class Stage:
    """What steps work with while rows have one length and come so many a step."""

    config: config_lib.Config  # of a run that has such rows from its first step on
    records: records.Records
    objective: Any
    update: Callable
    evaluate: Callable


@dataclasses.dataclass(frozen=True)
class _Programs:
    """The jitted functions of one row length, and what was said when they were made."""

    step: build.Step
    init: Callable
    update: Callable
    evaluate: Callable
    warnings: tuple[str, ...]


_PROGRAMS_KEPT = 4  # in a process; a run has one for each length of its rows
_kept_programs: collections.OrderedDict[tuple, _Programs] = collections.OrderedDict()


@dataclasses.dataclass
class Run:
    """The parts of one run. What moves is `state`, what was added up since the last log, and
    `number`, the stage that the next step belongs to."""

    config: config_lib.Config
    workdir: str
    mesh: Mesh
    vocabulary: vocabulary.Vocabulary
    stages: tuple[Stage, ...]
    number: int
    rows_by_stage: list[int]  # taken so far
    rollbacks: list[dict]  # behind which spikes the run went back, see `bad_steps`
    abstract: train_step.TrainState
    state: train_step.TrainState
    interval: metrics.Sums
    restored: bool

    @property
    def stage(self) -> Stage:
        """That of the next step."""
        return self.stages[self.number]

    @property
    def records(self) -> records.Records:
        """Of the stage."""
        return self.stage.records

    @property
    def objective(self) -> Any:
        """With the slots that rows of the stage have."""
        return self.stage.objective

    @property
    def update(self) -> Callable:
        """One step on rows of the stage."""
        return self.stage.update

    @property
    def evaluate(self) -> Callable:
        """The same without learning."""
        return self.stage.evaluate


def start(config: config_lib.Config, workdir: str) -> Run:
    """Everything before the first step: data, parts, and a state from the first of these:

    1. this workdir's newest good checkpoint (exactly where it stopped, data position included);
    2. the weights that `init` names, and their optimizer's moments if it says so, at step 0;
    3. fresh weights.
    """
    for line in config_lib.unread(config):
        logging.warning("%s", line)
    mesh = build.mesh(config)  # refuses a batch that does not divide before any data is touched
    folders = prepare(config, workdir)
    words = vocabulary.load(os.path.join(folders[0], preparation.VOCABULARY))
    parts, programs = _stages(config, folders, words, mesh)
    step = programs.step
    real = [1 - part.records.manifest.wasted_fraction for part in parts]
    counts = stages.steps(config, real)
    if line := build.peak_not_reached(config, counts and sum(counts)):
        logging.warning("%s", line)
    abstract = _placed(step.shapes, step.where)
    interval = _zero_interval(step.update, step.shapes, config, mesh)
    with checkpoints_of(config, workdir) as saved:
        like = saved_tree(abstract, placed_like(interval))
        restored = saved.restore_latest(like, optional="interval")  # it may be from before a metric
    if restored is not None:
        starting_weights.check_vocabulary(restored.metadata, words, workdir)
        tree = dict(restored.tree)
        interval = interval | tree.pop("interval")
        state = train_step.TrainState(**tree)
        logging.info("resuming from step %d of %s", restored.step, workdir)
        state = _with_spent(state, restored.step, workdir)
    else:
        state = programs.init()
        if config.init.from_ or config.init.generator_from:
            begins = _with_own_weights(config, workdir)
            state = warm_start.state(begins, state, step.objective.phases, words, mesh)
    seen = train_step.words_to_int(jax.device_get(state.rows_seen))
    about = {} if restored is None else restored.metadata
    return Run(
        config=config,
        workdir=workdir,
        mesh=mesh,
        vocabulary=words,
        stages=parts,
        number=budget.stage_of(config.schedule, state),
        rows_by_stage=list(about.get("rows_by_stage", [seen] + [0] * (len(parts) - 1))),
        rollbacks=list(about.get("rollbacks", [])),
        abstract=abstract,
        state=state,
        interval=interval,
        restored=restored is not None,
    )


def prepare(config: config_lib.Config, workdir: str) -> list[str]:
    """The folders of prepared data, one a stage, made now if they are not there; one process makes
    them.

    A run that has checkpoints goes on with the data that it recorded, whatever became of its
    source. A new one takes what its source is now, or what was prepared for it beforehand where
    the source is out of reach. Without a shared file system every process makes its own, which
    comes out equal.
    """
    record, begun = _recorded(workdir)
    if record is not None and not prepared_data.is_of(config, record):
        # Another run's, which keeps its own if it has trained.
        folders = _from_source(config, workdir)
        if not begun:
            _record(config, workdir, folders)
        return folders

    changed = (
        "" if record is None else processes.of_first(lambda: prepared_data.changed(config, record))
    )
    out_of_reach = bool(changed) and not processes.of_first(lambda: _in_reach(config))
    gone = not begun and not processes.of_first(lambda: _is_there(config, workdir, record))
    if record is None or ((changed or gone) and not begun and not out_of_reach):
        folders = _from_source(config, workdir)
        _check_trained_on(folders, workdir)
        _record(config, workdir, folders)
        return folders

    if changed:
        logging.info("%s; this run goes on with the data that was prepared for it", changed)
    folders = _as_recorded(config, workdir, record)
    _check_trained_on(folders, workdir)
    processes.of_first(lambda: prepared_data.keep_vocabulary(workdir, folders[0]))
    return folders


def data_root(config: config_lib.Config, workdir: str) -> str:
    """Where prepared data lies, a folder for each hash of settings."""
    return prepared_data.root(config, workdir)


def data_settings(config: config_lib.Config, workdir: str) -> Iterator[preparation.Settings]:
    """How the rows of each stage are made: all with the vocabulary of the first, which has to be
    prepared before the second is asked for."""
    first = stage_settings(config, workdir, 0)
    yield first
    for number in range(1, len(stages.of(config))):
        folder = preparation.folder_of(first, data_root(config, workdir))
        yield stage_settings(config, workdir, number, folder)


def stage_settings(
    config: config_lib.Config, workdir: str, number: int, first_folder: str = ""
) -> preparation.Settings:
    """How the rows of one stage are made; later ones take the vocabulary of the first's folder."""
    whole = preparation.Settings.from_config(config)
    settings = preparation.Settings.from_config(stages.config_of(config, number))
    words = prepared_data.own_vocabulary(config, workdir)
    longer = settings.sequence_length != whole.sequence_length
    if longer and words.startswith("train:"):
        words = os.path.join(first_folder, preparation.VOCABULARY)
    return dataclasses.replace(settings, vocab=words)


def heldout(run_records: records.Records, limit: int) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """(name, ids, marks) of each source's first held-out rows."""
    sources = []
    for index, source in enumerate(run_records.manifest.sources):
        rows = pipeline.heldout(run_records, index, limit)
        if len(rows.ids):
            sources.append((source.name, rows.ids, rows.marks))
    return sources


def checkpoints_of(config: config_lib.Config, workdir: str) -> checkpoint_series.Checkpoints:
    """The checkpoints of a workdir, kept as the configuration says."""
    c = config.checkpoint
    return checkpoint_series.Checkpoints(
        os.path.join(workdir, "checkpoints"), c.keep_last, c.keep_every
    )


def saved_tree(state: train_step.TrainState, interval: metrics.Sums) -> dict:
    """What a checkpoint holds: the state's fields, and the sums since the last log."""
    fields = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    kept = {name: value for name, value in fields.items() if value is not None}
    return kept | {"interval": interval}


def metadata_of(run: Run) -> dict:
    """The JSON beside a checkpoint: what it was made with."""
    return {
        "config": config_lib.to_tree(run.config),
        "stage": run.number,
        "rows_by_stage": list(run.rows_by_stage),  # it is written while the run goes on
        "rollbacks": run.rollbacks,
        "data": run.records.manifest.hash,
        "vocabulary": run.vocabulary.sha256,
        "jax": jax.__version__,
    }


def note_spent(workdir: str, step: int, state: train_step.TrainState) -> None:
    """Keeps the time of a run that ends by going back to a checkpoint, which knows less of it.

    The checkpoint stays as it is; without the note the next start would train those minutes again.
    """
    if jax.process_index() == 0 and state.seconds is not None:
        note = {"step": step, "seconds": float(state.seconds)}
        note |= {"check": _check_of(note)}
        safe_files.write(os.path.join(workdir, SPENT), json.dumps(note).encode())


def _check_of(note):
    return zlib.crc32(json.dumps(note, sort_keys=True).encode())


def _with_spent(state, step, workdir):
    """The state of this checkpoint, with the time that was spent behind it in vain."""
    if state.seconds is None:
        return state

    def noted():
        path = os.path.join(workdir, SPENT)
        try:
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
            if found.pop("check", None) not in (None, _check_of(found)):  # None: an older version
                raise ValueError("a digit of it changed")
            return float(found["seconds"]) if found["step"] == step else 0.0  # later ones know it
        except FileNotFoundError:
            return 0.0
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            logging.warning("%s cannot be read; minutes that were given up may be trained", path)
            return 0.0

    return budget.with_seconds(state, max(float(state.seconds), processes.of_first(noted)))


def _recorded(workdir):
    """(the record of the run's data or None, whether the run has checkpoints), as process 0 sees
    them."""

    def look():
        found = prepared_data.read(workdir)
        return [found and dataclasses.asdict(found), _has_trained(workdir)]

    tree, begun = processes.of_first(look)
    if tree is None:
        return None, begun
    parts = tuple(prepared_data.Prepared(**part) for part in tree.pop("stages"))
    return prepared_data.Record(**tree, stages=parts), begun


def _has_trained(workdir):
    """Whether a run left checkpoints here, damaged ones too; weights to begin with are none."""
    directory = os.path.join(workdir, "checkpoints")
    for step in metadata.steps(directory):
        try:
            about = metadata.read(os.path.join(directory, str(step)))
        except metadata.CheckpointError:
            return True
        if metadata.WEIGHTS_ONLY not in about:
            return True
    return False


def _record(config, workdir, folders):
    processes.of_first(lambda: prepared_data.write(config, workdir, folders))


def _is_there(config, workdir, record):
    """Whether all rows that a record names are where they should be."""
    parts = () if record is None else record.stages
    return all(prepared_data.folder(config, workdir, part) is not None for part in parts)


def _in_reach(config):
    """Whether there is anything to prepare from."""
    try:
        preparation.check_sources(preparation.Settings.from_config(config))
    except (ValueError, OSError):
        return False
    return True


def _from_source(config, workdir):
    root = data_root(config, workdir)
    return [_everywhere(_made(each, root)) for each in data_settings(config, workdir)]


def _made(settings, root):
    return lambda: preparation.prepare(settings, root, logging.info)


def _as_recorded(config, workdir, record):
    """The folders that a record names; rows that are gone are made again if they come out equal."""
    folders = []
    for number, part in enumerate(record.stages):
        settings = stage_settings(config, workdir, number, folders[0] if folders else "")

        def find(part=part, settings=settings):
            there = prepared_data.folder(config, workdir, part)
            return there or _made_again(config, workdir, part, settings)

        folders.append(_everywhere(find))
    return folders


def _made_again(config, workdir, part, settings):
    """Rows that were recorded and are not there, from their source. Raises ConfigError."""
    root = data_root(config, workdir)
    try:
        now = os.path.basename(preparation.folder_of(settings, root))
    except ValueError as error:
        raise config_lib.ConfigError(
            prepared_data.missing(config, workdir, part, f", and its source neither: {error}")
        ) from error
    if now == part.folder:
        folder = preparation.prepare(settings, root, logging.info)
        if records.read_manifest(folder).hash == part.hash:
            return folder
    raise config_lib.ConfigError(
        prepared_data.missing(
            config, workdir, part,
            f", and {settings.source} is not what it was prepared from: files or packages changed",
        )
    )  # fmt: skip


def _everywhere(find) -> str:
    """The folder of one stage's rows; when the first process has it, the others look for it."""
    first = jax.process_index() == 0
    waits_for = "to prepare the data"
    made = processes.agree(lambda: find() if first else "", ValueError, OSError, doing=waits_for)
    folder = processes.agree(lambda: made or find(), ValueError, OSError)
    found = processes.agree(lambda: records.open(folder), ValueError, OSError)
    hashes = processes.gather(found.manifest.hash)
    for number, other in enumerate(hashes):
        if other != hashes[0]:
            raise config_lib.ConfigError(
                f"process {number} has prepared data {other[:12]} and process 0 {hashes[0][:12]};"
                " give all of them the same text and packages, or one data.dir that all see"
            )
    return folder


def _stages(config, folders, words, mesh) -> tuple[tuple[Stage, ...], _Programs]:
    """The parts of each stage, and the programs of the first."""
    stages_found, programs_by_length = [], {}
    for number, folder in enumerate(folders):
        opened = records.open(folder)
        _check_records(opened, words)
        settings = stages.config_of(config, number)
        length = settings.data.sequence_length

        if length not in programs_by_length:  # another batch is the same program for other shapes
            programs_by_length[length] = _programs(settings, words, mesh, opened.unigram()[0])
            if number == 0:
                for line in programs_by_length[length].warnings:
                    logging.warning("%s", line)
        programs = programs_by_length[length]
        stages_found.append(
            Stage(settings, opened, programs.step.objective, programs.update, programs.evaluate)
        )
    return tuple(stages_found), programs_by_length[config.data.sequence_length]


def forget_programs() -> None:
    """Lets go of the programs that the last runs of this process left for the next one."""
    _kept_programs.clear()


def _programs(settings, words, mesh, unigram_V) -> _Programs:
    """The jitted functions of these settings; a run like one before it in this process, as in a
    notebook that goes on with a stopped one, takes those and does not trace and compile again."""
    c = settings
    made_of = (
        c.model,
        c.objective,
        c.optimizer,
        c.schedule,
        c.mesh,
        c.seed,
        c.data.sequence_length,
    )
    about_data = (words.sha256, unigram_V.tobytes())
    key = (build.objective, made_of, about_data, mesh)
    if key in _kept_programs:
        _kept_programs.move_to_end(key)
        return _kept_programs[key]

    warnings: list[str] = []
    step = build.step(settings, words, mesh, unigram_V, warnings.append)
    programs = _Programs(
        step=step,
        init=jax.jit(step.init, out_shardings=step.where),
        update=train_step.compile_update(step.update, step.shapes, mesh),
        evaluate=evaluation.compile_evaluate(
            step.objective, words.pad_id, unigram_V, mesh, step.where.params
        ),
        warnings=tuple(warnings),
    )
    _kept_programs[key] = programs
    while len(_kept_programs) > _PROGRAMS_KEPT:
        _kept_programs.popitem(last=False)
    return programs


def _check_records(opened: records.Records, words: vocabulary.Vocabulary) -> None:
    manifest = opened.manifest
    if manifest.vocabulary["sha256"] != words.sha256:
        raise config_lib.ConfigError(
            f"the records were made with vocabulary {manifest.vocabulary['sha256'][:12]}, not with"
            f" {words.sha256[:12]} which lies beside them; delete the folder and prepare again"
        )


def _with_own_weights(config, workdir):
    """Weights that were converted into this workdir are its beginning, wherever it was moved."""
    own = processes.of_first(lambda: metadata.steps(os.path.join(workdir, "checkpoints")))
    if not (own and config.init.from_):
        return config
    return dataclasses.replace(config, init=dataclasses.replace(config.init, from_=workdir))


def _newest_metadata(workdir):
    """Of the newest checkpoint that says anything; nothing where none does."""
    directory = os.path.join(workdir, "checkpoints")
    for step in reversed(metadata.steps(directory)):
        try:
            return metadata.read(os.path.join(directory, str(step)))
        except metadata.CheckpointError:
            continue
    return {}


def _check_trained_on(folders, workdir):
    """A run goes on with the rows that its checkpoint was trained on, or not at all."""
    about = processes.of_first(lambda: _newest_metadata(workdir))
    trained_on = about.get("data")  # none where weights alone were converted
    hashes = [records.read_manifest(folder).hash for folder in folders]
    if trained_on and trained_on not in hashes:
        raise config_lib.ConfigError(
            f"{workdir} was trained on prepared data {trained_on[:16]}, here is {hashes[0][:16]};"
            f" copy back its {prepared_data.RECORD} and the data that it names, or choose another"
            f" --workdir and --config.init.from={workdir}"
        )


def _zero_interval(update, shapes, config, mesh) -> metrics.Sums:
    size = (config.data.batch_size, config.data.sequence_length)
    lanes = {
        "ids": jax.ShapeDtypeStruct(size, jnp.uint16),
        "marks": jax.ShapeDtypeStruct(size, jnp.uint8),
    }
    sums = jax.eval_shape(update, shapes, lanes)[1].sums

    def zeros():
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), sums)

    return jax.jit(zeros, out_shardings=sharding.replicated(mesh))()


def _placed(shapes, where):
    return jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, where
    )


def placed_like(tree):
    """Shapes with the shardings that the arrays have."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree)
