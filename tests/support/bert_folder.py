# SPDX-License-Identifier: Apache-2.0
"""A small BERT in Hugging Face's format, in the forms in which such folders come."""

import json

import numpy as np

from electra_jax.data import vocabulary
from electra_jax.weights.formats import tensor_files

WORDS = vocabulary.Vocabulary(
    "wordpiece", "\n".join(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "sun", "moon")).encode(),
    True, True,
)  # fmt: skip
SHAPE = dict(layers=2, width=8, heads=2, feed_forward=12)
CONFIG = {
    "model_type": "bert",
    "vocab_size": 7,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "type_vocab_size": 2,
}

EMBEDDINGS = "bert.embeddings."
TABLES = {
    EMBEDDINGS + "word_embeddings.weight": (7, 8),
    EMBEDDINGS + "position_embeddings.weight": (16, 8),
    EMBEDDINGS + "token_type_embeddings.weight": (2, 8),
    "cls.predictions.bias": (7,),
}
MODULES = {  # with a weight of this shape and a bias
    EMBEDDINGS + "LayerNorm": (8,),
    "bert.pooler.dense": (8, 8),
    "cls.predictions.transform.dense": (8, 8),
    "cls.predictions.transform.LayerNorm": (8,),
    "cls.seq_relationship": (2, 8),
}
OF_A_LAYER = {
    "attention.self.query": (8, 8),
    "attention.self.key": (8, 8),
    "attention.self.value": (8, 8),
    "attention.output.dense": (8, 8),
    "attention.output.LayerNorm": (8,),
    "intermediate.dense": (12, 8),
    "output.dense": (8, 12),
    "output.LayerNorm": (8,),
}
POOLER, NEXT = "the pooler stays behind", "the head that judges the next sentence stays behind"
PREDICTS = "the head that predicts tokens stays behind"


def tensors():
    """Those of BertForPreTraining as it is saved today, every number another one."""
    layers = {
        f"bert.encoder.layer.{n}.{name}": shape
        for n in range(2)
        for name, shape in OF_A_LAYER.items()
    }
    shapes = dict(TABLES)
    for module, shape in (MODULES | layers).items():
        shapes |= {f"{module}.weight": shape, f"{module}.bias": shape[:1]}

    ends = np.cumsum([np.prod(shape) for shape in shapes.values()])
    numbers = np.split(np.arange(ends[-1], dtype=np.float32), ends[:-1])
    return {name: x.reshape(shapes[name]) for name, x in zip(shapes, numbers)}


def first(found):
    """As the first files had it: other names of norms, second copies, a buffer of positions."""
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    for now, then in old.items():
        found = {name.replace(now, then): x for name, x in found.items()}
    return found | {
        "bert.embeddings.position_ids": np.arange(16)[None],
        "cls.predictions.decoder.weight": found[EMBEDDINGS + "word_embeddings.weight"],
        "cls.predictions.decoder.bias": found["cls.predictions.bias"],
    }


def renamed(found):
    """The bias of the head under its second name alone."""
    bias = {"cls.predictions.decoder.bias": found["cls.predictions.bias"]}
    return {name: x for name, x in found.items() if name != "cls.predictions.bias"} | bias


def bare(found):
    return {n.removeprefix("bert."): x for n, x in found.items() if n.startswith("bert.")}


FORMS = {  # name -> (class in config.json, change of the tensors, what the log says)
    "with all heads": ("BertForPreTraining", dict, (POOLER, NEXT)),
    "the first files": ("BertForMaskedLM", first, (POOLER, NEXT)),
    "a second name": ("BertForMaskedLM", renamed, (POOLER, NEXT)),
    "the encoder alone": ("BertModel", bare, (POOLER,)),
    "a class without heads": ("BertModel", dict, (POOLER, NEXT, PREDICTS)),
    "no class": (None, dict, (POOLER, NEXT)),
    "no class and no heads": (None, bare, (POOLER,)),
}


def write(folder, form="with all heads", **changes):
    """Writes a folder with vocab.txt, config.json and model.safetensors; returns its path."""
    kind, change, _ = FORMS[form]
    folder.mkdir()
    (folder / "vocab.txt").write_bytes(WORDS.native)
    named = {"architectures": [kind]} if kind else {}
    (folder / "config.json").write_text(json.dumps(CONFIG | named | changes))
    tensor_files.write(str(folder / "model.safetensors"), change(tensors()))
    return str(folder)
