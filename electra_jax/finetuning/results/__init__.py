# SPDX-License-Identifier: Apache-2.0
"""What a fine-tuning came to: answers, scores, statistics over seeds, tables and files.

`tasks` and `tuning` import `scores`, `answers`, `statistics` and `run_results`; `results_file`,
`page`, with its charts in `page_charts`, and `submission` write. `file_scores` has the scores of
labelled files that a tuned model is given later. `progress` says how far a command is that is still
at work. Data goes from the outputs of a head to predictions, to scores per seed, to statistics over
seeds, to files.
"""
