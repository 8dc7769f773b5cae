# SPDX-License-Identifier: Apache-2.0
"""Bad input on the command line: one line with the remedy, exit code 2, no traceback."""

import os
import subprocess
import sys

import pytest
from corpus import ROOT, small_run, write_corpus

from electra_jax import config as config_lib

TINY = "--config=configs/tiny.py"


def command(*arguments, module="electra_jax.main"):
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )


def complaint(*arguments, module="electra_jax.main"):
    """The one line that a refused command prints."""
    result = command(*arguments, module=module)
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, result.stderr
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--config is missing"),
        (["--config=configs/tinny.py"], "configs/tinny.py does not exist; known: configs/adv"),
        ([TINY, "--config.schedule.stepps=3"], "schedule.stepps; did you mean 'steps'?"),
        ([TINY, "--config.optimiser.learning_rate=3"], "did you mean 'optimizer'?"),
        ([TINY, "--config.schedule.steps=many"], "many"),
        ([TINY, "config.schedule.steps=3"], "is not a flag; write --config.schedule.steps=3"),
        ([TINY, "--workdirr=x"], "workdirr"),
        ([TINY, "--workdir=gs://bucket/run"], "--workdir='gs://bucket/run' is an address"),
        ([TINY, "--config.data.batch_size=0"], "data.batch_size=0 is outside"),
    ],
)
def test_a_bad_command_line_is_one_line(arguments, message, tmp_path):
    assert message in complaint(f"--workdir={tmp_path / 'run'}", *arguments)
    assert not (tmp_path / "run").exists()


def test_looking_at_a_workdir_without_a_run(tmp_path):
    for module in ("electra_jax.show", "electra_jax.evaluate"):
        line = complaint(TINY, f"--workdir={tmp_path}", module=module)
        assert "no checkpoint in" in line
        assert "python -m electra_jax.main" in line


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
    assert not (tmp_path / "run").exists()


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
    assert result.returncode == 0, result.stderr
    line = complaint(TINY, workdir, "--config.innit.from=runs/other", "--dry_run")
    assert "unknown field config.innit; did you mean 'init'?" in line
