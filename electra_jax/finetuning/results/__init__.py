# SPDX-License-Identifier: Apache-2.0
"""What came of it: answers, scores, statistics over seeds, pages and files to submit."""
