# SPDX-License-Identifier: Apache-2.0
"""The model card: a README.md with the facts of training below the header that the Hub reads.

`templates/card.md.j2` holds its words.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence

from electra_jax.weights.formats import hugging_face, modern_electra, readme

# What the Hub takes as a language: ISO 639-1, -2 or -3, perhaps with a script or a region (BCP 47).
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*|code|multilingual")


@dataclasses.dataclass(frozen=True)
class Publication:
    """Facts for the card that only the publisher of a network knows.

    Raises ValueError, in one line, for a language that is not a code.
    """

    licence: str = ""  # an identifier of the Hub's list; '' if none was chosen
    languages: Sequence[str] = ()  # of the text, as ("de", "nds")
    repository: str = ""  # OWNER/NAME on the Hub if the folder goes there

    def __post_init__(self):
        for language in self.languages:
            if not _LANGUAGE.fullmatch(language):
                raise ValueError(
                    f"{language!r} is no code of a language; give those of ISO 639, as de or nds,"
                    " with commas between several"
                )


UNPUBLISHED = Publication()


@dataclasses.dataclass(frozen=True)
class Tuning:
    """What the card of a fine-tuned network says in addition."""

    recipe: Mapping[str, str]  # rows of a table; the task is the first
    scores: Mapping[str, str]  # rows of a table: score -> text over all seeds
    notes: Sequence[str] = ()


def text(
    name: str,
    shape: hugging_face.HuggingFaceShape,
    publication: Publication,
    training: Mapping[str, str],
    metrics: Mapping[str, str],
    curves: str,
    differences: Sequence[str],
    left_out: Sequence[str],
    checksums: Mapping[str, str],
    tuning: Tuning | None = None,
    place: str = "",
    learnt: str | None = None,
    base: Sequence[str] = (),
) -> str:
    """Returns the card of one network.

    Args:
      shape: what config.json says of the network.
      publication: licence and languages.
      training: facts in the order of the table.
      metrics: the metrics of the last evaluation.
      curves: the file name of a picture, or ''.
      differences: cases in which the tokenizer's ids differ from those of training.
      left_out: trained parts that are not in these files.
      checksums: file name -> sha256.
      tuning: only for a fine-tuned network.
      learnt: what a pre-trained network has learnt, as `Weights.learnt` says it.
      base: repositories of the Hub with whose weights its training began.
      place: the arguments with which `from_pretrained` finds it; '' for a folder of this name.
    """
    return readme.render(
        "card.md.j2",
        name=name,
        role=shape.role,
        trunk=shape.trunk,
        head=shape.head,
        has_code=shape.model_type == modern_electra.MODEL_TYPE,
        code=modern_electra.CODE.name,
        licence=publication.licence,
        languages=list(publication.languages),
        training=training,
        learnt=learnt or shape.role,
        metrics=metrics,
        curves=curves,
        differences=differences,
        left_out=left_out,
        checksums=checksums,
        tuning=tuning,
        place=place or f'"{name}"',
        base=list(base),
    )
