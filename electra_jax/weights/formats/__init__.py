# SPDX-License-Identifier: Apache-2.0
"""Other programs' checkpoints: names, layouts and files, in both directions."""
