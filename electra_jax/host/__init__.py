# SPDX-License-Identifier: Apache-2.0
"""What the program needs from the machine: files, logs, locks, signals, other processes, clocks,
the console.

Everything here has side effects and knows nothing about ELECTRA; no other subpackage is imported.
From outside, `peers` brings the processes of a run together before jax starts (with the help of
`joining`, `peer_group`, `relay`, `waiting` and `wire`), `processes` lets them agree while they run,
`signals` and `process_exit` stop them, and `background_calls` runs blocking work in threads, so
that the main thread can handle signals. `safe_files`, `whole_folder` and `lock` keep what they
write whole; `staging` and `staged_files` copy what is in a bucket. `program` and `code_version` say
how this program was called and which code it is. Data goes one way: callers pass plain values in,
and the answers and errors that come back are plain values too.
"""
