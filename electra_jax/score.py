# SPDX-License-Identifier: Apache-2.0
"""Scores sentences, or alternatives, by a trained run: which one is the most natural?

    python -m electra_jax.score --workdir=runs/tiny --input=sentences.txt
    python -m electra_jax.score --workdir=runs/tiny --input=pairs.tsv --first_is_right

The file has a sentence a line; with tabs a line holds alternatives, and the best one is marked.
With --first_is_right the last line says how often the first one wins, as for minimal pairs such as
BLiMP's, or for label words in a prompt. Where the highest score is not one alternative's alone, or
one is no number, none is marked and none wins. `scoring.py` says what a score is under each
objective.
"""

import json

import numpy as np
from absl import flags

from electra_jax import checkpointed, command, scoring
from electra_jax import config as config_lib

_INPUT = flags.DEFINE_string("input", None, "File with a sentence a line, or alternatives by tabs.")
_STEP = flags.DEFINE_integer("step", None, "Which checkpoint; the newest without it.")
_FIRST = flags.DEFINE_bool("first_is_right", False, "Say how often the first alternative wins.")
_JSON = flags.DEFINE_bool(
    "json", False, "Print one JSON object instead of lines.", allow_override=True
)


def main(config: config_lib.Config, workdir: str) -> None:
    """Reads, scores and prints."""
    groups = read(_INPUT.value)
    if _FIRST.value and min(map(len, groups)) < 2:
        (text,) = next(group for group in groups if len(group) < 2)
        raise config_lib.ConfigError(
            f"--first_is_right compares alternatives, but {text[:60]!r} has none beside it; put a"
            " tab between alternatives"
        )
    opened = checkpointed.open_workdir(config, workdir, _STEP.value, with_rows=False)
    flat = [text for group in groups for text in group]
    limit = opened.longest_row
    found = scoring.scores(opened.objective.placed(), opened.params, opened.vocabulary, flat, limit)
    ends = np.cumsum([len(group) for group in groups])
    by_group = [part.tolist() for part in np.split(np.array(found), ends[:-1])]
    best = scoring.preferred(by_group)
    share = sum(place == 0 for place in best) / len(best)
    if _JSON.value:
        rows = [
            {"texts": texts, "scores": numbers, "best": place}
            for texts, numbers, place in zip(groups, by_group, best)
        ]
        print(json.dumps({"rows": rows} | ({"first_wins": share} if _FIRST.value else {})))
        return
    for texts, numbers, place in zip(groups, by_group, best):
        for number, (text, value) in enumerate(zip(texts, numbers)):
            mark = "* " if number == place and len(texts) > 1 else "  " if len(texts) > 1 else ""
            print(f"{value:10.3f}  {mark}{text}")
    if _FIRST.value:
        undecided = sum(place is None for place in best)
        rest = f"; {undecided} undecided, which count as lost" if undecided else ""
        print(f"the first alternative wins in {share:.1%} of {len(groups)} lines{rest}")


def read(path: str | None) -> list[list[str]]:
    """The lines of a file, each cut at its tabs; empty lines are left out. Raises ConfigError."""
    if not path:
        raise config_lib.ConfigError("--input names no file; give one with a sentence a line")
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise config_lib.ConfigError(f"--input={path} cannot be read: {error.strerror}") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise config_lib.ConfigError(
            f"{path}, line {number}: invalid UTF-8 (byte {data[error.start]:#04x}); convert the"
            " file, for instance with iconv -f LATIN1 -t UTF-8"
        ) from error
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    groups = [line.split("\t") for line in lines if line.strip()]
    if not groups:
        raise config_lib.ConfigError(f"{path} has no sentence")
    return groups


if __name__ == "__main__":
    command.run(main)
