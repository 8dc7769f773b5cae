# SPDX-License-Identifier: Apache-2.0
"""Names, layouts and config.json of Hugging Face's ELECTRA, both ways, and of its BERT, to read.

An ELECTRA with modern layers has the same names and a few more (`modern_electra`).

Works on dicts of numpy arrays, one network at a time, with paths as if it shared nothing
(`networks.alone`):

    ours, layers stacked                theirs, layer by layer
    embeddings/token                    electra.embeddings.word_embeddings.weight
        [V, E]                              [V, E]
    encoder/attention/query/kernel      electra.encoder.layer.0.attention.self.query.weight
        [layers, D, H, K]                   [H K, D]
    encoder/attention/output/kernel     electra.encoder.layer.0.attention.output.dense.weight
        [layers, H, K, D]                   [D, H K]
    head/...                            depends on the network's role, see `_HEADS`

Our kernels are [in, out]. Theirs are [out, in], with the attention heads side by side in one axis,
and their tables by token have no padded rows. BERT's encoder is ELECTRA's without a projection of
the embeddings: its names begin with `bert.`, and its head that predicts tokens is the generator's.
Source: transformers, models/electra/modeling_electra.py and models/bert/modeling_bert.py.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from electra_jax.weights.formats import arrays, modern_electra

ROLES = {  # what a network's head does -> their class
    "judges": "ElectraForPreTraining",
    "predicts": "ElectraForMaskedLM",
    "encodes": "ElectraModel",
}
TASK_ROLES = {  # the same for networks that were fine-tuned
    "classifies": "ElectraForSequenceClassification",
    "tags": "ElectraForTokenClassification",
    "answers": "ElectraForQuestionAnswering",
}
_CLASSES = ROLES | TASK_ROLES

_LAYER = "encoder.layer.{}."
_MODULES = {  # in every network: our subtree -> their module, after `electra.` or `bert.`
    "embeddings/norm": "embeddings.LayerNorm",
    "projection": "embeddings_project",
    "encoder/attention/query": _LAYER + "attention.self.query",
    "encoder/attention/key": _LAYER + "attention.self.key",
    "encoder/attention/value": _LAYER + "attention.self.value",
    "encoder/attention/output": _LAYER + "attention.output.dense",
    "encoder/attention/norm": _LAYER + "attention.output.LayerNorm",
    "encoder/feed_forward/in": _LAYER + "intermediate.dense",
    "encoder/feed_forward/out": _LAYER + "output.dense",
    "encoder/feed_forward/norm": _LAYER + "output.LayerNorm",
}
_MODERN_MODULES = _MODULES | {
    "encoder/feed_forward/gate": _LAYER + "intermediate.gate",
    "encoder/norm": "encoder.norm",
}
_TABLES = {
    "embeddings/token": "embeddings.word_embeddings.weight",
    "embeddings/position": "embeddings.position_embeddings.weight",
    "embeddings/type": "embeddings.token_type_embeddings.weight",
}
_HEADS = {
    "judges": {
        "head/dense": "discriminator_predictions.dense",
        "head/output": "discriminator_predictions.dense_prediction",
    },
    "predicts": {
        "head/dense": "generator_predictions.dense",
        "head/norm": "generator_predictions.LayerNorm",
    },
    "encodes": {},
    "classifies": {"head/dense": "classifier.dense", "head/output": "classifier.out_proj"},
    "tags": {"head/output": "classifier"},
    "answers": {"head/output": "qa_outputs"},
}
_MODERN_HEADS = _HEADS | {
    "judges": _HEADS["judges"] | {"head/norm": "discriminator_predictions.norm"},
}
_BERT_HEADS = {
    "predicts": {
        "head/dense": "cls.predictions.transform.dense",
        "head/norm": "cls.predictions.transform.LayerNorm",
    },
    "encodes": {},
}
_LEAVES = {"kernel": "weight", "scale": "weight", "bias": "bias"}
_OLD_LEAVES = {".gamma": ".weight", ".beta": ".bias"}  # ends of names in the first files of BERT
BY_TOKEN = ("embeddings/token", "head/bias")  # one row per token
# Buffers with 0, 1, 2, ..., not weights.
_COUNTERS = ("embeddings.position_ids", "embeddings.token_type_ids")


@dataclasses.dataclass(frozen=True)
class _Model:
    """What differs between their models."""

    prefix: str  # of the names of its encoder's tensors
    modules: Mapping[str, str]  # our subtree -> their module, in every network
    roles: Mapping[str, str]  # class -> what its head does
    heads: Mapping[str, Mapping[str, str]]  # role -> our subtree -> their module
    bias: str  # of the scores of tokens
    copies: Mapping[str, str]  # a tensor that some files hold twice: its second name -> our path


_MODELS = {
    "electra": _Model(
        prefix="electra.",
        modules=_MODULES,
        roles={name: role for role, name in _CLASSES.items()},
        heads=_HEADS,
        bias="generator_lm_head.bias",
        copies={"generator_lm_head.weight": "embeddings/token"},
    ),
    modern_electra.MODEL_TYPE: _Model(
        prefix="electra.",
        modules=_MODERN_MODULES,
        roles={modern_electra.PREFIX + name: role for role, name in _CLASSES.items()},
        heads=_MODERN_HEADS,
        bias="generator_lm_head.bias",
        copies={"generator_lm_head.weight": "embeddings/token"},
    ),
    "bert": _Model(
        prefix="bert.",
        modules=_MODULES,
        roles={
            "BertForMaskedLM": "predicts",
            "BertForPreTraining": "predicts",
            "BertModel": "encodes",
        },
        heads=_BERT_HEADS,
        bias="cls.predictions.bias",
        copies={
            "cls.predictions.decoder.weight": "embeddings/token",
            "cls.predictions.decoder.bias": "head/bias",
        },
    ),
}

_OF_TASKS = {"classifier.": "the head of its task", "qa_outputs.": "the head of its task"}
_OF_BERT = {
    "bert.pooler.": "the pooler",
    "pooler.": "the pooler",  # of a bare encoder
    "cls.seq_relationship.": "the head that judges the next sentence",
}


@dataclasses.dataclass(frozen=True)
class HuggingFaceShape:
    """What their config.json says of one network."""

    role: str
    vocab_size: int
    embedding_size: int
    max_positions: int  # with rotary positions the longest rows of training
    layers: int
    width: int
    heads: int
    feed_forward: int
    model_type: str = "electra"  # or 'modern_electra' or 'bert'
    # The settings of the layers under our names, those of `modern_electra.PUBLISHED`.
    trunk: Mapping[str, Any] = dataclasses.field(
        default_factory=lambda: dict(modern_electra.PUBLISHED)
    )
    head: str | None = None  # its kind, if it is not that of transformers' class


_FIELDS = {  # ours -> theirs
    "vocab_size": "vocab_size",
    "embedding_size": "embedding_size",
    "max_positions": "max_position_embeddings",
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "feed_forward": "intermediate_size",
}
_BERT_FIELDS = _FIELDS | {"embedding_size": "hidden_size"}
_FIXED = {  # fields with only one value that our networks can compute
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "type_vocab_size": 2,
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}


def to_tensors(
    network: Mapping[str, np.ndarray], role: str, vocab_size: int, model_type: str = "electra"
) -> dict[str, np.ndarray]:
    """Translates our arrays by path into theirs by name: contiguous float32, no padded rows.

    Args:
      model_type: 'electra' or 'modern_electra'.

    Raises ValueError, in one line, for a parameter that their network does not have.
    """
    found = {}
    for path, x in network.items():
        name = _name(path, role, model_type)
        if name is None:
            raise ValueError(
                f"{path} has no place in Hugging Face's {class_of(role, model_type)}; try"
                " --to=orbax, which keeps every parameter"
            )
        x = np.asarray(x, np.float32)
        if path in BY_TOKEN:
            x = x[:vocab_size]

        if "{}" in name:
            for layer, part in enumerate(x):
                found[name.format(layer)] = _their_layout(path, part)
        else:
            found[name] = _their_layout(path, x)
    return found


def from_tensors(
    tensors: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]],
    role: str,
    model_type: str = "electra",
) -> dict[str, np.ndarray]:
    """Translates their tensors by name into our arrays by path, float32; undoes `to_tensors`.

    Args:
      shapes: our paths with their shapes, before padding of the vocabulary.
      model_type: 'electra', 'modern_electra' or 'bert'.

    Raises ValueError, in one line, for tensors that are missing, unknown or of another shape, and
    for values that are not finite.
    """
    tensors = _without_extras(tensors, role, model_type)
    places = {path: _name(path, role, model_type) for path in shapes}

    expected = {}
    for path, shape in shapes.items():
        repeated = range(shape[0]) if "{}" in places[path] else (None,)
        for layer in repeated:
            expected[places[path].format(layer)] = path, layer

    _check_names(set(tensors), set(expected), class_of(role, model_type))

    found = {path: np.zeros(shape, np.float32) for path, shape in shapes.items()}
    for name, (path, layer) in expected.items():
        target = found[path] if layer is None else found[path][layer]
        x = tensors[name]
        if not np.issubdtype(x.dtype, np.floating) and x.dtype.name != "bfloat16":
            raise ValueError(f"tensor {name} holds {x.dtype}, no weights")
        if x.shape != _their_shape(path, target.shape):
            raise ValueError(
                f"tensor {name} has shape {x.shape}, but config.json makes it"
                f" {_their_shape(path, target.shape)}"
            )
        arrays.finite(name, x)
        target[...] = (x.T if path.endswith("kernel") else x).reshape(target.shape)
    return found


def without_unread(
    tensors: Mapping[str, np.ndarray], shape: HuggingFaceShape
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Returns the tensors without parts that no network has here, and in words what these are.

    They are the head of a fine-tuned network, and BERT's pooler and next-sentence head.
    """
    unread = _OF_TASKS if shape.role in TASK_ROLES else {}
    if shape.model_type == "bert":
        unread = _OF_BERT
        if shape.role == "encodes":  # the file may have more than the class in its config.json
            unread = unread | {"cls.predictions.": "the head that predicts tokens"}

    found = {name: x for name, x in tensors.items() if not name.startswith(tuple(unread))}
    behind = tensors.keys() - found.keys()
    left = {part for start, part in unread.items() if any(x.startswith(start) for x in behind)}
    return found, sorted(left)


def to_config(
    shape: HuggingFaceShape,
    *,
    dropout: float,
    attention_dropout: float,
    initial_scale: float,
    pad_id: int,
    task: Mapping | None = None,
) -> dict:
    """Returns their config.json; `task` are further fields, those of `task_config`."""
    own = {}
    if shape.model_type == modern_electra.MODEL_TYPE:
        own = modern_electra.to_fields(shape.trunk, shape.role, shape.head)
    return {
        "architectures": [class_of(shape.role, shape.model_type)],
        "model_type": shape.model_type,
        **own,
        **{theirs: getattr(shape, ours) for ours, theirs in _FIELDS.items()},
        "hidden_act": "gelu",
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": attention_dropout,
        "initializer_range": initial_scale,
        "layer_norm_eps": 1e-12,
        "type_vocab_size": 2,
        "pad_token_id": pad_id,
        "tie_word_embeddings": True,
        "dtype": "float32",
        **(task or {}),
    }


def task_config(kind: str, labels: Sequence[str], dropout: float) -> dict:
    """Returns the fields of their config.json for a task.

    Args:
      kind: 'classification', 'regression', 'multi_label', 'tagging' or 'span'.
      labels: in the order of the head's outputs; empty for regression and span.
      dropout: the head's dropout rate.
    """
    if kind == "span":
        return {}  # without labels their class has two outputs, which are the start and the end

    names = list(labels) if kind != "regression" else ["score"]
    found = {
        "classifier_dropout": dropout,
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
    }

    problem = {
        "classification": "single_label_classification",
        "regression": "regression",
        "multi_label": "multi_label_classification",
    }
    return found | ({"problem_type": problem[kind]} if kind in problem else {})


def from_config(config: Mapping, names: Iterable[str] = ()) -> HuggingFaceShape:
    """Reads their config.json.

    Args:
      config: its fields.
      names: those of the tensors beside it, which tell the class if `architectures` is missing.

    Raises ValueError, in one line, if it is neither an ELECTRA nor a BERT, or of a kind that we
    cannot compute.
    """
    kind = config.get("model_type")
    if kind not in tuple(_MODELS):  # a file may hold anything, also what has no hash
        raise ValueError(f"model_type={kind!r} is neither 'electra' nor 'bert'")
    roles = _MODELS[kind].roles
    named = config.get("architectures") or [class_by_names(names, kind)]
    role = next((role for name, role in roles.items() if [name] == list(named)), None)
    if role is None:
        raise ValueError(
            f"architectures={list(named)!r} is none of {', '.join(roles)}; save the pre-trained"
            " network, without a head for a task"
        )

    for field, only in _FIXED.items():
        value = config.get(field, only)
        if value != only:
            raise ValueError(f"{field}={value!r} is not {only!r}, the only kind there is here")
    if role == "predicts" and not config.get("tie_word_embeddings", True):
        raise ValueError("tie_word_embeddings=false: here the output matrix is the token table")

    fields = _BERT_FIELDS if kind == "bert" else _FIELDS
    missing = [theirs for theirs in fields.values() if theirs not in config]
    if missing:
        raise ValueError(f"{missing[0]} is missing")

    values = {ours: config[theirs] for ours, theirs in fields.items()}
    for ours, value in values.items():
        if type(value) is not int or value < 1:
            raise ValueError(f"{fields[ours]}={value!r} is no positive number")

    if values["width"] % values["heads"]:
        raise ValueError(
            f"hidden_size={values['width']} is not divisible by"
            f" num_attention_heads={values['heads']}"
        )
    modern = {}
    if kind == modern_electra.MODEL_TYPE:
        modern["trunk"], modern["head"] = modern_electra.from_fields(config, role)
    return HuggingFaceShape(role=role, model_type=kind, **values, **modern)


def class_by_names(names: Iterable[str], model_type: str) -> str:
    """Returns the name of the class whose head is among the tensors, or that of a bare encoder.

    Older files of BERT and those of some trainers name no class in their config.json.
    """
    names = list(names)
    for role, modules in _MODELS[model_type].heads.items():
        starts = [f"{module}." for module in modules.values()]
        if starts and all(any(name.startswith(start) for name in names) for start in starts):
            return class_of(role, model_type)
    return class_of("encodes", model_type)


def class_of(role: str, model_type: str = "electra") -> str:
    """Returns the name of the class of transformers, or of our code for it, with such a head."""
    return next(name for name, other in _MODELS[model_type].roles.items() if other == role)


def _name(path, role, model_type):
    """Returns their name, with {} for the layer; None if they have no such parameter."""
    model = _MODELS[model_type]
    if path == "head/bias" and role == "predicts":
        return model.bias
    if path in _TABLES:
        return model.prefix + _TABLES[path]

    module, _, leaf = path.rpartition("/")
    if module in model.modules:
        return f"{model.prefix}{model.modules[module]}.{_LEAVES[leaf]}"
    found = model.heads[role].get(module)
    return found and f"{found}.{_LEAVES[leaf]}"


def _their_layout(path, x):
    """Returns one layer of ours in their layout.

    It is contiguous, because safetensors writes other arrays wrongly without an error.
    """
    theirs = x.reshape(_their_shape(path, x.shape)[::-1]).T if path.endswith("kernel") else x
    return np.ascontiguousarray(theirs.reshape(_their_shape(path, x.shape)))


def _their_shape(path, shape):
    """Returns their shape for an array of ours, without the axis of layers."""
    if path.endswith("attention/output/kernel"):
        return shape[-1], math.prod(shape[:-1])
    if path.endswith("kernel"):
        return math.prod(shape[1:]), shape[0]
    return (math.prod(shape),) if path.endswith("bias") else tuple(shape)


def _without_extras(tensors, role, model_type):
    """Returns the tensors under today's names, without counters and without second copies.

    The tensors of a bare encoder get the prefix `electra.` or `bert.` that all others have.
    """
    tensors = {_name_today(name): x for name, x in tensors.items() if not name.endswith(_COUNTERS)}
    prefix = _MODELS[model_type].prefix
    if not any(name.startswith(prefix) for name in tensors):
        tensors = {prefix + name: x for name, x in tensors.items()}

    copies = _MODELS[model_type].copies if role == "predicts" else {}
    for copy, path in copies.items():
        original = _name(path, role, model_type)
        if copy not in tensors:
            continue
        x = tensors.pop(copy)
        first = tensors.setdefault(original, x)  # some files have only the second
        if not np.array_equal(x, first):
            raise ValueError(f"{copy} differs from {original}, and here both are one parameter")
    return tensors


def _name_today(name):
    for old, new in _OLD_LEAVES.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _check_names(found, expected, class_):
    """Raises ValueError unless both sets of names are equal; `class_` is what theirs is called."""
    for names, what in (
        (expected - found, "is missing"),
        (found - expected, f"is not one of {class_}'s"),
    ):
        if names:
            more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            raise ValueError(f"tensor {min(names)} {what}{more}")
