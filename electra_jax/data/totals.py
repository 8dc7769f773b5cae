# SPDX-License-Identifier: Apache-2.0
"""What all units have counted, as the manifest of the folder."""

import collections

import numpy as np

from electra_jax.data import planning, records, unit_files

# Shares of [UNK]. A vocabulary that fits leaves less than 0.5 % unknown (a trained one covers
# 99.95 % of the characters); one for another script or case leaves most of the text. Above a half,
# [UNK] is the best guess everywhere and nothing else is learnt.
UNKNOWN_WARNED, UNKNOWN_REFUSED = 0.05, 0.5
_UNKNOWN_REMEDY = (
    "look at data.vocab, data.lower_case and data.strip_accents, or train one on this text:"
    " data.vocab=train:sentencepiece:SIZE"
)


def make_manifest(plan, tasks, results, words, seconds):
    unigram_2V = np.zeros((2, words.size), np.int64)
    for task in tasks:
        present, *counts = np.load(unit_files.unit_path(task, ".unigram.npy"))
        unigram_2V[:, present] += counts
    counted = [collections.Counter() for _ in plan.sources]
    shards = [{split: () for split in records.SPLITS} for _ in plan.sources]
    for task, result in zip(tasks, results):
        counted[task.source_index].update(result["counts"])
        for split, found in unit_files.shards_of(result).items():
            shards[task.source_index][split] += found
    shares = planning.mixture_shares(plan, [counts["tokens"] for counts in counted])
    totals = collections.Counter()
    for counts in counted:
        totals.update(counts)
    places = totals["rows"] * plan.settings.sequence_length
    return records.Manifest(
        format_version=records.FORMAT_VERSION,
        key=plan.key,
        settings=planning.row_settings(plan.settings),
        lanes=unit_files.lanes_of(words),
        sequence_length=plan.settings.sequence_length,
        vocabulary={
            "kind": words.kind,
            "size": words.size,
            "sha256": words.sha256,
            "pad_id": words.pad_id,
            "unk_id": words.unk_id,
            "cls_id": words.cls_id,
            "sep_id": words.sep_id,
            "mask_id": words.mask_id,
        },
        sources=tuple(
            records.Source(source.name, source.spec, share, found, dict(sorted(counts.items())))
            for source, share, found, counts in zip(plan.sources, shares, shards, counted)
        ),
        totals=dict(sorted(totals.items())),
        wasted_fraction=totals["padding"] / places,
        two_segment_fraction=totals["two_segment_rows"] / totals["rows"],
        unk_rate=float(unigram_2V[:, words.unk_id].sum() / unigram_2V.sum()),
        unigram_entropy=unigram_entropy(unigram_2V[1]),
        duplicates_dropped=totals["duplicates"],
        unigram_crc=records.write_unigram(plan.folder, unigram_2V),
        seconds=round(seconds, 1),
    )


def unigram_entropy(counts_V: np.ndarray) -> float:
    """Of the distribution that the counts are, in nats."""
    share = counts_V[counts_V > 0] / counts_V.sum()
    return float(-(share * np.log(share)).sum())


def unknown_tokens(manifest: records.Manifest) -> str:
    """One line where so much text is not in the vocabulary that it deserves a look; '' if not."""
    if manifest.unk_rate < UNKNOWN_WARNED:
        return ""
    return (
        f"{manifest.unk_rate:.1%} of the tokens of {manifest.settings['source']} are not in the"
        f" vocabulary and became [UNK]; {_UNKNOWN_REMEDY}"
    )


def refuse_unknown(manifest):
    if manifest.unk_rate > UNKNOWN_REFUSED:
        raise ValueError(f"{unknown_tokens(manifest)}. More than {UNKNOWN_REFUSED:.0%} is refused")
