# SPDX-License-Identifier: Apache-2.0
"""Sums up what the units have counted: the manifest, the unigram counts, the share of [UNK]."""

import collections
from collections.abc import Sequence
from typing import Any

import numpy as np

from electra_jax.data import planning, records, unit_files
from electra_jax.data import vocabulary as vocabulary_lib

# Shares of [UNK] among the tokens, or of the characters behind it in one source: a run of letters
# that the vocabulary does not know is a single token. With a vocabulary that fits the text it is
# below 0.5 % (one that was trained covers 99.95 % of the characters); with one for another script
# or case, most tokens are [UNK]. Above one half, [UNK] is the best guess at every slot and nothing
# else is learnt.
UNKNOWN_WARNED, UNKNOWN_REFUSED = 0.05, 0.5
_UNKNOWN_REMEDY = (
    "look at data.vocab, data.lower_case and data.strip_accents, or train one on this text:"
    " data.vocab=train:sentencepiece:SIZE"
)


def make_manifest(
    plan: planning.DataPlan,
    tasks: Sequence[planning.UnitTask],
    results: Sequence[dict[str, Any]],
    vocabulary: vocabulary_lib.Vocabulary,
    seconds: float,
) -> records.Manifest:
    """Returns the manifest; writes unigram.npy, whose checksum is part of it."""
    unigram_2V = np.zeros((2, vocabulary.size), np.int64)
    for task in tasks:
        present, *counts = np.load(unit_files.unit_path(task, unit_files.UNIGRAM))
        unigram_2V[:, present] += counts

    counted = [collections.Counter() for _ in plan.sources]
    shards = [{split: () for split in records.SPLITS} for _ in plan.sources]
    for task, result in zip(tasks, results):
        counted[task.source_index].update(result["counts"])
        for split, found in unit_files.shards_of(result).items():
            shards[task.source_index][split] += found

    # By rows, not by tokens: then each row of all sources is drawn equally often at alpha = 1.
    shares = planning.mixture_shares(plan, [counts["rows"] for counts in counted])
    totals = collections.Counter()
    for counts in counted:
        totals.update(counts)

    places = totals["rows"] * plan.settings.sequence_length  # of the training rows
    return records.Manifest(
        format_version=records.FORMAT_VERSION,
        key=plan.key,
        settings=planning.row_settings(plan.settings),
        lanes=unit_files.lanes_of(vocabulary),
        sequence_length=plan.settings.sequence_length,
        vocabulary=vocabulary.description(),
        sources=tuple(
            records.RecordedSource(
                source.name, source.spec, share, found, dict(sorted(counts.items()))
            )
            for source, share, found, counts in zip(plan.sources, shares, shards, counted)
        ),
        totals=dict(sorted(totals.items())),
        wasted_fraction=totals["padding"] / places,
        two_segment_fraction=totals["two_segment_rows"] / totals["rows"],
        unk_rate=float(unigram_2V[:, vocabulary.unk_id].sum() / unigram_2V.sum()),
        unigram_entropy=unigram_entropy(unigram_2V[1]),
        duplicates_dropped=totals["duplicates"],
        unigram_crc=records.write_unigram(plan.folder, unigram_2V),
        seconds=round(seconds, 1),
    )


def unigram_entropy(counts_V: np.ndarray) -> float:
    """Entropy in nats of the distribution that is proportional to the counts [V]."""
    share = counts_V[counts_V > 0] / counts_V.sum()
    return float(-(share * np.log(share)).sum())


def unknown_tokens(manifest: records.Manifest) -> str:
    """A warning, one line, if much of the text is [UNK]; '' if not."""
    share, of = _most_unknown(manifest)
    if share < UNKNOWN_WARNED:
        return ""
    return f"{share:.1%} of the {of} are not in the vocabulary and became [UNK]; {_UNKNOWN_REMEDY}"


def refuse_unknown(manifest: records.Manifest) -> None:
    """Raises ValueError, one line, if most tokens, or characters of a source, are [UNK]."""
    if _most_unknown(manifest)[0] > UNKNOWN_REFUSED:
        raise ValueError(f"{unknown_tokens(manifest)}. More than {UNKNOWN_REFUSED:.0%} is refused")


def _most_unknown(manifest):
    """(the largest share, what it is of) among all tokens and the characters of each source."""
    found = [(manifest.unk_rate, f"tokens of {manifest.settings['source']}")]
    for source in manifest.sources:
        looked_at = source.counts.get("looked_at", 0)  # older folders have not counted it
        if looked_at:
            found.append((source.counts["unknown"] / looked_at, f"characters of {source.spec}"))
    return max(found)
