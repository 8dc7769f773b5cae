# SPDX-License-Identifier: Apache-2.0
"""Disturbs real runs at random, lets each of them end, and counts what was lost.

    python -m tests.torture --minutes=20 --seed=1
    python -m tests.torture --trials=14 --kinds=kill,flip

One small run is trained without disturbance. Every trial then has a folder of its own, disturbs a
run of the same configuration in one of the ways of `KINDS`, and repeats the same command until the
run has ended, as its user would:

    begin -> disturb -> the same command -> ... -> ended: the same weights and metrics? -> outcome

The outcome of a trial is one of these:

    same      ended with the weights of the undisturbed run, bit for bit, and with its metrics
    refused   a command ended with one line that says what is wrong and what to do; when that was
              done, the run ended as above
    lost      anything else: other weights, a traceback, a hang, a good checkpoint not used

Every draw comes from the seed and the number of the trial, so `--seed=1 --only=17` repeats trial
17. The folder of a trial that lost something is kept and named. Exit code 1 if any did.

The modules, each of which uses those above it:

    runs            the run that is disturbed, and its command in a process of its own
    trials          a trial, and what its run must have come to at its end
    disturbances    the ways of `KINDS`
    __main__        flags, trials side by side, the table of outcomes
"""
