# SPDX-License-Identifier: Apache-2.0
"""Which log lines are shown: ours, and the warnings of libraries."""

import logging

import pytest

import electra_jax
from electra_jax.host import logs

OURS = electra_jax.__file__.replace("__init__.py", "training/loop.py")
THEIRS = "/home/me/electra_jax/.venv/lib/python3.12/site-packages/orbax/checkpoint/saving.py"


@pytest.mark.parametrize(
    ("path", "level", "shown"),
    [
        (OURS, logging.INFO, True),
        (THEIRS, logging.INFO, False),  # in a checkout that has the name of the package
        (THEIRS, logging.WARNING, True),
    ],
)
def test_a_line_of_a_library_is_shown_from_warning_on(path, level, shown):
    record = logging.LogRecord("absl", level, path, 1, "text", (), None)
    assert logs._ours(record) == shown
