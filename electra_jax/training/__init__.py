# SPDX-License-Identifier: Apache-2.0
"""A training run: everything that happens between a configuration and a finished workdir.

From outside, import `loop` to train, `trained_run`, `other_text`, `shown_rows` and `run_scorer` to
evaluate, show or ask what was trained, `run_data` to find or prepare a run's data, `provenance` to
note what a result was made with, and `budget` and `feed` to measure speed. A configuration goes to
`runs`, which builds a run and restores its state; `loop` takes the steps, with batches from `feed`,
and `output` writes metrics, evaluations and the report.
"""
