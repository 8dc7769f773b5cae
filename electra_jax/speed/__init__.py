# SPDX-License-Identifier: Apache-2.0
"""How large and how fast a configuration is, without training it.

    dry_run                                  estimates what a run needs, with `memory` and `disk`
    measurement, step_parts                  time the step and its parts on this machine
    ahead_of_time, topology_fit, remedies    compile it for other chips (`chips`), say whether it
                                             fits, and try the settings with which it may
    hlo, exchanges                           read the compiled program
    flops_figures, flops_tables, paper_flops count operations, also as the paper does
    cost_model                               bounds the hours of a run without compiling it
    synthetic                                builds the step of a run for random rows

Commands, benchmarks and checks import these modules. A configuration goes in; text, programs to
time or numbers come out, and nothing is kept.
"""
