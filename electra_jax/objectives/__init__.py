# SPDX-License-Identifier: Apache-2.0
"""What is learnt: one file for each objective, all with the same functions.

    init(key) -> params                        only the subtrees that it needs
    knobs(progress) -> {name: value}           what moves during a run: mask rate, temperature
    weights(batch, knobs) -> {term: weight}    from ids, over the whole batch, before any gradient
    phases                                     each: loss(params, batch, keys, knobs, carry)
                                                     -> ({term: sum}, metrics, carry)
    total(means) -> scalar                     of {term: sum / weight}
    play(params, batch, keys, knobs)           what happened to a batch, to be shown
    evaluate(params, batch, keys, knobs)       -> metrics
    flops(length)                              of a row, by part
    token_scores, masked_scores                how natural a text is, where it can say (`scoring`)

`corruption.py` holds what all begin with; the method is in the files beside it. A new objective is
a new file here and one line in `build.OBJECTIVES`; docs/objectives.md says how.
"""
