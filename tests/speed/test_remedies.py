# SPDX-License-Identifier: Apache-2.0
"""Which settings are tried for a configuration, in which order, and when it ends; no compiler."""

import dataclasses

import ml_collections
import pytest

from electra_jax import config as config_lib
from electra_jax.speed import ahead_of_time, chips, remedies, topology_fit
from electra_jax.step import plans
from support.corpus import load_config

GIB = 2**30
V5E = chips.topology("v5e:2x4")  # eight chips of 15.75 GiB


@dataclasses.dataclass(frozen=True)
class Device:
    """What of a device a mesh is made by."""

    id: int
    platform: str = "cpu"
    device_kind: str = "described"
    process_index: int = 0


def tree(remat="none", accumulation=1, **mesh):
    """small's settings: 128 rows of 128, four heads."""
    made = load_config("small")
    made.mesh.update(mesh)
    made.model.remat, made.schedule.accumulation = remat, accumulation
    return ml_collections.ConfigDict(config_lib.to_tree(config_lib.parse(made)))


def compiled(gib):
    problem = "" if gib <= 15.75 else "needs more memory than a chip has"
    return ahead_of_time.StepOnChips(state=GIB, peak=int(gib * GIB), flops=8e12, problem=problem)


def run(needs, settings=None, topology=V5E, remedies_=True):
    """([changed settings], [what was announced]), if a step needs `needs(settings)` GiB.

    The last changes are tried last; those that fit have a mark, `True`, behind them.
    """
    announced = []
    made = remedies.trials(
        settings or tree(),
        topology,
        lambda changed: compiled(needs(changed)),
        remedies_,
        announced.append,
    )
    tried = []
    for trial in made:
        tried += [trial.changes] + [True] * trial.found.fits(topology.chip)
    return tried, announced


FSDP = [{"mesh.data": -1, "mesh.fsdp": size} for size in (2, 4, 8)]
ACCUMULATION = [{"schedule.accumulation": count} for count in (2, 4, 8, 16)]
TENSOR = [{"mesh.data": -1, "mesh.tensor": size} for size in (2, 4)]
DOTS, FULL = {"model.remat": "dots"}, {"model.remat": "full"}


def test_what_fits_is_compiled_once():
    assert run(lambda settings: 15.75) == ([{}, True], [])


def test_what_fits_and_computes_again_is_tried_with_less_of_that():
    def needs(settings):
        return {"none": 16, "dots": 10, "full": 8}[settings.model.remat]

    tried, announced = run(needs, tree(remat="full"))
    assert tried == [{}, True, {"model.remat": "none"}, DOTS, True]
    assert announced == [
        "it fits; trying whether it still does if the backward pass recomputes less"
    ]
    assert run(lambda _: 1, tree(remat="full"))[0] == [{}, True, {"model.remat": "none"}, True]
    assert run(needs, tree(remat="full"), remedies_=False) == ([{}, True], [])


def test_the_mildest_remedy_of_each_kind_that_fits_ends_its_kind():
    def needs(settings):
        recomputed = {"none": 20, "dots": 18, "full": 9}[settings.model.remat]
        return recomputed * 0.9 ** (settings.mesh.fsdp - 1) / settings.schedule.accumulation**0.1

    # 18 GiB are too many, 9 fit. 20 x 0.9 = 18 are too many, 20 x 0.9^3 = 14.6 fit. Of the
    # micro-batches, 16 are the most that leave each chip a whole row, and just enough.
    tried, announced = run(needs)
    assert tried == [{}, DOTS, FULL, True, *FSDP[:2], True, *ACCUMULATION, True]
    assert announced == ["it does not fit; trying what may make it fit"]


def test_products_are_split_only_if_nothing_else_is_enough():
    tried, _ = run(lambda settings: 30 / settings.mesh.tensor)
    assert tried == [{}, DOTS, FULL, *FSDP, *ACCUMULATION, TENSOR[0], True]
    assert TENSOR[0] not in run(lambda settings: 30 / settings.mesh.fsdp)[0]


def test_pairs_are_tried_if_no_single_setting_is_enough_and_the_first_that_fits_is_the_last():
    def needs(settings):
        whole = 60 if settings.model.remat != "full" else 40
        return whole / settings.schedule.accumulation**0.5

    # 60 / 4 = 15 would fit with 16 micro-batches; so let there be eight at most.
    settings = tree()
    settings.data.batch_size = 64
    tried, _ = run(needs, settings)
    pairs = [FULL | changes for changes in ACCUMULATION[:3]]
    assert tried == [{}, DOTS, FULL, *FSDP, *ACCUMULATION[:3], *TENSOR, *pairs, True]


def test_all_pairs_are_tried_and_no_more():
    tried, _ = run(lambda _: 99)
    assert tried == [
        {}, DOTS, FULL, *FSDP, *ACCUMULATION, *TENSOR,
        *(FULL | changes for changes in ACCUMULATION),
        *(FULL | changes for changes in FSDP),
        *(FSDP[-1] | changes for changes in ACCUMULATION),
    ]  # fmt: skip


def test_what_is_in_use_already_is_no_remedy():
    tried, _ = run(lambda _: 99, tree("full", 8, fsdp=4))
    both = {"mesh.data": -1, "mesh.tensor": 2}
    assert tried == [{}, FSDP[2], ACCUMULATION[3], both, FSDP[2] | ACCUMULATION[3]]


def test_without_remedies_nothing_more_is_compiled():
    assert run(lambda _: 99, remedies_=False) == ([{}], [])


def test_nothing_is_announced_if_nothing_is_left_to_try():
    assert run(lambda _: 99, tree("full", 16, fsdp=8)) == ([{}], [])


def test_a_program_that_does_not_compile_for_another_reason_is_not_tried_again():
    broken = ahead_of_time.StepOnChips(problem="no such kernel")
    (only,) = remedies.trials(tree(), V5E, lambda _: broken, try_remedies=True)
    assert topology_fit.verdict(only, V5E) == "does not compile: no such kernel"


def test_the_state_is_split_over_chips_of_one_slice_only():
    tried, _ = run(lambda _: 99, topology=chips.topology("2xv5e:1x2"))
    assert {one["mesh.fsdp"] for one in tried if "mesh.fsdp" in one} == {2}
    assert {one["mesh.tensor"] for one in tried if "mesh.tensor" in one} == {2}


POD = chips.topology("v5e:16x16")  # twice as many chips as `small` has rows


def test_rows_that_cannot_be_split_are_tried_with_the_tensor_axis():
    asked = []

    def compile_(changed):
        asked.append((changed.mesh.tensor, changed.schedule.accumulation))
        return compiled(1)

    first, second = remedies.trials(tree(), POD, compile_, try_remedies=True)
    assert first.changes == {} and not first.found.fits(POD.chip)
    assert topology_fit.verdict(first, POD) == (
        "does not compile: data.batch_size=128 is not divisible by 256 (devices that split the rows"
        " x accumulation); try 256 or mesh.tensor=2"
    )
    assert second.changes == {"mesh.data": -1, "mesh.tensor": 2} and second.found.fits(POD.chip)
    assert asked == [(2, 1)]  # the configuration itself was not compiled


def test_if_that_does_not_fit_the_rest_is_tried_from_there_on():
    tried, announced = run(lambda settings: 40 / settings.mesh.fsdp, topology=POD)
    base = TENSOR[0]
    assert tried == [{}, base, base | DOTS, base | FULL, base | FSDP[0], base | FSDP[1], True]
    assert announced == [
        "its rows cannot be split; trying mesh.tensor, with which they can",
        "it does not fit; trying what may make it fit",
    ]


@pytest.mark.parametrize("remedies_, rows", [(True, 63), (False, 128)])
def test_rows_that_no_tensor_axis_helps_are_not_compiled(remedies_, rows):
    settings = tree()
    settings.data.batch_size = rows
    assert run(lambda _: 1, settings, POD, remedies_) == ([{}], [])


def staged(*kinds):
    """small's settings with 256 rows of 128 tokens, then other stages: (share, tokens, rows)."""
    settings = tree()
    settings.data.batch_size, settings.model.max_positions = 256, 512
    settings.schedule.stages = kinds
    return settings


def test_micro_batches_suit_the_rows_of_all_stages():
    # A chip has 256 / 8 = 32 rows, then 32 / 8 = 4: they make up to four micro-batches.
    def compile_(changed):
        described = [Device(number) for number in range(8)]
        plans.make_mesh(config_lib.parse(changed), described)  # as the real one does
        return compiled(99)

    made = remedies.trials(staged((0.9, 512, 32)), V5E, compile_, try_remedies=True)
    assert not {trial.found.problem for trial in made} - {"needs more memory than a chip has"}
    tried, _ = run(lambda _: 99, staged((0.9, 512, 32)))
    counts = [one["schedule.accumulation"] for one in tried if "schedule.accumulation" in one]
    assert counts == [2, 4] * 3  # alone, and behind each of two other settings


def test_a_trial_that_is_refused_is_a_problem_and_the_search_goes_on():
    def needs(changed):
        if changed.mesh.fsdp == 2:
            raise config_lib.ConfigError("mesh.fsdp=2 is refused")
        return 40 / changed.mesh.fsdp

    made = list(remedies.trials(tree(), V5E, lambda c: compiled(needs(c)), try_remedies=True))
    (refused,) = [trial for trial in made if trial.found.problem.startswith("mesh")]
    assert refused.changes == FSDP[0]
    line = "  --config.mesh.data=-1 --config.mesh.fsdp=2: mesh.fsdp=2 is refused"
    assert line in topology_fit.table(tree(), V5E, made)
    assert [trial.changes for trial in made if trial.found.fits(V5E.chip)] == [FSDP[1]]


def test_a_configuration_that_is_refused_itself_is_an_error():
    def compile_(changed):
        raise config_lib.ConfigError("mesh.fsdp=3 does not fit 8 devices")

    with pytest.raises(config_lib.ConfigError, match="fsdp=3 does not fit"):
        list(remedies.trials(tree(), V5E, compile_, try_remedies=True))


def test_an_evaluation_that_a_run_would_refuse_is_not_compiled():
    settings = tree()
    settings.evaluation.batch_size = 12
    (only,) = remedies.trials(settings, V5E, lambda _: compiled(1), try_remedies=True)
    assert "evaluation.batch_size=12 is not divisible by 8" in topology_fit.verdict(only, V5E)
    settings.evaluation.batch_size = 16
    assert run(lambda _: 1, settings) == ([{}, True], [])
