# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning: a pre-trained encoder and the files of a task become scores over several seeds.

`config` holds the settings, `tasks` reads examples, `results` turns predictions into answers,
scores, statistics over seeds, pages and submission files, and `tuning`, which uses both, trains
encoder and head. The commands are `finetune`, `predict` and, for tuned weights, `convert`.
"""
