# SPDX-License-Identifier: Apache-2.0
"""How units are shared out; that real processes do it is in tests/whole/test_shared_preparation."""

import pytest

from electra_jax.training import shared_preparation


@pytest.mark.parametrize(
    ("sizes", "cores", "owners"),
    [
        ([1, 1, 1, 1], [2, 2], [0, 0, 1, 1]),
        ([1, 1, 1, 1], [3, 1], [0, 0, 0, 1]),
        ([1, 1, 1, 1, 1, 1], [1, 0, 1, 1], [0, 0, 2, 2, 3, 3]),  # process 1 sees no folder
        ([6, 1, 1, 1, 1, 2], [1, 1], [0, 1, 1, 1, 1, 1]),
        ([1, 1, 1], [4, False, False], [0, 0, 0]),
        ([5], [1, 1], [1]),
        ([1, 1], [1, 1, 1, 1], [1, 3]),  # fewer units than processes
    ],
)
def test_shares_are_neighbours_and_as_large_as_the_cores(sizes, cores, owners):
    assert shared_preparation.shares(sizes, cores) == owners


def test_processes_of_one_host_divide_its_cores_and_who_sees_nothing_has_none():
    def process(host, sees=True, workers=0):
        return {"sees": sees, "host": host, "workers": workers, "cores": 8}

    answers = [process("a"), process("a"), process("b"), process("c", sees=False), process("a")]
    assert shared_preparation._cores(answers) == [2, 2, 8, 0, 2]
    assert shared_preparation._cores([process("a", workers=3), process("a", workers=3)]) == [3, 3]
