# SPDX-License-Identifier: Apache-2.0
"""Sketches of documents, which tell how similar two of them are without their texts.

    document -> a hash of each sequence of 25 bytes -> the smallest hash of each of 128 bins

The share of bins in which two sketches agree estimates the Jaccard similarity of the two sets of
sequences: how many both documents have, of those that either has (Broder 1997). Its standard error
is at most 0.044, and some 0.07 in documents of fewer than ten words. One hash function serves all
bins, so a document costs one sort (Li, Owen and Zhang 2012, arXiv:1208.1259). A bin that got no
hash, as in short documents, takes over that of the next one to its right (Shrivastava and Li 2014,
arXiv:1406.4784).

Bytes and not words, since not all languages part words by blanks: 25 bytes of UTF-8 are some five
English words, or eight Chinese characters. Case and white space make no difference.
"""

import numpy as np

BINS = 128
_BYTES = 25  # of a sequence
_CHUNK = 1_000_000  # bytes that are hashed at a time
_BASE = np.uint64(0x9E3779B97F4A7C15)  # of the polynomial hash: odd, so that no byte is lost
_EMPTY = np.uint64(2**64 - 1)
_FOUND = 0.95  # share of the pairs with just the similarity that is asked for


def of(document: str) -> np.ndarray:
    """The sketch of a document, [128] uint32."""
    data = " ".join(document.lower().split()).encode("utf-8", "surrogatepass")
    bytes_N = np.frombuffer(data.ljust(_BYTES, b"\0"), np.uint8)
    smallest_K = np.full(BINS, _EMPTY)
    for start in range(0, len(bytes_N) - _BYTES + 1, _CHUNK):
        chunk = bytes_N[start : start + _CHUNK + _BYTES - 1]
        smallest_K = np.minimum(smallest_K, _smallest(_hashes(chunk)))
    return _filled(smallest_K)


def agreement(sketches_PK: np.ndarray, others_PK: np.ndarray) -> np.ndarray:
    """The estimated similarity of each pair of sketches, [P], from 0 to 1."""
    return (sketches_PK == others_PK).mean(1)


def bands(similarity: float) -> list[slice]:
    """Groups of bins: sketches that are this similar agree in all bins of one of them at least.

    They are as wide as they may be for that to hold of 95 % of the pairs with just this similarity.
    It holds of nearly all that are more similar, and of few that are much less.
    """
    widths = (32, 16, 8, 4, 2)
    found = [1 - (1 - similarity**width) ** (BINS // width) for width in widths]
    bins = next(width for width, share in zip(widths, found) if share >= _FOUND)
    return [slice(start, start + bins) for start in range(0, BINS, bins)]


def keys(band_NB: np.ndarray) -> np.ndarray:
    """One number for the bins of a band, of each sketch, [N] uint64."""
    key_N = np.zeros(len(band_NB), np.uint64)
    for bin_N in band_NB.T:
        key_N = _mixed(key_N + bin_N + np.uint64(1))
    return key_N


def _hashes(bytes_N):
    """The hash of each sequence of 25 bytes, made of those of 1, 8 and 16 bytes, uint64."""
    ones = bytes_N.astype(np.uint64) + np.uint64(1)
    twos = _joined(ones, ones, 1)
    fours = _joined(twos, twos, 2)
    eights = _joined(fours, fours, 4)
    sixteens = _joined(eights, eights, 8)
    return _mixed(_joined(_joined(sixteens, eights, 16), ones, 24))


def _joined(first, second, size):
    """Hashes of sequences of `size` bytes and of those that follow them, as one: a polynomial."""
    count = len(second) - size
    return first[:count] * _BASE**size + second[size:]


def _mixed(x):
    """Spreads each bit of 64 over all others (the finalizer of SplitMix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _smallest(hash_N):
    """The smallest hash of each bin, [128]; the first seven bits of a hash are its bin."""
    hash_N = np.sort(hash_N)
    begins_K = np.arange(BINS, dtype=np.uint64) << np.uint64(57)
    place_K = np.searchsorted(hash_N, begins_K)
    found_K = np.append(hash_N, _EMPTY)[place_K]
    return np.where(found_K >> np.uint64(57) == np.arange(BINS), found_K, _EMPTY)


def _filled(smallest_K):
    """32 bits of the smallest hash of each bin, in an empty bin those of the next full one."""
    full = np.flatnonzero(smallest_K != _EMPTY)
    next_K = full[np.searchsorted(full, np.arange(BINS)) % len(full)]
    return (smallest_K[next_K] >> np.uint64(25)).astype(np.uint32)
