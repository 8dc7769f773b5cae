# SPDX-License-Identifier: Apache-2.0
"""Metrics of a run as files, console lines, pages and pictures.

Inside are the writers of metrics to files and to services, their baselines and alarms, the report
of a run, the comparison of runs, the tables of an evaluation, and samples of corrupted text. Runs
and commands import `writers`, `services`, `alarms`, `run_page`, `comparison`, `comparison_page`,
`evaluation_table`, `samples` and `view`, notebooks `live_picture` and `notebook`; other pages are
drawn with `drawing`, `rendering` and `style`. Metrics come in as dictionaries, one per step, and
leave as JSON lines, TensorBoard events, HTML and PNG.
"""
