# SPDX-License-Identifier: Apache-2.0
"""`electra_jax.compile`: what it refuses and, with the compilers, what it finds (-m aot)."""

import json

import pytest

from electra_jax.speed import ahead_of_time
from support.commands import command, complaint

MODULE = "electra_jax.compile"
SMALL = (  # two layers: a minute to compile
    "--config=small",
    "--config.model.discriminator.layers=2",
    "--config.model.generator.layers=2",
)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--config=small"], "--topology is needed, such as --topology=v5e:2x4"),
        (["--config=small", "--topology=v9:2x2"], "no chip v9 is known; there are v4, v5e"),
    ],
)
def test_a_bad_command_line_is_one_line(arguments, message):
    assert message in complaint(*arguments, module=MODULE)


def test_without_a_compiler_the_remedy_is_named(monkeypatch):
    monkeypatch.setattr(ahead_of_time.importlib.util, "find_spec", lambda name: None)
    for platform in ("tpu", "cuda"):
        reason = ahead_of_time.missing(platform)
        assert reason.startswith(f"no compiler for {platform} here: pip install 'jax[")


@pytest.mark.aot
@pytest.mark.few
def test_small_fits_four_chips_and_says_what_they_exchange():
    if reason := ahead_of_time.missing("tpu"):
        pytest.skip(reason)
    flags = (*SMALL, "--topology=v5e:2x2", "--config.data.batch_size=28", "--json")
    done = command(*flags, module=MODULE)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["chips"], found["fits"]) == (4, True)
    (trial,) = found["trials"]
    assert 0 < trial["state"] < trial["peak"] < 185 * 2**20
    # The gradients of all parameters are summed over the chips once: four bytes each, and a little.
    count, size = trial["exchanged"]["all-reduce"]
    assert count < 13 and size == pytest.approx(trial["state"] / 3 * 4 / 4, rel=0.6)


@pytest.mark.aot
def test_what_does_not_fit_is_refused_with_what_would():
    if reason := ahead_of_time.missing("tpu"):
        pytest.skip(reason)
    done = command(
        *SMALL, "--topology=v5e:1x1", "--config.data.batch_size=4096",
        "--config.model.attention=einsum", "--config.data.sequence_length=512", module=MODULE,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "does not fit: " in done.stdout and "--config.model.remat=dots: " in done.stdout


@pytest.mark.aot
def test_a_mesh_that_the_chips_cannot_form_is_one_line():
    if reason := ahead_of_time.missing("tpu"):
        pytest.skip(reason)
    said = complaint(*SMALL, "--topology=v5e:2x2", "--config.mesh.fsdp=3", module=MODULE)
    assert "fsdp=3" in said and "does not fit 4 devices" in said
