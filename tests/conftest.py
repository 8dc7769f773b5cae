# SPDX-License-Identifier: Apache-2.0
"""The environment of all tests, and the fixtures that several test files share.

Tests run on the CPU. They share one cache of compiled programs, because compiling takes most of the
time of the tests.
"""

import gc
import importlib.metadata
import os
import pathlib
import re
import sys

import pytest

from support.corpus import finished_config, write_corpus

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["HF_ENDPOINT"] = "http://127.0.0.1:9"  # nobody: no test asks the real Hub


# With these a training step of the tests compiles in 3 seconds instead of 9 (in 14 if optimized).
_COMPILE_FAST = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"


def pytest_configure(config: pytest.Config) -> None:
    """Sets how jax compiles and where it caches programs, also for processes that tests start.

    Programs that run for milliseconds are compiled without most optimizations. The tiers `learning`
    and `aot` keep them: the first trains for minutes, the second checks the program that a chip
    would run. So do other devices than a CPU (JAX_PLATFORMS): XLA's compiler for GPUs does not
    support code without optimizations.
    """
    tiers = re.sub(r"not \w+", "", config.option.markexpr)
    on_cpu = os.environ["JAX_PLATFORMS"] == "cpu"
    if on_cpu and not {"learning", "aot"} & set(tiers.split()):
        os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")
        # Other versions of jaxlib may not know the flags.
        if importlib.metadata.version("jaxlib").startswith("0.10."):
            os.environ.setdefault("XLA_FLAGS", _COMPILE_FAST)
    if not hasattr(config, "cache"):  # pytest -p no:cacheprovider
        return
    cache = config.cache.mkdir("xla")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Other Pythons: with TensorFlow, without electra_jax, of another version, with old ones."""
    parser.addoption("--tensorflow", metavar="PYTHON", help="one with TensorFlow; -m tensorflow")
    parser.addoption(
        "--another_python", metavar="PYTHON", help="of another version; -m another_python"
    )
    parser.addoption("--lowest", metavar="PYTHON", help="one with .ci/lowest.py's; -m lowest")
    parser.addoption("--stranger", metavar="PYTHON", help="one without electra_jax; -m stranger")


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """(source, folder for prepared data) for runs that need no text of their own.

    Runs with equal settings of `data` share prepared data, within one process of pytest.
    """
    base = tmp_path_factory.mktemp("text")
    return f"text:{write_corpus(base / 'corpus.txt')}", str(base / "data")


@pytest.fixture(scope="session")
def finished(text, tmp_path_factory: pytest.TempPathFactory):
    """A run of six steps that was never stopped: (workdir, final metrics).

    All tests of one process share it and may only read it: a test that changes anything in the
    workdir works on a copy.
    """
    import electra_jax  # noqa: PLC0415 - most tests need no run

    workdir = tmp_path_factory.mktemp("finished")
    final = electra_jax.train(finished_config(text), workdir)
    before = _files(workdir)
    yield workdir, final
    assert _files(workdir) == before, "a test wrote to the finished run that all tests share"


def _files(folder: pathlib.Path) -> dict[str, tuple[int, int]]:
    """{path: (size, time of the last change)} of all files."""
    found = ((path, path.stat()) for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): (about.st_size, about.st_mtime_ns) for path, about in found}


@pytest.fixture(autouse=True, scope="module")
def compiled_programs():
    """Frees the compiled programs of a test file at its end.

    Without this they took five gigabytes at the end of the suite. A file that leaves another
    current folder behind would change what relative paths mean to those after it.
    """
    folder = os.getcwd()
    yield
    assert os.getcwd() == folder, "a test of this file went to another folder and stayed there"
    forget_programs()
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    gc.collect()


@pytest.fixture(autouse=True)
def programs_as_the_code_is(request: pytest.FixtureRequest):
    """Forgets compiled programs before and after each test that uses monkeypatch.

    A run otherwise takes the programs of an earlier run with the same configuration, which were
    traced without the patched code.
    """
    changes_code = "monkeypatch" in request.fixturenames
    if changes_code:
        forget_programs()
    yield
    if changes_code:
        forget_programs()


def forget_programs() -> None:
    """Drops the programs that `training.runs` keeps, if it has been imported."""
    if "electra_jax.training.runs" in sys.modules:
        sys.modules["electra_jax.training.runs"].forget_programs()


@pytest.fixture
def tensorflow_python(request: pytest.FixtureRequest) -> str:
    """The Python of --tensorflow."""
    return _python_of(request, "tensorflow", "that has tensorflow-cpu")


@pytest.fixture
def stranger_python(request: pytest.FixtureRequest) -> str:
    """The Python of --stranger."""
    needs = "that has orbax-checkpoint, flatbuffers, safetensors and tokenizers"
    return _python_of(request, "stranger", needs)


@pytest.fixture
def another_python(request: pytest.FixtureRequest) -> str:
    """The Python of --another_python."""
    return _python_of(request, "another_python", "of another version that has the wheel")


@pytest.fixture
def lowest_python(request: pytest.FixtureRequest) -> str:
    """The Python of --lowest."""
    return _python_of(request, "lowest", "that has what `python .ci/lowest.py` prints")


def _python_of(request, option, which):
    found = request.config.getoption(f"--{option}")
    if not found:
        pytest.fail(f"give --{option}=PYTHON, one {which}")
    return found
