# SPDX-License-Identifier: Apache-2.0
"""Does it really learn? 24 checks that can fail, each with the source of its expected value.

    result     the result of a check: numbers and bounds, from which the verdict follows
    made_up    tiny networks and rows of random ids
    analytic   1 3 6 7 11 12 13 17 21 22 23    exact or by arithmetic, without training
    scoring    AUC over words, and how far the identity of a token tells whether it was replaced
    trained    the runs that checks read: trained once, kept, opened
    micro_run  2 4 5 8 15 20 24                read from one short run
    arms       9 10 14 16 18 19                runs of their own
    saved      WORKDIR/checks.json, so that a second call computes only what is missing
    every      all checks by number

`every` and `result` are what the command `python -m electra_jax.check` imports. Runs and networks
go into a check, numbers with bounds come out and are stored; docs/learning_checks.md explains each.
"""
