# SPDX-License-Identifier: Apache-2.0
"""Does it really learn? 24 checks that can fail, each with the source of its expected value.

    first_losses     1 3               losses before the first step, by arithmetic
    corrupted_rows   6 7 17 22 23      samples, labels, random numbers, padding
    gradients        11 12 13          which loss changes which parameters
    resuming         21                a run that crashes, and one that does not
    micro_run        2 4 5 8 15 20 24  read from one short run
    extra_runs       9 10 14 16 18 19  runs of their own
    all_checks       all checks by number
    result           the result of a check: numbers and bounds, from which the verdict follows
    stored_results   WORKDIR/checks.json, so that a second call computes only what is missing
    tiny_networks    tiny networks and rows of random ids
    shuffled_text    the data of check 10
    probe            the linear probe of check 19
    finished_runs    the runs that checks read: trained once, kept, opened
    scoring          AUC over words, and how far a token's identity tells whether it was replaced

The command `python -m electra_jax.check` imports `all_checks` and `result`. Networks and runs go
into a check, numbers with bounds come out and are stored; docs/learning_checks.md explains each.
"""
