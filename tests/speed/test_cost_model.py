# SPDX-License-Identifier: Apache-2.0
"""The floor of runs on chips that nobody compiled for, by hand and against compiled programs."""

import dataclasses
import json

import pytest

from benchmarks import scaling_table
from electra_jax import config as config_lib
from electra_jax.config import stages
from electra_jax.speed import chips, cost_model
from support.corpus import ROOT, load_config

WORK = cost_model.Work(rows=2048, flops=8e15, gradients=400_000_000)


def test_a_step_takes_as_long_as_its_slowest_limit():
    # 8e15 operations over 256 chips of 197e12 a second; 400 MB pass the links twice at 200 GB/s.
    found = cost_model.floor(WORK, chips.topology("v5e:16x16"))
    assert found.limits == {
        "products": pytest.approx(0.15863, rel=1e-3),
        "exchange": pytest.approx(0.004),
    }
    assert found.step == found.limits["products"]
    assert found.exchanged == pytest.approx(0.004 / 0.16263, rel=1e-3)
    # 400,000 steps of 0.1586 s are 63,452 s.
    assert found.hours(400_000) == pytest.approx(17.626, rel=1e-3)
    assert found.chip_hours(400_000) == pytest.approx(256 * 17.626, rel=1e-3)


def test_between_slices_a_chip_sends_its_share():
    # Four slices of 256: three quarters of 400 MB / 256, there and back, at 3.125 GB/s.
    found = cost_model.floor(WORK, chips.topology("4xv5e:16x16"))
    assert found.chips == 1024
    assert found.limits["products"] == pytest.approx(0.15863 / 4, rel=1e-3)
    assert found.limits["network"] == pytest.approx(0.00075)


@pytest.mark.parametrize(
    "topology, message",
    [
        ("v5p:16x16x24", "2048 rows cannot be split evenly over the 6144 chips of v5p:16x16x24"),
        ("2xv4:2x2x2", "the network between slices of v4 is not known here"),
    ],
)
def test_what_cannot_be_computed_is_one_line(topology, message):
    with pytest.raises(ValueError, match=message) as error:
        cost_model.floor(WORK, chips.topology(topology))
    assert "\n" not in str(error.value)


def test_the_budgets_are_those_of_the_paper():
    found = {name: [cost_model.steps(run) for run in cost_model.PAPER_RUNS[name]] for name in SIZES}
    assert found == {"small": [1e6], "base": [766_000], "large": [400_000, 1_750_000]}


SIZES = ("small", "base", "large")


def test_the_work_of_a_run_with_stages_says_whose_step_it_is():
    tree = load_config("small")
    alone = cost_model.work(config_lib.parse(tree), 30522)
    assert alone.stage is None

    tree.schedule.stages = ((0.9, tree.data.sequence_length, 2 * tree.data.batch_size),)
    config = config_lib.parse(tree)
    first, second = stages.of(config)
    assert cost_model.work(config, 30522) == dataclasses.replace(alone, stage=first)
    later = cost_model.work(config, 30522, second)
    assert (later.rows, later.flops, later.stage) == (2 * alone.rows, 2 * alone.flops, second)


@pytest.mark.parametrize("size", SIZES)
def test_bytes_and_operations_are_those_of_compiled_programs(size):
    """Of every compiled line whose mesh has a data axis only."""
    with open(ROOT / scaling_table.FILE, encoding="utf-8") as file:
        found = json.load(file)
    work = cost_model.work(config_lib.parse(load_config(size)), 30522)

    compared = 0
    for line, one in found.items():
        tpu = "H100" not in line
        for trial in one.get("trials", []):
            plain = not trial["changes"] and not one["flags"][2:] and not trial["problem"]
            if line.startswith(f"{size} on") and plain and tpu:
                assert trial["flops"] == work.flops
                if one["slices"] == 1:
                    bound, (_, size_) = 0.001, trial["exchanged"]["all-reduce"]
                else:  # each chip's share of each array is padded, most so with small arrays
                    bound, (_, size_) = 0.08, trial["crossing"]["all-reduce"]
                    size_ *= one["chips"] / one["slices"]
                assert size_ == pytest.approx(work.gradients, rel=bound), line
                compared += 1
    assert compared


def test_the_page_shows_both_tables():
    """docs/scaling.md has every row of what was compiled and of what is computed."""
    page = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8").splitlines()
    with open(ROOT / scaling_table.FILE, encoding="utf-8") as file:
        rows = scaling_table.table(json.load(file)) + scaling_table.costs()
    assert [row for row in rows if row not in page] == []
