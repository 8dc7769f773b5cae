# SPDX-License-Identifier: Apache-2.0
"""A warning about text of which hardly a row has two segments.

A segment ends where a line ends. So a document of a single line, as abstracts in JSON lines often
are, has no second segment, and the embedding of its type is never trained.
"""

from electra_jax.data import records

FEW = 0.1  # of the rows that might have two segments
LEAST = 1_000  # rows; text of fewer is only a trial


def warning(manifest: records.Manifest) -> str:
    """A warning, one line, if far fewer rows have two segments than were asked for; '' if not."""
    settings, found = manifest.settings, manifest.two_segment_fraction
    asked = 1 - settings["single_segment_rate"]
    if settings["rows"] != "pairs" or manifest.totals["rows"] < LEAST or found >= FEW * asked:
        return ""

    return (
        f"{found:.1%} of the rows have a second segment, where data.single_segment_rate allows"
        f" {asked:.0%}: a segment ends with a line, and most documents have a single one; end each"
        " sentence with a line break, in JSON with \\n, or choose data.rows=packed, which has no"
        " segments"
    )
