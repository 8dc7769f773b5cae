# SPDX-License-Identifier: Apache-2.0
"""One training step and one evaluation, as pure functions of state and batch.

`plans` turns a configuration into the parts of a step: networks, objective, optimizer, rate, mesh.
The update takes a state and a batch and returns a new state and metrics; nothing here reads a file
or a clock.
"""
