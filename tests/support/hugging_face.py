# SPDX-License-Identifier: Apache-2.0
"""The same networks in Hugging Face's transformers, to compare with: weights, inputs, outputs.

Imports torch and transformers only where they are used, so that the default tests need neither.
"""

import dataclasses

import numpy as np

from electra_jax.model import networks

from . import odd

NAMES = {  # our subtree -> their module
    "embeddings/token": "electra.embeddings.word_embeddings",
    "embeddings/position": "electra.embeddings.position_embeddings",
    "embeddings/type": "electra.embeddings.token_type_embeddings",
    "embeddings/norm": "electra.embeddings.LayerNorm",
    "projection": "electra.embeddings_project",
    "encoder/attention/query": "electra.encoder.layer.{}.attention.self.query",
    "encoder/attention/key": "electra.encoder.layer.{}.attention.self.key",
    "encoder/attention/value": "electra.encoder.layer.{}.attention.self.value",
    "encoder/attention/output": "electra.encoder.layer.{}.attention.output.dense",
    "encoder/attention/norm": "electra.encoder.layer.{}.attention.output.LayerNorm",
    "encoder/feed_forward/in": "electra.encoder.layer.{}.intermediate.dense",
    "encoder/feed_forward/out": "electra.encoder.layer.{}.output.dense",
    "encoder/feed_forward/norm": "electra.encoder.layer.{}.output.LayerNorm",
    "generator/head/dense": "generator_predictions.dense",
    "generator/head/norm": "generator_predictions.LayerNorm",
    "generator/head": "generator_lm_head",
    "discriminator/head/dense": "discriminator_predictions.dense",
    "discriminator/head/output": "discriminator_predictions.dense_prediction",
}

SHAPES = {  # who projects the embeddings: both networks, neither, the generator alone
    "both": odd.NETWORKS,
    "neither": dataclasses.replace(
        odd.NETWORKS,
        embedding_size=8,
        generator=odd.trunk(1, 8, 2, 12, dropout=0, attention_dropout=0),
        discriminator=odd.trunk(3, 8, 4, 10, dropout=0, attention_dropout=0),
    ),
    "generator": dataclasses.replace(
        odd.NETWORKS,
        embedding_size=12,
        generator=odd.trunk(2, 4, 1, 18, dropout=0, attention_dropout=0),
        discriminator=odd.trunk(2, 12, 3, 14, dropout=0, attention_dropout=0),
    ),
}

# They know no packed rows: six rows of one document each, of several lengths and with segments.
_CUTS = ((1, 0, 11), (4, 0, 9), (0, 0, 7), (5, 0, 3), (0, 7, 10), (3, 0, 2))
IDS_BL, MARKS_BL = np.zeros((2, 6, 11), int)
for _row, (_from, _start, _stop) in enumerate(_CUTS):
    IDS_BL[_row, : _stop - _start] = odd.IDS_BL[_from, _start:_stop]
    MARKS_BL[_row, : _stop - _start] = odd.MARKS_BL[_from, _start:_stop]


def models(config: networks.NetworksConfig, params: dict):
    """(ElectraForMaskedLM, ElectraForPreTraining) in float64 with these weights."""
    import transformers

    found = []
    for network, kind in (
        ("generator", transformers.ElectraForMaskedLM),
        ("discriminator", transformers.ElectraForPreTraining),
    ):
        model = kind(_config(config, getattr(config, network))).double()
        weights = _weights(config, params, network)
        missing, unexpected = model.load_state_dict(weights, strict=False)
        assert not unexpected and set(missing) <= {"generator_lm_head.weight"}  # tied
        found.append(model)
    return found


def fine_tuned(
    config: networks.NetworksConfig, params: dict, kind: str, head: dict, modules: dict[str, str]
):
    """A model of theirs for a task, in float64 and without dropout.

    Args:
      kind: its class.
      head: our weights of the head.
      modules: {our leaf: their module}.
    """
    import torch
    import transformers

    labels = head["output"]["bias"].shape[0]
    shape = _config(config, config.discriminator, num_labels=labels)
    model = getattr(transformers, kind)(shape).double().eval()
    weights = _weights(config, params, "discriminator")
    weights = {name: x for name, x in weights.items() if name.startswith("electra.")}
    for leaf, module in modules.items():
        weights[f"{module}.weight"] = torch.tensor(np.asarray(head[leaf]["kernel"], np.float64).T)
        weights[f"{module}.bias"] = torch.tensor(np.asarray(head[leaf]["bias"], np.float64))
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected and not missing
    return model


def _config(config, shape, **others):
    import transformers

    return transformers.ElectraConfig(
        vocab_size=config.vocab_size,
        embedding_size=config.embedding_size,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.feed_forward,
        max_position_embeddings=config.max_positions,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=odd.PAD,
        **others,
    )


def _weights(config, params, network):
    """Under their names, of one network with its tables."""
    import torch

    shape = getattr(config, network)
    return {
        name: torch.tensor(_theirs(path, x[layer]).astype(np.float64)[: _rows(path, config)])
        for path, x in odd.flat(params).items()
        for name, layer in _places(path, network, shape.layers)
    }


def inputs(batch) -> dict:
    """What both models are called with."""
    import torch

    return {
        "input_ids": torch.tensor(np.asarray(batch.ids_BL, np.int64)),
        "token_type_ids": torch.tensor(np.asarray(batch.types_BL, np.int64)),
        "attention_mask": torch.tensor(np.asarray(batch.real_BL, np.int64)),
    }


def outputs(config: networks.NetworksConfig, params: dict, batch) -> tuple[np.ndarray, ...]:
    """What `odd.forward` returns, as they compute it; without the padded tail of V."""
    import torch

    generator, discriminator = models(config, params)
    with torch.no_grad():
        gen_logits = generator(**inputs(batch)).logits
        judged = discriminator(**inputs(batch), output_hidden_states=True)
    return tuple(x.numpy() for x in (gen_logits, judged.hidden_states[-1], judged.logits))


def gradients(config: networks.NetworksConfig, params: dict, models) -> dict[str, np.ndarray]:
    """Their derivatives under our paths; a table that both share has the sum of both already."""
    found = {path: np.zeros_like(x, np.float64) for path, x in odd.flat(params).items()}
    for network, model in zip(("generator", "discriminator"), models):
        theirs = {name: x.grad.numpy() for name, x in model.named_parameters()}
        for path, x in found.items():
            if path.startswith("embeddings") and network == "discriminator":
                continue
            for name, layer in _places(path, network, getattr(config, network).layers):
                gradient = theirs[name]
                if path.endswith("kernel"):
                    gradient = gradient.T
                rows = slice(_rows(path, config))
                x[layer][rows] = gradient.reshape(x[layer][rows].shape)
    return found


def _places(path, network, layers):
    """(their name, our index) of each of their parameters that this leaf holds."""
    subtree, _, leaf = path.rpartition("/")
    if path in NAMES:
        subtree, leaf = path, "kernel"
    if subtree not in NAMES:
        owner, _, subtree = subtree.partition("/")
        if owner != network:
            return []
    elif subtree.split("/")[0] not in (network, "embeddings"):
        return []
    name = f"{NAMES[subtree]}.{'bias' if leaf == 'bias' else 'weight'}"
    if "{}" not in name:
        return [(name, ...)]
    return [(name.format(layer), layer) for layer in range(layers)]


def _theirs(path, x):
    """A kernel is [in, out] here and [out, in] there; heads lie side by side."""
    if path.endswith("attention/output/kernel"):
        return x.reshape(-1, x.shape[-1]).T
    if path.endswith("kernel"):
        return x.reshape(x.shape[0], -1).T
    return x.reshape(-1) if path.endswith("bias") else x


def _rows(path, config):
    """The vocabulary without its padded tail; all rows of everything else."""
    return config.vocab_size if path in ("embeddings/token", "generator/head/bias") else None
