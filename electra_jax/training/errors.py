# SPDX-License-Identifier: Apache-2.0
"""The error that ends a run."""


class TrainingError(RuntimeError):
    """Training cannot continue; the message is one line."""
