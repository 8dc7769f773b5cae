# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning: from a pre-trained encoder and a task's files to scores over seeds.

tasks     what a task is, and where its examples come from
tuning    features -> batches -> encoder and head -> tuned weights
results   predictions -> answers, scores, statistics over seeds, pages, submissions
"""
