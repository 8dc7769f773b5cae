# SPDX-License-Identifier: Apache-2.0
"""Whole runs on real text, real tokenizer, real checkpoints: begin, stop, continue, refuse."""

import dataclasses
import errno
import glob
import json
import os
import shutil
import signal

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import electra_jax
from electra_jax import config as config_lib
from electra_jax.core import meshes, trees
from electra_jax.data import pipeline
from electra_jax.host import error_causes, lock, processes
from electra_jax.objectives import replaced_token_detection
from electra_jax.report import writers
from electra_jax.speed import dry_run
from electra_jax.step import plans
from electra_jax.training import loop, runs
from electra_jax.weights import checkpoint_series, reading
from electra_jax.workdir import metadata, saved_config
from support.commands import command
from support.corpus import finished_config, small_run
from support.outcomes import digest, rows

STEPS = 6


class Recorder:
    """A writer hook; may send this process a signal when a step is logged."""

    def __init__(self, signal_at=None):
        self.rows, self.closed, self._signal_at = [], False, signal_at

    def write(self, step, kind, metrics):
        self.rows.append({"step": step, "kind": kind} | dict(metrics))
        if step == self._signal_at and kind == "train":
            os.kill(os.getpid(), signal.SIGTERM)

    def close(self):
        self.closed = True


def test_a_run_leaves_what_the_contract_says(text, finished):
    workdir, final = finished
    for name in ("config.json", "metrics.jsonl", "report.html", "report.png", "log.txt"):
        assert (workdir / name).stat().st_size > 0, name
    assert glob.glob(f"{workdir}/tensorboard/events*")
    assert metadata.steps(f"{workdir}/checkpoints") == [2, 4, 6]
    kinds = [(row["step"], row["kind"]) for row in rows(workdir)]
    assert kinds == [(2, "train"), (4, "train"), (6, "train"), (6, "eval")]
    train_names = set(rows(workdir)[0])
    assert train_names >= {
        "loss", "gen_loss", "disc_loss", "gen_masked_loss", "gen_masked_accuracy", "gen_accuracy",
        "gen_sampled_accuracy", "gen_entropy", "disc_accuracy", "disc_precision", "disc_recall",
        "disc_f1", "disc_majority", "masked_rate", "replaced_rate", "grad_norm",
        "grad_norm_embeddings", "grad_norm_generator", "grad_norm_discriminator", "learning_rate",
        "tokens_seen", "epoch", "skipped_steps", "padding_rate",
    }  # fmt: skip
    assert set(final) >= {"disc_auc", "disc_auc_unigram", "unigram_entropy", "gen_masked_loss"}
    saved = config_lib.parse(json.loads((workdir / "config.json").read_text()))
    assert saved == config_lib.parse(finished_config(text))


def test_the_command_ends_with_what_was_learnt_and_what_to_do_next(text, finished, tmp_path):
    shutil.copytree(finished[0], tmp_path / "run")
    done = command(f"--workdir={tmp_path / 'run'}")
    assert done.returncode == 0, done.stderr
    assert f"report     file://{tmp_path}/run/report.html\n" in done.stdout
    assert "unigram line; discriminator AUC 0." in " ".join(done.stdout.split())
    assert "--to=hugging_face" in done.stdout


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Recorder(), r"^extra_writers is one Recorder; give a list: \[writer\]$"),
        ([Recorder(), len], r"^extra_writers\[1\], builtin_function_or_method, is no writer; "),
    ],
)
def test_what_is_no_writer_is_refused_before_text_is_read(text, tmp_path, given, message):
    with pytest.raises(config_lib.ConfigError, match=message):
        electra_jax.train(small_run(*text), tmp_path / "run", given)
    assert not (tmp_path / "run").exists()


def test_a_trace_of_the_steps_that_were_asked_for(text, finished, tmp_path):
    """Beyond the end of the finished run, which may be profiled like any continuation."""
    config = small_run(*text, schedule__steps=8, logging__profile=(7, 8))
    copy = shutil.copytree(finished[0], tmp_path / "profiled")
    electra_jax.train(config, copy)
    (trace,) = copy.glob("profile/plugins/profile/*/*.xplane.pb")
    names = {
        event.name
        for plane in jax.profiler.ProfileData.from_file(str(trace)).planes
        for line in plane.lines
        for event in line.events
    }
    assert sum("PjitFunction(update)" in name for name in names) > 0


def test_without_a_report_none_is_drawn(text, finished, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(finished[0], workdir)
    (workdir / "report.html").unlink()
    electra_jax.train(small_run(*text, logging__report_every=0), workdir)
    assert not (workdir / "report.html").exists()


def test_the_next_run_like_it_takes_the_programs_and_another_does_not(text, tmp_path):
    """They are traced once in a process, as for a notebook that continues with a stopped run."""
    runs.forget_programs()
    configs = [
        small_run(*text, **changes)
        for changes in (
            {}, {"checkpoint__every": 3}, {"optimizer__weight_decay": 0.1}, {"data__batch_size": 16}
        )
    ]  # fmt: skip
    first, same, other, larger = (
        runs.start(config_lib.parse(config), str(tmp_path / f"programs{number}"))
        for number, config in enumerate(configs)
    )
    assert (
        same.stage.update is first.stage.update
        and same.stage.intermediates is first.stage.intermediates
    )
    assert same.stage.evaluator == first.stage.evaluator
    assert other.stage.update is not first.stage.update
    assert (first.stage.batch_size, larger.stage.batch_size) == (8, 16)


def test_a_run_whose_rate_stays_below_its_peak_says_so_at_its_start(text, tmp_path, caplog):
    config = small_run(*text, schedule__steps=6, schedule__warmup_steps=5000)
    runs.start(config_lib.parse(config), str(tmp_path))
    (said,) = (m for m in caplog.messages if "schedule.warmup_steps" in m)
    assert "the run ends at step 6, within the warmup" in said


def test_all_processes_compile_a_program_before_one_of_them_runs_it(text, tmp_path, monkeypatch):
    """One that ran it earlier would wait in its first exchange, on a CPU for 30 seconds at most."""
    asked = []
    monkeypatch.setattr(
        processes, "compile_together", lambda f, *_, stops: asked.append(f.__name__)
    )
    config = finished_config(text)
    config.schedule.update(steps=2, warmup_steps=1)
    config.evaluation.every = 2
    electra_jax.train(config, tmp_path)
    assert asked == ["update", "evaluate"]


def test_stopped_by_sigterm_and_started_again_is_as_if_never_stopped(text, tmp_path):
    """The signal comes between two checkpoints and two log lines: nothing may be lost."""
    config = small_run(*text, checkpoint__every=5)
    whole = electra_jax.train(config, tmp_path / "whole")
    first = Recorder(signal_at=2)
    electra_jax.train(config, tmp_path / "parts", [first])
    assert metadata.steps(f"{tmp_path}/parts/checkpoints") == [3]
    assert first.closed
    second = Recorder()
    parts = electra_jax.train(config, tmp_path / "parts", [second])
    assert parts == whole
    assert digest(tmp_path / "parts", STEPS) == digest(tmp_path / "whole", STEPS)
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")
    assert [row["step"] for row in second.rows] == [4, 6, 6]


def test_a_finished_run_started_again_only_evaluates(text, finished, tmp_path):
    workdir = shutil.copytree(finished[0], tmp_path / "run")
    before = rows(workdir)
    assert electra_jax.train(small_run(*text), workdir) == finished[1]
    assert rows(workdir) == before


def test_a_damaged_newest_checkpoint_is_set_aside(text, finished, tmp_path, caplog):
    shutil.copytree(finished[0], tmp_path / "run")
    largest = max(
        glob.glob(f"{tmp_path}/run/checkpoints/6/state/ocdbt.process_0/d/*"), key=os.path.getsize
    )
    with open(largest, "r+b") as file:
        file.seek(os.path.getsize(largest) // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    final = electra_jax.train(small_run(*text), tmp_path / "run")
    assert "checkpoint 6 is damaged and set aside" in caplog.text
    assert os.path.isdir(tmp_path / "run" / "checkpoints" / "6.corrupt")
    assert final == finished[1]
    assert digest(tmp_path / "run", STEPS) == digest(finished[0], STEPS)
    assert rows(tmp_path / "run") == rows(finished[0])


def test_another_configuration_is_refused_and_nothing_touched(text, finished, tmp_path):
    workdir = shutil.copytree(finished[0], tmp_path / "run")
    before = (workdir / "config.json").read_bytes()
    with pytest.raises(config_lib.ConfigError) as error:
        electra_jax.train(small_run(*text, optimizer__learning_rate=0.5), workdir)
    assert "optimizer.learning_rate: 0.001 -> 0.5" in str(error.value)
    assert str(error.value).endswith(f"and --config.init.from={workdir} to take its weights")

    with pytest.raises(config_lib.ConfigError) as error:
        electra_jax.train(small_run(*text, model__discriminator__layers=4), workdir)
    assert str(error.value).endswith("choose another --workdir")  # of these sizes it has none
    assert (workdir / "config.json").read_bytes() == before


def test_a_run_goes_on_in_smaller_pieces(text, finished, tmp_path, caplog):
    """As after a step that did not fit the memory: only the order of additions changes."""
    workdir = shutil.copytree(finished[0], tmp_path / "run")
    shutil.rmtree(workdir / "checkpoints" / "6")
    final = electra_jax.train(small_run(*text, schedule__accumulation=2), workdir)
    assert "changed since the last start: schedule.accumulation: 1 -> 2" in caplog.text
    assert "resuming from step" in caplog.text
    assert final["loss"] == pytest.approx(finished[1]["loss"], rel=1e-5)


def test_what_a_run_began_with_is_not_changed_by_a_later_start(text, finished, tmp_path, caplog):
    """So its checkpoints and cards go on to say it truly."""
    workdir = shutil.copytree(finished[0], tmp_path / "run")
    shutil.rmtree(workdir / "checkpoints" / "6")
    electra_jax.train(small_run(*text, init__from=str(tmp_path / "nowhere")), workdir)
    assert "nowhere' changes nothing: this run continues from its checkpoint" in caplog.text
    assert "changed since the last start: init" not in caplog.text
    assert json.loads((workdir / "config.json").read_text())["init"]["from"] == ""
    assert reading.open(workdir).began_with == {}


def test_a_second_run_on_the_workdir_is_refused(text, tmp_path):
    with lock.hold(str(tmp_path / "run.lock"), "it"):
        with pytest.raises(
            error_causes.MayPass, match=f"in use by another run .process {os.getpid()}"
        ):
            electra_jax.train(small_run(*text), tmp_path)


def test_a_run_whose_checkpoints_are_gone_says_so_and_keeps_its_metrics(
    text, finished, tmp_path, caplog
):
    """In a folder such as sweeps make, whose name orbax took for a pattern."""
    workdir = tmp_path / "lr=1e-3,bs=[8]"
    shutil.copytree(finished[0], workdir)
    shutil.rmtree(workdir / "checkpoints")
    assert electra_jax.train(small_run(*text), workdir) == finished[1]
    (line,) = [r.getMessage() for r in caplog.records if "are gone" in r.getMessage()]
    assert f"{workdir} had got to step 6" in line and "begins again from step 1" in line
    assert writers.read(workdir / "metrics.jsonl.before") == writers.read(
        finished[0] / "metrics.jsonl"
    )
    assert rows(workdir) == rows(finished[0])
    caplog.clear()
    assert electra_jax.train(small_run(*text), workdir) == finished[1]
    assert "resuming from step 6" in caplog.text and "are gone" not in caplog.text


def test_neither_a_damaged_config_json_nor_a_report_ends_a_run(text, finished, tmp_path, caplog):
    workdir = tmp_path / "run"
    shutil.copytree(finished[0], workdir)
    (workdir / "config.json").write_text("")
    (workdir / "report.html").unlink()
    (workdir / "report.html").mkdir()
    assert electra_jax.train(finished_config(text), workdir) == finished[1]
    assert "config.json is damaged" in caplog.text
    assert "the report was not written: IsADirectoryError" in caplog.text
    assert f"move {workdir / 'report.html'} away or make it writable" in caplog.text
    assert (workdir / "config.json.damaged").read_text() == ""
    assert saved_config.read(str(workdir)) == config_lib.parse(finished_config(text))


def test_settings_are_compared_with_those_of_the_checkpoint_too(text, finished, tmp_path):
    """A digit of config.json that flipped would else be trained with in silence."""
    workdir = tmp_path / "run"
    shutil.copytree(finished[0], workdir)
    path = workdir / "config.json"
    path.write_text(path.read_text().replace('"learning_rate": 0.001', '"learning_rate": 0.003'))
    flipped = saved_config.read(str(workdir))
    with pytest.raises(config_lib.ConfigError) as error:
        electra_jax.train(flipped, workdir)
    assert "checkpoint 6" in str(error.value)
    assert "optimizer.learning_rate: 0.001 -> 0.003" in str(error.value)
    path.unlink()
    assert saved_config.of_run(str(workdir)) == config_lib.parse(finished_config(text))


@pytest.mark.parametrize(
    ("name", "is_folder"),
    [("checkpoints", False), ("tensorboard", False), ("log.txt", True), ("metrics.jsonl", True)],
)
def test_a_place_of_another_kind_is_named_with_the_remedy(name, is_folder, text, tmp_path):
    if is_folder:
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_text("")
    with pytest.raises(config_lib.ConfigError, match=f"{name} is .*; move it away"):
        electra_jax.train(small_run(*text), tmp_path)
    assert os.listdir(tmp_path) == [name]


def test_a_batch_that_the_mesh_cannot_split_is_refused_before_anything(text, tmp_path):
    with pytest.raises(config_lib.ConfigError, match="mesh of data=1 x fsdp=3 x tensor=1 = 3"):
        electra_jax.train(small_run(*text, mesh__fsdp=3), tmp_path)
    assert not os.path.exists(tmp_path / "checkpoints")


def test_an_evaluation_that_the_mesh_cannot_split_is_refused_before_anything(
    text, tmp_path, monkeypatch
):
    """Not at the first evaluation, at which the steps since the last checkpoint would be lost."""
    monkeypatch.setattr(meshes, "row_devices", lambda mesh: 4)
    settings = small_run(*text, evaluation__batch_size=6)
    for begins in (electra_jax.train, lambda c, at: dry_run.text(config_lib.parse(c), str(at))):
        with pytest.raises(config_lib.ConfigError, match="evaluation.batch_size=6 .* try 4 or 8"):
            begins(settings, tmp_path)
    assert not os.path.exists(tmp_path / "checkpoints")


def test_weights_that_are_not_there_are_named_before_text_is_prepared(text, tmp_path):
    config = small_run(text[0], str(tmp_path / "data"))
    config.init["from"] = str(tmp_path / "nothing")
    with pytest.raises(config_lib.ConfigError, match="init.from='.*nothing'"):
        electra_jax.train(config, tmp_path / "run")
    assert not (tmp_path / "data").exists()


def test_weights_of_another_run_are_a_start(text, finished, tmp_path, caplog):
    """Those of its newest checkpoint that can be read."""
    source = tmp_path / "source"
    shutil.copytree(finished[0], source)
    (source / "checkpoints" / "6" / "_CHECKPOINT_METADATA").write_text("{")
    config = small_run(*text, schedule__steps=2, optimizer__learning_rate=0.0)
    config.init["from"] = str(source)
    electra_jax.train(config, tmp_path / "run")
    assert "checkpoint 6 cannot be used" in caplog.text
    params = [name for name in digest(source, 4) if name.startswith("params/")]
    assert params
    for name in params:
        assert digest(tmp_path / "run", 2)[name] == digest(source, 4)[name]


def test_weights_of_another_vocabulary_are_refused(text, finished, tmp_path):
    config = small_run(*text, data__vocab="train:sentencepiece:60")
    config.init["from"] = str(finished[0])
    with pytest.raises(config_lib.ConfigError, match="was trained with vocabulary"):
        electra_jax.train(config, tmp_path)


@dataclasses.dataclass(frozen=True)
class Poisoned(replaced_token_detection.ReplacedTokenDetection):
    """Gives a loss that is not a number at some steps."""

    steps: tuple[int, ...] = ()
    of: int = 1

    def knobs(self, progress):
        step = jnp.round(progress * self.of)
        poison = jnp.where(jnp.isin(step, jnp.array(self.steps)), jnp.nan, 1.0)
        return super().knobs(progress) | {"poison": poison}

    def loss(self, params, batch, keys, knobs):
        sums, measured = super().loss(params, batch, keys, knobs)
        return {term: x * knobs["poison"] for term, x in sums.items()}, measured


@pytest.fixture
def poison(monkeypatch):
    """poison(3, 4) makes the steps that begin at those counts not finite."""
    original = plans.make_objective

    def at(*steps):
        def poisoned(config, *rest):
            base = original(config, *rest)
            fields = {f.name: getattr(base, f.name) for f in dataclasses.fields(base)}
            return Poisoned(**fields, steps=steps, of=config.schedule.steps)

        monkeypatch.setattr(plans, "make_objective", poisoned)

    return at


def test_one_bad_step_is_skipped_and_counted(text, tmp_path, poison):
    poison(3)
    electra_jax.train(small_run(*text), tmp_path)
    skipped = {
        row["step"]: row["skipped_steps"] for row in rows(tmp_path) if row["kind"] == "train"
    }
    assert skipped == {2: 0, 4: 1, 6: 1}
    assert all(np.isfinite(row["loss"]) for row in rows(tmp_path))


def test_bad_steps_in_a_row_end_the_run_with_the_last_checkpoint_good(text, tmp_path, poison):
    poison(*range(2, 100))
    with pytest.raises(loop.TrainingError, match="3 steps in a row .* step 5: .*_loss is nan"):
        electra_jax.train(small_run(*text), tmp_path)
    assert 2 in metadata.steps(f"{tmp_path}/checkpoints")
    metadata.read(f"{tmp_path}/checkpoints/2")


def test_the_learning_rate_of_every_step_is_that_of_the_schedule(finished):
    """peak 1e-3, 6 steps, warmup 2: steps 0 and 1, 2 and 3, 4 and 5 are logged as means."""
    rate = [1e-3 * (1 - s / 6) * min(1, s / 2) for s in range(6)]
    logged = [row["learning_rate"] for row in rows(finished[0]) if row["kind"] == "train"]
    expected = [(rate[0] + rate[1]) / 2, (rate[2] + rate[3]) / 2, (rate[4] + rate[5]) / 2]
    np.testing.assert_allclose(logged, expected, rtol=1e-5)


def test_no_row_is_seen_twice_within_an_epoch(finished):
    workdir, _ = finished
    config = config_lib.parse(json.loads((workdir / "config.json").read_text()))
    run = runs.start(config, str(workdir))
    order = pipeline.Order(run.stage.records, config.seed)
    count = run.stage.records.rows_per_epoch()
    _, numbers = order.numbers(0, count)
    assert sorted(numbers) == list(range(count))
    assert jax.device_get(run.state.rows_seen).tolist() == [STEPS * config.data.batch_size, 0]


def test_a_state_takes_the_place_of_the_weights_that_a_run_began_with(tmp_path):
    with checkpoint_series.Checkpoints(str(tmp_path), keep_last=3) as saved:
        saved.save(0, {"params": {"a": jnp.ones(2)}}, {metadata.WEIGHTS_ONLY: True})
    like = {"params": {"a": trees.shapes_like(jnp.ones(2))}}
    with checkpoint_series.Checkpoints(str(tmp_path), keep_last=3) as saved:
        assert saved.restore_latest(like) is None
        saved.save(0, {"params": {"a": jnp.ones(2)}, "step": jnp.int32(0)}, {})
    with checkpoint_series.Checkpoints(str(tmp_path), keep_last=3) as saved:
        assert saved.restore_latest(like).step == 0


def saving(tmp_path, monkeypatch, broken):
    """Three saves, of which those in `broken` find no space; the steps that are on disk."""
    with checkpoint_series.Checkpoints(str(tmp_path), keep_last=5) as saved:
        orbax = saved._open()
        real = orbax.save_async

        def save_async(step, *arguments, **options):
            if step in broken:
                raise OSError(errno.ENOSPC, "no space")
            return real(step, *arguments, **options)

        monkeypatch.setattr(orbax, "save_async", save_async)
        for step in (1, 2, 3):
            saved.save(step, {"params": {"a": jnp.full(2, step)}}, {})


def test_a_save_that_failed_in_between_is_forgiven(tmp_path, monkeypatch):
    saving(tmp_path, monkeypatch, broken={2})
    assert metadata.steps(str(tmp_path)) == [1, 3]


def test_a_last_save_that_failed_is_an_error(tmp_path, monkeypatch):
    with pytest.raises(metadata.CheckpointError, match="last checkpoint could not be saved"):
        saving(tmp_path, monkeypatch, broken={3})
    assert metadata.steps(str(tmp_path)) == [1, 2]


def test_where_all_checkpoints_were_bad_no_later_start_begins_anew(tmp_path):
    with checkpoint_series.Checkpoints(str(tmp_path), keep_last=5) as saved:
        saved.save(1, {"params": {"a": jnp.ones(2)}}, {})
    shutil.rmtree(tmp_path / "1" / "state")
    like = {"params": {"a": trees.shapes_like(jnp.ones(2))}}
    for _ in range(2):
        with checkpoint_series.Checkpoints(str(tmp_path), keep_last=5) as saved:
            with pytest.raises(metadata.CheckpointError, match="none of the 1 checkpoints"):
                saved.restore_latest(like)


def test_weights_come_back_where_the_state_that_took_their_place_was_never_whole(tmp_path):
    with checkpoint_series.Checkpoints(str(tmp_path), keep_last=3) as saved:
        saved.save(0, {"params": {"a": jnp.ones(2)}}, {metadata.WEIGHTS_ONLY: True})
    os.rename(tmp_path / "0", tmp_path / f"0{checkpoint_series.WEIGHTS}")  # and then it was killed
    like = {"params": {"a": trees.shapes_like(jnp.ones(2))}}
    with checkpoint_series.Checkpoints(str(tmp_path), keep_last=3) as saved:
        assert saved.restore_latest(like) is None
    assert metadata.steps(str(tmp_path)) == [0]
