# SPDX-License-Identifier: Apache-2.0
"""Metrics of a run as files, console lines, pages and pictures.

Metrics come in as dictionaries, one per step, and leave as JSON lines, TensorBoard events, HTML and
PNG.

    writers, services, live_line, live_picture      take the metrics of a run while it trains
    baselines, alarms, means, best_checkpoint       judge them
    run_page, run_cost, closing                     the report of a run, and its last lines
    compared_run, comparison, comparison_page       runs side by side, for the command `compare`
    evaluation_table, text_units                    the table of `evaluate`
    view, view_html, view_terminal, ranking         corrupted rows as text, for `show` and reports
    drawing, charts, rendering, style               what all pages are drawn with
    notebook                                        pages as the value of a notebook's cell

Other modules serve these: those that begin with `run_`, `comparison_` or `service_`, and
`console_lines`, `data_summary`, `drawing_pace`, `metric_values` and `samples`.
"""
