# SPDX-License-Identifier: Apache-2.0
"""The format of prepared data on disk: raw memory-mapped shards, and the manifest about them.

    records/train/NAME.ids      [rows, L] little-endian uint16 (uint32 above 65,536 pieces)
    records/train/NAME.marks    [rows, L] uint8, see segments.py
    records/heldout/...         the same, for documents that are never trained on
    vocab/                      the vocabulary, see vocabulary.py
    manifest.json               settings, vocabulary, counts, rows and CRC32 of each file, own hash
    unigram.npy                 [2, V] int64: how often each id occurs in train and held-out text

`shard_writer` writes the shards. The raw files contain no checksums. Instead, `open` compares the
size of every file with the manifest, the first read from a shard compares its CRC32 (once per
process; about a second per gigabyte), and `verify` compares the CRC32 of all files. Reading takes
one fancy index per shard, without decoding and with a single copy.

The manifest and the reader stay in one file, although it is long: they are one format, with one
FORMAT_VERSION, and they change together.
"""

import builtins
import dataclasses
import functools
import hashlib
import io
import json
import os
import resource
import threading
import types
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from electra_jax.host import safe_files, staged_files, staging

FORMAT_VERSION = 2
LANES = ("ids", "marks")  # a shard has one file per lane
SPLITS = ("train", "heldout")
MAPPED_SHARDS = 128  # of a folder at least; each keeps a file per lane open
_SHARDS_OF_A_SOURCE = 32  # the rows of two groups, see pipeline.GROUP, lie in so many
MANIFEST = "manifest.json"
UNIGRAM = "unigram.npy"
STREAMING = "streaming.json"  # the plan of a folder, see streaming.py
VOCABULARY = "vocab"  # a folder, see vocabulary.py


@dataclasses.dataclass(frozen=True)
class Shard:
    """Rows in a pair of files, `name.ids` and `name.marks`."""

    name: str
    rows: int
    crc: dict[str, int]  # lane -> CRC32


@dataclasses.dataclass(frozen=True)
class RecordedSource:
    """One source of the mixture: its share, its shards and its counts."""

    name: str
    spec: str  # as in data.source, without the name and the weight
    weight: float  # share of the training rows; the shares sum to one
    shards: dict[str, tuple[Shard, ...]]  # split -> shards
    counts: dict[str, int]  # documents, tokens, rows, characters, and documents left out

    def rows(self, split: str) -> int:
        """The number of rows in one split."""
        return sum(shard.rows for shard in self.shards[split])


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What a prepared folder contains, and the settings that it was made with."""

    format_version: int
    key: str  # hash of settings and sources, the name of the folder
    settings: dict[str, Any]  # see planning.row_settings
    lanes: dict[str, str]  # name -> dtype
    sequence_length: int
    vocabulary: dict[str, Any]  # kind, size, sha256, special ids
    sources: tuple[RecordedSource, ...]
    totals: dict[str, int]  # the counts, summed over the sources
    wasted_fraction: float  # padding tokens / all tokens of the training rows
    two_segment_fraction: float  # of the training rows
    unk_rate: float  # of all text tokens
    unigram_entropy: float  # nats, of the held-out text under its own frequencies
    duplicates_dropped: int
    unigram_crc: int  # CRC32 of the numbers in unigram.npy
    seconds: float  # that preparation took; not part of the hash

    @functools.cached_property  # of thousands of shards it takes a while, and each save asks for it
    def hash(self) -> str:
        """sha256 of all fields except `seconds` and `NOT_HASHED`; equal data has an equal hash."""
        content = {k: v for k, v in _to_tree(self).items() if k not in ("seconds", "hash")}
        for owner in (content, *content["sources"]):
            name = "totals" if owner is content else "counts"
            owner[name] = {k: v for k, v in owner[name].items() if k not in NOT_HASHED}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


# Counts that do not describe the rows and that older versions did not make. They are left out of
# the hash, so that data prepared again is recognised as the data of an older run.
NOT_HASHED = ("looked_at", "unknown")


class Records:
    """A prepared folder, open for reading. Its files are mapped when they are first read."""

    def __init__(
        self,
        directory: str,
        manifest: Manifest,
        bucket_sizes: Mapping[str, int] = types.MappingProxyType({}),
    ):
        """Opens nothing yet.

        Args:
          directory: the folder.
          manifest: of the folder.
          bucket_sizes: bytes of its files that are in a bucket, by their paths in the folder.
        """
        self.directory = directory
        self.manifest = manifest
        self.bucket_sizes = bucket_sizes  # these files are fetched when they are first needed
        self._most_maps = _most_maps(len(manifest.sources))
        self._maps: dict[tuple[str, int, int], tuple[np.ndarray, np.ndarray]] = {}
        self._checked: set[tuple[str, int, int]] = set()  # shards whose checksums were right
        self._map_lock = threading.Lock()  # batches and evaluations are read by different threads
        self._starts = {
            (split, i): np.cumsum([0, *(shard.rows for shard in source.shards[split])])
            for i, source in enumerate(manifest.sources)
            for split in SPLITS
        }

    def rows(self, split: str, source_index: int) -> int:
        """The number of rows of one source in one split."""
        return int(self._starts[split, source_index][-1])

    def rows_per_epoch(self) -> int | None:
        """The number of training rows of all sources; None as long as it is not known."""
        return sum(self.rows("train", index) for index in range(len(self.manifest.sources)))

    def shard_rows(self, split: str, source_index: int) -> np.ndarray:
        """The number of rows in each shard [shards], in the order in which `read` counts rows."""
        return np.diff(self._starts[split, source_index])

    def bytes_per_row(self) -> int:
        """The bytes of a row in all lanes together."""
        return sum(
            shard_bytes(1, self.manifest.sequence_length, dtype)
            for dtype in self.manifest.lanes.values()
        )

    def shard_files(self, split: str, source_index: int, shard: int) -> dict[str, int]:
        """{path: bytes} of the files of a shard."""
        found, about = self._shard(split, source_index, shard), self.manifest
        return _sizes(self.directory, split, found, about.sequence_length, about.lanes)

    def forget(self, split: str, source_index: int, shard: int) -> None:
        """Ends the mapping of a shard's files; `read` maps and checks them again."""
        with self._map_lock:
            self._maps.pop((split, source_index, shard), None)
            self._checked.discard((split, source_index, shard))

    def unmap(self) -> None:
        """Ends all mappings, and so closes their files; `read` maps those again that it needs."""
        with self._map_lock:
            self._maps.clear()

    def close(self) -> None:
        """Ends the preparation of rows that are still missing. Here none are."""

    def unigram(self) -> np.ndarray:
        """How often each id occurs in train and in held-out text, [2, V] int64.

        Raises ValueError, one line, if the file is missing or damaged.
        """
        path = os.path.join(self.directory, UNIGRAM)
        try:
            counts_2V = np.load(path)
            whole = _unigram_crc(counts_2V) == self.manifest.unigram_crc
        except Exception as error:  # numpy raises many kinds of errors for a damaged header
            raise ValueError(f"{path} cannot be read; {_remedy(self.directory)}") from error
        if not whole:
            raise ValueError(f"{path} is damaged: its checksum differs; {_remedy(self.directory)}")
        return counts_2V

    def read(
        self, split: str, source_index: int, rows: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Reads rows by number.

        Args:
          rows: numbers [n], in any order, counted over all shards of the source.

        Returns:
          (ids [n, L] in native byte order, marks [n, L] uint8), in the order of `rows`.

        Raises ValueError, one line, if a shard is damaged or holds an id beyond the vocabulary.
        """
        starts = self._starts[split, source_index]
        rows = np.asarray(rows, np.int64)
        if len(rows) and not (0 <= rows.min() and rows.max() < starts[-1]):
            raise IndexError(f"rows {rows.min()}..{rows.max()} asked of {starts[-1]} {split} rows")

        n, length = len(rows), self.manifest.sequence_length
        ids = np.empty((n, length), np.dtype(self.manifest.lanes["ids"]).newbyteorder("="))
        marks = np.empty((n, length), np.uint8)

        # Rows are grouped by shard, so that each shard is indexed once.
        shards = np.searchsorted(starts, rows, side="right") - 1
        order = np.argsort(shards, kind="stable")
        used, first = np.unique(shards[order], return_index=True)

        for shard, places in zip(used.tolist(), np.split(order, first[1:])):
            shard_ids, shard_marks = self._map(split, source_index, shard)
            inside = rows[places] - starts[shard]
            ids[places] = shard_ids[inside]
            marks[places] = shard_marks[inside]

        # For an id beyond the embedding table, jax would look up the last row without an error.
        size = self.manifest.vocabulary["size"]
        if n and ids.max() >= size:
            place = int(np.argmax(ids.max(axis=1) >= size))
            self._refuse_id(split, source_index, rows[place], int(ids[place].max()), size)

        return ids, marks

    def _shard(self, split, source_index, shard):
        return self.manifest.sources[source_index].shards[split][shard]

    def _refuse_id(self, split, source_index, row, id_, size):
        starts = self._starts[split, source_index]
        shard = int(np.searchsorted(starts, row, side="right")) - 1
        name = self._shard(split, source_index, shard).name

        path = _lane_path(self.directory, split, name, "ids")
        raise ValueError(
            f"{path}, row {row - starts[shard]}: id {id_} is beyond the vocabulary, whose ids end"
            f" at {size - 1}; {_remedy(self.directory)}"
        )

    def _map(self, split, source_index, shard):
        """(ids, marks) of a shard [rows, L]; checks the CRC32 the first time."""
        key = split, source_index, shard
        with self._map_lock:
            found, checked = self._maps.pop(key, None), key in self._checked
        if found is None:
            about = self._shard(split, source_index, shard)
            found = tuple(
                self._map_lane(
                    _lane_path(self.directory, split, about.name, lane),
                    dtype,
                    None if checked else about.crc[lane],
                )
                for lane, dtype in self.manifest.lanes.items()
            )

        with self._map_lock:
            self._checked.add(key)
            self._maps[key] = found  # the one that was used last is the last one
            while len(self._maps) > self._most_maps:
                del self._maps[next(iter(self._maps))]
        return found

    def _map_lane(self, path, dtype, crc):
        """The numbers of a file [rows, L]; a CRC32 of None is not checked again."""
        staged_files.have(path)
        values = np.memmap(path, dtype, "r").view(np.ndarray)

        # A flipped bit mostly gives another valid id, so training would continue without an error.
        whole = crc is None or zlib.crc32(values) == crc
        if not whole and staged_files.have_again(path):
            values = np.memmap(path, dtype, "r").view(np.ndarray)
            whole = zlib.crc32(values) == crc
        if not whole:
            raise ValueError(
                f"damaged records, the checksum of {path} differs; {_remedy(self.directory)}"
            )

        return values.reshape(-1, self.manifest.sequence_length)


def _most_maps(sources):
    """How many shards of a folder are mapped at the same time.

    A map keeps its file open, and many a system allows a process no more than 1,024. With fewer
    than a mixture reads from at once, each batch would map most of its shards again.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _SHARDS_OF_A_SOURCE * sources
    most = wanted if files == resource.RLIM_INFINITY else files // (4 * len(LANES))
    return max(MAPPED_SHARDS, min(wanted, most))


def open(directory: str) -> Records:  # noqa: A001 - reads as records.open
    """Opens a prepared folder.

    Raises ValueError, one line, if a file is missing or has the wrong size, or if the manifest was
    altered.
    """
    manifest = read_manifest(directory)
    bucket_sizes = staging.sizes(directory)
    for split, shard in _shards(manifest):
        sizes = _sizes(directory, split, shard, manifest.sequence_length, manifest.lanes)
        for path, expected in sizes.items():
            # What is in the bucket in its full size is fetched when it is needed.
            in_bucket = bucket_sizes.get(os.path.relpath(path, directory)) == expected
            if not in_bucket or os.path.exists(path):
                check_size(path, expected)

    unigram = os.path.join(directory, UNIGRAM)
    if not os.path.exists(unigram):
        raise ValueError(f"{unigram} is missing; run prepare again")

    return Records(directory, manifest, bucket_sizes)


def fetch(directory: str) -> None:
    """Fetches all but the shards of a folder that is in a bucket; nothing for other folders."""
    staging.fetch(directory, (MANIFEST, UNIGRAM, STREAMING, VOCABULARY))


def verify(directory: str, progress: Callable[[str], Any] = lambda line: None) -> int:
    """Compares the CRC32 of every shard file with the manifest; returns the number of files.

    Raises ValueError, one line, that names all damaged files.
    """
    manifest = open(directory).manifest
    damaged, files = [], 0

    for split, shard in _shards(manifest):
        for lane in manifest.lanes:
            path = _lane_path(directory, split, shard.name, lane)
            files += 1
            was_here = os.path.exists(path)
            staged_files.have(path)
            if _crc(path) != shard.crc[lane]:
                damaged.append(path)
            if not was_here:  # not all of a bucket may fit on this disk
                staged_files.drop(path)

    if damaged:
        raise ValueError(
            f"damaged records, the checksum differs: {', '.join(damaged)}; {_remedy(directory)}"
        )

    progress(f"verified {files} record files in {directory}")
    return files


def read_manifest(directory: str, name: str = MANIFEST) -> Manifest:
    """Reads manifest.json, or another file of that format.

    Raises ValueError, one line, if it is missing, of another format version, or altered.
    """
    path = os.path.join(directory, name)
    try:
        with builtins.open(path, encoding="utf-8") as file:
            tree = json.load(file)
    except FileNotFoundError as error:
        raise ValueError(f"{path} is missing; run prepare (again)") from error
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not JSON ({error}); run prepare again") from error

    version = tree.get("format_version") if isinstance(tree, dict) else None
    if version != FORMAT_VERSION:
        raise ValueError(
            f"{path} has format version {version}, this program reads {FORMAT_VERSION};"
            " run prepare again"
        )

    try:
        manifest, stated = _from_tree(tree)
        whole = manifest.hash == stated
    except (KeyError, TypeError, AttributeError, ValueError):  # such as an unknown field
        whole = False
    if not whole:
        raise ValueError(f"{path} was altered: its hash does not fit; run prepare again")
    return manifest


def write_manifest(directory: str, manifest: Manifest, name: str = MANIFEST) -> None:
    """Writes manifest.json or another file of that format, either completely or not at all."""
    safe_files.write(
        os.path.join(directory, name),
        json.dumps(_to_tree(manifest) | {"hash": manifest.hash}, indent=2).encode() + b"\n",
    )


def write_unigram(directory: str, counts_2V: np.ndarray) -> int:
    """Writes unigram.npy, [2, V] int64, completely or not at all; returns its CRC32."""
    data = io.BytesIO()  # numpy's own write errors do not say that the disk is full
    np.save(data, counts_2V)
    safe_files.write(os.path.join(directory, UNIGRAM), data.getvalue())
    return _unigram_crc(counts_2V)


def shard_bytes(rows: int, length: int, dtype: str | np.dtype) -> int:
    """The size in bytes of one lane's file."""
    return rows * length * np.dtype(dtype).itemsize


def shards_are_whole(
    directory: str,
    split: str,
    shards: tuple[Shard, ...],
    length: int,
    lanes: Mapping[str, str],
    bucket_sizes: Mapping[str, int] = types.MappingProxyType({}),
) -> bool:
    """True if every file of the shards exists and has the expected size.

    `bucket_sizes` has the bytes of files that are in a bucket, by their paths in the folder.
    """
    try:
        for shard in shards:
            for path, expected in _sizes(directory, split, shard, length, lanes).items():
                if bucket_sizes.get(os.path.relpath(path, directory)) != expected:
                    check_size(path, expected)
    except ValueError:
        return False
    return True


def check_size(path: str, expected: int) -> None:
    """Raises ValueError, one line, if the file is missing or has another size."""
    try:
        size = os.path.getsize(path)
    except FileNotFoundError as error:
        raise ValueError(f"{path} is missing; run prepare again") from error
    if size != expected:
        raise ValueError(f"{path} has {size} bytes instead of {expected}; run prepare again")


def split_directory(directory: str, split: str) -> str:
    """The folder of a split's shards."""
    return os.path.join(directory, "records", split)


def _shards(manifest):
    """Yields (split, shard) of all sources."""
    for source in manifest.sources:
        for split in SPLITS:
            for shard in source.shards[split]:
                yield split, shard


def _sizes(directory, split, shard, length, lanes):
    """{path: bytes} of the files of a shard."""
    return {
        _lane_path(directory, split, shard.name, lane): shard_bytes(shard.rows, length, dtype)
        for lane, dtype in lanes.items()
    }


def _lane_path(directory, split, name, lane):
    return os.path.join(split_directory(directory, split), f"{name}.{lane}")


def _unigram_crc(counts_2V):
    return zlib.crc32(np.ascontiguousarray(counts_2V, "<i8"))


def _remedy(directory):
    return (
        f"move {directory} away and run prepare again: the same text gives the same rows, and the"
        " run continues; where the text has changed since, put the folder back and copy the damaged"
        " file from a backup"
    )


def _crc(path):
    crc = 0
    with builtins.open(path, "rb") as file:
        while block := file.read(1 << 20):
            crc = zlib.crc32(block, crc)
    return crc


def _from_tree(tree):
    """Returns the manifest and the hash that its file states."""
    stated = tree.pop("hash", None)

    sources = tuple(
        RecordedSource(
            **source
            | {
                "shards": {
                    split: tuple(Shard(**shard) for shard in shards)
                    for split, shards in source["shards"].items()
                }
            }
        )
        for source in tree.pop("sources")
    )

    return Manifest(**tree, sources=sources), stated


def _to_tree(manifest):
    """The manifest as JSON would give it back: with lists in place of tuples."""
    return json.loads(json.dumps(dataclasses.asdict(manifest)))
