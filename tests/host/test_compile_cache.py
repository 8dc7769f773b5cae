# SPDX-License-Identifier: Apache-2.0
"""Where compiled programs, texts and copies of buckets are kept between two starts."""

import json
import os

import jax
import pytest

from electra_jax.host import compile_cache, processes, user_cache


@pytest.fixture
def no_folder_of_jax():
    """jax without a folder for compiled programs, as it begins outside of these tests."""
    name, before = "jax_compilation_cache_dir", jax.config.jax_compilation_cache_dir
    jax.config.update(name, None)
    yield
    jax.config.update(name, before)


@pytest.mark.parametrize(
    "variables, expected",
    [
        ({"HOME": "home"}, "home/.cache/electra_jax"),
        ({"HOME": "home", "XDG_CACHE_HOME": "xdg"}, "xdg/electra_jax"),
        ({"HOME": "home", "XDG_CACHE_HOME": "xdg", "ELECTRA_JAX_CACHE": "disk"}, "disk"),
    ],
)
@pytest.mark.usefixtures("no_folder_of_jax")
def test_compiled_programs_lie_beside_all_that_is_kept(variables, expected, monkeypatch, tmp_path):
    for name in ("HOME", "XDG_CACHE_HOME", "ELECTRA_JAX_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, str(tmp_path / value))

    compile_cache.keep()

    assert jax.config.jax_compilation_cache_dir == str(tmp_path / expected / "xla")
    assert user_cache.folder("text") == str(tmp_path / expected / "text")


@pytest.mark.usefixtures("no_folder_of_jax")
def test_a_folder_that_jax_was_given_stays(tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    compile_cache.keep()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path)


@pytest.fixture
def two(no_folder_of_jax, monkeypatch, tmp_path):
    """This is the first of two processes; sets whether the other one was given a folder, and sees
    the file of the first.
    """
    monkeypatch.setenv("ELECTRA_JAX_CACHE", str(tmp_path))
    monkeypatch.setattr(processes, "is_alone", lambda: False)
    monkeypatch.setattr(processes, "of_first", lambda work: work())

    def other(*answers):
        others = iter(answers)
        monkeypatch.setattr(processes, "gather", lambda text: [text, json.dumps(next(others))])

    return other


@pytest.mark.parametrize("shared", [True, False])
def test_several_processes_keep_programs_where_all_see_them(two, shared, tmp_path):
    two(False, shared)
    compile_cache.keep()
    kept = str(tmp_path / "xla") if shared else None
    assert jax.config.jax_compilation_cache_dir == kept
    assert os.listdir(tmp_path / "xla") == [], "nothing is left of the question"


def test_nothing_is_kept_where_the_first_process_cannot_write(two, tmp_path):
    (tmp_path / "xla").write_text("a file where the folder should be")
    two(False, False)
    compile_cache.keep()
    assert jax.config.jax_compilation_cache_dir is None


def test_a_folder_that_only_the_other_process_was_given_ends_the_questions(two, tmp_path):
    """That one asks nothing more, so this one may not either."""
    two(True)
    compile_cache.keep()
    assert jax.config.jax_compilation_cache_dir is None and not (tmp_path / "xla").exists()
