# SPDX-License-Identifier: Apache-2.0
"""Metrics of a run as files, console lines, pages and pictures.

Inside are the writers of metrics to files and to services, their baselines and alarms, the report
of a run with what it has cost (`run_cost`), the comparison of runs, the tables of an evaluation,
and samples of corrupted text. Runs import `writers`, `services`, `alarms`, `run_page`, `ranking`,
`samples` and `view`, and `drawing_pace`, which says when a page is drawn again. The command
`compare` imports `compared_run`, which reads a workdir, `comparison`, `comparison_page` and
`comparison_table`, and `evaluate` imports `evaluation_table`; notebooks import `live_picture` and
`notebook`. Other pages are drawn with `drawing`, `charts`, `rendering` and `style`. Metrics come in
as dictionaries, one per step, and leave as JSON lines, TensorBoard events, HTML and PNG.
"""
