# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning: a pre-trained encoder and the files of a task become scores over several seeds.

`config` holds the settings, `tasks` reads examples, `tuning` trains encoder and head, and `results`
turns predictions into answers, scores, statistics over seeds, pages and submission files. The
command imports `config`, and from `tuning` and `results` what runs, forecasts and prints. Data goes
from `tasks` through `tuning` to `results`.
"""
