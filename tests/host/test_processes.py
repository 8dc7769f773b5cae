# SPDX-License-Identifier: Apache-2.0
"""What processes tell each other, where one process can play its part alone."""

import jax
import pytest
from jax import numpy as jnp

from electra_jax.host import error_causes, processes


class Program:
    """A jitted function that notes what is done with it."""

    def __init__(self, done):
        self._done = done

    def lower(self, *arguments):
        self._done.append(("lowered", arguments))
        return self

    def compile(self):
        self._done.append("compiled")


def test_a_program_is_compiled_and_then_all_wait_for_each_other(monkeypatch):
    done = []
    monkeypatch.setattr(processes, "is_alone", lambda: False)

    def gather(text, doing):
        done.append(f"gathered {doing}")
        return [text, "true"]

    monkeypatch.setattr(processes, "gather", gather)
    processes.compile_together(Program(done), 3, 4)
    assert done == [("lowered", (3, 4)), "compiled", "gathered to compile"]


@pytest.mark.parametrize(("asked", "other"), [(True, "true"), (False, "false")])
def test_where_one_was_asked_to_stop_before_it_had_compiled_all_stop(monkeypatch, asked, other):
    done = []
    monkeypatch.setattr(processes, "gather", lambda text, doing: [text, other])
    with pytest.raises(processes.Stopped):
        processes.compile_together(Program(done), 3, stops=lambda: asked)
    assert done == ([] if asked else [("lowered", (3,)), "compiled"])


def in_a_group(monkeypatch, answers):
    """This process is one of two; `answers` gives what both say for what this one says."""

    class Group:
        def gather(self, text, doing=""):
            return answers(text)

    group = Group()
    monkeypatch.setattr(processes, "is_alone", lambda: False)
    monkeypatch.setattr(processes.peers, "group", lambda: group)


def test_the_number_of_the_first_is_that_of_all(monkeypatch):
    """To the last digit, by the group; the second of two had 9."""
    answers = iter([["0.1", "9.0"], ["0", "1"]])  # then how jax counts them
    in_a_group(monkeypatch, lambda text: next(answers))
    assert processes.number_of_first(9.0) == 0.1


def test_processes_that_jax_does_not_tell_apart_are_an_error(monkeypatch):
    """As where each of them has a slice to itself."""
    in_a_group(monkeypatch, lambda text: [text, text])
    with pytest.raises(RuntimeError, match="jax numbers the 2 processes 0, 0; start one process"):
        processes.gather("word")


def test_an_error_of_the_compiler_is_raised(monkeypatch):
    with pytest.raises(AttributeError, match="lower"):
        processes.compile_together(None, stops=lambda: False)


def test_one_process_compiles_at_its_first_call_as_always():
    processes.compile_together(None)


def test_what_was_compiled_before_is_not_traced_again():
    traced = []

    def double(x):
        traced.append(x)
        return 2 * x

    program = jax.jit(double)
    processes.compile_together(program, jnp.ones(3), stops=lambda: False)  # in another thread
    assert program(jnp.ones(3)).tolist() == [2, 2, 2]
    assert len(traced) == 1


@pytest.mark.parametrize("kind", [error_causes.MayPass, ValueError])
def test_what_may_pass_on_one_process_may_pass_on_all(monkeypatch, kind):
    """The first fails because its settings are refused, or because a server is away."""
    monkeypatch.setattr(processes, "is_alone", lambda: False)

    def refuse():
        try:
            raise kind("away")
        except ValueError as error:
            raise ValueError("cannot be read: away") from error

    sent = []
    monkeypatch.setattr(processes, "gather", lambda text, doing: sent.append(text) or [text])
    with pytest.raises(ValueError, match="cannot be read: away$"):
        processes.agree(refuse, ValueError, OSError)
    monkeypatch.setattr(processes, "gather", lambda text, doing: [*sent, text])
    with pytest.raises(ValueError, match="away .found by process 0") as error:
        processes.agree(lambda: None, ValueError, OSError)
    assert error_causes.may_pass(error.value) == (kind is error_causes.MayPass)
