# SPDX-License-Identifier: Apache-2.0
"""Tasks and their examples: built-in benchmarks, tables, CoNLL columns, SQuAD and custom files.

`built_in` and `custom` make tasks, with the types in `task` and `examples`, and the other modules
read files. Data goes from files (`files`) through one reader per format (`tables`, `conll`,
`squad`, `tfds_records`) and `labels` to the splits of a task (`reading`).
"""
