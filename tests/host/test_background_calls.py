# SPDX-License-Identifier: Apache-2.0
"""Calls one after the other in a thread that ends when it is told to."""

import threading

from electra_jax.host import background_calls


def thread_of(caller):
    return caller.begin(threading.current_thread).result()


def test_all_calls_are_made_by_one_thread_until_its_end():
    caller = background_calls.Caller("one")
    first = thread_of(caller)
    assert thread_of(caller) is first and first.name == "one"
    caller.end()
    first.join(60)
    assert not first.is_alive()
    assert thread_of(caller) is not first  # a later call begins another
    caller.end()
    caller.end()  # nothing is left to end


def test_an_end_waits_for_no_call_and_takes_none_away():
    caller, go_on = background_calls.Caller("one"), threading.Event()
    thread = thread_of(caller)
    hanging, after = caller.begin(lambda: go_on.wait(60)), caller.begin(lambda: "made")
    caller.end()
    assert not hanging.is_done()
    assert thread_of(caller) is not thread  # which still hangs
    go_on.set()
    assert after.result() == "made"
    thread.join(60)
    assert not thread.is_alive()
    caller.end()
