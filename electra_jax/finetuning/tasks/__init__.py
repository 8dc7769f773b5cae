# SPDX-License-Identifier: Apache-2.0
"""Tasks and their examples: built-in benchmarks, tables, CoNLL columns, SQuAD and custom files.

Outside this folder, `task`, `examples` and `datasets` are imported; the other modules read one kind
of file each. Data goes from files (`files`) through one reader per format (`tables`, `columns`,
`squad`, `catalogue`) and `labels` to the splits of a task (`reading`), and from there to arrays for
training and targets for scoring (`datasets`).
"""
