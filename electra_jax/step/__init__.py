# SPDX-License-Identifier: Apache-2.0
"""One training step and one evaluation, as pure functions of state and batch.

From outside, import `plans`, which turns a configuration into the parts of a step, `train_step`,
`evaluation`, `attention_choice` for a note at the start of a run, and for other training programs
`optimizer` and `schedule`. A state and a batch go in, a new state and metric sums come out; nothing
here reads a file or a clock.
"""
