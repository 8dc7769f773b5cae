# SPDX-License-Identifier: Apache-2.0
"""From the examples of a task to tuned weights, for several seeds and points of a grid.

The command imports `task_by_task` (fine-tunes), `forecast` (what that would cost) and `export`
(tuned networks in other programs' formats); the rest serves them. `datasets` turns the splits of a
task into arrays for training and targets for scoring, by `features` and `windows`; `batches` cuts
them for the compiled steps of `tuning_step`, which `loop` runs. What comes out is scored by
`finetuning/results` and written by `run_folder` and `kept_weights`. `live_page` draws results.html
while the command is at work.
"""
