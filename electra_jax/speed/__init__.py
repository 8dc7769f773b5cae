# SPDX-License-Identifier: Apache-2.0
"""How large and how fast a configuration is, without training it.

`dry_run` estimates what a run needs, `synthetic` builds its step for random rows, `step_parts` cuts
that step into parts that can be timed, `ahead_of_time` compiles it for chips that are not here and
`remedies` chooses the settings to try, `fitting` says whether they fit, and `paper_flops` counts
operations as the paper does.
Commands, benchmarks and checks import these modules. A configuration goes in; text, programs to
time or numbers come out, and nothing is kept.
"""
