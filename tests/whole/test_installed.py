# SPDX-License-Identifier: Apache-2.0
"""The wheel, installed away from the checkout and used in an empty folder.

The tier `lowest` uses it with another Python, which has the lowest versions that setup.py allows.
In the tier `another_python` pip has installed it there with its dependencies, the newest ones.
"""

import email
import json
import os
import pathlib
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
from packaging import requirements, version

from electra_jax.host import code_version
from electra_jax.workdir import starts
from support.corpus import ROOT

PARTS = (
    "electra_jax",
    "configs",
    "setup.py",
    "pyproject.toml",
    "MANIFEST.in",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
)


def checkout(folder):
    """Makes a checkout of what a wheel is built from, with changes; returns its commit."""
    for part in PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, folder / part)

    def git(*arguments):
        command = ["git", "-C", folder, "-c", "user.name=one", "-c", "user.email=one@example.org"]
        done = subprocess.run([*command, *arguments], check=True, capture_output=True, text=True)
        return done.stdout

    git("init", "--quiet")
    git("add", "--all")
    git("commit", "--quiet", "--message=one")
    with open(folder / "CHANGELOG.md", "a") as changed:
        changed.write("- A change that is in no commit.\n")
    return git("rev-parse", "HEAD")[:12] + "+dirty"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """(folder of the installed wheel, the wheel, the commit that it is built from).

    It is built without a network.
    """
    base = tmp_path_factory.mktemp("installed")
    source, site = base / "source", base / "site"
    source.mkdir()
    commit = checkout(source)
    stale = source / "build" / "lib" / "electra_jax"  # as an earlier build may have left it
    stale.mkdir(parents=True)
    (stale / "gone.py").touch()

    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-build-isolation", "--no-deps", "-w", base, source]
    subprocess.run(build, check=True, capture_output=True, text=True)
    (wheel,) = base.glob("*.whl")
    install = [*pip, "install", "--no-deps", "--no-index", "--target", site, wheel]
    subprocess.run(install, check=True, capture_output=True, text=True)
    assert not (source / "electra_jax" / code_version.COMMIT_FILE).exists()
    return site, wheel, commit


@pytest.fixture(
    params=[
        pytest.param("this", marks=pytest.mark.slow),
        pytest.param("lowest_python", marks=pytest.mark.lowest),
        pytest.param("another_python", marks=pytest.mark.another_python),
    ]
)
def electra_jax(request, tmp_path):
    """(an empty folder, what runs electra-jax there and returns what it prints, the commit).

    With this Python, that of --lowest, or that of --another_python, which has the wheel itself.
    """
    empty = tmp_path / "empty"
    empty.mkdir()
    # XLA_FLAGS are those of this jaxlib; another may refuse them.
    ours = ("XLA_FLAGS", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name not in ours}

    if request.param == "another_python":
        python = pathlib.Path(request.getfixturevalue("another_python"))
        program, commit = [python.with_name("electra-jax")], code_version.commit()
    else:
        this = request.param == "this"
        python = sys.executable if this else request.getfixturevalue(request.param)
        site, _, commit = request.getfixturevalue("installed")
        program = [python, site / "bin" / "electra-jax"]
        environment["PYTHONPATH"] = str(site)

    def run(*arguments, code=0):
        done = subprocess.run(
            [*program, *map(str, arguments)],
            cwd=empty, env=environment, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    return empty, run, commit


@pytest.mark.slow
def test_the_wheel_has_every_configuration_and_every_template(installed):
    names = set(zipfile.ZipFile(installed[1]).namelist())
    for file in (ROOT / "configs").glob("*.py"):
        assert f"electra_jax/configs/{file.name}" in names
    for file in (ROOT / "electra_jax").rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            assert str(file.relative_to(ROOT)) in names
    assert not any(name.startswith(("configs/", "tests/")) for name in names)
    assert "electra_jax/gone.py" not in names


@pytest.mark.slow
def test_the_wheel_says_what_it_is_and_what_it_needs(installed):
    with zipfile.ZipFile(installed[1]) as wheel:
        (about,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        found = email.message_from_bytes(wheel.read(about))
        assert about.replace("METADATA", "licenses/LICENSE") in wheel.namelist()

    assert found["Name"] == "electra_jax" and found["License-Expression"] == "Apache-2.0"
    assert set(found["Requires-Python"].split(",")) == {">=3.11", "<3.14"}
    needs = [requirements.Requirement(line) for line in found.get_all("Requires-Dist")]
    for line in runpy.run_path(ROOT / ".ci" / "lowest.py")["lowest"]():
        name, _, bound = line.partition("==")
        (need,) = (x for x in needs if x.name == name.partition("[")[0] and not x.marker)
        assert need.specifier.contains(bound)
    assert {"tpu", "cuda", "tfds", "wikipedia", "test"} <= set(found.get_all("Provides-Extra"))


@pytest.mark.slow
def test_the_source_distribution_has_what_goes_with_the_code(tmp_path):
    commit = checkout(tmp_path)
    build = [sys.executable, "setup.py", "--quiet", "sdist"]
    subprocess.run(build, check=True, capture_output=True, text=True, cwd=tmp_path)
    (made,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(made) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
        (file,) = (name for name in source.getnames() if name.endswith("electra_jax/_commit"))
        assert source.extractfile(file).read().decode() == f"{commit}\n"
    assert {"LICENSE", "CITATION.cff", "CHANGELOG.md", "configs/tiny.py"} <= names
    assert "electra_jax/py.typed" in names
    assert not (tmp_path / "electra_jax" / code_version.COMMIT_FILE).exists()


@pytest.mark.lowest
def test_every_requirement_is_at_its_lower_bound(lowest_python):
    wanted = runpy.run_path(ROOT / ".ci" / "lowest.py")["lowest"]()
    ask = "import importlib.metadata as m, json, sys; "
    ask += "print(json.dumps({name: m.version(name) for name in sys.argv[1:]}))"
    bounds = dict(line.split("==") for line in wanted)
    names = {name: name.partition("[")[0] for name in bounds}
    done = subprocess.run(
        [lowest_python, "-c", ask, *names.values()], check=True, capture_output=True, text=True
    )
    there = json.loads(done.stdout)
    for name, bound in bounds.items():
        assert version.parse(there[names[name]]) == version.parse(bound), name


def test_it_trains_shows_evaluates_scores_and_converts_in_an_empty_folder(electra_jax, text):
    source, folder = text
    empty, run, commit = electra_jax
    workdir = "run"
    small = ("--config.model.discriminator.layers=1", "--config.model.generator.layers=1")
    rows = ("--config.data.sequence_length=16", "--config.data.batch_size=8")
    said = run(
        "main", "--config=tiny_paper", *small, *rows,
        "--config.schedule.steps=2", "--config.schedule.warmup_steps=1",
        "--config.evaluation.rows=8", f"--workdir={workdir}",
        f"--config.data.source={source}", "--config.data.vocab=train:sentencepiece:60",
        f"--config.data.dir={folder}",
    )  # fmt: skip
    assert (empty / workdir / "checkpoints" / "2").is_dir()
    (start,) = starts.read(str(empty / workdir))
    assert (start["commit"], start["code"]) == (commit, code_version.digest())
    assert f"look       electra-jax show --workdir={workdir}\n" in said
    where = f"--workdir={workdir}"
    assert "masked" in run("show", where, "--rows=1")
    assert "disc_auc" in run("evaluate", where)
    (empty / "s.txt").write_text("one two\nthree\n")
    assert "one two" in run("score", where, "--input=s.txt")
    for form in ("hugging_face", "orbax"):
        run("convert", where, f"--to={form}", f"--out={workdir}/{form}")
    assert list((empty / workdir / "hugging_face").rglob("*.safetensors"))

    # Without --config these three use a configuration that lies in the package.
    missing = "there is no workdir or folder of weights nowhere"
    tasks = "--config.tasks=cola"
    assert missing in run("finetune", "--workdir=nowhere", tasks, code=2)
    new = f"--workdir={workdir}/new"
    assert missing in run("convert", "--from=nowhere", new, code=2)
    checks = f"--workdir={workdir}/checks"
    assert "passes" in run("check", checks, "--only=22")
    assert "recipe.layer_decay" in run("help", "recipe")
    told = run("finetune", "--help")
    assert "--config=NAME" in told and "electra-jax finetune --workdir=" in told
    assert "finetuning.md of the documentation" in told  # the wheel has no docs/
