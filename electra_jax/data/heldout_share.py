# SPDX-License-Identifier: Apache-2.0
"""A warning about a source of which far more is held out than was asked for.

A document is held out as a whole, and at least one of each source is. Of a few documents, such as
books or files without blank lines, that may be a large share of the text, which is then never
trained on.
"""

from electra_jax.data import records, text_files

LEAST = 1_000  # tokens held out; a text of fewer is only a trial
MANY = 0.05  # of a source's tokens; less is no loss
TIMES = 3  # the share that was asked for; a few dozen documents may well come to twice of it


def warning(manifest: records.Manifest) -> str:
    """A warning, one line, about the source with the largest share; '' if none is too large."""
    asked, documents = (manifest.settings[name] for name in ("heldout_fraction", "documents"))
    many = [
        source
        for source in manifest.sources
        if source.counts["heldout_tokens"] >= LEAST and share(source) > max(MANY, TIMES * asked)
    ]
    if not many:
        return ""

    source = max(many, key=share)
    counts = source.counts
    return (
        f"{source.spec}: {counts['heldout_documents']:,} of {counts['documents']:,} documents are"
        f" held out, which are {share(source):.0%} of the tokens, not the {asked:.1%} of"
        " data.heldout_fraction, and are not trained on; a document is held out whole, so"
        f" {text_files.SEPARATE[documents]}, give JSON lines with one document each, or name more"
        " text"
    )


def share(source: records.RecordedSource) -> float:
    """The share of a source's tokens that is held out; 0 if it has no tokens."""
    heldout = source.counts["heldout_tokens"]
    whole = source.counts["tokens"] + heldout
    return heldout / whole if whole else 0.0
