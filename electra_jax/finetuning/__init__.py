# SPDX-License-Identifier: Apache-2.0
"""What an encoder is worth: tasks, their examples as arrays, training on them, scores."""
