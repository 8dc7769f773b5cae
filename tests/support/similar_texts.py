# SPDX-License-Identifier: Apache-2.0
"""Made-up texts that have a part in common, and how much that is."""

import random

DRAW = random.Random(0)
WORDS = ["".join(DRAW.choices("abcdefghij", k=DRAW.randint(2, 9))) for _ in range(3000)]


def pair(words, changed):
    """Two texts of so many words, of which at most `changed` differ."""
    one = DRAW.choices(WORDS, k=words)
    other = list(one)
    for _ in range(changed):
        other[DRAW.randrange(words)] = DRAW.choice(WORDS)
    return " ".join(one), " ".join(other)


def jaccard(one, other):
    """The share of sequences of 25 bytes that both have, of those that either has."""
    data = (text.lower().encode() for text in (one, other))
    a, b = ({found[i : i + 25] for i in range(len(found) - 24)} for found in data)
    return len(a & b) / len(a | b)
