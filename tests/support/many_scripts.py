# SPDX-License-Identifier: Apache-2.0
"""Lines in many scripts, and vocabularies that were trained on them."""

import tokenizers

from electra_jax.data import vocabulary, vocabulary_training

LINES = [
    "The quick brown fox jumps over the lazy dog, twice.",
    "In 1984 it cost $3.50 (about 2 %), didn't it?",
    "Der Fluß fließt übers Land; ÄÖÜ äöü, ﬁne ligatures.",
    "L'élève a mangé des pâtes à Noël, où ça ?",
    "El niño pequeño salió mañana; ¿qué hora es?",
    "Český kůň přeběhl řeku. Żółw ściga łódź.",
    "Ο γρήγορος σκύλος έτρεξε στην Αθήνα χθες.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Ґанок, їжак і єдність: українською мовою.",
    "הכלב המהיר קפץ מעל הגדר אתמול בערב.",
    "الكلب السريع قفز فوق السياج مساء أمس، أليس كذلك؟",
    "तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है।",
    "দ্রুত বাদামী শিয়াল অলস কুকুরের উপর লাফ দেয়।",
    "வேகமான நரி சோம்பேறி நாயின் மேல் குதித்தது.",
    "สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจ",
    "빠른 갈색 여우가 게으른 개를 뛰어넘었다.",
    "한국어 문장은 띄어쓰기가 있습니다. 좋아요!",
    "敏捷的棕色狐狸跳过了懒狗。今天天气很好。",
    "素早い茶色の狐がのろまな犬を飛び越えた。ﾊﾝｶｸ カタカナ。",
    "Nhanh như chớp, con cáo nâu nhảy qua con chó lười.",
    "Hızlı kahverengi tilki tembel köpeğin üstünden atlar: İIıi.",
    "სწრაფი ყავისფერი მელა ზარმაც ძაღლს გადაახტა.",
    "Արագ շագանակագույն աղվեսը ցատկեց ծույլ շան վրայով։",
    "   spaces   at both ends\tand tabs   ",
    "“Quoted” — dashes – and… dots; e-mail@example.org, C:\\path\\file",
    "x² + y² = z², ½ of ① is ＦＵＬＬ ｗｉｄｔｈ",
    "emoji 😀 and flags 🇫🇷, a family 👨‍👩‍👧",
    "co\u0301mbining a\u0308ccents na\u0303o composed",
    "ＡＢＣ １２３ ℃ ㎏ ㍿",
    "UPPER lower MiXeD camelCase snake_case",
]

KINDS = ["sentencepiece", "wordpiece", "tokenizer_json"]


def made(kind, lower_case=True, strip_accents=True):
    """A vocabulary of this kind, trained on the lines."""
    if kind != "tokenizer_json":
        size = 440 if kind == "sentencepiece" else 700
        return vocabulary_training.train(kind, size, iter(LINES * 3), lower_case, strip_accents)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=special,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(LINES, trainer)
    return vocabulary.Vocabulary(kind, tokenizer.to_str().encode(), False, False)
