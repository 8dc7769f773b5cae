# SPDX-License-Identifier: Apache-2.0
"""What a fine-tuning came to: answers, scores, statistics over seeds, tables and files.

Data goes from the outputs of a head to predictions, to scores per seed, to statistics over seeds,
to files. `answers`, `scores` (with the formulas in `label_scores`, `question_scores` and
`ranking_scores`), `statistics` and `run_results` compute; `results_table` makes text of them;
`results_file`, `page`, with its charts in `page_charts`, and `submission` write files.
`file_scores` has the scores of labelled files that a tuned model is given later, `progress` says
how far a command is that is still at work, and `closing` what a finished one says last.
"""
