# SPDX-License-Identifier: Apache-2.0
"""From examples to tuned weights: features, batches, rates, the step, the run over seeds."""
