# SPDX-License-Identifier: Apache-2.0
"""What a task is, and where its examples come from: benchmarks, tables, SQuAD, custom files."""
