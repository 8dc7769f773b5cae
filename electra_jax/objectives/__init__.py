# SPDX-License-Identifier: Apache-2.0
"""What is learnt: each objective is a room of its own with the same doors.

    init(key) -> params                        only the subtrees that it needs
    knobs(step) -> {name: value}               what a schedule may move: mask rate, temperature
    weights(batch, knobs) -> {term: weight}    from ids, over the whole batch, before any gradient
    phases                                     each: loss(params, batch, keys, knobs, carry)
                                                     -> ({term: sum}, metrics, carry)
    total(means) -> scalar                     of {term: sum / weight}
    evaluate(params, batch, keys, knobs)       -> metrics

A new objective is a new file here and one line in `build.objective`; docs/objectives.md says how.
"""
