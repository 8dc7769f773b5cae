# SPDX-License-Identifier: Apache-2.0
"""From the examples of a task to tuned weights, for several seeds and points of a grid.

The entry points are `task_by_task` (fine-tunes), `forecast` (what that would cost), `tuned_model`
(answers new texts) and `export` (tuned networks in other programs' formats). `choices` turns the
settings into what they stand for. `datasets` turns the splits of a task into arrays for training
and targets for scoring, by `features` and `windows`; `seeds` trains the seeds of a task: `batches`
cuts the arrays for the compiled steps of `tuning_step`, which `loop` runs. What comes out is scored
by `finetuning/results` and written by `run_folder` and `kept_weights`. `live_page` draws
results.html while the command is at work.
"""
