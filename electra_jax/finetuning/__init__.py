# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning: a pre-trained encoder and the files of a task become scores over several seeds.

`config` holds the settings, `tasks` reads examples, `tuning` trains encoder and head, and `results`
turns predictions into answers, scores, statistics over seeds, pages and submission files. Commands
import `config` and single modules of `tuning` and `results`. Data goes from `tasks` through
`tuning` to `results`.
"""
