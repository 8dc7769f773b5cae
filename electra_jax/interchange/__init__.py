# SPDX-License-Identifier: Apache-2.0
"""Other people's checkpoints: names, layouts and files, both ways."""
