# SPDX-License-Identifier: Apache-2.0
"""The data of check 10: prepared rows whose tokens are shuffled over the whole corpus.

    WORKDIR/data -> a copy in WORKDIR/shuffled, tokens permuted, new checksums -> entropy

Only the frequencies of tokens are left to learn in it.
"""

import dataclasses
import json
import os
import shutil
import zlib

import numpy as np
from absl import logging

from electra_jax.checks import finished_runs
from electra_jax.data import planning, preparation, records, totals
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.host import safe_files

_ENTROPY = "entropy.json"  # beside the shuffled records; written last, so it marks them complete


def leak_control(runs: finished_runs.RunsOfSeed) -> tuple[dict, float]:
    """Makes the data of check 10 and returns (settings of its run, entropy of held-out tokens).

    Rows are twice as long, so that there are fewer [CLS] and [SEP], which are never replaced. A
    tenth is held out, so that the entropy is not biased. The learning rate is high, because only
    frequencies are to be learnt.
    """
    c = runs.config
    changes = dict(
        data__sequence_length=2 * c.data.sequence_length,
        data__batch_size=c.data.batch_size // 2,
        data__heldout_fraction=0.1,
        model__max_positions=2 * c.data.sequence_length,
        schedule__steps=c.schedule.steps * 3 // 4,
        optimizer__learning_rate=3 * c.optimizer.learning_rate,
        evaluation__rows=2048,
    )

    config = runs.changed("leak", **changes)
    settings = planning.DataSettings.of(config.data, config.seed)
    ordered = preparation.prepare(settings, config.data.dir, logging.info)

    root = os.path.join(runs.workdir, "shuffled")
    folder = os.path.join(root, os.path.basename(ordered))
    kept = os.path.join(root, _ENTROPY)

    # The name of the folder depends on the text, so it is missing if the text has changed since.
    if not (os.path.exists(kept) and os.path.isdir(folder)):
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(ordered, folder)
        entropy = shuffle_tokens(folder)
        safe_files.write(kept, json.dumps(entropy).encode())

    with open(kept, encoding="utf-8") as file:
        return changes | {"data__dir": root}, json.load(file)


def shuffle_tokens(folder: str) -> float:
    """Permutes all text tokens of prepared data over all rows; returns the held-out entropy."""
    manifest = records.open(folder).manifest
    vocabulary = vocabulary_lib.load(os.path.join(folder, "vocab"))
    shards = [
        (split, shard)
        for split in records.SPLITS
        for source in manifest.sources
        for shard in source.shards[split]
    ]

    dtype = np.dtype(manifest.lanes["ids"])
    paths = [
        os.path.join(records.split_directory(folder, split), f"{shard.name}.ids")
        for split, shard in shards
    ]

    arrays = [np.fromfile(path, dtype) for path in paths]
    text = [~np.isin(array, vocabulary.special_ids) for array in arrays]
    tokens = np.concatenate([array[places] for array, places in zip(arrays, text)])
    np.random.default_rng(0).shuffle(tokens)

    heldout, changed = [], {}
    for (split, shard), path, array, places in zip(shards, paths, arrays, text):
        array[places], tokens = tokens[: places.sum()], tokens[places.sum() :]
        array.tofile(path)
        changed[shard.name, split] = zlib.crc32(array)
        if split == "heldout":
            heldout.append(array[places])

    def with_checksums(source):
        shards = {
            split: tuple(
                dataclasses.replace(shard, crc=shard.crc | {"ids": changed[shard.name, split]})
                for shard in found
            )
            for split, found in source.shards.items()
        }
        return dataclasses.replace(source, shards=shards)

    # Readers compare checksums, so the manifest must have those of the shuffled shards.
    sources = tuple(map(with_checksums, manifest.sources))
    records.write_manifest(folder, dataclasses.replace(manifest, sources=sources))
    return totals.unigram_entropy(np.bincount(np.concatenate(heldout)))
