# SPDX-License-Identifier: Apache-2.0
"""Text in, fixed-length token records out, batches back: text, vocabulary, segments, records."""
