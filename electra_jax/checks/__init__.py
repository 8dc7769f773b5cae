# SPDX-License-Identifier: Apache-2.0
"""Does it really learn? Checks that can fail, each with where its expected value comes from.

    result     what a check says: numbers, bounds, and the verdict that follows from both
    made_up    tiny networks and rows of no language
    analytic   1 3 6 7 11 12 13 17 21 22 23    exact or by arithmetic, without training
    scoring    AUC over words, what a token's identity alone gives away
    trained    runs that checks read: trained once, kept, opened
    micro_run  2 4 5 8 15 20 24                read from one short run
    arms       9 10 14 16 18 19                runs of their own
    saved      WORKDIR/checks.json, so that a second call computes what is missing
    every      all of them by number

`python -m electra_jax.check` prints them as a table; docs/learning_checks.md explains each.
"""
