# SPDX-License-Identifier: Apache-2.0
"""Modern layers and other heads in a Hugging Face folder: their code, and what config.json says.

transformers' ELECTRA computes the paper's layers alone, and few heads. A folder of other ones has
its own code beside it, templates/modeling_modern_electra.py, which transformers runs with
`trust_remote_code=True`. config.json has the settings under the names that they have here.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

MODEL_TYPE = "modern_electra"
CODE = pathlib.Path(__file__).parent / "templates" / "modeling_modern_electra.py"
PREFIX = "Modern"  # of its classes, before the name of transformers' class

PUBLISHED = {  # the settings of the layers, with the values that transformers' ELECTRA computes
    "positions": "learned",
    "rotary_base": 10_000.0,  # read with rotary positions only
    "feed_forward_kind": "gelu",
    "norm_place": "post",
    "norm_kind": "layer",
    "biases": True,
    "local_window": 0,
    "global_every": 3,  # read with a window only
}
HEADS = ("cls_context", "linear", "mean", "matched_means")  # that transformers' ELECTRA lacks

_HEAD_FIELDS = {  # what a head does -> the field that names its kind, and that of transformers
    "judges": ("discriminator_head", "token"),
    "classifies": ("classifier_head", "two_layer"),
}
_CHOICES: Mapping[str, tuple] = {
    "positions": ("learned", "rotary"),
    "feed_forward_kind": ("gelu", "geglu"),
    "norm_place": ("post", "pre"),
    "norm_kind": ("layer", "rms"),
    "biases": (True, False),
    "discriminator_head": ("token", "cls_context"),
    "classifier_head": ("two_layer", "linear", "mean", "matched_means"),
}
_LEAST = {"local_window": 0, "global_every": 1}  # whole numbers

_AUTO_CLASSES = {  # of transformers -> the class that it opens
    "AutoConfig": "ElectraConfig",
    "AutoModel": "ElectraModel",
    "AutoModelForPreTraining": "ElectraForPreTraining",
    "AutoModelForMaskedLM": "ElectraForMaskedLM",
    "AutoModelForSequenceClassification": "ElectraForSequenceClassification",
    "AutoModelForTokenClassification": "ElectraForTokenClassification",
    "AutoModelForQuestionAnswering": "ElectraForQuestionAnswering",
}


def trunk_of(config: Any) -> dict[str, Any]:
    """Returns the settings of an encoder, of its `EncoderConfig` or of a run's `model`."""
    return {name: getattr(config, name) for name in PUBLISHED}


def is_published(trunk: Mapping[str, Any]) -> bool:
    """Whether transformers' own ELECTRA computes layers of these settings."""
    return read_settings(trunk) == read_settings(PUBLISHED)


def read_settings(trunk: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings without those that the others leave unread."""
    unread = {"rotary_base"} if trunk["positions"] == "learned" else set()
    unread |= set() if trunk["local_window"] else {"global_every"}
    return {name: value for name, value in trunk.items() if name not in unread}


def to_fields(trunk: Mapping[str, Any], role: str, head: str | None) -> dict[str, Any]:
    """Returns the fields of config.json that transformers' ELECTRA does not have.

    Args:
      trunk: the settings in `PUBLISHED`.
      role: what the head does.
      head: its kind, one of `HEADS`, or None.
    """
    heads = dict(_HEAD_FIELDS.values())
    if head is not None:
        heads[_HEAD_FIELDS[role][0]] = head
    return {
        "model_type": MODEL_TYPE,
        "auto_map": {
            name: f"{CODE.stem}.{PREFIX}{theirs}" for name, theirs in _AUTO_CLASSES.items()
        },
        **{name: trunk[name] for name in PUBLISHED},
        **heads,
    }


def from_fields(config: Mapping[str, Any], role: str) -> tuple[dict[str, Any], str | None]:
    """Reads what `to_fields` wrote: (the settings of the trunk, one of `HEADS` or None).

    Raises ValueError, in one line, for a setting that is missing or that we cannot compute.
    """
    heads = dict(_HEAD_FIELDS.values())
    for name in (*PUBLISHED, *heads):
        if name not in config:
            raise ValueError(f"{name} is missing")
        value = config[name]
        if name in _CHOICES and value not in _CHOICES[name]:
            known = ", ".join(repr(choice) for choice in _CHOICES[name])
            raise ValueError(f"{name}={value!r} is none of {known}")
        if name in _LEAST and (type(value) is not int or value < _LEAST[name]):
            raise ValueError(f"{name}={value!r} is no whole number of at least {_LEAST[name]}")
    base = config["rotary_base"]
    if type(base) not in (int, float) or not base > 0:
        raise ValueError(f"rotary_base={base!r} is no positive number")

    field = _HEAD_FIELDS[role][0] if role in _HEAD_FIELDS else None
    head = config[field] if field else None
    return {name: config[name] for name in PUBLISHED}, head if head in HEADS else None
