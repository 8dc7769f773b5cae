# SPDX-License-Identifier: Apache-2.0
"""Trains a vocabulary on lines of text: SentencePiece (unigram) or WordPiece.

Training is repeatable: the same lines give the same pieces, in any process.
"""

import collections
import io
import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator

import sentencepiece
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from electra_jax.data import vocabulary, vocabulary_codecs

# Bounds on the number of pieces. The trainers allocate memory for all pieces at once; the largest
# vocabulary in use has about a million (XLM-V).
SIZES = (16, 2_000_000)
_COVERAGE = 0.9999  # share of the text's characters in WordPiece's alphabet; rarer ones are [UNK]
_LONGEST = 1 << 14  # characters per line; SentencePiece skips lines of more than 2**16 bytes


def train(
    kind: str,
    size: int,
    lines: Iterable[str],
    lower_case: bool = True,
    strip_accents: bool = True,
    seed: int = 0,
) -> vocabulary.Vocabulary:
    """Trains a vocabulary of kind 'sentencepiece' (unigram) or 'wordpiece'.

    The special tokens get the ids 0 ([PAD]) to 4 ([MASK]). WordPiece may have fewer pieces than
    `size` if the text has too few different words.

    Raises ValueError, one line, for an unknown kind, for no text, or for a size that is too small
    for the characters of the text or larger than SentencePiece can reach on it.
    """
    if kind not in ("sentencepiece", "wordpiece"):
        raise ValueError(f"vocabulary kind {kind!r} is neither 'sentencepiece' nor 'wordpiece'")

    low, high = SIZES
    if size < low:
        raise ValueError(f"a vocabulary of {size} is too small; {low} is the least")
    if size > high:
        raise ValueError(f"a vocabulary of {size} is too large; {high:,} is the most")

    lines = cleaned(lines)
    if kind == "wordpiece":
        return _train_wordpiece(size, list(lines), lower_case, strip_accents)

    return _train_sentencepiece(size, lines, lower_case, strip_accents, seed)


def cleaned(lines: Iterable[str]) -> Iterator[str]:
    """Returns lines without surrogates and without empty ones, long ones in parts.

    The first line is read at once, so that no text is refused (ValueError) before training starts.
    """
    parts = (line[i : i + _LONGEST] for line in lines for i in range(0, len(line), _LONGEST))
    found = (
        vocabulary_codecs.SURROGATES.sub("\ufffd", part) for part in parts if not part.isspace()
    )
    first = next(found, None)
    if first is None:
        raise no_text()
    return itertools.chain([first], found)


def no_text() -> ValueError:
    """The error for lines without a word."""
    return ValueError("there is no text to train a vocabulary on; look at data.source")


def words_of(
    lines: Iterable[str], lower_case: bool, strip_accents: bool
) -> collections.Counter[str]:
    """Returns how often each word occurs, as BERT's tokenizer parts and normalises words."""
    return _words(_bert_tokenizer(lower_case, strip_accents), lines)


def _bert_tokenizer(lower_case, strip_accents):
    """WordPiece without pieces, with BERT's rules of what a word is."""
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=lower_case, strip_accents=strip_accents
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def _words(tokenizer, lines):
    chunks = collections.Counter(chunk for line in lines for chunk in line.split(" "))
    words: collections.Counter[str] = collections.Counter()
    for chunk, count in chunks.items():
        normal = tokenizer.normalizer.normalize_str(chunk)
        for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal):
            words[word] += count
    return words


def _train_sentencepiece(size, lines, lower_case, strip_accents, seed):
    if strip_accents:
        # Composed again: in parts a line of Korean is three times as long, and too long ones are
        # skipped.
        lines = (unicodedata.normalize("NFC", vocabulary_codecs.strip(line)) for line in lines)

    model = io.BytesIO()
    sentencepiece.set_random_generator_seed(seed)
    failed: list[BaseException] = []

    def read():
        try:
            yield from lines
        except GeneratorExit:  # SentencePiece wants no more of them
            raise
        except BaseException as error:
            failed.append(error)
            raise

    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=read(),
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
        if not failed:
            raise ValueError(
                f"a SentencePiece vocabulary of {size} cannot be trained on this text;"
                f" {_remedy(error)}"
            ) from error

    if failed:  # SentencePiece makes an error of its own of it, in which the reason is cut off
        raise failed[0]
    return vocabulary.Vocabulary("sentencepiece", model.getvalue(), lower_case, strip_accents)


def _remedy(error):
    """What would help against an error of SentencePiece, or the end of its words."""
    reason = " ".join(str(error).split())
    if most := re.search(r"value <= (\d+)", reason):
        return f"the most is {most[1]}: data.vocab=train:sentencepiece:{most[1]}"
    if least := re.search(r"required_chars\D+\d+ vs (\d+)", reason):
        return f"its characters alone are {least[1]}; take more"
    return reason[-200:]


def _train_wordpiece(size, lines, lower_case, strip_accents):
    tokenizer = _bert_tokenizer(lower_case, strip_accents)
    special = [spellings[0] for spellings in vocabulary_codecs.SPELLINGS.values()]
    alphabet, inside = _characters(tokenizer, lines, size * 3 // 4 - len(special))

    # The trainer numbers the characters inside words in the order of a hash table, and it breaks
    # ties between pairs by these numbers, so each run would give other pieces. Given beforehand,
    # as if they were special tokens, they have the same numbers in every run.
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
    return vocabulary.Vocabulary("wordpiece", data.encode(), lower_case, strip_accents)


def _characters(tokenizer, lines, room):
    """Chooses the alphabet: the most frequent characters, until they cover the text.

    Args:
      room: maximum number of pieces for them. A character that also occurs inside words needs a
        second piece (##c).

    Returns:
      (characters, those of them that occur inside words), both sorted.
    """
    counts, inside = collections.Counter(), set()
    for word, count in _words(tokenizer, lines).items():
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
