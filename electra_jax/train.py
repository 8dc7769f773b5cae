# SPDX-License-Identifier: Apache-2.0
"""The run: build the parts, restore, loop, evaluate, save, report. Side effects, no maths.

Reading order from here: `build.py` (what is chosen), `train_step.py` (one step),
`objectives/replaced_token_detection.py` (the method), `corrupt.py`, `model/`.
"""

import contextlib
import dataclasses
import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from absl import logging
from jax import numpy as jnp
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from electra_jax import (
    accounting,
    build,
    checkpoint,
    evaluation,
    lock,
    logs,
    metrics,
    report,
    samples,
    sharding,
    train_step,
    view,
    writers,
)
from electra_jax import config as config_lib
from electra_jax.data import pipeline, preparation, records, vocabulary

SAMPLES = 8  # rows shown in the report
SKIPS = 3  # non-finite steps in a row that end a run


class TrainingError(RuntimeError):
    """Training cannot go on; the message is one line."""


@dataclasses.dataclass
class Run:
    """The parts of one run. What moves is `state`, and what was added up since the last log."""

    config: config_lib.Config
    workdir: str
    mesh: Mesh
    records: records.Records
    vocabulary: vocabulary.Vocabulary
    objective: Any
    update: Callable
    evaluate: Callable
    abstract: train_step.TrainState
    state: train_step.TrainState
    interval: metrics.Sums
    restored: bool


def train(
    config, workdir: str | os.PathLike, extra_writers: Sequence[writers.Writer] = ()
) -> dict[str, float | None]:
    """Pre-trains to `schedule.steps` and returns the final held-out metrics.

    What `python -m electra_jax.main` does, for a notebook.

    Args:
      config: an ml_collections tree such as `configs/tiny.py` returns, or a parsed Config.
      workdir: where checkpoints, metrics and the report go; a second call goes on from there.
      extra_writers: anything with `write(step, kind, metrics)` and `close()`; it gets every row
        that goes to metrics.jsonl.

    Raises:
      ConfigError, CheckpointError, TrainingError: one line each, with the remedy.
    """
    if not isinstance(config, config_lib.Config):
        config = config_lib.parse(config)
    workdir = os.fspath(workdir)
    logs.show()
    with contextlib.ExitStack() as stack:
        if jax.process_index() == 0:
            stack.enter_context(
                lock.hold(
                    os.path.join(workdir, "run.lock"), f"workdir {workdir}", config_lib.ConfigError
                )
            )
            stack.enter_context(logs.file(os.path.join(workdir, "log.txt")))
        _cache_compilations()
        _same_everywhere(config)
        _continue_or_begin(config, workdir)
        run = start(config, workdir)
        stop = stack.enter_context(_stop_on_signals())
        return _loop(run, stop, extra_writers)


def start(config: config_lib.Config, workdir: str) -> Run:
    """Everything before the first step: data, parts, and a state from the first of these:

    1. this workdir's newest good checkpoint (exactly where it stopped, data position included);
    2. the weights that `init.from` names (a fresh optimizer, step 0);
    3. fresh weights.
    """
    mesh = build.mesh(config)  # refuses a batch that does not divide before any data is touched
    data = prepare(config, workdir)
    opened = records.open(data)
    words = vocabulary.load(os.path.join(data, "vocab"))
    _check_records(config, opened, words)
    objective = build.objective(config, words, mesh)
    optimizer = build.optimizer_of(config)
    key = build.run_key(config)

    def init():
        return train_step.init_state(objective, optimizer, key)

    shapes = jax.eval_shape(init)
    where = sharding.shardings(shapes, mesh, logging.warning)
    abstract = _placed(shapes, where)
    update = train_step.make_update(
        objective,
        optimizer,
        build.rate(config),
        key,
        words.pad_id,
        config.schedule.accumulation,
        sharding.while_used(mesh),
    )
    interval = _zero_interval(update, shapes, config, mesh)
    with _checkpoints(config, workdir) as saved:
        restored = saved.restore_latest(saved_tree(abstract, placed_like(interval)))
    if restored is not None:
        _check_vocabulary(restored.metadata, words, workdir)
        tree = dict(restored.tree)
        interval = tree.pop("interval")
        state = train_step.TrainState(**tree)
        logging.info("resuming from step %d of %s", restored.step, workdir)
    else:
        state = jax.jit(init, out_shardings=where)()
        if config.init.from_:
            params = initial_params(config.init.from_, abstract.params, words)
            state = dataclasses.replace(state, params=params)
            logging.info("starting from the weights of %s", config.init.from_)
    return Run(
        config=config,
        workdir=workdir,
        mesh=mesh,
        records=opened,
        vocabulary=words,
        objective=objective,
        update=train_step.compile_update(update, shapes, mesh),
        evaluate=evaluation.compile_evaluate(
            objective, words.pad_id, opened.unigram()[0], mesh, where.params
        ),
        abstract=abstract,
        state=state,
        interval=interval,
        restored=restored is not None,
    )


def prepare(config: config_lib.Config, workdir: str) -> str:
    """The folder of prepared data, made now if it is not there; one process makes it.

    Without a shared file system every process makes its own, which comes out equal.
    """
    root = config.data.dir or os.path.join(workdir, "data")
    settings = preparation.Settings.from_config(config)
    if jax.process_index() == 0:
        folder = preparation.prepare(settings, root, logging.info)
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices("data prepared")
        if jax.process_index() != 0:
            folder = preparation.prepare(settings, root, logging.info)
        digest = np.frombuffer(bytes.fromhex(records.open(folder).manifest.hash), np.uint32)
        multihost_utils.assert_equal(digest, "processes prepared different data")
    return folder


def initial_params(path: str, abstract: dict, words: vocabulary.Vocabulary) -> dict:
    """The parameters of another workdir's newest checkpoint, or of one checkpoint folder."""
    found = checkpoint.steps(os.path.join(path, "checkpoints"))
    if found:
        path = os.path.join(path, "checkpoints", str(found[-1]))
    if not os.path.isdir(path):
        raise config_lib.ConfigError(
            f"init.from={path!r} is neither a workdir with checkpoints nor a checkpoint folder"
        )
    about = checkpoint.metadata(path)
    _check_vocabulary(about, words, path)
    return checkpoint.restore(path, {"params": abstract}).tree["params"]


def heldout(run_records: records.Records, limit: int) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """(name, ids, marks) of each source's first held-out rows."""
    sources = []
    for index, source in enumerate(run_records.manifest.sources):
        rows = pipeline.heldout(run_records, index, limit)
        if len(rows.ids):
            sources.append((source.name, rows.ids, rows.marks))
    return sources


def _loop(run: Run, stop: "_Stop", extra_writers) -> dict[str, float | None]:
    """Steps, and now and then a log line, an evaluation, a checkpoint, a report - in this order,
    so that what a checkpoint follows has been written, and a resumed run writes nothing twice."""
    c = run.config
    first = int(run.state.step)
    order = pipeline.Order(run.records, c.seed)
    rows_seen = train_step.words_to_int(jax.device_get(run.state.rows_seen))
    feed = Feed(run, order, rows_seen)
    out = _Output(run, first, extra_writers)
    add = jax.jit(metrics.add)
    checks, skipped, final = None, 0, {}
    with feed, _checkpoints(c, run.workdir) as saved, out:
        for step in range(first + 1, c.schedule.steps + 1):
            lanes = next(feed)
            run.state, measured = run.update(run.state, lanes)
            run.interval = add(run.interval, measured.sums)
            # The step before this one is read while this one runs: the device never waits.
            skipped = _count_skips(skipped, checks, step - 1, rows_seen, c)
            checks = measured.checks
            last = step == c.schedule.steps or stop.requested(step)
            if step == first + 1:
                out.first_step_done(step)
            if step % c.logging.every == 0 or step == c.schedule.steps:
                skipped = _count_skips(skipped, checks, step, rows_seen, c)
                checks = None
                out.log(step)
            if step % c.evaluation.every == 0 or step == c.schedule.steps:
                with out.off_the_clock():
                    final = out.evaluate(step)
            if step % c.checkpoint.every == 0 or last:
                with out.off_the_clock():
                    saved.save(step, saved_tree(run.state, run.interval), _metadata(run))
            if step % c.logging.report_every == 0 and not last:
                with out.off_the_clock():
                    out.report("running")
            if last:
                break
        if first >= c.schedule.steps:
            logging.info("nothing to do: step %d of %d is reached", first, c.schedule.steps)
            final = out.evaluate(first, write=False)
        saved.wait()
        finished = int(run.state.step) >= c.schedule.steps
        out.report("finished" if finished else "stopped")
    if not finished:
        logging.info("stopped and saved at step %d; the same command goes on", int(run.state.step))
    return final


class _Output:
    """Everything that a run says, on the first process."""

    def __init__(self, run: Run, first: int, extra_writers: Sequence[writers.Writer]):
        self._run, self._c = run, run.config
        self._speaks = jax.process_index() == 0
        self._writers: list[writers.Writer] = []
        self._path = os.path.join(run.workdir, "metrics.jsonl")
        if self._speaks:
            lines = writers.JsonLines(self._path)
            lines.drop_after(first)
            self._writers = [lines, writers.Console(self._c.schedule.steps), *extra_writers]
            if self._c.logging.tensorboard:
                where = os.path.join(run.workdir, "tensorboard")
                self._writers.append(writers.TensorBoard(where, first if run.restored else None))
        self._heldout = heldout(run.records, self._c.evaluation.rows)
        self._order = pipeline.Order(run.records, self._c.seed)
        self._begun = self._clock = time.monotonic()
        self._clock_step, self._tokens = first, self._tokens_seen()
        self._flops = accounting.flops(
            run.objective.networks, self._c.data.sequence_length, run.objective.slots
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for writer in self._writers:
            writer.close()

    def first_step_done(self, step: int) -> None:
        """Compilation is over: the clock of tokens per second starts here."""
        jax.block_until_ready(self._run.state.step)
        logging.info("first step after %.1f s", time.monotonic() - self._begun)
        self._clock, self._clock_step, self._tokens = time.monotonic(), step, self._tokens_seen()

    @contextlib.contextmanager
    def off_the_clock(self):
        """Leaves out of the speed what is done inside."""
        begun = time.monotonic()
        yield
        self._clock += time.monotonic() - begun

    def log(self, step: int) -> None:
        """Writes the means since the last log and starts adding up anew."""
        run = self._run
        values = evaluation.with_loss(metrics.compute(jax.device_get(run.interval)), run.objective)
        run.interval = jax.tree.map(jnp.zeros_like, run.interval)
        now, tokens = time.monotonic(), self._tokens_seen()
        steps = max(1, step - self._clock_step)
        seconds = max(now - self._clock, 1e-9)
        device = jax.devices()[0].device_kind
        peak = accounting.peak(device)
        flops = self._flops.train * self._c.data.batch_size * steps / seconds
        values |= {
            "tokens_seen": tokens,
            "tokens_per_second": (tokens - self._tokens) / seconds,
            "step_seconds": seconds / steps,
            "mfu": flops / (peak * jax.device_count()) if peak else None,
            "epoch": self._order.epoch(train_step.words_to_int(run.state.rows_seen)),
            "skipped_steps": int(run.state.skipped_steps),
        }
        self._write(step, "train", values)
        self._clock, self._clock_step, self._tokens = time.monotonic(), step, tokens

    def evaluate(self, step: int, write: bool = True) -> dict[str, float | None]:
        """Held-out metrics of the state as it is."""
        run, c = self._run, self._c
        values = evaluation.run(
            run.evaluate,
            run.objective,
            run.state.params,
            self._heldout,
            c.evaluation.batch_size or c.data.batch_size,
            run.vocabulary.pad_id,
            run.mesh,
        )
        values["unigram_entropy"] = run.records.manifest.unigram_entropy
        values["tokens_seen"] = self._tokens_seen()
        if write:
            self._write(step, "eval", values)
        return values

    def report(self, status: str) -> None:
        """Draws report.html and report.png anew."""
        if not self._speaks or not os.path.exists(self._path):
            return
        rows = writers.read(self._path)
        report.write(self._run.workdir, rows, summary(self._run, status, rows))

    def _write(self, step, kind, values):
        for writer in self._writers:
            writer.write(step, kind, values)

    def _tokens_seen(self):
        return train_step.words_to_int(jax.device_get(self._run.state.tokens_seen))


def summary(run: Run, status: str, rows: Sequence[Mapping]) -> report.Summary:
    """What the report says beside the curves."""
    c, manifest = run.config, run.records.manifest
    fragments = []
    if jax.process_count() == 1:  # other processes are not here to help with the networks
        name, ids, marks = heldout(run.records, SAMPLES)[0]
        shown = samples.examples(
            dataclasses.replace(run.objective, rowwise=lambda function: function),
            run.state.params,
            run.vocabulary,
            ids,
            marks,
            jax.random.key(evaluation.KEY),
        )
        fragments = [view.to_html(example) for example in shown]
    return report.Summary(
        name=c.name,
        status=status,
        steps=c.schedule.steps,
        device=f"{jax.device_count()} x {jax.devices()[0].device_kind}",
        elapsed_seconds=sum(
            row["step_seconds"] * gap for row, gap in _gaps(rows) if row.get("step_seconds")
        ),
        parameters=accounting.parameters(run.state.params),
        config=config_lib.flatten(c),
        corpus=_corpus(manifest),
        samples=fragments,
    )


def _corpus(manifest: records.Manifest) -> dict:
    """The manifest's facts that a reader of the report wants."""
    return {
        "sources": ", ".join(source.spec for source in manifest.sources),
        "vocabulary": f"{manifest.vocabulary['kind']}, {manifest.vocabulary['size']:,} pieces",
        **manifest.totals,
        "padding": f"{manifest.wasted_fraction:.2%} of all places",
        "unknown tokens": f"{manifest.unk_rate:.4%}",
        "unigram_entropy": f"{manifest.unigram_entropy:.3f} nats",
        "hash": manifest.hash[:16],
    }


def _gaps(rows):
    """Each training row with the steps that it stands for."""
    before = 0
    for row in rows:
        if row["kind"] == "train":
            yield row, row["step"] - before
            before = row["step"]


class Feed:
    """Batches on the devices, loaded ahead in a thread; each process reads the rows it holds."""

    def __init__(self, run: Run, order: pipeline.Order, rows_seen: int):
        self._order, self._rows_seen = order, rows_seen
        self._where = sharding.rows(run.mesh)
        self._shape = (run.config.data.batch_size, run.config.data.sequence_length)
        self._prefetch = pipeline.Prefetch(self._load, 0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self) -> None:
        """Ends the thread."""
        self._prefetch.close()

    def __next__(self):
        return next(self._prefetch)

    def _load(self, number: int) -> dict[str, jax.Array]:
        size = self._shape[0]
        first = self._rows_seen + number * size
        read: dict[tuple[int, int], pipeline.Rows] = {}

        def rows(index):
            start, end, _ = index[0].indices(size)
            if (start, end) not in read:
                read[start, end] = self._order.take(first + start, end - start)
            return read[start, end]

        def lane(name):
            return jax.make_array_from_callback(
                self._shape, self._where, lambda index: getattr(rows(index), name)
            )

        return {"ids": lane("ids"), "marks": lane("marks")}


def _continue_or_begin(config: config_lib.Config, workdir: str) -> None:
    """Compares with the workdir's config.json, or writes it; refuses another run's settings."""
    path = os.path.join(workdir, "config.json")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            old = config_lib.parse(json.load(file))
        changed, refused = config_lib.differences(old, config)
        if refused:
            raise config_lib.ConfigError(
                f"workdir {workdir} holds a run with other settings: {'; '.join(refused)}; choose"
                f" another --workdir, and --config.init.from={workdir} to start from its weights"
            )
        for text in changed:
            logging.info("changed since this run began: %s", text)
    if jax.process_index() == 0:
        temporary = path + ".partial"
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(config_lib.to_json(config))
        os.replace(temporary, path)


def _cache_compilations() -> None:
    """Keeps compiled programs in the user's cache folder, unless jax was told of another one.

    A step takes half a minute to compile on two cores and a second to load.
    """
    if not jax.config.jax_compilation_cache_dir:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        jax.config.update("jax_compilation_cache_dir", os.path.join(cache, "electra_jax", "xla"))


def _same_everywhere(config: config_lib.Config) -> None:
    """Processes with different settings would each train something else: refused on all."""
    if jax.process_count() > 1:
        text = config_lib.to_json(config).encode()
        words = np.frombuffer(text[: len(text) // 4 * 4], np.uint32)
        sums = np.array([len(text), words.sum(dtype=np.uint32)], np.uint32)
        multihost_utils.assert_equal(sums, "processes were started with different settings")


def _check_records(config, opened: records.Records, words: vocabulary.Vocabulary) -> None:
    manifest = opened.manifest
    if manifest.vocabulary["sha256"] != words.sha256:
        raise config_lib.ConfigError(
            f"the records were made with vocabulary {manifest.vocabulary['sha256'][:12]}, not with"
            f" {words.sha256[:12]} which lies beside them; delete the folder and prepare again"
        )


def _check_vocabulary(about: Mapping, words: vocabulary.Vocabulary, where: str) -> None:
    if about["vocabulary"] != words.sha256:
        raise config_lib.ConfigError(
            f"{where} was trained with vocabulary {about['vocabulary'][:12]}, the data here has"
            f" {words.sha256[:12]}; give data.vocab the file that it was trained with"
        )


def _metadata(run: Run) -> dict:
    return {
        "config": config_lib.to_tree(run.config),
        "data": run.records.manifest.hash,
        "vocabulary": run.vocabulary.sha256,
        "jax": jax.__version__,
    }


def _checkpoints(config: config_lib.Config, workdir: str) -> checkpoint.Checkpoints:
    c = config.checkpoint
    return checkpoint.Checkpoints(os.path.join(workdir, "checkpoints"), c.keep_last, c.keep_every)


def saved_tree(state: train_step.TrainState, interval: metrics.Sums) -> dict:
    """What a checkpoint holds: the state's fields, and the sums since the last log."""
    fields = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    return fields | {"interval": interval}


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
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree)


def _count_skips(skipped, checks, step, rows_seen, config) -> int:
    """How many steps in a row were not finite; TrainingError where that is enough."""
    if checks is None:
        return skipped
    bad = {name: float(x) for name, x in jax.device_get(checks).items() if not np.isfinite(x)}
    if not bad:
        return 0
    name, value = next(iter(bad.items()))
    size = config.data.batch_size
    first = (step - 1) * size
    logging.warning(
        "step %d skipped: %s is %s (rows %d to %d)", step, name, value, first, first + size - 1
    )
    if skipped + 1 >= SKIPS:
        raise TrainingError(
            f"{SKIPS} steps in a row were not finite, the last at step {step}: {name} is {value},"
            f" rows {first} to {first + size - 1}; the checkpoints before are good; lower"
            " optimizer.learning_rate or lengthen schedule.warmup_steps in a new workdir"
        )
    return skipped + 1


class _Stop:
    """Whether a signal asked the run to save and end."""

    def __init__(self):
        self.asked = False

    def requested(self, step: int) -> bool:
        """True on every process at the same step."""
        if jax.process_count() > 1:
            return multihost_utils.reached_preemption_sync_point(step)
        return self.asked


@contextlib.contextmanager
def _stop_on_signals():
    """SIGTERM and the first Ctrl-C ask for an orderly end; the second Ctrl-C is an interrupt.

    With several processes SIGTERM is left to jax, which lets all of them stop at one step.
    """
    stop = _Stop()
    if jax.process_count() > 1:
        yield stop
        return

    def ask(number, _):
        if stop.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.asked = True
        logging.info("%s: saving and stopping", signal.Signals(number).name)

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    except ValueError:  # not the main thread, as in some notebooks: signals are not ours there
        yield stop
        return
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
