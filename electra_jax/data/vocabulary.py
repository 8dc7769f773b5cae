# SPDX-License-Identifier: Apache-2.0
"""Vocabularies: trained or loaded, SentencePiece or WordPiece, with their special ids checked.

    lines of text -> normalised (accents) -> pieces -> ids            encode
    [PAD] [UNK] [CLS] [SEP] [MASK]                                    looked up, never assumed

No special id ever comes out of text: a literal "[MASK]" is six characters like any other. [UNK]
is a text token: it may be masked and sampled, as in the reference. WordPiece from a vocab.txt gives
the ids of BERT's own tokenizer, but for such literals.

Training is repeatable: the same lines give the same pieces, in any process.
"""

import hashlib
import itertools
import json
import os
import unicodedata
from collections.abc import Sequence

import numpy as np

from electra_jax.data import vocabulary_codecs
from electra_jax.host import safe_files

FILES = {
    "sentencepiece": "vocab.model",
    "wordpiece": "vocab.txt",
    "tokenizer_json": "tokenizer.json",
}
_ABOUT = "vocabulary.json"


class Vocabulary:
    """Text to ids and back. Pickles, so that worker processes can have it."""

    def __init__(self, kind: str, data: bytes, lower_case: bool, strip_accents: bool):
        self.kind, self.lower_case, self.strip_accents = kind, lower_case, strip_accents
        self.native = data  # the file that it was made from
        self._codec = vocabulary_codecs.CODECS[kind](data, lower_case, strip_accents)
        self.pieces: list[str] = self._codec.pieces
        self.size = len(self.pieces)
        found = _special_ids(self.pieces, kind)
        self.pad_id, self.unk_id = found["pad"], found["unk"]
        self.cls_id, self.sep_id, self.mask_id = found["cls"], found["sep"], found["mask"]
        self.special_ids = (self.pad_id, self.cls_id, self.sep_id, self.mask_id)
        self.starts_word_V = np.array([self._codec.starts_word(piece) for piece in self.pieces])
        self.starts_word_V[list(self.special_ids)] = True
        self._text_ids_V = np.arange(self.size, dtype=np.uint32)  # what an id from text becomes
        self._text_ids_V[list(self.special_ids)] = self.unk_id
        self.sha256 = hashlib.sha256(
            json.dumps([kind, lower_case, strip_accents, self._codec.identity]).encode()
        ).hexdigest()

    def __reduce__(self):
        return Vocabulary, (self.kind, self.native, self.lower_case, self.strip_accents)

    def encode(self, lines: Sequence[str]) -> list[np.ndarray]:
        """One uint32 array of ids a line; never a special id but [UNK]."""
        found = self._codec.encode(
            [vocabulary_codecs.SURROGATES.sub("\ufffd", line) for line in lines]
        )
        if not found:
            return []
        lengths = np.fromiter(map(len, found), np.int64, len(found))
        flat = np.fromiter(itertools.chain.from_iterable(found), np.uint32, lengths.sum())
        return np.split(self._text_ids_V[flat], np.cumsum(lengths)[:-1])

    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        """The ids that `encode` gives, each with the stretch of text it was read from.

            text   A  café, then      characters 0..11
            ids    a  cafe  ,  then
            spans  0  2     6  8      begin
                   1  6     7  12     end

        Returns:
          (ids [n] uint32, spans [n, 2] int32, begin and end in characters of the text) a text. A
          combining mark belongs to the token before it; a token without a visible character of
          its own has an empty span.
        """
        found = self._codec.encode_with_offsets(
            [vocabulary_codecs.SURROGATES.sub("\ufffd", t) for t in texts]
        )
        return [
            (
                self._text_ids_V[np.asarray(ids, np.int64)],
                np.array(_visible(text, spans), np.int32).reshape(-1, 2),
            )
            for text, (ids, spans) in zip(texts, found)
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special ones left out."""
        return self._codec.decode([int(i) for i in ids if int(i) not in self.special_ids])

    def piece(self, id_: int) -> str:
        """The piece of one id, as the vocabulary spells it."""
        return self.pieces[id_]

    def save(self, directory: str) -> None:
        """Writes the native file and vocabulary.json, the latter last and whole."""
        os.makedirs(directory, exist_ok=True)
        safe_files.write(os.path.join(directory, FILES[self.kind]), self.native)
        about = {
            "kind": self.kind,
            "size": self.size,
            "lower_case": self.lower_case,
            "strip_accents": self.strip_accents,
            "pad_id": self.pad_id,
            "unk_id": self.unk_id,
            "cls_id": self.cls_id,
            "sep_id": self.sep_id,
            "mask_id": self.mask_id,
            "sha256": self.sha256,
        }
        safe_files.write(
            os.path.join(directory, _ABOUT), json.dumps(about, indent=2).encode() + b"\n"
        )


def load(path: str, lower_case: bool = True, strip_accents: bool = True) -> Vocabulary:
    """A folder that `save` wrote, a SentencePiece .model, a BERT vocab.txt or a tokenizer.json.

    A folder, a .model and a tokenizer.json know how they normalise; the two settings are for
    vocab.txt, and `strip_accents` for a .model too.

    Raises ValueError, one line: no such file, not a vocabulary, or a special token is missing.
    """
    if os.path.isdir(path):
        about_path = os.path.join(path, _ABOUT)
        if not os.path.exists(about_path):
            raise ValueError(f"{path} holds no {_ABOUT}; give a .model, .txt or tokenizer.json")
        try:
            about = json.loads(_read(about_path))
            native = os.path.join(path, FILES[about["kind"]])
            settings = about["lower_case"], about["strip_accents"]
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"{about_path} is damaged; prepare again") from error
        found = _make(about["kind"], native, *settings)
        if found.sha256 != about["sha256"]:
            raise ValueError(f"{native} is not the file that {_ABOUT} describes; prepare again")
        return found
    kind = {".model": "sentencepiece", ".txt": "wordpiece", ".json": "tokenizer_json"}.get(
        os.path.splitext(path)[1]
    )
    if kind is None:
        raise ValueError(
            f"vocabulary {path!r} is none of *.model (SentencePiece), vocab.txt (BERT),"
            " tokenizer.json; or use train:sentencepiece:SIZE, train:wordpiece:SIZE"
        )
    if kind == "tokenizer_json":  # it holds its own normaliser
        lower_case = strip_accents = False
    return _make(kind, path, lower_case, strip_accents)


def _special_ids(pieces, kind) -> dict[str, int]:
    numbers = {piece: number for number, piece in enumerate(pieces)}
    found = {}
    for role, spellings in vocabulary_codecs.SPELLINGS.items():
        known = [numbers[spelling] for spelling in spellings if spelling in numbers]
        if not known:
            raise ValueError(
                f"the {kind} vocabulary has no {role} token ({' or '.join(spellings)}); add it, or"
                " train one: data.vocab=train:sentencepiece:SIZE"
            )
        found[role] = known[0]
    if len(set(found.values())) != len(found):
        raise ValueError(f"two special tokens of the vocabulary have one id: {found}")
    return found


def _visible(text, spans):
    """Spans without blanks at their ends, with the combining marks that follow them."""
    spans = list(spans)
    following = [begin for begin, _ in spans[1:]] + [len(text)]
    for number, (begin, end) in enumerate(spans):
        while begin < end and text[begin].isspace():
            begin += 1
        while begin < end and text[end - 1].isspace():
            end -= 1
        while begin < end < following[number] and unicodedata.combining(text[end]):
            end += 1
        spans[number] = (begin, end)
    return spans


def _make(kind, path, lower_case, strip_accents):
    try:
        return Vocabulary(kind, _read(path), lower_case, strip_accents)
    except ValueError as error:
        if str(path) in str(error):
            raise
        raise ValueError(f"vocabulary {path}: {error}") from error


def _read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ValueError(f"vocabulary {path} cannot be read: {error.strerror}") from error
