# SPDX-License-Identifier: Apache-2.0
"""Vocabularies: trained or loaded, SentencePiece or WordPiece, with their special ids checked.

    lines of text -> normalised (accents) -> pieces -> ids            encode
    [PAD] [UNK] [CLS] [SEP] [MASK]                                    looked up, never assumed

No special id ever comes out of text: a literal "[MASK]" is six characters like any other. [UNK]
is a text token: it may be masked and sampled, as in the reference. WordPiece from a vocab.txt gives
the ids of BERT's own tokenizer, but for such literals.

Training is repeatable: the same lines give the same pieces, in any process.
"""

import collections
import hashlib
import io
import itertools
import json
import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2, sentencepiece_pb2
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from electra_jax.host import safe_files

SPELLINGS = {  # of each special token, in order of preference
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
FILES = {
    "sentencepiece": "vocab.model",
    "wordpiece": "vocab.txt",
    "tokenizer_json": "tokenizer.json",
}
# Pieces of a vocabulary that is trained. The trainers reserve memory for all of them at once, and
# the largest in use has about a million (XLM-V).
SIZES = (16, 2_000_000)
_ABOUT = "vocabulary.json"
_COVERAGE = 0.9999  # of all characters; WordPiece knows no rarer ones
_LONGEST = 1 << 14  # characters; SentencePiece silently skips lines longer than 2**16 bytes
_SURROGATES = re.compile("[\ud800-\udfff]")


class Vocabulary:
    """Text to ids and back. Pickles, so that worker processes can have it."""

    def __init__(self, kind: str, data: bytes, lower_case: bool, strip_accents: bool):
        self.kind, self.lower_case, self.strip_accents = kind, lower_case, strip_accents
        self.native = data  # the file that it was made from
        self._codec = _CODECS[kind](data, lower_case, strip_accents)
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
        found = self._codec.encode([_SURROGATES.sub("\ufffd", line) for line in lines])
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
        found = self._codec.encode_with_offsets([_SURROGATES.sub("\ufffd", t) for t in texts])
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


def train(
    kind: str,
    size: int,
    lines: Iterator[str],
    lower_case: bool = True,
    strip_accents: bool = True,
    seed: int = 0,
) -> Vocabulary:
    """Trains a vocabulary: 'sentencepiece' (unigram) or 'wordpiece'; [PAD] is 0, [MASK] 4.

    WordPiece may end with fewer pieces than `size`, where the text has no more words to join.

    Raises ValueError, one line: an unknown kind, no text, a size that SentencePiece cannot reach
    on this text, or one too small for its characters.
    """
    if kind not in ("sentencepiece", "wordpiece"):
        raise ValueError(f"vocabulary kind {kind!r} is neither 'sentencepiece' nor 'wordpiece'")
    low, high = SIZES
    if size < low:
        raise ValueError(f"a vocabulary of {size} is too small; {low} is the least")
    if size > high:
        raise ValueError(f"a vocabulary of {size} is too large; {high:,} is the most")
    parts = (line[i : i + _LONGEST] for line in lines for i in range(0, len(line), _LONGEST))
    cleaned = (_SURROGATES.sub("\ufffd", part) for part in parts if not part.isspace())
    first = next(cleaned, None)
    if first is None:
        raise ValueError("there is no text to train a vocabulary on; look at data.source")
    cleaned = itertools.chain([first], cleaned)
    if kind == "wordpiece":
        return _train_wordpiece(size, list(cleaned), lower_case, strip_accents)
    return _train_sentencepiece(size, cleaned, lower_case, strip_accents, seed)


def strip(text: str) -> str:
    """Removes combining marks; ASCII comes back as it is."""
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(c for c in decomposed if unicodedata.category(c) != "Mn")


class _SentencePiece:
    def __init__(self, data, lower_case, strip_accents):
        del lower_case  # the model's own normaliser folds case or does not
        self._strip = strip_accents
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=data)
            model = sentencepiece_model_pb2.ModelProto.FromString(data)
        except Exception as error:  # a damaged protobuf raises many kinds
            raise ValueError(f"not a SentencePiece model ({_first_line(error)})") from error
        self.pieces = [piece.piece for piece in model.pieces]
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
        for line, place, data in zip(lines, places, encoded):
            pieces = sentencepiece_pb2.SentencePieceText.FromString(data).pieces
            ends = [(piece.begin, piece.end) for piece in pieces]  # in bytes
            if not line.isascii():
                ends = _characters_of_bytes(line, ends)
            if place is not None:
                ends = [(place[b], place[e - 1] + 1 if e > b else place[b]) for b, e in ends]
            yield [piece.id for piece in pieces], ends

    def decode(self, ids):
        return self._processor.decode(ids)

    @staticmethod
    def starts_word(piece):
        return piece.startswith("▁")


class _WordPiece:
    def __init__(self, data, lower_case, strip_accents):
        try:
            lines = data.decode("utf-8-sig").replace("\r\n", "\n").split("\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"not a vocab.txt ({error})") from error
        self.pieces = lines if lines[-1] else lines[:-1]
        vocab = {piece: number for number, piece in enumerate(self.pieces)}
        if len(vocab) != len(self.pieces):
            twice = next(p for n, p in enumerate(self.pieces) if vocab[p] != n)
            raise ValueError(f"piece {twice!r} stands there twice; every line must differ")
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

    def encode(self, lines):
        batch = self._tokenizer.encode_batch_fast(list(lines), add_special_tokens=False)
        return [encoding.ids for encoding in batch]

    def encode_with_offsets(self, texts):
        batch = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [(encoding.ids, encoding.offsets) for encoding in batch]

    def decode(self, ids):
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    @staticmethod
    def starts_word(piece):
        return not piece.startswith("##")


class _TokenizerJson:
    def __init__(self, data, lower_case, strip_accents):
        del lower_case, strip_accents  # the file says it all
        try:
            self._tokenizer = tokenizers.Tokenizer.from_buffer(data)
        except Exception as error:  # the library raises plain Exception
            raise ValueError(f"not a tokenizer.json ({_first_line(error)})") from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._tokenizer.encode_special_tokens = True  # "[MASK]" in text is text
        numbers = self._tokenizer.get_vocab(with_added_tokens=True).values()
        size = max(numbers, default=-1) + 1  # numbers may leave gaps
        self.pieces = [self._tokenizer.id_to_token(i) or f"[id {i}]" for i in range(size)]
        content = json.loads(data)
        # Truncation and padding are not ours to follow, and spacing is no content.
        rest = {name: part for name, part in content.items() if name not in _NOT_FOLLOWED}
        self.identity = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
        model = content["model"].get("type")
        marked = any(piece.startswith(("Ġ", "▁")) for piece in self.pieces)
        self._begins = ("Ġ", "▁") if marked and model != "WordPiece" else None

    def encode(self, lines):
        batch = self._tokenizer.encode_batch_fast(list(lines), add_special_tokens=False)
        return [encoding.ids for encoding in batch]

    def encode_with_offsets(self, texts):
        batch = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [(encoding.ids, encoding.offsets) for encoding in batch]

    def decode(self, ids):
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def starts_word(self, piece):
        return piece.startswith(self._begins) if self._begins else not piece.startswith("##")


_NOT_FOLLOWED = ("truncation", "padding", "post_processor")
_SPACE_RULES = ("add_dummy_prefix", "remove_extra_whitespaces", "escape_whitespaces")
_CODECS: dict[str, Any] = {
    "sentencepiece": _SentencePiece,
    "wordpiece": _WordPiece,
    "tokenizer_json": _TokenizerJson,
}


def _places(text):
    """Where each character of `strip(text)`, and its end, stands in `text`."""
    found = []
    for place, character in enumerate(text):
        parts = unicodedata.normalize("NFD", character)
        found += [place] * sum(unicodedata.category(part) != "Mn" for part in parts)
    return [*found, len(text)]


def _characters_of_bytes(text, spans):
    """Spans in UTF-8 bytes -> spans in characters."""
    data = np.frombuffer(text.encode(), np.uint8)
    begins = (data & 0xC0) != 0x80  # of characters
    at = np.concatenate([np.cumsum(begins) - begins, [len(text)]])
    return at[np.array(spans, np.int64).reshape(-1, 2)].tolist()


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


def _special_ids(pieces, kind) -> dict[str, int]:
    numbers = {piece: number for number, piece in enumerate(pieces)}
    found = {}
    for role, spellings in SPELLINGS.items():
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


def _train_sentencepiece(size, lines, lower_case, strip_accents, seed):
    if strip_accents:
        lines = map(strip, lines)
    model = io.BytesIO()
    sentencepiece.set_random_generator_seed(seed)
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines,
            model_writer=model,
            vocab_size=size,
            model_type="unigram",
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            pad_piece="[PAD]",
            unk_piece="[UNK]",
            control_symbols="[CLS],[SEP],[MASK]",
            normalization_rule_name="nmt_nfkc_cf" if lower_case else "nmt_nfkc",
            max_sentence_length=1 << 16,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        most = re.search(r"value <= (\d+)", reason)
        least = re.search(r"required_chars\D+\d+ vs (\d+)", reason)
        if most:
            remedy = f"the most is {most[1]}: data.vocab=train:sentencepiece:{most[1]}"
        elif least:
            remedy = f"its characters alone are {least[1]}; take more"
        else:
            remedy = reason[-200:]
        raise ValueError(
            f"a SentencePiece vocabulary of {size} cannot be trained on this text; {remedy}"
        ) from error
    return Vocabulary("sentencepiece", model.getvalue(), lower_case, strip_accents)


def _train_wordpiece(size, lines, lower_case, strip_accents):
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=lower_case, strip_accents=strip_accents
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = [spellings[0] for spellings in SPELLINGS.values()]
    alphabet, inside = _characters(tokenizer, lines, size * 3 // 4 - len(special))
    # The trainer numbers characters inside words as it meets them in a hash table, and breaks
    # ties between pairs by number: another run would give other pieces. Named beforehand, as if
    # they were special, they have the same numbers in every run.
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=special + ["##" + c for c in inside],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        min_frequency=2,
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    vocab = tokenizer.get_vocab()
    data = "\n".join(sorted(vocab, key=vocab.__getitem__)) + "\n"
    return Vocabulary("wordpiece", data.encode(), lower_case, strip_accents)


def _characters(tokenizer, lines, room):
    """(characters to know, those of them that come inside words), the frequent ones, sorted.

    As many as cover the text, and as have room: one inside words takes a second piece.
    """
    chunks = collections.Counter(chunk for line in lines for chunk in line.split(" "))
    counts, inside = collections.Counter(), set()
    for chunk, count in chunks.items():
        normal = tokenizer.normalizer.normalize_str(chunk)
        for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal):
            inside.update(word[1:])
            for character in word:
                counts[character] += count
    wanted = _COVERAGE * counts.total()
    alphabet = []
    for character, count in sorted(counts.items(), key=lambda found: (-found[1], found[0])):
        room -= 1 + (character in inside)
        if wanted <= 0 or room < 0:
            break
        alphabet.append(character)
        wanted -= count
    return sorted(alphabet), sorted(inside.intersection(alphabet))


def _make(kind, path, lower_case, strip_accents):
    try:
        return Vocabulary(kind, _read(path), lower_case, strip_accents)
    except ValueError as error:
        if str(path) in str(error):
            raise
        raise ValueError(f"vocabulary {path}: {error}") from error


def _first_line(error):
    return (str(error).splitlines() or [type(error).__name__])[0]


def _read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ValueError(f"vocabulary {path} cannot be read: {error.strerror}") from error
