# SPDX-License-Identifier: Apache-2.0
"""The values that every other wing passes on: batches, random streams, metrics, the mesh.

Everything here is a small pure function or a frozen container, and knows no configuration. `batch`
holds the key of dimension letters that all names of arrays use. Nothing here imports another wing.
"""
