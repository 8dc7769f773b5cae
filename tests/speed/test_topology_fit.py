# SPDX-License-Identifier: Apache-2.0
"""What a topology is, and what is said about a configuration on it; without a compiler."""

import json
import types

import ml_collections
import pytest

from electra_jax import config as config_lib
from electra_jax.config import stages
from electra_jax.speed import ahead_of_time, chips, remedies, topology_fit
from electra_jax.step import plans
from support.corpus import load_config

GIB = 2**30
V5E = chips.topology("v5e:2x4")  # eight chips of 15.75 GiB


def tree(**mesh):
    """small's settings: 128 rows of 128."""
    made = load_config("small")
    made.mesh.update(mesh)
    return ml_collections.ConfigDict(config_lib.to_tree(config_lib.parse(made)))


def compiled(gib, **more):
    return ahead_of_time.StepOnChips(state=GIB, peak=int(gib * GIB), flops=8e12, **more)


@pytest.mark.parametrize(
    "text, chip, count",
    [
        ("v5e:16x16", "v5e", 256),
        ("v4:2x2x4", "v4", 16),
        ("h200:8", "h200", 8),
        ("v6e:1x1", "v6e", 1),
        ("2xv5e:4x4", "v5e", 32),
        ("4xv5p:2x2x1", "v5p", 16),
    ],
)
def test_a_topology_has_so_many_chips_of_a_kind(text, chip, count):
    found = chips.topology(text)
    assert (found.chip.name, found.chips, str(found)) == (chip, count, text)
    assert found.chip.peak > 100e12


@pytest.mark.parametrize(
    "text, message",
    [
        ("v5e", "--topology=v5e is no topology; write one such as v5e:2x4, 2xv5e:4x4"),
        ("v5litepod:8", "no chip v5litepod is known; there are v4, v5e, v5p, v6e, h100, h200"),
        ("v5e:8", "v5e takes two lengths from 1 on"),
        ("v4:2x2", "v4 takes three lengths from 1 on"),
        ("h100:2x4", "h100 takes a number from 1 on"),
        ("v5e:0x4", "v5e takes two lengths from 1 on"),
        ("0xv5e:2x4", "0 slices have no chip"),
    ],
)
def test_what_is_no_topology_is_refused_in_one_line(text, message):
    with pytest.raises(ValueError, match=message) as error:
        chips.topology(text)
    assert "\n" not in str(error.value)


def test_a_program_that_does_not_compile_for_another_reason_is_not_tried_again():
    broken = ahead_of_time.StepOnChips(problem="no such kernel")
    (only,) = remedies.trials(tree(), V5E, lambda _: broken, try_remedies=True)
    assert topology_fit.verdict(only, V5E) == "does not compile: no such kernel"


def test_the_floor_is_the_slowest_of_products_and_exchange():
    # 8e12 FLOPs over eight chips of 197e12 a second: 5.08 ms. An all-reduce passes the links twice:
    # 2 x 200 MB, and 100 MB gathered, at 200 GB/s: 2.5 ms.
    exchanged = {"all-reduce": (3, 200_000_000), "all-gather": (1, 100_000_000)}
    found = compiled(4, exchanged=exchanged, moved=3_000_000_000, seconds=40)
    limits = topology_fit.floor(found, V5E)
    assert limits == {
        "products": pytest.approx(1e12 / 197e12),
        "exchange": pytest.approx(0.5e9 / 200e9),
    }

    lines = topology_fit.table(tree(), V5E, [remedies.Trial({}, found)])
    assert lines[0] == "topology               v5e:2x4, 8 chips of 15.75 GiB"
    assert "peak memory per chip   4.00 GiB" in lines
    assert "peak minus state       3.00 GiB" in lines
    assert "all-reduce             3 per step, 190.7 MiB per chip" in lines
    assert "a step takes at least  5.08 ms (products; products 5.08, exchange 2.50)" in lines
    # 128 rows of 128 tokens in 5.076 ms.
    assert "so at most             3,227,648 tokens/s" in lines
    assert lines[-1] == "fits: 11.75 GiB of 15.75 GiB per chip are left"


def test_what_the_compiler_of_a_tpu_expects_is_said_in_milliseconds():
    expects = "the compiler expects   8 ms per step, by its own cost model; no chip has measured it"
    found = compiled(4, cycles=12_000_000)  # at 1.5 GHz
    assert expects in topology_fit.table(tree(), V5E, [remedies.Trial({}, found)])
    made = [remedies.Trial({}, found)]
    assert topology_fit.as_json(tree(), V5E, made)["expected_seconds"] == pytest.approx(0.008)

    without = [remedies.Trial({}, compiled(4))]
    assert not any("expects" in line for line in topology_fit.table(tree(), V5E, without))
    assert topology_fit.as_json(tree(), V5E, without)["expected_seconds"] is None


def test_what_leaves_a_slice_is_a_limit_of_its_own():
    # 100 MB of an all-reduce over four slices: 2 x 3/4 of them leave a chip, and 25 MB of a
    # permutation once, at 25 Gbps per chip: 56 ms.
    slices = chips.topology("4xv5e:2x4")
    crossing = {"all-reduce": (9, 100_000_000), "collective-permute": (1, 25_000_000)}
    found = compiled(4, crossing=crossing)
    assert topology_fit.floor(found, slices)["network"] == pytest.approx(0.056)
    assert "network" not in topology_fit.floor(found, V5E)

    lines = topology_fit.table(tree(), slices, [remedies.Trial({}, found)])
    assert lines[0] == "topology                   4xv5e:2x4, 32 chips of 15.75 GiB in 4 slices"
    assert "all-reduce across          9 per step, 95.4 MiB per chip" in lines
    limits = "56.00 ms (network; products 1.27, exchange 0.00, network 56.00)"
    assert f"a step takes at least      {limits}" in lines
    assert topology_fit.as_json(tree(), slices, [remedies.Trial({}, found)])["slices"] == 4


def test_what_was_tried_stands_below_the_verdict():
    too_much = remedies.Trial(
        {}, ahead_of_time.StepOnChips(peak=20 * GIB, problem="needs more memory")
    )
    remedy = remedies.Trial({"model.remat": "full"}, compiled(9))
    lines = topology_fit.table(tree(), V5E, [too_much, remedy])
    assert lines[-2:] == [
        "does not fit: 4.25 GiB per chip too much",
        "  --config.model.remat=full: fits, 9.00 GiB per chip",
    ]
    found = topology_fit.as_json(tree(), V5E, [too_much, remedy])
    assert found["fits"] is False and found["tokens_per_second_at_most"] is None
    assert [one["peak"] / GIB for one in found["trials"]] == [20, 9]
    assert [one["peak_less_state"] for one in found["trials"]] == [None, 8 * GIB]


SHORT, LONG = stages.Stage(0.0, 128, 128), stages.Stage(0.9, 512, 64)


def staged(*kinds):
    """small's settings, 128 rows of 128 tokens, then stages: (share, tokens, rows)."""
    settings = tree()
    settings.model.max_positions, settings.schedule.stages = 512, kinds
    return settings


def test_the_step_of_every_stage_is_compiled_and_the_one_that_needs_most_decides(monkeypatch):
    """The third stage has steps of the first one's kind."""
    asked = []

    def alone(changed, topology, vocab_size, stage):
        asked.append(stage)
        return compiled(stage.batch_size * stage.sequence_length / 4096)  # 4 and 8 GiB

    monkeypatch.setattr(ahead_of_time, "missing", lambda platform: "")
    monkeypatch.setattr(ahead_of_time, "_compile_stage", alone)
    settings = staged((0.9, 512, 64), (0.95, 128, 128))
    found = ahead_of_time.compile_in_subprocess(settings, V5E, 100)
    assert asked == [SHORT, LONG]
    assert (found.peak, found.stage) == (8 * GIB, LONG)

    lines = topology_fit.table(settings, V5E, [remedies.Trial({}, found)])
    assert "rows per step          64 of 512 tokens, the stage that needs most memory" in lines
    # 64 rows of 512 tokens in the 5.076 ms of 8e12 FLOPs.
    assert "so at most             6,455,296 tokens/s" in lines
    left = "7.75 GiB of 15.75 GiB per chip are left"
    assert lines[-1] == f"fits: {left} in the stage of 64 rows of 512 tokens, which needs most"
    said = topology_fit.as_json(settings, V5E, [remedies.Trial({}, found)])
    stage = {"share": 0.9, "sequence_length": 512, "batch_size": 64}
    assert said["stage"] == said["trials"][0]["stage"] == stage
    json.dumps(said)

    found = ahead_of_time.compile_in_subprocess(tree(), V5E, 100)
    assert found.stage is None and asked[2:] == [SHORT]
    said = topology_fit.as_json(tree(), V5E, [remedies.Trial({}, found)])
    assert said["stage"] is None


def test_a_stage_that_does_not_fit_is_named_and_so_is_that_of_each_trial():
    full = "needs more memory"
    first, last = (
        remedies.Trial(changes, compiled(gib, problem=problem, stage=LONG))
        for changes, gib, problem in (({}, 20, full), ({"model.remat": "full"}, 9, ""))
    )
    assert topology_fit.table(staged((0.9, 512, 64)), V5E, [first, last])[-2:] == [
        "does not fit: 4.25 GiB per chip too much in the stage of 64 rows of 512 tokens, which"
        " needs most",
        "  --config.model.remat=full: fits, 9.00 GiB per chip in the stage of 64 rows of 512"
        " tokens",
    ]


@pytest.mark.parametrize(
    "gibs, problems, decides",
    [
        ((4, 8, 6), ("", "", ""), 1),
        ((15.5, 20, 17), ("", "full", "full"), 1),
        # The compiler does not say how much the last one needs, or ended with it.
        ((4, 20, 0), ("", "full", "the compiler ended"), 2),
        ((15.7, 15.6, 1), ("", "full", ""), 1),  # what was refused needs more than it says
    ],
)
def test_the_neediest_step_is_the_one_that_may_not_fit(gibs, problems, decides):
    found = [compiled(gib, problem=problem) for gib, problem in zip(gibs, problems)]
    assert ahead_of_time.neediest(found) is found[decides]


def test_the_step_of_a_stage_is_traced_on_its_rows(monkeypatch):
    class Traced(Exception):
        pass

    def compile_update(plan, length):
        def lower(shapes, lanes):
            raise Traced(length, lanes["ids"].shape)

        return types.SimpleNamespace(lower=lower)

    monkeypatch.setattr(ahead_of_time, "devices", lambda topology: None)  # this machine's
    monkeypatch.setattr(plans.Plan, "compile_update", compile_update)
    config = config_lib.parse(staged((0.9, 512, 64)))
    for stage, expected in ((None, (128, 128)), (SHORT, (128, 128)), (LONG, (64, 512))):
        with pytest.raises(Traced) as traced:
            ahead_of_time.compile_step(config, V5E, 100, stage)
        assert traced.value.args == (expected[1], expected)


@pytest.mark.parametrize(
    "said, gib",
    [
        ("RESOURCE_EXHAUSTED: ... memory required for HLO temporaries (18.31G) exceeds", 18.31),
        (
            "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 34.5G of 15.75G hbm.",
            34.5,
        ),
        ("RESOURCE_EXHAUSTED: something else", 0),
    ],
)
def test_the_compiler_says_how_much_it_needs(said, gib):
    assert ahead_of_time._needed(said) / GIB == pytest.approx(gib)


@pytest.mark.parametrize(
    "said, words",
    [
        ("F1 a check\nE2 RAW: Raising signal 11 with default behavior\n", "it met signal 11"),
        ("warning\nF1 a check failed\n", "F1 a check failed"),
        ("", "nothing said"),
    ],
)
def test_why_a_compiler_ended_is_one_line(said, words):
    assert ahead_of_time._last_words(said).startswith(words)
