# SPDX-License-Identifier: Apache-2.0
"""Every test runs on the CPU and shares one cache of compiled programs: compiling is what costs."""

import gc
import importlib.metadata
import os
import re
import sys
import warnings

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")


# With these a training step of the tests compiles in 3 seconds instead of 9 (in 14 if optimized).
_COMPILE_FAST = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"


def pytest_configure(config: pytest.Config) -> None:
    """Points jax, here and in the processes that tests start, at pytest's cache folder.

    What runs for milliseconds is not worth optimizing; what learns for minutes is, and what is
    compiled for chips that are not there has to be what they would run.
    """
    tiers = re.sub(r"not \w+", "", config.option.markexpr)
    if not {"learning", "aot"} & set(tiers.split()):
        os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")
        if importlib.metadata.version("jaxlib").startswith("0.10."):  # others may not know them
            os.environ.setdefault("XLA_FLAGS", _COMPILE_FAST)
    if not hasattr(config, "cache"):  # pytest -p no:cacheprovider
        return
    cache = config.cache.mkdir("xla")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Pythons of their own: one with TensorFlow, which is never in ours, and one without us."""
    parser.addoption("--tensorflow", metavar="PYTHON", help="one with TensorFlow; -m tensorflow")
    parser.addoption("--stranger", metavar="PYTHON", help="one without electra_jax; -m stranger")


@pytest.fixture(autouse=True, scope="module")
def compiled_programs():
    """Lets go of a file's programs at its end; they took five gigabytes by the end of the suite."""
    yield
    forget_programs()
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    with warnings.catch_warnings():  # of what orbax began and left, where a save was made to fail
        warnings.filterwarnings("ignore", "coroutine .* was never awaited")
        gc.collect()


@pytest.fixture(autouse=True)
def programs_as_the_code_is(request: pytest.FixtureRequest):
    """A run takes the programs of one like it; not where a test puts other code into them."""
    changes_code = "monkeypatch" in request.fixturenames
    if changes_code:
        forget_programs()
    yield
    if changes_code:
        forget_programs()


def forget_programs() -> None:
    if "electra_jax.training.runs" in sys.modules:
        sys.modules["electra_jax.training.runs"].forget_programs()


@pytest.fixture
def tensorflow_python(request: pytest.FixtureRequest) -> str:
    """The first of them."""
    found = request.config.getoption("--tensorflow")
    if not found:
        pytest.fail("give --tensorflow=PYTHON, one that has tensorflow-cpu")
    return found


@pytest.fixture
def stranger_python(request: pytest.FixtureRequest) -> str:
    """The second."""
    found = request.config.getoption("--stranger")
    if not found:
        pytest.fail(
            "give --stranger=PYTHON, one that has orbax-checkpoint, flatbuffers, safetensors and"
            " tokenizers"
        )
    return found
