# SPDX-License-Identifier: Apache-2.0
"""Errors for the user: one line with the remedy, no traceback, and the exit code that fits."""

import json
import pickle
import re
import time

import pytest

from electra_jax import config as config_lib
from electra_jax import score
from electra_jax.cli import command as command_lib
from electra_jax.data import servers, worker_pool
from electra_jax.host import error_causes
from electra_jax.speed import dry_run
from electra_jax.training import loop, run_data
from electra_jax.workdir import metadata
from support.commands import command, complaint
from support.corpus import ROOT, small_run, write_corpus

TINY = "--config=configs/tiny.py"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is no workdir"),
        (
            ["--config=configs/tinny.py"],
            "configs/tinny.py is no file and no configuration of the package; did you mean 'tiny'?",
        ),
        ([TINY, "--config.schedule.stepps=3"], "schedule.stepps; did you mean 'steps'?"),
        ([TINY, "--config.optimiser.learning_rate=3"], "did you mean 'optimizer'?"),
        ([TINY, "--config.schedule.steps=many"], "config.schedule.steps='many' is not a whole num"),
        ([TINY, "--config.data.deduplicate=maybe"], "deduplicate='maybe' is not true or false"),
        ([TINY, "--config.optimizer=3"], "config.optimizer is a section; give one of its fields"),
        ([TINY, "--config=configs/small.py"], "--config is given twice; take one file"),
        ([TINY, "--data.batch_size=7"], "is not a flag; did you mean --config.data.batch_size?"),
        ([TINY, "a sentence"], "'a sentence' is not a flag; --help lists the flags"),
        ([TINY, "config.schedule.steps=3"], "is not a flag; write --config.schedule.steps=3"),
        ([TINY, "--workdirr=x"], "workdirr"),
        ([TINY, "--workdir", "--dry_run"], "--workdir has no value; write --workdir=VALUE"),
        ([TINY, "--workdir"], "--workdir has no value"),
        (["--config", "--dry_run"], "--config has no value"),
        ([TINY, "--workdir="], "--workdir= is empty; perhaps a shell variable is not set"),
        ([TINY, "--workdir", "-dry_run"], "--workdir has no value"),
        ([TINY, "--config.name", "--dry_run"], "--config.name has no value; write --config.name=V"),
        (
            [TINY, "--config.schedule.stages=((0.5, 32"],
            "config.schedule.stages='((0.5, 32' is not a",
        ),
        ([TINY, "--workdir=s3://bucket/run"], "--workdir='s3://bucket/run' is an address"),
        ([TINY, "--workdir=gs:/bucket/run"], "--workdir='gs:/bucket/run' lacks a slash: gs://BUCK"),
        ([TINY, "--config.data.batch_size=0"], "data.batch_size=0 is outside"),
        ([TINY, "--config.data.source=hf:"], "'hf:' is none of builtin, text:GLOB, text:ADDRESS,"),
        ([TINY, "--config.data.source=hf:foo"], "hf:foo does not name a data set; write hf:OWNER"),
    ],
)
def test_a_bad_command_line_is_one_line(arguments, message, tmp_path):
    assert message in complaint(f"--workdir={tmp_path / 'run'}", *arguments)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("c.shcedule.steps = 5", "line 4: AttributeError: 'shcedule' Did you mean \"schedule\""),
        ("c.data.batch_size = '16'", "line 4: TypeError: Could not override field 'batch_size'"),
        ("c.data.batch_size = 1 / 0", "line 4: ZeroDivisionError: division by zero"),
        ("c.data.batch_size = = 1", "line 4"),
    ],
)
def test_a_mistake_in_a_file_of_ones_own_is_named_with_its_line(tmp_path, line, message):
    file = tmp_path / "mine.py"
    file.write_text(
        "from electra_jax.configs import tiny\n\ndef get_config():\n    c = tiny.get_config();"
        f" {line}\n    return c\n"
    )
    said = complaint(f"--config={file}", f"--workdir={tmp_path / 'run'}")
    assert f"{file}, {message}" in said and len(said) < 400


def test_a_workdir_that_is_not_there_is_named(tmp_path):
    line = complaint("--workdir", f"{tmp_path}/nothing", module="electra_jax.show")
    assert f"there is no workdir {tmp_path}/nothing" in line
    (tmp_path / "empty").mkdir()
    line = complaint(f"--workdir={tmp_path}/empty", module="electra_jax.evaluate")
    assert "holds no config.json, so no run was begun there" in line


@pytest.mark.parametrize("address", ["s3://bucket/run", "gs:/bucket/run"])
def test_an_address_that_cannot_be_read_is_no_folder_that_is_not_there(address):
    line = complaint(f"--workdir={address}", module="electra_jax.show")
    assert f"--workdir={address!r} " in line and "gs://BUCKET/FOLDER" in line


def test_a_run_whose_settings_are_all_lost_is_not_called_none(tmp_path):
    (tmp_path / "checkpoints" / "5").mkdir(parents=True)
    line = complaint(f"--workdir={tmp_path}", module="electra_jax.evaluate")
    assert f"{tmp_path} holds no config.json, and none of its checkpoints says how" in line
    assert "give the configuration that it was begun with, as --config=FILE.py" in line


def test_a_configuration_that_is_no_python_is_named_with_its_line(tmp_path):
    (tmp_path / "mine.py").write_text("import math\nimport nothing_of_that_name\n")
    line = complaint(f"--config={tmp_path}/mine.py")
    assert f"{tmp_path}/mine.py, line 2: ModuleNotFoundError: No module" in line


def test_looking_at_a_workdir_without_a_run(tmp_path):
    for module in ("electra_jax.show", "electra_jax.evaluate"):
        line = complaint(TINY, f"--workdir={tmp_path}", module=module)
        assert "no checkpoint in" in line
        assert "python -m electra_jax.main" in line

    (tmp_path / "checkpoints").write_text("not a folder")
    line = complaint(TINY, f"--workdir={tmp_path}", module="electra_jax.show")
    assert f"{tmp_path}/checkpoints is not a folder, and a run keeps its checkpoints there" in line


def test_a_missing_file_is_named(tmp_path):
    line = complaint(
        TINY, f"--workdir={tmp_path}", f"--config.data.source=text:{tmp_path}/none/*.txt"
    )
    assert f"{tmp_path}/none/*.txt" in line


def test_dry_run_prints_what_a_run_would_be_and_writes_nothing(tmp_path):
    result = command("--config=configs/small.py", f"--workdir={tmp_path / 'run'}", "--dry_run")
    assert result.returncode == 0, result.stderr
    assert "main network with its tables" in result.stdout
    assert "13,558,017" in result.stdout  # 13,549,057 and 70 padded rows of the table
    # Its text is on the Hub, which the tests cannot reach; that stops a run, not an estimate.
    assert "hf:wikimedia/wikipedia/20231101.en:train cannot be reached" in result.stdout
    assert not (tmp_path / "run").exists()


def test_a_run_without_a_network_ends_with_what_to_do(tmp_path):
    began = time.monotonic()
    line = complaint("--config=configs/base.py", f"--workdir={tmp_path / 'run'}", code=1)
    assert time.monotonic() - began < 60  # most of it for imports, on a busy machine
    assert "read your own files, data.source=text:GLOB, or data.source=builtin" in line
    assert not list(tmp_path.rglob("manifest.json"))

    # The terminal of a run on another machine is gone when somebody looks.
    *_, last = (tmp_path / "run" / "log.txt").read_text().splitlines()
    assert last.endswith(f" ERROR {line.removeprefix('error: ')}")


def test_a_source_that_could_not_be_read_can_be_replaced_in_the_same_workdir(tmp_path):
    """Nothing was made with the first settings, so they bind nobody."""
    workdir = tmp_path / "run"
    for source in ("text:nowhere/*.txt", "text:elsewhere/*.txt"):
        line = complaint(TINY, f"--workdir={workdir}", f"--config.data.source={source}")
        assert f"{source} matches no file" in line
        assert "changed since the last start" not in (workdir / "log.txt").read_text()
        assert json.loads((workdir / "config.json").read_text())["data"]["source"] == source

    (workdir / "starts.jsonl").write_text("{}\n")  # what a run writes once its data is prepared
    line = complaint(TINY, f"--workdir={workdir}", "--config.data.source=builtin")
    assert "holds a run with other settings: data.source: 'text:elsewhere/*.txt' -> 'buil" in line
    assert f"it has saved no step, so delete {workdir}/config.json to begin with these" in line
    (workdir / "config.json").unlink()
    line = complaint(TINY, f"--workdir={workdir}", "--config.data.source=text:there/*.txt")
    assert "text:there/*.txt matches no file" in line


def test_the_config_of_a_workdir_is_used_where_none_is_given(tmp_path):
    corpus = write_corpus(tmp_path / "corpus.txt")
    config = config_lib.parse(small_run(f"text:{corpus}", str(tmp_path / "data")))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(config_lib.to_json(config))
    result = command(f"--workdir={tmp_path / 'run'}", "--dry_run", "--config.schedule.steps=12345")
    assert result.returncode == 0, result.stderr
    line = complaint(f"--workdir={tmp_path / 'run'}", "--config.schedule.stepz=3")
    assert "did you mean 'steps'?" in line


def test_a_field_that_is_a_word_of_python_can_be_given(tmp_path):
    """init.from: ml_collections alone calls it a syntax error."""
    workdir = f"--workdir={tmp_path / 'run'}"
    result = command(TINY, workdir, "--config.init.from=runs/other", "--dry_run")
    assert "error: init.from='runs/other' is neither a workdir" in result.stderr
    line = complaint(TINY, workdir, "--config.innit.from=runs/other", "--dry_run")
    assert "unknown field config.innit; did you mean 'init'?" in line


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"data__vocab": "train:bpe:300"}, "'bpe' is not one of sentencepiece, wordpiece"),
        ({"data__vocab": "train:wordpiece:99999999999"}, "the size '99999999999' is not a whole"),
        ({"data__vocab": "train:sentencepiece:abc"}, "the size 'abc' is not a whole number from"),
        ({"data__vocab": "/nonexistent/vocab.txt"}, "'/nonexistent/vocab.txt' does not exist"),
        ({"data__source": "text:/nowhere/*.txt"}, "matches no file; the folder /nowhere does not"),
        ({"data__source": "books"}, "'books' is none of builtin, text:GLOB, text:ADDRESS"),
        ({"data__dir": f"{ROOT}/pyproject.toml"}, "pyproject.toml is a file"),
        ({"init__from": "/nonexistent"}, "init.from='/nonexistent' is neither a workdir"),
        ({"init__from": f"{ROOT}/tests"}, "tests cannot be read"),
        ({"init__generator_from": "/nonexistent"}, "init.generator_from='/nonexistent' is neither"),
    ],
)
def test_dry_run_refuses_what_the_run_refuses(overrides, message, tmp_path):
    """Both by the same words."""
    corpus = write_corpus(tmp_path / "corpus.txt", documents=20)
    config = config_lib.parse(small_run(f"text:{corpus}", "", **overrides))
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        dry_run.text(config, str(tmp_path / "run"))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()
    if "init__from" in overrides or "init__generator_from" in overrides:
        return  # the run looks there after its text was prepared
    with pytest.raises((ValueError, OSError)):
        run_data.prepare(config, str(tmp_path / "run"))


def test_sentences_that_are_not_utf8_are_named_with_their_line(tmp_path):
    (tmp_path / "sentences.txt").write_bytes(b"one\ntwo\ncaf\xe9\n")
    with pytest.raises(config_lib.ConfigError, match="sentences.txt, line 3: invalid UTF-8 .byte"):
        score.read(str(tmp_path / "sentences.txt"))
    with pytest.raises(config_lib.ConfigError, match="--input=.*nothing.txt cannot be read: No"):
        score.read(str(tmp_path / "nothing.txt"))
    (tmp_path / "sentences.txt").write_bytes(b"\xef\xbb\xbfone\tother\r\ntwo\n")
    assert score.read(str(tmp_path / "sentences.txt")) == {1: ["one", "other"], 2: ["two"]}


REFUSED = config_lib.ConfigError("data.batch_size=0")
AWAY = servers.Unreachable("no answer")


def caused(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (REFUSED, 2),
        (metadata.CheckpointError("checkpoint 3 is damaged"), 2),
        (caused(config_lib.ConfigError("--data=x"), REFUSED), 2),
        (AWAY, 1),
        (error_causes.MayPass("no space left"), 1),
        (metadata.NotSaved("the last checkpoint could not be saved"), 1),
        (caused(config_lib.ConfigError("--data=x: no answer"), AWAY), 1),
        (loop.TrainingError("three steps were not finite"), 1),
        (OSError("no space left"), 1),
        (ValueError("of a library: a bug"), 1),
    ],
)
def test_launchers_begin_again_what_may_pass_and_not_what_was_refused(error, code):
    assert command_lib._code_of(error) == code


def test_what_may_pass_in_a_worker_process_may_pass_here():
    """Pickled errors lose their causes."""
    module = {"__name__": "electra_jax.made_up"}
    exec("def work(cause): raise ValueError('unit 3') from cause", module)
    for cause, may_pass in ((AWAY, True), (REFUSED, False)):
        answered = pickle.loads(pickle.dumps(worker_pool.answer(module["work"], cause)))
        with pytest.raises(ValueError, match="unit 3") as error:
            worker_pool.result_of(answered)
        assert error_causes.may_pass(error.value) == may_pass
