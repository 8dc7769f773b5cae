# SPDX-License-Identifier: Apache-2.0
"""What a run has cost follows from its rows and its starts."""

import pytest

from electra_jax import config as config_lib
from electra_jax.report import run_cost
from support.corpus import load_config


def _config(**schedule):
    tree = load_config("tiny_paper")
    tree.data.update(sequence_length=32, batch_size=8)
    tree.schedule.update(steps=20, warmup_steps=2, **schedule)
    return config_lib.parse(tree)


def _row(step, **metrics):
    return {"step": step, "kind": "train", "tokens_seen": 100 * step, "step_seconds": 2.0} | metrics


STARTS = [{"step": 0, "device_count": 2, "row_flops": [1e6, 3e6]}]


def test_each_stage_counts_its_own_rows():
    config = _config(stages=((0.5, 64, 4),))  # from step 11 on
    found = run_cost.of(config, [_row(5), _row(10), _row(15)], STARTS)
    assert found.flops == 10 * 8 * 1e6 + 5 * 4 * 3e6
    assert (found.tokens, found.device_seconds) == (1500, 15 * 2.0 * 2)
    assert run_cost.describe(found) == {
        "tokens": "1,500, padding not counted",
        "FLOPs": "1.4e+08 in matrix products",
        "device-hours": "0.0167, of training steps alone",
    }


def test_stages_of_a_budget_of_tokens_begin_with_its_tokens():
    config = _config(stages=((0.5, 64, 4),), budget="tokens", tokens=1200)
    found = run_cost.of(config, [_row(6), _row(12)], STARTS)
    assert found.flops == 6 * 8 * 1e6 + 6 * 4 * 3e6


@pytest.mark.parametrize("starts", [[], [{"step": 0, "device_count": 1}]])
def test_what_no_start_tells_is_left_out(starts):
    found = run_cost.of(_config(), [_row(5, step_seconds=None)], starts)
    assert run_cost.describe(found) == {"tokens": "500, padding not counted"}
    assert run_cost.describe(run_cost.of(_config(), [], starts)) == {}
