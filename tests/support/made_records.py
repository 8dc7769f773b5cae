# SPDX-License-Identifier: Apache-2.0
"""A prepared folder made by hand: the k-th training row of source s holds s * 1000 + k."""

import numpy as np

from electra_jax.data import records, shard_writer


def write(directory, sources, length=4, heldout_rows=3, dtype="<u2"):
    """Writes shards of the given rows for each source: [[5, 5, 2], [7]]. Returns the folder."""
    made = []
    for s, sizes in enumerate(sources):
        shards = {"train": [], "heldout": []}
        row = 1000 * s
        for split, rows in [("train", size) for size in sizes] + [("heldout", heldout_rows)]:
            name = f"source{s}-{len(shards[split]):05d}"
            writer = shard_writer.ShardWriter(records.split_directory(directory, split), name)
            numbers = np.arange(row, row + rows) if split == "train" else np.arange(rows)
            writer.write(
                np.repeat(numbers[:, None], length, 1).astype(dtype),
                np.repeat(numbers[:, None] % 7, length, 1).astype(np.uint8),
            )
            shards[split] += writer.close()
            row += rows if split == "train" else 0
        made.append(
            records.RecordedSource(
                name=f"source{s}",
                spec=f"text:{s}",
                weight=1 / len(sources),
                shards={split: tuple(found) for split, found in shards.items()},
                counts={"documents": 1},
            )
        )
    write_manifest(directory, made, length, dtype)
    return directory


def write_manifest(directory, sources, length=4, dtype="<u2"):
    """Writes a manifest that tells these sources, and counts beside it."""
    unigram_crc = records.write_unigram(directory, np.ones((2, 5), np.int64))
    records.write_manifest(
        directory,
        records.Manifest(
            format_version=records.FORMAT_VERSION,
            key="0" * 16,
            settings={"rows": "pairs"},
            lanes={"ids": dtype, "marks": "|u1"},
            sequence_length=length,
            vocabulary={"size": 60_000},
            sources=tuple(sources),
            totals={"rows": 1},
            wasted_fraction=0.25,
            two_segment_fraction=0.5,
            unk_rate=0.0,
            unigram_entropy=1.5,
            duplicates_dropped=0,
            unigram_crc=unigram_crc,
            seconds=3.5,
        ),
    )
