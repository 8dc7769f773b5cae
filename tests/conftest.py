# SPDX-License-Identifier: Apache-2.0
"""Every test runs on the CPU and shares one cache of compiled programs: compiling is what costs."""

import os
import sys

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")


def pytest_configure(config: pytest.Config) -> None:
    """Points jax, here and in the processes that tests start, at pytest's cache folder."""
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
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()


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
