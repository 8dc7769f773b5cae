# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning: from a pre-trained encoder and a task's files to scores over seeds.

tasks -> examples -> features -> batches -> encoder + head -> predictions
      -> answers (spans) -> scores -> statistics over seeds -> results, page, submission
"""
