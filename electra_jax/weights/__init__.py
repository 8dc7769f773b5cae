# SPDX-License-Identifier: Apache-2.0
"""Trained weights wherever they lie: checkpoints, exports, and other programs' formats.

`checkpoint` is the only module that knows orbax; `formats` holds one file per foreign format.
`reading` opens any of them, `exporting` writes them, and `warm_start` makes a run's first state out
of them.
"""
