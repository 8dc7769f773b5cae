# SPDX-License-Identifier: Apache-2.0
"""The wheel, installed away from the checkout and used in an empty folder."""

import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from support.corpus import ROOT

PARTS = (
    "electra_jax",
    "configs",
    "setup.py",
    "pyproject.toml",
    "MANIFEST.in",
    "README.md",
    "LICENSE",
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """(folder of the installed wheel, an empty folder); built without a network."""
    base = tmp_path_factory.mktemp("installed")
    source, site, empty = base / "source", base / "site", base / "empty"
    source.mkdir()
    empty.mkdir()
    for part in PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, source / part)

    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-build-isolation", "--no-deps", "-w", base, source]
    subprocess.run(build, check=True, capture_output=True, text=True)
    (wheel,) = base.glob("*.whl")
    install = [*pip, "install", "--no-deps", "--no-index", "--target", site, wheel]
    subprocess.run(install, check=True, capture_output=True, text=True)
    return site, empty, wheel


def run(installed, *arguments, code=0):
    """Runs electra-jax in the empty folder; returns what it prints."""
    site, empty, _ = installed
    done = subprocess.run(
        [sys.executable, site / "bin" / "electra-jax", *map(str, arguments)],
        cwd=empty,
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_the_wheel_has_every_configuration_and_every_template(installed):
    names = set(zipfile.ZipFile(installed[2]).namelist())
    for file in (ROOT / "configs").glob("*.py"):
        assert f"electra_jax/configs/{file.name}" in names
    for file in (ROOT / "electra_jax").rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            assert str(file.relative_to(ROOT)) in names
    assert not any(name.startswith(("configs/", "tests/")) for name in names)


@pytest.mark.slow
def test_it_trains_shows_and_scores_in_an_empty_folder(installed, text):
    source, folder = text
    small = ("--config.model.discriminator.layers=1", "--config.model.generator.layers=1")
    rows = ("--config.data.sequence_length=16", "--config.data.batch_size=8")
    run(
        installed, "main", "--config=tiny", *small, *rows, "--config.schedule.steps=2",
        "--config.schedule.warmup_steps=1", "--config.evaluation.rows=8", "--workdir=run",
        f"--config.data.source={source}", "--config.data.vocab=train:sentencepiece:60",
        f"--config.data.dir={folder}",
    )  # fmt: skip
    site, empty, _ = installed
    assert (empty / "run" / "checkpoints" / "2").is_dir()
    assert "masked" in run(installed, "show", "--workdir=run", "--rows=1")
    (empty / "s.txt").write_text("one two\nthree\n")
    assert "one two" in run(installed, "score", "--workdir=run", "--input=s.txt")

    # Without --config these three use a configuration that lies in the package.
    missing = "there is no workdir or folder of weights nowhere"
    assert missing in run(installed, "finetune", "--workdir=nowhere", "--config.tasks=cola", code=2)
    assert missing in run(installed, "convert", "--from=nowhere", "--workdir=new", code=2)
    assert "passes" in run(installed, "check", "--workdir=checks", "--only=22")
