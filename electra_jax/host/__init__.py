# SPDX-License-Identifier: Apache-2.0
"""What the program asks of the machine around it: files, logs, locks, signals, other processes.

Side effects live here, and no method does: nothing below a training run knows about ELECTRA. A file
is written whole or not at all (`safe_files`), and processes meet before jax starts (`peers`).
Nothing here imports another wing.
"""
