# SPDX-License-Identifier: Apache-2.0
"""A run moves to another Python, with other versions of all packages: it continues from there.

The package there is the wheel, which pip has installed with its dependencies (.ci/run).
Its text is `builtin`, which is another text there, since it is the documentation of what is
installed: a run that looked for its rows through their source would find none.
"""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

import electra_jax
from support.commands import command
from support.corpus import ROOT, small_run
from support.outcomes import rows

pytestmark = pytest.mark.another_python

STEPS, GOES_ON_FROM = 6, 4


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The workdir of a run of this Python; its prepared rows lie within."""
    config = small_run("builtin", "", evaluation__every=STEPS, logging__every=1)
    config.data.vocab = "train:wordpiece:300"
    workdir = tmp_path_factory.mktemp("here") / "run"
    electra_jax.train(config, workdir)
    return workdir


@pytest.fixture
def there(whole, tmp_path, another_python):
    """(moved workdir, the function that runs a command of the other Python on it)."""
    workdir = tmp_path / "moved" / "run"
    shutil.copytree(whole, workdir)

    def run(name, *arguments):
        words = ["-m", f"electra_jax.{name}", f"--workdir={workdir}", *arguments]
        return call(another_python, tmp_path, *words)

    return workdir, run


def call(python, folder, *words):
    """What the other Python prints; without the checkout, from a folder away from it."""
    # XLA_FLAGS are those of this jaxlib; another may refuse them.
    ours = ("XLA_FLAGS", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run(
        [python, *words], cwd=folder, capture_output=True, text=True,
        env=environment | {"JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def test_it_has_the_wheel_of_this_checkout_and_all_that_it_needs(another_python, tmp_path):
    """`pip install dist/*.whl`, not a checkout and not an older wheel."""
    call(another_python, tmp_path, "-m", "pip", "check")
    where = "import electra_jax, os; print(os.path.dirname(electra_jax.__file__))"
    package = pathlib.Path(call(another_python, tmp_path, "-c", where).strip().splitlines()[-1])
    assert not package.is_relative_to(ROOT), "pip install the wheel there, not -e ."
    for file in (ROOT / "electra_jax").rglob("*.py"):
        there = package / file.relative_to(ROOT / "electra_jax")
        assert there.read_bytes() == file.read_bytes(), f"{there} is of another wheel"


def test_it_goes_on_with_the_same_rows(whole, there):
    workdir, run = there
    shutil.rmtree(workdir / "checkpoints" / str(STEPS))
    said = run("main")
    assert f"step {GOES_ON_FROM}" in said and "preparing" not in said
    assert os.listdir(workdir / "data") == os.listdir(whole / "data")

    # Other versions may round otherwise; other rows or other random numbers would be far off.
    for here, moved in zip(rows(whole), rows(workdir), strict=True):
        assert here.keys() == moved.keys()
        numbers = {name for name, value in here.items() if isinstance(value, float)}
        assert {n: moved[n] for n in numbers} == pytest.approx({n: here[n] for n in numbers}, 1e-3)


def test_every_other_command_reads_it(whole, there, tmp_path):
    _, run = there
    run("show", "--rows=1")
    assert "disc_auc" in run("evaluate")

    (tmp_path / "sentences.txt").write_text("Return the number of items.\nReturn a new list.\n")
    given = f"--input={tmp_path / 'sentences.txt'}", "--json"
    here = command(f"--workdir={whole}", *given, module="electra_jax.score").stdout
    assert scores(run("score", *given)) == pytest.approx(scores(here), abs=1e-3)

    run("convert", "--to=hugging_face", f"--out={tmp_path / 'export'}")
    exported = sorted((tmp_path / "export").glob("*/config.json"))
    assert [path.parent.name for path in exported] == ["discriminator", "generator"]
    assert {json.loads(path.read_text())["model_type"] for path in exported} == {"electra"}


def scores(said):
    """The score of each line, from what `score --json` prints."""
    (printed,) = (line for line in said.splitlines() if line.startswith('{"rows"'))
    return [score for row in json.loads(printed)["rows"] for score in row["scores"]]
