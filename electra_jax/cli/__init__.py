# SPDX-License-Identifier: Apache-2.0
"""What all commands share: flags, the configuration, the start of processes, errors in one line.

Commands import `usage`, which answers --help before jax is imported, `command`, which runs them,
and `printing`. `command` uses `config_flag` to find the configuration, `distributed` to start
jax.distributed, and `explanation` to turn an error of the command line into a sentence.
`settings_help` describes settings; `wording` fits its words and those of `usage` to the reader.
Data goes one way: from the command line to a parsed configuration and a workdir, and from there
into the command's own `main`.
"""
