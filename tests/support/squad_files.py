# SPDX-License-Identifier: Apache-2.0
"""Files of SQuAD with a few questions about one context."""

import json


def qa(identity, answers, **others):
    """A question with its answers, (text, first character) each."""
    found = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": identity, "question": " Who ? ", "answers": found, **others}


def write_squad(path, *qas, context="Ann sleeps. Bob and Ann eat."):
    """Writes a file with these questions."""
    content = {"version": "x", "data": [{"paragraphs": [{"context": context, "qas": list(qas)}]}]}
    path.write_text(json.dumps(content))
