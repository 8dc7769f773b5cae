# SPDX-License-Identifier: Apache-2.0
"""The values that all other subpackages pass on: batches, random streams, metrics, the mesh, trees.

Every module may be imported from outside; `batch` holds the key of the dimension letters that end
the names of arrays. Data goes upwards only: these are pure functions and frozen containers that
know no configuration and import no other subpackage.
"""
