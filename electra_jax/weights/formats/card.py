# SPDX-License-Identifier: Apache-2.0
"""The model card: a README.md with the facts of training below the header that the Hub reads."""

import dataclasses
import json
from collections.abc import Mapping, Sequence

_USE = {
    "judges": """\
```python
from transformers import AutoModel, AutoTokenizer, ElectraForPreTraining

tokenizer = AutoTokenizer.from_pretrained("{name}")
encoder = AutoModel.from_pretrained("{name}")  # AutoModelForSequenceClassification, ...
judge = ElectraForPreTraining.from_pretrained("{name}")  # a logit above 0: this token was replaced
```
""",
    "predicts": """\
```python
from transformers import AutoModel, AutoTokenizer, ElectraForMaskedLM

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = ElectraForMaskedLM.from_pretrained("{name}")  # predicts what stands at [MASK]
encoder = AutoModel.from_pretrained("{name}")
```
""",
    "encodes": """\
```python
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
encoder = AutoModel.from_pretrained("{name}")
```
""",
    "classifies": """\
```python
from transformers import pipeline

classify = pipeline("text-classification", "{name}")  # pairs: {{"text": ..., "text_pair": ...}}
```
""",
    "tags": """\
```python
from transformers import pipeline

tag = pipeline("token-classification", "{name}")  # the first token of a word speaks for it
```
""",
    "answers": """\
```python
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = AutoModelForQuestionAnswering.from_pretrained("{name}")  # tokenizer(question, context)
```
""",
}
_WHAT = {
    "judges": "the discriminator of an ELECTRA: an encoder to fine-tune, which says of every token"
    " whether it was replaced",
    "predicts": "a masked language model of the ELECTRA kind",
    "encodes": "an encoder of the ELECTRA kind, without a head",
    "classifies": "an ELECTRA that judges a text or a pair of texts",
    "tags": "an ELECTRA that tags the words of a text",
    "answers": "an ELECTRA that finds the answer to a question in a text",
}
_PIPELINES = {
    "predicts": "fill-mask",
    "classifies": "text-classification",
    "tags": "token-classification",
    "answers": "question-answering",
}


@dataclasses.dataclass(frozen=True)
class Tuning:
    """What the card of a fine-tuned network says in addition."""

    recipe: Mapping[str, str]  # rows of a table; the task is the first
    scores: Mapping[str, str]  # rows of a table: score -> text over all seeds
    notes: Sequence[str] = ()


def text(
    name: str,
    role: str,
    licence: str,
    training: Mapping[str, str],
    metrics: Mapping[str, float],
    curves: str,
    differences: Sequence[str],
    left_out: Sequence[str],
    checksums: Mapping[str, str],
    tuning: Tuning | None = None,
) -> str:
    """Returns the card of one network.

    Args:
      role: what the network's head does, a key of `hugging_face.ROLES` or `TASK_ROLES`.
      licence: an identifier of the Hub's list; '' if none was chosen.
      training: facts in the order of the table.
      metrics: the metrics of the last evaluation.
      curves: the file name of a picture, or ''.
      differences: cases in which the tokenizer's ids differ from those of training.
      left_out: trained parts that are not in these files.
      checksums: file name -> sha256.
      tuning: only for a fine-tuned network.
    """
    lines = _front_matter(role, licence)
    how = "fine-tuned" if tuning else "pre-trained"
    lines += [f"# {name}", "", f"This is {_WHAT[role]}. It was {how} with electra_jax.", ""]

    lines += [_USE[role].format(name=name)]
    if not licence:
        lines += ["No licence was chosen yet; whoever publishes these weights chooses one.", ""]

    if tuning:
        lines += ["## Fine-tuning", "", *_table(("what", ""), tuning.recipe), ""]
        lines += [*_table(("score", "over seeds"), tuning.scores), ""]
        lines += [*(f"- {note}" for note in tuning.notes), *[""] * bool(tuning.notes)]

    if training:
        heading = "## Pre-training" if tuning else "## Training"
        lines += [heading, "", *_table(("what", ""), training), ""]
    if metrics:
        shown = {key: f"{value:.4g}" for key, value in metrics.items()}
        lines += ["Held-out text, under the networks of this run:", ""]
        lines += [*_table(("metric", "value"), shown), ""]
    if curves:
        lines += [f"![curves of training]({curves})", ""]

    lines += ["## Tokenizer", "", "Its ids are those of training, but for:", ""]
    lines += [*(f"- {kind}" for kind in differences), ""]
    if left_out:
        lines += ["## Left out", "", *(f"- {part}" for part in left_out), ""]

    lines += ["## Files", "", *_table(("file", "sha256"), checksums), ""]
    return "\n".join(lines)


def _front_matter(role, licence):
    """The facts about a network that the Hub reads, as lines of YAML."""
    front = {
        "license": licence or "other",
        "library_name": "transformers",
        "tags": ["electra", "replaced-token-detection", "jax"],
    }
    if role in _PIPELINES:
        front["pipeline_tag"] = _PIPELINES[role]
    return ["---", *(f"{key}: {json.dumps(value)}" for key, value in front.items()), "---", ""]


def _table(head, rows):
    """Yields the lines of a Markdown table."""
    yield f"| {head[0]} | {head[1]} |"
    yield "|---|---|"
    for key, value in rows.items():
        yield f"| {key} | {' '.join(str(value).split()).replace('|', '/')} |"
