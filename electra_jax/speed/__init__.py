# SPDX-License-Identifier: Apache-2.0
"""How large and how fast a configuration is, by arithmetic and on made-up rows.

Nothing here trains or keeps anything: `dry_run` says what a run would need, `synthetic` makes its
step without text, and `step_parts` cuts that step into pieces that can be timed.
"""
