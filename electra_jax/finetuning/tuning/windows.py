# SPDX-License-Identifier: Apache-2.0
"""Windows over a context that is too long for a row, and the place of an answer in them.

    tokens     0 1 2 3 4 5 6 7 8 9     a context of 10 tokens, a room of 6, a stride of 3
    windows    0 1 2 3 4 5
                     3 4 5 6 7 8
                           6 7 8 9

Reference: finetune/qa of google-research/electra.
"""

import numpy as np

_NEARLY_ALL = 0.01  # weight of a window's length in the choice of the best context; as SQuAD


def answer_tokens(example, spans):
    """The (first, last) token of each answer that has a place in the context."""
    found = []
    for answer, begin in example.answers:
        if begin < 0:
            continue
        touched = np.flatnonzero((spans[:, 0] < begin + len(answer)) & (spans[:, 1] > begin))
        if len(touched):
            found.append((int(touched[0]), int(touched[-1])))
    return found


def windows(tokens, room, stride):
    """(begin, end) of each window; the last one reaches the end of the context.

    The stride is cut to half of the room, so neighbours share half of it or more. An answer of up
    to half of the room is then whole in one window, wherever it stands.
    """
    step = max(1, min(stride, room // 2))
    found = [(0, min(room, tokens))]
    while found[-1][1] < tokens:
        begin = found[-1][0] + step
        found.append((begin, min(begin + room, tokens)))
    return found


def in_a_window(answers, windows):
    """(first, last) token of the first answer that is whole in some window, or None."""
    for first, last in answers:
        if any(begin <= first and last < end for begin, end in windows):
            return first, last
    return None


def best_context(windows, tokens):
    """Per token the window with the most context on its shorter side; the first of equals."""
    if len(windows) == 1:
        return np.zeros(tokens, np.int32)
    begins, ends = np.array(windows).T[:, :, None]
    place = np.arange(tokens)
    score = np.minimum(place - begins, ends - 1 - place) + _NEARLY_ALL * (ends - begins)
    return np.where((place >= begins) & (place < ends), score, -np.inf).argmax(0)
