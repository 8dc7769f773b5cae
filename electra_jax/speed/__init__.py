# SPDX-License-Identifier: Apache-2.0
"""How large and how fast a configuration is, without training it.

`dry_run` estimates what a run needs, `synthetic` builds its step for random rows, and `step_parts`
cuts that step into parts that can be timed. `ahead_of_time` compiles it for chips that are not
here, `topology_fit` says whether it fits them, and `remedies` chooses the settings with which it
may.
`cost_model` computes the hours of a run on chips for which nothing was compiled, and `paper_flops`
counts operations as the paper does.

Commands, benchmarks and checks import these modules. A configuration goes in; text, programs to
time or numbers come out, and nothing is kept.
"""
