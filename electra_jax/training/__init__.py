# SPDX-License-Identifier: Apache-2.0
"""A training run: everything with side effects between a configuration and a finished workdir.

`runs` makes the parts of a run and restores its state, `loop` takes the steps, and `output` says
what came of them. `spikes` goes back behind a bad step, and `opened` reads a run without disturbing
it.
"""
