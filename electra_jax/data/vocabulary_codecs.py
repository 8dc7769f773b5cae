# SPDX-License-Identifier: Apache-2.0
"""The three kinds of tokenizers, each behind the same few methods; used by vocabulary.Vocabulary.

    SentencePiece     a .model file
    WordPiece         a vocab.txt, with BERT's normalisation
    TokenizerJson     a tokenizer.json of the library `tokenizers`, of any model

Each has `pieces` (one per id), `byte_level` (whether a letter of a piece stands for a byte),
`identity` (JSON values that are equal if two files encode alike) and these methods:

    encode(lines)               the ids of each line
    encode_with_offsets(texts)  for each text: ids, and (begin, end) of each id in characters
    decode(ids)                 text
    starts_word(piece)          True if a word begins with this piece; in a script without blanks
                                all do, but for WordPiece's with ##
"""

import hashlib
import json
import re
import unicodedata
from typing import Any

import numpy as np
import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2, sentencepiece_pb2
from tokenizers import decoders, models, normalizers, pre_tokenizers

SPELLINGS = {  # of each special token, in order of preference
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
SURROGATES = re.compile("[\ud800-\udfff]")  # halves of characters; no tokenizer accepts them
# First and last characters of scripts that put no blanks between words. There each piece counts as
# a word, as each Chinese character does to BERT: else a whole line would be one.
_WITHOUT_BLANKS = (
    ("\u0e00", "\u0eff"),  # Thai, Lao
    ("\u1000", "\u109f"),  # Burmese
    ("\u1780", "\u17ff"),  # Khmer
    ("\u3040", "\u30ff"),  # Hiragana, Katakana
    ("\u3400", "\u4dbf"),  # Chinese characters, and the next two
    ("\u4e00", "\u9fff"),
    ("\uf900", "\ufaff"),
    ("\U00020000", "\U0003ffff"),
)
_NOT_FOLLOWED = ("truncation", "padding", "post_processor")  # parts of a tokenizer.json
_SPACE_RULES = ("add_dummy_prefix", "remove_extra_whitespaces", "escape_whitespaces")


class SentencePiece:
    """A SentencePiece model, used with one thread."""

    byte_level = False

    def __init__(self, data, lower_case, strip_accents):
        del lower_case  # the model's own normaliser decides
        self._strip = strip_accents

        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=data)
            model = sentencepiece_model_pb2.ModelProto.FromString(data)
        except Exception as error:  # many kinds of errors for a damaged protobuf
            raise ValueError(f"not a SentencePiece model ({_first_line(error)})") from error

        self.pieces = [piece.piece for piece in model.pieces]

        # Of the rules for white space, only those that are switched off are part of the identity.
        charsmap = hashlib.sha256(model.normalizer_spec.precompiled_charsmap).hexdigest()
        self.identity = [[p.piece, round(p.score, 4), p.type] for p in model.pieces] + [charsmap]
        spec = model.normalizer_spec
        self.identity += [name for name in _SPACE_RULES if not getattr(spec, name)]

    def encode(self, lines):
        if self._strip:
            lines = [strip(line) for line in lines]

        return self._processor.encode(list(lines), num_threads=1)

    def encode_with_offsets(self, texts):
        places = [None] * len(texts)
        lines = list(texts)
        if self._strip:
            for number, text in enumerate(texts):
                if not text.isascii():
                    lines[number], places[number] = strip(text), _places(text)

        encoded = self._processor.encode(lines, out_type="serialized_proto", num_threads=1)

        # Offsets come in bytes of the stripped line, and leave in characters of the text.
        for line, place, data in zip(lines, places, encoded):
            pieces = sentencepiece_pb2.SentencePieceText.FromString(data).pieces
            ends = [(piece.begin, piece.end) for piece in pieces]
            if not line.isascii():
                ends = _characters_of_bytes(line, ends)
            if place is not None:
                ends = [(place[b], place[e - 1] + 1 if e > b else place[b]) for b, e in ends]

            yield [piece.id for piece in pieces], ends

    def decode(self, ids):
        return self._processor.decode(ids)

    @staticmethod
    def starts_word(piece):
        return piece.startswith("▁") or without_blanks(piece)


class _Tokenizers:
    """What both kinds below let the library `tokenizers` do; `_tokenizer` is its object."""

    byte_level = False

    def encode(self, lines):
        batch = self._tokenizer.encode_batch_fast(list(lines), add_special_tokens=False)
        return [encoding.ids for encoding in batch]

    def encode_with_offsets(self, texts):
        batch = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [(encoding.ids, encoding.offsets) for encoding in batch]

    def decode(self, ids):
        return self._tokenizer.decode(ids, skip_special_tokens=False)


class WordPiece(_Tokenizers):
    """BERT's tokenizer for a vocab.txt."""

    def __init__(self, data, lower_case, strip_accents):
        try:
            lines = data.decode("utf-8-sig").replace("\r\n", "\n").split("\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"not a vocab.txt ({error})") from error

        self.pieces = lines if lines[-1] else lines[:-1]
        vocab = {piece: number for number, piece in enumerate(self.pieces)}
        if len(vocab) != len(self.pieces):
            twice = next(p for n, p in enumerate(self.pieces) if vocab[p] != n)
            raise ValueError(f"piece {twice!r} occurs twice; every line must be different")

        unknown = next((s for s in SPELLINGS["unk"] if s in vocab), "[UNK]")
        self._tokenizer = tokenizers.Tokenizer(
            models.WordPiece(vocab, unk_token=unknown, max_input_chars_per_word=100)
        )
        self._tokenizer.normalizer = normalizers.BertNormalizer(
            lowercase=lower_case, strip_accents=strip_accents
        )
        self._tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        self._tokenizer.decoder = decoders.WordPiece()
        self.identity = self.pieces

    @staticmethod
    def starts_word(piece):
        return not piece.startswith("##")


class TokenizerJson(_Tokenizers):
    """A tokenizer.json; its truncation, padding and special tokens around texts are not used."""

    def __init__(self, data, lower_case, strip_accents):
        del lower_case, strip_accents  # the file defines its own normalisation
        try:
            self._tokenizer = tokenizers.Tokenizer.from_buffer(_with_markers(data))
        except Exception as error:  # the library raises plain Exception
            raise ValueError(f"not a tokenizer.json ({_first_line(error)})") from error

        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._tokenizer.encode_special_tokens = True  # "[MASK]" in text is text

        # Ids may have gaps, which get pieces of their own.
        numbers = self._tokenizer.get_vocab(with_added_tokens=True).values()
        size = max(numbers, default=-1) + 1
        self.pieces = [self._tokenizer.id_to_token(i) or f"[id {i}]" for i in range(size)]

        # Parts that are not used, and the spacing of the file, must not change the identity.
        content = json.loads(data)
        rest = {name: part for name, part in content.items() if name not in _NOT_FOLLOWED}
        self.identity = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()

        # "##" marks pieces inside words, as in WordPiece, unless "Ġ" or "▁" marks beginnings.
        model = content["model"].get("type")
        marked = any(piece.startswith(("Ġ", "▁")) for piece in self.pieces)
        self._begins = ("Ġ", "▁") if marked and model != "WordPiece" else None
        self.byte_level = "ByteLevel" in json.dumps(content.get("decoder"))

    def starts_word(self, piece):
        if self._begins is None:
            return not piece.startswith("##")
        return piece.startswith(self._begins) or without_blanks(piece)


def _with_markers(data):
    """A tokenizer.json whose added tokens are found in text, but for those with a role.

    Others call markers such as [E1] special too, and their texts hold them.
    """
    content = json.loads(data)
    roles = {spelling for spellings in SPELLINGS.values() for spelling in spellings}
    for token in content.get("added_tokens", ()):
        token["special"] = token["special"] and token["content"] in roles
    return json.dumps(content).encode()


CODECS: dict[str, Any] = {
    "sentencepiece": SentencePiece,
    "wordpiece": WordPiece,
    "tokenizer_json": TokenizerJson,
}


def without_blanks(piece: str) -> bool:
    """Whether a piece begins with a letter of a script that puts no blanks between words."""
    return any(first <= piece[:1] <= last for first, last in _WITHOUT_BLANKS)


def strip(text: str) -> str:
    """Removes combining marks, such as accents. ASCII text is returned unchanged."""
    if text.isascii():
        return text

    decomposed = unicodedata.normalize("NFD", text)
    return "".join(c for c in decomposed if unicodedata.category(c) != "Mn")


def _places(text):
    """The index in `text` of each character of `strip(text)`, followed by len(text)."""
    found = []

    for place, character in enumerate(text):
        parts = unicodedata.normalize("NFD", character)
        found += [place] * sum(unicodedata.category(part) != "Mn" for part in parts)

    return [*found, len(text)]


def _characters_of_bytes(text, spans):
    """Converts spans in UTF-8 bytes to spans in characters."""
    data = np.frombuffer(text.encode(), np.uint8)
    begins = (data & 0xC0) != 0x80  # True for the first byte of each character
    at = np.concatenate([np.cumsum(begins) - begins, [len(text)]])
    return at[np.array(spans, np.int64).reshape(-1, 2)].tolist()


def _first_line(error):
    return (str(error).splitlines() or [type(error).__name__])[0]
