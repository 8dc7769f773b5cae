# SPDX-License-Identifier: Apache-2.0
"""Which error is the cause of another, and which one only came before it."""

import sys

from electra_jax.host import error_causes


def test_the_innermost_cause_comes_last():
    first, second, third = OSError("disk"), ValueError("library"), RuntimeError("ours")
    second.__context__, third.__cause__ = first, second
    assert error_causes.of(third) == [third, second, first]


def test_errors_that_are_each_others_cause_are_named_once():
    """As aiohttp's and fsspec's are, if one is raised again while the other is handled."""
    connection, missing = OSError("no answer"), FileNotFoundError("x.txt")
    missing.__cause__, connection.__context__ = connection, missing
    assert error_causes.of(connection) == [connection, missing]


def test_what_ended_the_run_is_no_cause_of_what_fails_while_it_ends():
    ends, disk, wrapped = RuntimeError("spike"), OSError("disk"), ValueError("library")

    def close():
        handled = sys.exception()
        try:
            try:
                raise disk
            except OSError:
                raise wrapped from None
        except ValueError as error:
            return handled, error

    try:
        raise ends
    except RuntimeError:
        handled, error = close()
    assert handled is ends
    assert disk.__context__ is ends  # as Python notes it
    assert error_causes.of(error, handled) == [wrapped, disk]
    assert error_causes.of(error) == [wrapped, disk, ends]
