# SPDX-License-Identifier: Apache-2.0
"""A run's training step on random rows: no text, no vocabulary, no workdir.

    configuration -> mesh, step and its compiled update -> state, rows of random ids

Benchmarks time this step, and `ahead_of_time` compiles it for devices that are not present. It is
the program of a real run, built by the same functions; only the ids are random.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from electra_jax import config as config_lib
from electra_jax.core import batch as batch_lib
from electra_jax.core import sharding
from electra_jax.data import records, shard_writer
from electra_jax.step import plans, train_step

PAD, UNK, CLS, SEP, MASK, FIRST = range(6)


@dataclasses.dataclass(frozen=True)
class MadeUpVocabulary:
    """What a step needs to know about a vocabulary."""

    size: int
    special_ids: tuple[int, ...] = (PAD, UNK, CLS, SEP, MASK)
    pad_id: int = PAD
    mask_id: int = MASK


@dataclasses.dataclass(frozen=True)
class Rehearsal:
    """A run without data: its configuration, mesh and step."""

    config: config_lib.Config
    mesh: Mesh
    vocabulary: MadeUpVocabulary
    plan: plans.Plan
    update: Any  # jitted (state, lanes) -> (state, measured); the state is donated

    def state(self) -> train_step.TrainState:
        """Returns a new state, with each array created on the devices that hold it."""
        return jax.jit(self.plan.init, out_shardings=self.plan.state_shardings)()

    def lanes(self, number: int = 0) -> dict[str, jax.Array]:
        """Returns a batch of random rows on the mesh; each number gives another batch."""
        data = self.config.data
        ids, marks = rows(self.vocabulary, data.batch_size, data.sequence_length, number)
        where = sharding.rows(self.mesh)
        return {"ids": jax.device_put(ids, where), "marks": jax.device_put(marks, where)}


def prepare(
    config: config_lib.Config, vocab_size: int, devices: Sequence[jax.Device] | None = None
) -> Rehearsal:
    """Builds the step of a configuration on its mesh.

    `devices` may be descriptions of devices that are not present.
    """
    mesh = plans.make_mesh(config, devices)
    vocabulary = MadeUpVocabulary(vocab_size)
    plan = plans.make_plan(config, vocabulary, mesh=mesh)
    update = plan.compile_update(config.data.sequence_length)
    return Rehearsal(config, mesh, vocabulary, plan, update)


def rows(
    vocabulary: MadeUpVocabulary, count: int, length: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns ids and marks [count, length] as in records: [CLS] A [SEP] B [SEP], no padding."""
    draw = np.random.default_rng(seed)
    dtype = np.uint16 if vocabulary.size <= 2**16 else np.uint32
    ids = draw.integers(FIRST, vocabulary.size, (count, length)).astype(dtype)

    marks = np.zeros((count, length), np.uint8)

    # Segment B begins after the [SEP] in the middle.
    middle = length // 2
    ids[:, 0], ids[:, middle - 1], ids[:, -1] = CLS, SEP, SEP
    marks[:, 0], marks[:, middle] = batch_lib.DOCUMENT_START, batch_lib.SEGMENT_B_START

    return ids, marks


def write_records(
    vocabulary: MadeUpVocabulary, count: int, length: int, folder: str
) -> records.Records:
    """Writes random training rows to disk in the real format and opens them for reading."""
    made = rows(vocabulary, count, length, 0)
    writer = shard_writer.ShardWriter(records.split_directory(folder, "train"), "made-up")
    writer.write(*made)
    shards = {"train": writer.close(), "heldout": ()}

    source = records.RecordedSource("made-up", "made-up", 1.0, shards, {"rows": count})
    unigram_crc = records.write_unigram(folder, np.ones((2, vocabulary.size), np.int64))
    records.write_manifest(
        folder,
        records.Manifest(
            format_version=records.FORMAT_VERSION,
            key="made-up",
            settings={},
            lanes={"ids": made[0].dtype.name, "marks": made[1].dtype.name},
            sequence_length=length,
            vocabulary={"size": vocabulary.size},
            sources=(source,),
            totals={"rows": count},
            wasted_fraction=0.0,
            two_segment_fraction=1.0,
            unk_rate=0.0,
            unigram_entropy=float(np.log(vocabulary.size)),
            duplicates_dropped=0,
            unigram_crc=unigram_crc,
            seconds=0.0,
        ),
    )

    return records.open(folder)
