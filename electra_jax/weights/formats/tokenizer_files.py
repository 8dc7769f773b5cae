# SPDX-License-Identifier: Apache-2.0
"""A vocabulary as the files that transformers' `AutoTokenizer` loads, both ways.

    WordPiece        vocab.txt, tokenizer.json, tokenizer_config.json (BertTokenizer)
    SentencePiece    tokenizer.json, tokenizer_config.json: its unigram model and its normaliser in
                     the terms of `tokenizers`, whose ids differ on a few lines (`DIFFERENCES`)
    tokenizer.json   the same file, with [CLS] and [SEP] around each text

Beside them `vocab/` holds the vocabulary as it was used in training, and `read` prefers it: no id
differs after writing and reading.
"""

import dataclasses
import json
import os
import re

import tokenizers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.data import vocabulary_fit

FOLDER = "vocab"
VOCAB_TXT = "vocab.txt"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
CONFIG = "config.json"  # of the model; older ones name the tokenizer's class there

# The classes of transformers that cut text as BERT does, by vocab.txt and three settings.
_BERT = re.compile(r"(Bert|Electra|DistilBert|MobileBert|ConvBert)Tokenizer(Fast)?")

DIFFERENCES = {  # kind -> cases in which the ids of these files differ from those of training
    "sentencepiece": (
        "two ways to cut a word that score the same to the last digit",
        "characters of several code points that compatibility normalisation changes as a whole,"
        " such as decomposed letters where accents are kept",
        "a literal `[MASK]` or other special token in the text: one token here, plain text there",
    ),
    "wordpiece": (
        "a literal `[MASK]` or other special token in the text: one token here, plain text there",
    ),
    "tokenizer_json": (
        "a literal `[MASK]` or other special token in the text: one token here, plain text there",
    ),
}


def write(vocabulary: vocabulary_lib.Vocabulary, folder: str, limit: int) -> None:
    """Writes all files of a vocabulary into a folder.

    Args:
      limit: the largest number of tokens in a row, including [CLS] and [SEP].

    Raises ValueError for a SentencePiece model of a kind that these files cannot express.
    """
    made = fast(vocabulary)
    os.makedirs(folder, exist_ok=True)
    made.save(os.path.join(folder, TOKENIZER))

    named = {
        f"{role}_token": vocabulary.piece(getattr(vocabulary, f"{role}_id")) for role in _ROLES
    }
    about = named | {"model_max_length": limit, "clean_up_tokenization_spaces": False}

    if vocabulary.kind == "wordpiece":
        text = "".join(piece + "\n" for piece in vocabulary.pieces)
        _write(os.path.join(folder, VOCAB_TXT), text)
        about |= {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": vocabulary.lower_case,
            "strip_accents": vocabulary.strip_accents,
            "tokenize_chinese_chars": True,
        }
    else:  # a class name that transformers 4 knows too
        about |= {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        }
    _write(os.path.join(folder, TOKENIZER_CONFIG), json.dumps(about, indent=2) + "\n")
    vocabulary.save(os.path.join(folder, FOLDER))


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a vocabulary is: a file or a folder, as data.vocab names it, and how it is read."""

    path: str
    lower_case: bool = True  # of a vocab.txt; others have rules of their own
    strip_accents: bool = True

    def load(self) -> vocabulary_lib.Vocabulary:
        """Returns the vocabulary. Raises ValueError, in one line."""
        return vocabulary_lib.load(self.path, self.lower_case, self.strip_accents)


def read(folder: str) -> vocabulary_lib.Vocabulary:
    """Returns the vocabulary of a folder; raises as `place` does."""
    return place(folder).load()


def place(folder: str) -> Place:
    """Returns which of a folder's files is its vocabulary.

    The copy in `vocab/` that `write` made comes first, then vocab.txt if the tokenizer is BERT's,
    then tokenizer.json. A copy or a vocab.txt gives way to the last if that has added tokens that
    it does not know as such.

    Raises ValueError, in one line.
    """
    text, fast_ = (os.path.join(folder, name) for name in (VOCAB_TXT, TOKENIZER))
    if os.path.isdir(os.path.join(folder, FOLDER)):
        found = vocabulary_lib.load(os.path.join(folder, FOLDER))
        _refuse_edited(folder, found)
        more = os.path.exists(fast_) and _added_since(folder, found)
        return Place(fast_ if more else os.path.join(folder, FOLDER))

    settings = _settings(os.path.join(folder, TOKENIZER_CONFIG))
    kind = settings.get("tokenizer_class") or _settings(os.path.join(folder, CONFIG)).get(
        "tokenizer_class"
    )
    is_bert = kind is None or _BERT.fullmatch(kind) is not None
    if os.path.exists(text) and is_bert and settings.get("tokenize_chinese_chars", True):
        bert = _of_bert(text, settings)
        found = bert.load()

        # A piece of vocab.txt that was added as a token stays whole, which tokenizer.json tells.
        if os.path.exists(fast_) and _added_since(folder, found):
            return Place(fast_)
        if not (beyond := _added_beyond(folder, found.size)):
            return bert
        if not os.path.exists(fast_):
            raise ValueError(
                f"{folder}: {beyond!r} was added to {VOCAB_TXT}, and there is no {TOKENIZER} that"
                " knows it; save the tokenizer with transformers once more"
            )
    if os.path.exists(fast_):
        return Place(fast_)
    if os.path.exists(text):
        what = "does not part Chinese letters" if is_bert else f"is a {kind}"
        raise ValueError(
            f"{folder}: its tokenizer {what}, so it cuts text otherwise than BERT's, and"
            f" {VOCAB_TXT} alone is not enough; with transformers save it as a fast tokenizer, with"
            f" its {TOKENIZER}"
        )
    raise ValueError(
        f"{folder} holds neither {VOCAB_TXT} nor {TOKENIZER}; copy the tokenizer's files into it"
    )


def _of_bert(path, settings):
    """A vocab.txt by the settings of BERT's tokenizer.

    Many folders, those of the first BERTs and of models for a domain, do not say whether text is
    lower-cased. Then the pieces tell: if it were, those with capitals could never occur.
    """
    lower_case, strip_accents = settings.get("do_lower_case"), settings.get("strip_accents")
    if lower_case is None:
        lower_case = not vocabulary_fit.is_cased(vocabulary_lib.load(path))
    if strip_accents is None:
        strip_accents = lower_case
    return Place(path, bool(lower_case), bool(strip_accents))


def _refuse_edited(folder, copy):
    """Raises ValueError if vocab.txt has other pieces than the copy that was written with it."""
    path = os.path.join(folder, VOCAB_TXT)
    if copy.kind != "wordpiece" or not os.path.exists(path):
        return
    pieces = vocabulary_lib.load(path).pieces
    if len(pieces) == copy.size and pieces != copy.pieces:
        changed = next(new for old, new in zip(copy.pieces, pieces) if old != new)
        raise ValueError(
            f"{path} has been changed ({changed!r} among others) and is not what"
            f" {os.path.join(folder, FOLDER)} has; delete that folder, and {TOKENIZER} if it is the"
            " older one, to use it"
        )


def fast(vocabulary: vocabulary_lib.Vocabulary) -> tokenizers.Tokenizer:
    """Returns a tokenizer of the library `tokenizers` that makes [CLS] A [SEP] B [SEP]."""
    made = _MAKERS[vocabulary.kind](vocabulary)
    native = {token.content: token for token in made.get_added_tokens_decoder().values()}
    for role in _ROLES:
        piece = vocabulary.piece(getattr(vocabulary, f"{role}_id"))
        blanks = {  # which a byte-level [MASK] often takes with it
            name: getattr(native[piece], name)
            for name in ("lstrip", "rstrip", "single_word")
            if piece in native
        }
        token = tokenizers.AddedToken(piece, special=True, normalized=False, **blanks)
        made.add_special_tokens([token])

    cls, sep = vocabulary.piece(vocabulary.cls_id), vocabulary.piece(vocabulary.sep_id)
    made.post_processor = processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(cls, vocabulary.cls_id), (sep, vocabulary.sep_id)],
    )
    return made


_ROLES = ("pad", "unk", "cls", "sep", "mask")
_UNIGRAM = 1  # these three are numbers of sentencepiece_model.proto
_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5
_SPACE = "▁"
_ASIDE = "\ue130"  # of Unicode's private use: stands for a letter that a step must not change


def _wordpiece(vocabulary):
    vocab = {piece: number for number, piece in enumerate(vocabulary.pieces)}
    made = tokenizers.Tokenizer(
        models.WordPiece(
            vocab, unk_token=vocabulary.piece(vocabulary.unk_id), max_input_chars_per_word=100
        )
    )
    made.normalizer = normalizers.BertNormalizer(
        lowercase=vocabulary.lower_case, strip_accents=vocabulary.strip_accents
    )
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    return made


def _sentencepiece(vocabulary):
    model = sentencepiece_model_pb2.ModelProto.FromString(vocabulary.native)
    trainer, rules = model.trainer_spec, model.normalizer_spec
    _check_can_be_written(model)

    pieces = [(piece.piece, piece.score) for piece in model.pieces]
    made = tokenizers.Tokenizer(
        models.Unigram(pieces, unk_id=vocabulary.unk_id, byte_fallback=trainer.byte_fallback)
    )
    if steps := [*_letter_steps(vocabulary, rules), *_blank_steps(rules)]:
        made.normalizer = normalizers.Sequence(steps)

    scheme = "always" if rules.add_dummy_prefix else "never"
    ahead = scheme if rules.remove_extra_whitespaces else "never"  # the rules have put it there
    made.pre_tokenizer = pre_tokenizers.Metaspace(_SPACE, prepend_scheme=ahead, split=False)
    made.decoder = decoders.Metaspace(_SPACE, prepend_scheme=scheme, split=False)
    if trainer.byte_fallback:
        made.decoder = decoders.Sequence([made.decoder, decoders.ByteFallback(), decoders.Fuse()])

    for piece in model.pieces:
        if piece.type == _CONTROL:  # text never gives such a token
            made.add_special_tokens([tokenizers.AddedToken(piece.piece, normalized=False)])
        elif piece.type == _USER_DEFINED:  # never split
            made.add_tokens([tokenizers.AddedToken(piece.piece, normalized=True)])
    return made


def _check_can_be_written(model):
    """Raises ValueError for a SentencePiece model that tokenizer.json would cut otherwise."""
    trainer = model.trainer_spec
    if trainer.model_type != _UNIGRAM:
        kind = trainer.ModelType.Name(trainer.model_type).lower()
        raise ValueError(
            f"a SentencePiece model of the kind {kind!r} cannot be written as {TOKENIZER}, only a"
            " unigram one; try --to=orbax, which carries the model itself"
        )
    if trainer.treat_whitespace_as_suffix or any(piece.type == _UNUSED for piece in model.pieces):
        what = (
            "blanks at the ends of words" if trainer.treat_whitespace_as_suffix else "unused pieces"
        )
        raise ValueError(
            f"a SentencePiece model with {what} cannot be written as {TOKENIZER}: it would cut text"
            " otherwise; try --to=orbax, which carries the model itself"
        )


def _letter_steps(vocabulary, rules):
    """What is done to letters and marks; the model's own table of characters comes last."""
    steps = []
    if vocabulary.strip_accents:
        # NFC after stripping, since the rules would not compose Hangul syllables again.
        marks = tokenizers.Regex(r"\p{Mn}")
        steps = [normalizers.NFD(), normalizers.Replace(marks, ""), normalizers.NFC()]
    elif rules.name.endswith("_cf"):
        # `Precompiled` replaces a letter with its marks by what it has for the letter alone, so it
        # would lose the marks of capitals. The rules leave a capital i with its dot as it is.
        aside = [normalizers.Replace(letter, _ASIDE) for letter in ("İ", "I\u0307")]
        steps = [*aside, normalizers.Lowercase(), normalizers.Replace(_ASIDE, "İ")]

    if rules.precompiled_charsmap:
        steps.append(normalizers.Precompiled(rules.precompiled_charsmap))
    return steps


def _blank_steps(rules):
    if rules.remove_extra_whitespaces:
        # SentencePiece strips blanks only, and `Strip` all white space.
        blanks = (r" {2,}", " "), (r"\A +| +\z", "")
        return [normalizers.Replace(tokenizers.Regex(found), put) for found, put in blanks]
    if rules.add_dummy_prefix:  # before a blank, too, where Metaspace puts none
        return [normalizers.Prepend(" ")]
    return []


def _tokenizer_json(vocabulary):
    made = tokenizers.Tokenizer.from_buffer(vocabulary.native)
    made.no_padding()
    made.no_truncation()
    return made


_MAKERS = {
    "wordpiece": _wordpiece,
    "sentencepiece": _sentencepiece,
    "tokenizer_json": _tokenizer_json,
}


def _added_since(folder, vocabulary) -> set[str]:
    """The added tokens of a folder that the files of this vocabulary would not have."""
    own = fast(vocabulary).get_added_tokens_decoder().values()
    return _added(folder).keys() - {token.content for token in own}


def _added_beyond(folder, size) -> str:
    """Returns a token that was added after those of vocab.txt, or '' if there is none."""
    return next((token for token, id_ in _added(folder).items() if id_ >= size), "")


def _added(folder) -> dict[str, int]:
    """The tokens that were added to the pieces of vocab.txt, or are never parted: {token: id}."""
    path, fast_ = (os.path.join(folder, name) for name in ("added_tokens.json", TOKENIZER))
    added = _settings(path)
    for token in _settings(fast_).get("added_tokens", ()):
        added[token["content"]] = token["id"]
    return added


def _settings(path):
    """Returns the JSON object in a file, or {} if there is no file. Raises ValueError."""
    if not os.path.exists(path):
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        return dict(found)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is no JSON object; copy it again") from error


def _write(path, text):
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
