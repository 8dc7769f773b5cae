# SPDX-License-Identifier: Apache-2.0
"""Pre-training objectives, one per file, all with the interface of `objective.Objective`.

Everything may be imported from outside; `step/plans.py` chooses an objective by its name. A batch
goes in; losses and metrics as sums come out, and on request all intermediate values.

Start with `replaced_token_detection.py`, the method of the paper; `masking.py`, `sampling.py` and
`vocabulary_softmax.py` hold its pure functions. A new objective is a new file here and the lines in
other files that CONTRIBUTING.md lists.
"""
