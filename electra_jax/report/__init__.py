# SPDX-License-Identifier: Apache-2.0
"""What a run looks like: pages, pictures, tables and the sentences beside them.

Metrics come in as dictionaries, one per step, and leave as JSON lines, TensorBoard events, a report
or a comparison of runs. `baselines` says what each metric has to beat, `alarms` what looks wrong.
"""
