# SPDX-License-Identifier: Apache-2.0
"""Text in, a folder of records out: vocabulary, rows, counts, manifest; resumable and repeatable.

    sources -> units of text                     text.py: pieces of work that do not know each other
    a sample -> vocabulary                       vocabulary.py, once
    every unit -> documents -> token ids -> rows -> one shard a split     in worker processes
    all counts -> manifest.json                  written last: where it is, the folder is whole

The folder is named by a hash of the settings that matter and of the sources' names and sizes, so
runs with equal settings share it and changed settings never meet old rows. A unit that is done
leaves a small JSON file; whoever comes after an interruption skips it. Randomness belongs to the
unit (seed, source, unit), never to a process: any number of workers writes the same bytes.

A document is held out by a hash of its text: equal documents fall on the same side, and another
seed or another order moves none of them.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import errno
import functools
import hashlib
import io
import json
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from electra_jax.data import records, segments, text, vocabulary
from electra_jax.host import lock

ROWS = ("pairs", "packed")
VOCABULARY = "vocab"  # folder inside the prepared folder
# Shares of [UNK]. A vocabulary that fits leaves less than 0.5 % unknown (a trained one covers
# 99.95 % of the characters); one for another script or case leaves most of the text. Above a half,
# [UNK] is the best guess everywhere and nothing else is learnt.
UNKNOWN_WARNED, UNKNOWN_REFUSED = 0.05, 0.5

_UNITS = "units"  # what finished units leave; removed at the end
_DOCUMENTS = ".documents.json"
_BATCH_CHARACTERS = 400_000  # encoded in one call
_BATCH_ROWS = 2048  # written in one call
_LINE_CHARACTERS = 16_384  # a longer line goes to the tokenizer in parts
_SAMPLED_UNITS = 16  # at least so many units, where there are, make up the vocabulary's sample
_SAMPLED_TOO_MUCH = (
    1_000_000  # characters that the last document may add, which is a file or a line
)
_PROGRESS_SECONDS = 10
_COUNTS = (  # of a unit, beside those of its rows
    "documents",
    "heldout_documents",
    "characters",
    "empty",
    "skipped_short",
    "duplicates",
    "invalid_utf8",
)
_UNKNOWN_REMEDY = (
    "look at data.vocab, data.lower_case and data.strip_accents, or train one on this text:"
    " data.vocab=train:sentencepiece:SIZE"
)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


@dataclasses.dataclass(frozen=True)
class Settings:
    """The fields of `config.data` that preparing reads, and the seed; see configs/base.py."""

    source: str
    vocab: str
    sequence_length: int
    mixture_alpha: float = 1.0
    vocab_sample_characters: int = 100_000_000
    lower_case: bool = True
    strip_accents: bool = True
    text_field: str = "text"
    invalid_utf8: str = "replace"
    min_document_characters: int = 0
    deduplicate: bool = False
    heldout_fraction: float = 0.01
    rows: str = "pairs"
    single_segment_rate: float = 0.1
    short_row_rate: float = 0.05
    workers: int = 0
    seed: int = 0

    @classmethod
    def from_config(cls, config: Any) -> "Settings":
        """From a whole configuration: its section `data` and its `seed`."""
        names = [field.name for field in dataclasses.fields(cls) if field.name != "seed"]
        return cls(**{name: getattr(config.data, name) for name in names}, seed=config.seed)


def prepare(settings: Settings, root: str, progress: Callable[[str], Any] = print) -> str:
    """Makes the folder of records if it is not there yet, and returns its path.

    Raises ValueError, one line with the remedy, for text, vocabularies and disks that cannot do,
    and where another process is preparing the same folder.
    """
    plan = _plan(settings, root)
    if not _is_whole(plan.folder, progress):
        _prepare(plan, progress)
    if line := unknown_tokens(records.read_manifest(plan.folder)):
        progress(f"warning: {line}")
    return plan.folder


def unknown_tokens(manifest: records.Manifest) -> str:
    """One line where so much text is not in the vocabulary that it deserves a look; '' if not."""
    if manifest.unk_rate < UNKNOWN_WARNED:
        return ""
    return (
        f"{manifest.unk_rate:.1%} of the tokens of {manifest.settings['source']} are not in the"
        f" vocabulary and became [UNK]; {_UNKNOWN_REMEDY}"
    )


def _refuse_unknown(manifest):
    if manifest.unk_rate > UNKNOWN_REFUSED:
        raise ValueError(f"{unknown_tokens(manifest)}. More than {UNKNOWN_REFUSED:.0%} is refused")


def _prepare(plan, progress):
    """Makes the folder, alone, unless another process has made it meanwhile."""
    with lock.hold(os.path.join(plan.folder, "prepare.lock"), f"the data folder {plan.folder}"):
        try:
            if not _is_whole(plan.folder, progress):
                _build(plan, progress)
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
            raise ValueError(
                f"no space left for {plan.folder}; free some or set data.dir, then run again: it"
                " goes on from here"
            ) from error
        except concurrent.futures.BrokenExecutor as error:
            fewer = max(1, _workers(plan.settings.workers) // 2)
            raise ValueError(
                "a process that prepares data was killed, most likely for memory; run again with"
                f" data.workers={fewer}: it goes on from here"
            ) from error
        finally:
            _remove_partials(plan.folder)


def folder_of(settings: Settings, root: str) -> str:
    """Where `prepare` puts these settings' records, made or not."""
    return _plan(settings, root).folder


def check_sources(settings: Settings) -> None:
    """Refuses sources that a preparation would, as far as looking at their names tells.

    Raises ValueError, one line: no such file, an unknown data set, a weight too few.
    """
    for source in text.parse(settings.source):
        text.fingerprint(source)


def check_vocabulary(settings: Settings) -> None:
    """Refuses a vocabulary that cannot be had. Raises ValueError, one line."""
    if settings.vocab.startswith("train:"):
        trained_kind(settings.vocab)
    else:
        _load_vocabulary(settings)


def trained_kind(vocab: str) -> tuple[str, int]:
    """'train:wordpiece:8192' -> ('wordpiece', 8192). Raises ValueError, one line."""
    _, kind, size = (vocab.split(":", 2) + ["", ""])[:3]
    kinds = ("sentencepiece", "wordpiece")
    if kind not in kinds:
        raise ValueError(
            f"data.vocab={vocab!r}: {kind!r} is not one of {', '.join(kinds)}; try"
            f" train:{kinds[0]}:SIZE"
        )
    low, high = vocabulary.SIZES
    if not (size.isascii() and size.isdigit()) or not low <= int(size[:20]) <= high:
        raise ValueError(
            f"data.vocab={vocab!r}: the size {size!r} is not a whole number from {low} to {high:,};"
            f" try train:{kind}:30522"
        )
    return kind, int(size)


def check_vocabulary_path(path: str) -> None:
    """Raises ValueError, one line, where there is no file to take the vocabulary from."""
    if not os.path.exists(path):
        raise ValueError(
            f"data.vocab={path!r} does not exist; give a .model, vocab.txt or tokenizer.json, or"
            " train:sentencepiece:SIZE"
        )


@dataclasses.dataclass(frozen=True)
class _Plan:
    """What is to be done: the sources, their units, and where it goes."""

    settings: Settings
    sources: tuple[text.Source, ...]
    key: str
    folder: str


@dataclasses.dataclass(frozen=True)
class _Task:
    """One unit of text and all that a process needs to know to turn it into shards."""

    settings: Settings
    folder: str
    name: str
    source_index: int
    unit_index: int
    unit: Any
    heldout_below: int  # a document with a smaller hash is held out
    vocabulary: str = ""  # its sha256, once there is one


def _plan(settings, root):
    if settings.rows not in ROWS:
        raise ValueError(f"data.rows={settings.rows!r} is not one of {', '.join(ROWS)}")
    sources = text.parse(settings.source)
    fingerprints = [text.fingerprint(source) for source in sources]
    values = _content(settings)
    content = {"format": records.FORMAT_VERSION, "settings": values, "sources": fingerprints}
    key = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    return _Plan(settings, sources, key, os.path.join(root, key))


def _content(settings):
    """What rows depend on: a vocabulary is what is in its file, wherever the file lies."""
    values = dataclasses.asdict(settings)
    del values["workers"]
    if not settings.vocab.startswith("train:"):
        values["vocab"] = _load_vocabulary(settings).sha256
    return values


def _is_whole(folder, progress):
    if not os.path.exists(os.path.join(folder, records.MANIFEST)):
        return False
    try:
        opened = records.open(folder)
        opened.unigram()
        words = vocabulary.load(os.path.join(folder, VOCABULARY))
        if words.sha256 != opened.manifest.vocabulary["sha256"]:
            raise ValueError(
                f"{folder}/{VOCABULARY} is not the one that the records were made with"
            )
        return True
    except ValueError as error:
        progress(f"prepared data is damaged and is made again: {error}")
        return False


def _build(plan, progress):
    """From nothing, or from where an interrupted one stopped, to a folder with a manifest."""
    began = time.monotonic()
    progress(f"preparing {plan.settings.source} in {plan.folder}")
    if os.path.exists(os.path.join(plan.folder, records.MANIFEST)):  # damaged: trust nothing
        os.remove(os.path.join(plan.folder, records.MANIFEST))
        shutil.rmtree(os.path.join(plan.folder, _UNITS), ignore_errors=True)
    os.makedirs(os.path.join(plan.folder, _UNITS), exist_ok=True)
    _remove_partials(plan.folder)
    tasks = _tasks(plan)
    with _Workers(plan.settings.workers) as workers:
        words = _vocabulary(plan, tasks, workers, progress)
        tasks = [dataclasses.replace(task, vocabulary=words.sha256) for task in tasks]
        if plan.settings.deduplicate:
            _mark_duplicates(tasks, workers, progress)
        results = _build_units(tasks, workers, progress)
        tasks = _with_both_splits(plan, tasks, results)
        results = _build_units(tasks, workers, progress)
    manifest = _manifest(plan, tasks, results, words, time.monotonic() - began)
    _remove_strangers(plan.folder, manifest)
    _refuse_unknown(manifest)
    records.write_manifest(plan.folder, manifest)
    shutil.rmtree(os.path.join(plan.folder, _UNITS))
    progress(
        f"prepared {manifest.totals['documents']:,} documents,"
        f" {manifest.totals['tokens']:,} tokens, {manifest.totals['rows']:,} rows"
    )


def _tasks(plan):
    heldout_below = int(plan.settings.heldout_fraction * 2**64)
    tasks = []
    for s, source in enumerate(plan.sources):
        for u, unit in enumerate(text.units(source)):
            name = f"{source.name}-{u:05d}"
            tasks.append(_Task(plan.settings, plan.folder, name, s, u, unit, heldout_below))
    return tasks


# The vocabulary


def _vocabulary(plan, tasks, workers, progress):
    """The folder's vocabulary: kept if it is there, else loaded or trained, and saved."""
    directory = os.path.join(plan.folder, VOCABULARY)
    settings = plan.settings
    if os.path.exists(directory):
        try:
            return vocabulary.load(directory)
        except ValueError as error:
            progress(f"the vocabulary is not whole and is made again: {error}")
    if not settings.vocab.startswith("train:"):
        words = _load_vocabulary(settings)
    else:
        kind, size = trained_kind(settings.vocab)
        progress(f"training a {kind} vocabulary of {size:,} pieces")
        with _telling(progress, lambda s: f"still reading for it and training it, {s:,.0f} s"):
            words = vocabulary.train(
                kind,
                size,
                _sample(plan, tasks, workers),
                settings.lower_case,
                settings.strip_accents,
                settings.seed,
            )
    words.save(directory)
    return words


@functools.lru_cache(maxsize=2)
def _words(folder, sha256):
    """The folder's vocabulary, loaded once a process; its hash tells it from an older one."""
    words = vocabulary.load(os.path.join(folder, VOCABULARY))
    if words.sha256 != sha256:
        raise ValueError(f"the vocabulary in {folder} was changed while it was used; run again")
    return words


def _load_vocabulary(settings):
    check_vocabulary_path(settings.vocab)
    return vocabulary.load(settings.vocab, settings.lower_case, settings.strip_accents)


def _sample(plan, tasks, workers):
    """Lines of training documents, `vocab_sample_characters` of them in all.

    Each source gives its share. Its units come in an order that spreads over the source, and some
    of them share what is wanted: a file is seldom the same from its beginning to its end.
    """
    sizes = [text.size(source) for source in plan.sources]
    for s, share in enumerate(_shares(plan, sizes)):
        wanted = int(share * plan.settings.vocab_sample_characters)
        units = [task for task in tasks if task.source_index == s]
        units.sort(key=lambda task: hashlib.sha256(task.name.encode()).digest())
        while units and wanted > 0:
            asked, units = units[:_SAMPLED_UNITS], units[_SAMPLED_UNITS:]
            function = functools.partial(_sample_unit, characters=-(-wanted // len(asked)))
            found = {task.name: lines for task, lines in workers.each(function, asked)}
            for task in asked:
                yield from found[task.name]
                wanted -= sum(map(len, found[task.name]))


def _sample_unit(task, characters):
    """Lines from the beginning of a unit. A unit that was read to its end need not be again."""
    kept, lines, counts = [], [], collections.Counter()
    for document in _documents(task, counts):
        kept.append(document)
        if _hash(document)[0] >= task.heldout_below:
            for part in (part for line in document.split("\n") for part in _parts(line)):
                lines.append(part)
                characters -= len(part)
                if characters <= -_SAMPLED_TOO_MUCH:
                    return lines
            characters -= document.count("\n")
            if characters <= 0:
                return lines
    records.write_whole(_unit_path(task, _DOCUMENTS), json.dumps([kept, counts]).encode())
    return lines


def _shares(plan, sizes):
    """Each source's share of the mixture: as its weight says, else by size."""
    weights = [source.weight for source in plan.sources]
    if weights[0] is None:
        weights = [max(size, 1) ** plan.settings.mixture_alpha for size in sizes]
    return [weight / sum(weights) for weight in weights]


# Units of text


def _build_units(tasks, workers, progress):
    """Builds those that are not done; returns what each has left, in order."""
    results = {task.name: _finished(task) for task in tasks}
    todo = [task for task in tasks if results[task.name] is None]
    if len(todo) < len(tasks) and todo:
        progress(f"{len(tasks) - len(todo)} of {len(tasks)} units are there already")
    began, characters = time.monotonic(), workers.characters
    done = documents = tokens = 0

    def so_far(seconds):
        read = workers.characters - characters
        left = f", {seconds / done * (len(todo) - done):,.0f} s left" if done else ""
        return (
            f"{done:,} of {len(todo):,} units, {documents:,} documents, {tokens:,} tokens;"
            f" {read:,} characters tokenised, {read / seconds:,.0f} a second{left}"
        )

    with _telling(progress, so_far):
        for task, result in workers.each(_build_unit, todo):
            done += 1
            results[task.name] = result
            documents += result["counts"]["documents"]
            tokens += result["counts"]["tokens"]
    if todo:
        rate, cores = tokens / max(time.monotonic() - began, 1e-9), min(workers.count, len(todo))
        progress(
            f"{tokens:,} tokens cut into rows at {rate:,.0f} tokens/s,"
            f" {rate / cores:,.0f} a core on {cores}"
        )
    return [results[task.name] for task in tasks]


class _Workers:
    """Runs a function on tasks, in processes of its own if there are to be several."""

    def __init__(self, workers):
        self._pool = None
        self.count = _workers(workers)
        # Forking a process that runs JAX's threads can hang; a spawned one starts clean.
        context = multiprocessing.get_context("spawn")
        self._characters = context.Value("q", 0)
        _count_in(self._characters)
        if self.count > 1:
            ends, self._lives = context.Pipe(duplex=False)
            self._pool = concurrent.futures.ProcessPoolExecutor(
                self.count,
                mp_context=context,
                initializer=_start_worker,
                initargs=(ends, self._characters),
            )

    @property
    def characters(self) -> int:
        """How many went through the tokenizer so far, those of unfinished units too."""
        return self._characters.value

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self._pool:
            if kind is not None:
                self._lives.close()  # a unit may take minutes
            self._pool.shutdown(wait=True, cancel_futures=kind is not None)
            self._lives.close()

    def each(self, function, tasks):
        """(task, function(task)) as they finish."""
        if self._pool is None or len(tasks) < 2:
            for task in tasks:
                yield task, function(task)
            return
        with _no_main(), _no_signals():
            futures = {self._pool.submit(_answer, function, task): task for task in tasks}
        for future in concurrent.futures.as_completed(futures):
            answer = future.result()
            if isinstance(answer, ValueError):
                raise ValueError(*answer.args)
            yield futures[future], answer


@contextlib.contextmanager
def _no_main():
    """A new process imports the caller's main module, JAX and all; these workers need none."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def _no_signals():
    """A new process inherits what is blocked here: Ctrl-C goes to all processes of a terminal, and
    each of these would print its traceback. They end when their parent does, or says so."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_worker(ends, characters):
    _count_in(characters)
    # Killed, a parent cannot stop its workers, and they would wait for ever.
    threading.Thread(target=_die_with_parent, args=(ends,), daemon=True).start()


_counted: Any = None  # the count of this process and of all that work with it


def _count_in(characters):
    global _counted  # noqa: PLW0603 - a shared value reaches a worker only as it starts
    _counted = characters


def _count_characters(number):
    if _counted is not None:
        with _counted.get_lock():
            _counted.value += number


@contextlib.contextmanager
def _telling(progress, words):
    """Tells `words(seconds)` every so often while the block runs, whatever the block waits for."""
    done, began = threading.Event(), time.monotonic()

    def tell():
        while not done.wait(_PROGRESS_SECONDS):
            progress(words(time.monotonic() - began))

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _answer(function, task):
    """The result, or our own refusal as a value: raised elsewhere, it would look like a bug."""
    try:
        return function(task)
    except ValueError as error:
        trace = error.__traceback__
        while trace.tb_next:
            trace = trace.tb_next
        if trace.tb_frame.f_globals["__name__"].startswith("electra_jax"):
            return error
        raise


def _die_with_parent(ends):
    multiprocessing.connection.wait([multiprocessing.parent_process().sentinel, ends])
    os._exit(1)


def _workers(workers):
    if workers:
        return workers
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _build_unit(task):
    """Text of one unit -> its shards; returns, and leaves in a file, what there is to know."""
    words = _words(task.folder, task.vocabulary)
    writers = {split: _SplitWriter(task, split, words) for split in records.SPLITS}
    counts = collections.Counter(dict.fromkeys(_COUNTS, 0))
    counts_2V = np.zeros((2, words.size), np.int64)
    extremes = []
    try:
        for documents in batches(_kept_documents(task, counts)):
            for document, digest, ids, line_lengths in encode(documents, words):
                if not len(ids):
                    counts["empty"] += 1
                    continue
                split = "heldout" if digest < task.heldout_below else "train"
                writers[split].add(ids, line_lengths)
                counts["documents"] += 1
                counts["heldout_documents"] += split == "heldout"
                counts["characters"] += len(document)
                extremes = [min([digest, *extremes]), max([digest, *extremes])]
            for split, counts_V in zip(records.SPLITS, counts_2V):
                counts_V += writers[split].count()
        shards = {split: writers[split].close() for split in records.SPLITS}
    finally:
        for writer in writers.values():
            writer.discard()
    _check_counts(counts_2V, words)
    for split, prefix in zip(records.SPLITS, ("", "heldout_")):
        for name, number in writers[split].counts.items():
            counts[prefix + name] = number
    counts["tokens"], counts["heldout_tokens"] = counts_2V.sum(1).tolist()
    result = {
        "vocabulary": words.sha256,
        "lanes": _lanes(words),
        "heldout_below": task.heldout_below,
        "extremes": extremes,
        "counts": dict(sorted((name, int(number)) for name, number in counts.items())),
        "shards": {s: [dataclasses.asdict(x) for x in found] for s, found in shards.items()},
    }
    present = np.flatnonzero(counts_2V.any(0))
    _save_array(_unit_path(task, ".unigram.npy"), np.vstack([present, counts_2V[:, present]]))
    records.write_whole(_unit_path(task, ".json"), json.dumps(result).encode())
    return result


class _SplitWriter:
    """Documents of one split of one unit -> rows -> shards."""

    def __init__(self, task, split, words):
        s = task.settings
        seeds = [s.seed, task.source_index, task.unit_index, records.SPLITS.index(split)]
        self._cutter = segments.Cutter(
            s.rows, s.sequence_length, seeds, s.single_segment_rate, s.short_row_rate
        )
        self._layout = segments.Layout.of(words, s.sequence_length)
        self._writer = records.ShardWriter(records.split_directory(task.folder, split), task.name)
        self._rows = []
        self._ids = []
        self._size = words.size
        self.counts = collections.Counter(rows=0, padding=0, two_segment_rows=0)

    def add(self, ids, line_lengths):
        """Takes in a document."""
        self._ids.append(ids)
        for row in self._cutter.add(ids, line_lengths):
            self._take(row)

    def count(self):
        """[V] how often each id came since the last call."""
        counts_V = np.bincount(np.concatenate(self._ids or [[]]).astype(np.int64))
        self._ids = []
        return np.pad(counts_V, (0, self._size - len(counts_V)))

    def close(self):
        """Writes what is left; the shards."""
        for row in self._cutter.close():
            self._take(row)
        self._flush()
        return self._writer.close()

    def discard(self):
        """Removes unfinished files; nothing to do after `close`."""
        self._writer.discard()

    def _take(self, row):
        self._rows.append(row)
        if len(self._rows) == _BATCH_ROWS:
            self._flush()

    def _flush(self):
        if self._rows:
            ids_BL, marks_BL = segments.lay(self._rows, self._layout)
            self._writer.write(ids_BL, marks_BL)
            self.counts["rows"] += len(ids_BL)
            self.counts["padding"] += int((ids_BL == self._layout.pad_id).sum())
            self.counts["two_segment_rows"] += int(
                ((marks_BL & segments.SEGMENT_B_START) > 0).any(1).sum()
            )
            self._rows = []


def _documents(task, counts):
    """The documents of a unit as its source has them, or as the sample left them."""
    path = _unit_path(task, _DOCUMENTS)
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            kept, counted = json.load(file)
        counts.update(counted)
        return iter(kept)
    s = task.settings
    options = text.Options(
        text_field=s.text_field,
        invalid_utf8=s.invalid_utf8,
        min_document_characters=s.min_document_characters,
    )
    return task.unit.documents(options, counts)


def _kept_documents(task, counts):
    """Without those that came before, where duplicates are dropped."""
    documents = _documents(task, counts)
    if not task.settings.deduplicate:
        return documents
    return _without(documents, np.load(_unit_path(task, ".duplicates.npy")), counts)


def _without(documents, duplicates, counts):
    for document, duplicate in zip(documents, duplicates, strict=True):
        if duplicate:
            counts["duplicates"] += 1
        else:
            yield document


def batches(documents: Iterable[str]) -> Iterator[list[str]]:
    """Lists of documents, each list large enough to be worth a call of the tokenizer."""
    return batched(documents, _BATCH_CHARACTERS)


def batched(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    """Lists of texts in their order, each of `size` characters or a little more."""
    batch, characters = [], 0
    for text_ in texts:
        batch.append(text_)
        characters += len(text_)
        if characters >= size:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def encode(
    documents: Sequence[str], words: vocabulary.Vocabulary
) -> Iterator[tuple[str, int, np.ndarray, list[int]]]:
    """(document, hash, its ids [T], tokens in each line) of each document."""
    lines = [[p for line in d.split("\n") for p in _parts(line)] for d in documents]
    encoded = _encoded([line for found in lines for line in found], words)
    for document, found in zip(documents, lines):
        parts = [next(encoded) for _ in found]
        ids = np.concatenate(parts) if parts else np.zeros(0, np.uint32)
        yield document, _hash(document)[0], ids, [len(part) for part in parts]


def _encoded(lines, words):
    """The ids of each line; a document of any size goes to the tokenizer in calls of bounded size,
    so that it can be told how far it is."""
    for batch in batched(lines, _BATCH_CHARACTERS):
        yield from words.encode(batch)
        _count_characters(sum(map(len, batch)))


def _parts(line):
    """A line, in parts cut at spaces where it is so long that a tokenizer would choke on it."""
    start = 0  # cutting the rest off each time would copy a line of 50 MB 3,000 times
    while len(line) - start > _LINE_CHARACTERS:
        cut = line.rfind(" ", start + 1, start + _LINE_CHARACTERS)
        cut = cut if cut > 0 else start + _LINE_CHARACTERS
        yield line[start:cut]
        start = cut
    yield line[start:]


def _hash(document):
    """Two 64-bit numbers that are equal for documents that differ in white space alone."""
    data = " ".join(document.split()).encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(data, digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


def _check_counts(counts_2V, words):
    found = [i for i in words.special_ids if counts_2V[:, i].any()]
    if found:
        raise ValueError(
            f"the vocabulary makes special tokens (ids {found}) out of plain text; train one with"
            " train:sentencepiece:SIZE"
        )


def _finished(task):
    """What a finished unit has left, or None if it is to be done (again)."""
    try:
        with open(_unit_path(task, ".json"), encoding="utf-8") as file:
            result = json.load(file)
    except FileNotFoundError:
        return None
    same = (result["vocabulary"], result["heldout_below"]) == (
        task.vocabulary,
        task.heldout_below,
    )
    whole = os.path.exists(_unit_path(task, ".unigram.npy")) and all(
        records.shards_are_whole(
            task.folder, split, found, task.settings.sequence_length, result["lanes"]
        )
        for split, found in _shards(result).items()
    )
    return result if same and whole else None


def _with_both_splits(plan, tasks, results):
    """Moves one document where a source would have no training or no held-out text.

    The bound on the hash moves just so far that the smallest hash of the source is held out and
    the largest is not; units that this touches get the new bound and are built again.
    """
    moved = list(tasks)
    for s, source in enumerate(plan.sources):
        mine = [i for i, task in enumerate(tasks) if task.source_index == s]
        extremes = [results[i]["extremes"] for i in mine if results[i]["extremes"]]
        if not extremes:
            counts = collections.Counter()
            for i in mine:
                counts.update(results[i]["counts"])
            raise ValueError(
                f"source {source.spec} has no text ({counts['empty']} empty documents,"
                f" {counts['skipped_short']} shorter than data.min_document_characters)"
                "; give it another file"
            )
        smallest, largest = min(x[0] for x in extremes), max(x[1] for x in extremes)
        if smallest == largest:
            count = sum(results[i]["counts"]["documents"] for i in mine)
            if count > 1:
                raise ValueError(
                    f"source {source.spec} holds {count:,} documents that are all equal; equal"
                    " documents stay on one side and one must be held out, so add another"
                )
            raise ValueError(
                f"source {source.spec} has only one document, and one must be held out; separate"
                " documents by blank lines or add some"
            )
        for i in mine:
            below = tasks[i].heldout_below
            if below <= smallest and results[i]["extremes"][:1] == [smallest]:
                moved[i] = dataclasses.replace(tasks[i], heldout_below=smallest + 1)
            elif below > largest and results[i]["extremes"][1:] == [largest]:
                moved[i] = dataclasses.replace(tasks[i], heldout_below=largest)
    return moved


# Duplicates


def _mark_duplicates(tasks, workers, progress):
    """Leaves for each unit which of its documents came before, in the order of all sources."""
    if all(os.path.exists(_unit_path(task, ".duplicates.npy")) for task in tasks):
        return
    progress("looking for duplicates")
    todo = [task for task in tasks if not os.path.exists(_unit_path(task, ".hashes.npy"))]
    collections.deque(workers.each(_hash_unit, todo), maxlen=0)
    hashes = [np.load(_unit_path(task, ".hashes.npy")) for task in tasks]
    whole = np.concatenate(hashes)
    order = np.lexsort((np.arange(len(whole)), whole[:, 1], whole[:, 0]))
    same = (whole[order][1:] == whole[order][:-1]).all(1)
    duplicates = np.zeros(len(whole), bool)
    duplicates[order[1:][same]] = True
    for task, found in zip(tasks, np.split(duplicates, np.cumsum([len(h) for h in hashes])[:-1])):
        _save_array(_unit_path(task, ".duplicates.npy"), found)
    progress(f"{duplicates.sum():,} of {len(duplicates):,} documents are duplicates")


def _hash_unit(task):
    hashes = [_hash(document) for document in _documents(task, collections.Counter())]
    _save_array(_unit_path(task, ".hashes.npy"), np.array(hashes, np.uint64).reshape(-1, 2))


# The manifest


def _manifest(plan, tasks, results, words, seconds):
    unigram_2V = np.zeros((2, words.size), np.int64)
    for task in tasks:
        present, *counts = np.load(_unit_path(task, ".unigram.npy"))
        unigram_2V[:, present] += counts
    counted = [collections.Counter() for _ in plan.sources]
    shards = [{split: () for split in records.SPLITS} for _ in plan.sources]
    for task, result in zip(tasks, results):
        counted[task.source_index].update(result["counts"])
        for split, found in _shards(result).items():
            shards[task.source_index][split] += found
    shares = _shares(plan, [counts["tokens"] for counts in counted])
    totals = collections.Counter()
    for counts in counted:
        totals.update(counts)
    places = totals["rows"] * plan.settings.sequence_length
    return records.Manifest(
        format_version=records.FORMAT_VERSION,
        key=plan.key,
        settings=_content(plan.settings),
        lanes=_lanes(words),
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


def _lanes(words):
    return {"ids": segments.ids_dtype(words.size).str, "marks": "|u1"}


def _shards(result):
    return {
        split: tuple(records.Shard(**shard) for shard in found)
        for split, found in result["shards"].items()
    }


# Files


def _unit_path(task, ending):
    return os.path.join(task.folder, _UNITS, task.name + ending)


def _save_array(path, array):
    data = io.BytesIO()  # numpy's own errors do not tell a full disk
    np.save(data, array)
    records.write_whole(path, data.getvalue())


def _remove_partials(folder):
    for directory, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".partial"):
                os.remove(os.path.join(directory, name))


def _remove_strangers(folder, manifest):
    """Removes shards that no unit claims any more, left by an interruption."""
    for split in records.SPLITS:
        directory = records.split_directory(folder, split)
        known = {
            f"{shard.name}.{lane}"
            for source in manifest.sources
            for shard in source.shards[split]
            for lane in manifest.lanes
        }
        for name in os.listdir(directory):
            if name not in known:
                os.remove(os.path.join(directory, name))
