# SPDX-License-Identifier: Apache-2.0
"""Vocabularies: text to token ids and back, with special ids that are looked up and checked.

    lines of text -> normalised (accents) -> pieces -> ids            encode
    [PAD] [UNK] [CLS] [SEP] [MASK]                                    looked up, never assumed

A vocabulary is loaded here (SentencePiece, WordPiece or tokenizer.json) or trained in
vocabulary_training.py; vocabulary_codecs.py holds the three tokenizer libraries.

Text never produces a special id: "[MASK]" in a text is six characters like any other. [UNK] is a
text token, which may be masked and sampled, as in the reference. WordPiece from a vocab.txt gives
the ids of BERT's own tokenizer, except for such literal special tokens.
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

FILES = {  # kind -> name of the native file in a saved folder
    "sentencepiece": "vocab.model",
    "wordpiece": "vocab.txt",
    "tokenizer_json": "tokenizer.json",
}
_ABOUT = "vocabulary.json"  # what `save` writes beside the native file


class Vocabulary:
    """Text to ids and back. Can be pickled, so that it can be sent to worker processes.

    Attributes:
      native: the bytes of the file that it was made from.
      pieces: the piece of each id.
      special_ids: those of [PAD], [CLS], [SEP] and [MASK], which text never produces.
      starts_word_V: [V] bool, True for pieces that begin a word and for special tokens.
      sha256: of the kind, the settings and the pieces; equal for vocabularies that encode alike.
    """

    def __init__(self, kind: str, data: bytes, lower_case: bool, strip_accents: bool):
        self.kind, self.lower_case, self.strip_accents = kind, lower_case, strip_accents
        self.native = data

        self._codec = vocabulary_codecs.CODECS[kind](data, lower_case, strip_accents)
        self.pieces: list[str] = self._codec.pieces
        self.size = len(self.pieces)

        found = _special_ids(self.pieces, kind)
        self.pad_id, self.unk_id = found["pad"], found["unk"]
        self.cls_id, self.sep_id, self.mask_id = found["cls"], found["sep"], found["mask"]
        self.special_ids = (self.pad_id, self.cls_id, self.sep_id, self.mask_id)

        self.starts_word_V = np.array([self._codec.starts_word(piece) for piece in self.pieces])
        self.starts_word_V[list(self.special_ids)] = True

        # Tokenizer's id -> id in a text: a special id becomes [UNK].
        self._text_ids_V = np.arange(self.size, dtype=np.uint32)
        self._text_ids_V[list(self.special_ids)] = self.unk_id

        self.sha256 = hashlib.sha256(
            json.dumps([kind, lower_case, strip_accents, self._codec.identity]).encode()
        ).hexdigest()

    def __reduce__(self):
        return Vocabulary, (self.kind, self.native, self.lower_case, self.strip_accents)

    def encode(self, lines: Sequence[str]) -> list[np.ndarray]:
        """The ids of each line, [n] uint32; no special id except [UNK]."""
        found = self._codec.encode(
            [vocabulary_codecs.SURROGATES.sub("\ufffd", line) for line in lines]
        )
        if not found:
            return []

        # One lookup for all lines together is faster than one per line.
        lengths = np.fromiter(map(len, found), np.int64, len(found))
        flat = np.fromiter(itertools.chain.from_iterable(found), np.uint32, lengths.sum())
        return np.split(self._text_ids_V[flat], np.cumsum(lengths)[:-1])

    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        """The ids of each text, as in `encode`, and the characters that each id stands for.

            text   A  café, then      characters 0..11
            ids    a  cafe  ,  then
            spans  0  2     6  8      begin
                   1  6     7  12     end

        Returns:
          For each text, ids [n] uint32 and spans [n, 2] int32: begin and end, in characters of
          the text. A combining mark belongs to the token before it. A token without a visible
          character of its own has an empty span.
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
        """The text of some ids, without special tokens."""
        return self._codec.decode([int(i) for i in ids if int(i) not in self.special_ids])

    def piece(self, id_: int) -> str:
        """The piece of one id, as spelled in the vocabulary."""
        return self.pieces[id_]

    def spelled(self, id_: int) -> str:
        """The same as people read it: of a byte-level tokenizer the text behind the bytes, with a
        dot for a part of a character, and ▁ for a blank by itself."""
        piece = self.pieces[id_]
        if not self._codec.byte_level or id_ in (*self.special_ids, self.unk_id):
            return piece
        text = self._codec.decode([id_]).replace("\ufffd", "·")
        return text.strip() or ("▁" if text else piece)

    def description(self) -> dict[str, str | int]:
        """Kind, size, hash and special ids, as manifests and exports have them."""
        return {
            "kind": self.kind,
            "size": self.size,
            "sha256": self.sha256,
            "pad_id": self.pad_id,
            "unk_id": self.unk_id,
            "cls_id": self.cls_id,
            "sep_id": self.sep_id,
            "mask_id": self.mask_id,
        }

    def save(self, directory: str) -> None:
        """Writes the native file and vocabulary.json into a folder."""
        os.makedirs(directory, exist_ok=True)

        # vocabulary.json comes last: where it exists, the native file is complete.
        safe_files.write(os.path.join(directory, FILES[self.kind]), self.native)

        about = self.description() | {
            "lower_case": self.lower_case,
            "strip_accents": self.strip_accents,
        }
        safe_files.write(
            os.path.join(directory, _ABOUT), json.dumps(about, indent=2).encode() + b"\n"
        )


def load(path: str, lower_case: bool = True, strip_accents: bool = True) -> Vocabulary:
    """Loads a saved folder, a SentencePiece .model, a BERT vocab.txt or a tokenizer.json.

    Folders and tokenizer.json define their own normalisation, and a .model defines whether case is
    kept. So `lower_case` is used for a vocab.txt only, and `strip_accents` for a vocab.txt and a
    .model.

    Raises ValueError, one line, if the file does not exist, is not a vocabulary, or lacks a special
    token.
    """
    if os.path.isdir(path):
        return _load_folder(path)

    kind = {".model": "sentencepiece", ".txt": "wordpiece", ".json": "tokenizer_json"}.get(
        os.path.splitext(path)[1]
    )
    if kind is None:
        raise ValueError(
            f"vocabulary {path!r} is none of *.model (SentencePiece), vocab.txt (BERT),"
            " tokenizer.json; or use train:sentencepiece:SIZE, train:wordpiece:SIZE"
        )

    if kind == "tokenizer_json":  # it defines its own normalisation
        lower_case = strip_accents = False

    return _make(kind, path, lower_case, strip_accents)


def _load_folder(folder):
    """Loads what `Vocabulary.save` wrote; checks the native file against vocabulary.json."""
    about_path = os.path.join(folder, _ABOUT)
    if not os.path.exists(about_path):
        there = [name for name in sorted(os.listdir(folder)) if name in FILES.values()]
        give = os.path.join(folder, there[0]) if there else "a .model, .txt or tokenizer.json"
        raise ValueError(f"{folder} holds no {_ABOUT}; give {give}")

    try:
        about = json.loads(_read(about_path))
        native = os.path.join(folder, FILES[about["kind"]])
        settings = about["lower_case"], about["strip_accents"]
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{about_path} is damaged; prepare again") from error

    found = _make(about["kind"], native, *settings)
    if found.sha256 != about["sha256"]:
        raise ValueError(f"{native} is not the file that {_ABOUT} describes; prepare again")

    return found


def _special_ids(pieces, kind) -> dict[str, int]:
    """{role: id} of the special tokens. Raises ValueError, one line, if one is missing."""
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
    """Removes white space from both ends of each span, and adds combining marks that follow it."""
    spans = list(spans)
    following = [begin for begin, _ in spans[1:]] + [len(text)]

    for number, (begin, end) in enumerate(spans):
        while begin < end and text[begin].isspace():
            begin += 1
        while begin < end and text[end - 1].isspace():
            end -= 1

        while begin < end < following[number] and _is_mark(text[end]):
            end += 1

        spans[number] = (begin, end)

    return spans


def _is_mark(character):
    """Whether it belongs to the character before it, as accents and Thai vowel signs do."""
    return unicodedata.combining(character) or unicodedata.category(character) == "Mn"


def _make(kind, path, lower_case, strip_accents):
    """Makes a vocabulary from a native file; error messages name the file."""
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
