# SPDX-License-Identifier: Apache-2.0
"""Tasks and their examples: built-in benchmarks, tables, CoNLL columns, SQuAD and custom files.

`built_in` and `custom` make tasks, with the types in `task` and `examples`, and the other modules
read files. Data goes from files (`files`, `parquet_records`, `tfds_records`) through one reader per
form of examples (`tables`, `conll`, `squad`) and `labels` to the splits of a task (`reading`,
`train_and_dev`). `new_files` and `running_text` read new texts for a model that is tuned.
"""
