# SPDX-License-Identifier: Apache-2.0
"""What is learned: one file per objective, all with the interface of `objective.Objective`.

A batch comes in; losses as sums, metrics, and on request everything that happened to the batch go
out. Start with `replaced_token_detection.py`, the method of the paper; `masking.py`, `sampling.py`
and `vocabulary_softmax.py` are its pure functions. A new objective is a new file here and one line
in `plans.OBJECTIVES`; docs/objectives.md shows how.
"""
