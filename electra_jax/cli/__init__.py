# SPDX-License-Identifier: Apache-2.0
"""What all commands share: flags, the configuration, processes, and errors in one line."""
