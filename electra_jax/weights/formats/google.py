# SPDX-License-Identifier: Apache-2.0
"""Names and layouts of the checkpoints of google-research/electra, read into our terms.

    theirs, layer by layer                                      ours, layers stacked
    electra/embeddings/word_embeddings                          embeddings/token
    electra/encoder/layer_0/attention/self/query/kernel         discriminator/encoder/attention/...
    generator/encoder/layer_0/...                               generator/encoder/...
    discriminator_predictions/{dense, dense_1}                  discriminator/head/{dense, output}
    generator_predictions/{dense, LayerNorm, output_bias}       generator/head/{dense, norm, bias}
    VARIABLE/{adam_m, adam_v}, global_step                      moments of each, the step

Kernels are [in, out] in both; in theirs the attention heads lie side by side in one axis. What the
networks share is told by the names: without `generator/encoder` both use one encoder, and with
`generator/embeddings` the generator has its own tables. `tensorflow_bundle` reads the files;
`reading_foreign` makes networks of the result. Source: model/modeling.py, model/optimization.py,
pretrain/pretrain_helpers.py and run_pretraining.py of that repository.
"""

import dataclasses
import re
from collections.abc import Mapping

import numpy as np

from electra_jax.weights.formats import arrays

HEAD_SIZE = 64  # in every published size: width 256 has 4 heads, 768 has 12, 64 has 1

_TABLES = {  # theirs, after SCOPE/embeddings/ -> ours
    "word_embeddings": "token",
    "position_embeddings": "position",
    "token_type_embeddings": "type",
    "LayerNorm/gamma": "norm/scale",
    "LayerNorm/beta": "norm/bias",
}
_OF_A_LAYER = {  # theirs, after SCOPE/encoder/layer_N/ -> ours
    "attention/self/query": "attention/query",
    "attention/self/key": "attention/key",
    "attention/self/value": "attention/value",
    "attention/output/dense": "attention/output",
    "attention/output/LayerNorm": "attention/norm",
    "intermediate/dense": "feed_forward/in",
    "output/dense": "feed_forward/out",
    "output/LayerNorm": "feed_forward/norm",
}
_HEADS = {
    "discriminator_predictions/dense": "discriminator/head/dense",
    "discriminator_predictions/dense_1": "discriminator/head/output",
    "generator_predictions/dense": "generator/head/dense",
    "generator_predictions/LayerNorm": "generator/head/norm",
}
_LEAVES = {"kernel": "kernel", "bias": "bias", "gamma": "scale", "beta": "bias"}
_BIAS = "generator_predictions/output_bias"
_SLOTS = {"adam_m": "mu", "adam_v": "nu"}
_STEP = "global_step"


@dataclasses.dataclass(frozen=True)
class GoogleShape:
    """The sizes of one encoder."""

    layers: int
    width: int
    heads: int
    feed_forward: int


@dataclasses.dataclass(frozen=True)
class GoogleCheckpoint:
    """A checkpoint in our terms: float32 arrays by path, with layers stacked."""

    params: dict[str, np.ndarray]
    mu: dict[str, np.ndarray]  # first moments; empty if the checkpoint has none
    nu: dict[str, np.ndarray]  # second moments
    step: int | None
    sharing: str  # a value of model.sharing: 'embeddings' | 'none' | 'all'
    vocab_size: int
    embedding_size: int
    max_positions: int
    discriminator: GoogleShape
    generator: GoogleShape | None  # None if the checkpoint has no generator


def read(tensors: Mapping[str, np.ndarray]) -> GoogleCheckpoint:
    """Translates their tensors by name.

    Raises ValueError, in one line, for a checkpoint of another model, or if a tensor is missing,
    unknown, has a shape that contradicts the others, or holds values that are not finite.
    """
    names = [name for name in tensors if name != _STEP and not name.endswith(tuple(_SLOTS))]
    if "electra/embeddings/word_embeddings" not in names:
        raise ValueError(_not_electra(names))

    sharing, with_generator = _sharing(names)
    places = {name: _our_path(name, sharing) for name in names}

    unknown = [name for name, place in places.items() if place is None]
    if unknown:
        raise ValueError(_unknown(unknown[0]))

    # Each tensor is read once: a file may have gigabytes.
    flat = _stacked({place: arrays.finite(name, tensors[name]) for name, place in places.items()})
    shapes = {
        network: _shape(flat, trunk) for network, trunk in _trunks(sharing, with_generator).items()
    }

    def of_slot(theirs):
        # The moments of all variables, or {} if there are none of this kind.
        slots = {place: f"{name}/{theirs}" for name, place in places.items()}
        there = {
            place: arrays.finite(name, tensors[name])
            for place, name in slots.items()
            if name in tensors
        }
        if there and len(there) < len(slots):
            place = next(place for place in slots if place not in there)
            raise ValueError(f"{slots[place]} is missing: other variables have their {theirs}")
        return _by_head(_stacked(there), sharing, shapes)

    found = GoogleCheckpoint(
        params=_by_head(flat, sharing, shapes),
        **{ours: of_slot(theirs) for theirs, ours in _SLOTS.items()},
        step=int(tensors[_STEP]) if _STEP in tensors else None,
        sharing=sharing,
        vocab_size=len(flat["embeddings/token"]),
        embedding_size=flat["embeddings/token"].shape[1],
        max_positions=len(flat["embeddings/position"]),
        discriminator=shapes["discriminator"],
        generator=shapes.get("generator"),
    )
    return found


def _sharing(names) -> tuple[str, bool]:
    """Returns (model.sharing, whether there is a generator)."""
    with_generator = any(name.startswith("generator_predictions/") for name in names)
    if not with_generator:
        return "embeddings", False
    if not any(name.startswith("generator/encoder/") for name in names):
        return "all", True
    own = any(name.startswith("generator/embeddings/") for name in names)
    return ("none" if own else "embeddings"), True


def _trunks(sharing, with_generator) -> dict[str, str]:
    """Returns {network: the path of its encoder}."""
    if sharing == "all":
        return {"discriminator": "encoder", "generator": "encoder"}
    trunks = {"discriminator": "discriminator/encoder"}
    return trunks | {"generator": "generator/encoder"} if with_generator else trunks


def _our_path(name, sharing):
    """Returns our path for their name, with the layer as prefix `layer_N/`; None if unknown."""
    if name == _BIAS:
        return "generator/head/bias"
    scope, _, rest = name.partition("/")
    if scope not in ("electra", "generator"):
        module, _, leaf = name.rpartition("/")
        if module in _HEADS and leaf in _LEAVES:
            return f"{_HEADS[module]}/{_LEAVES[leaf]}"
        return None
    network = "generator/" if scope == "generator" else "discriminator/"

    if rest.startswith("embeddings/"):
        table = _TABLES.get(rest.removeprefix("embeddings/"))
        own = "generator/" if scope == "generator" else ""
        return table and f"{own}embeddings/{table}"

    shared = sharing == "all"
    module, _, leaf = rest.rpartition("/")
    if leaf not in _LEAVES:
        return None
    if module == "embeddings_project":
        return f"{'encoder/' if shared else network}projection/{_LEAVES[leaf]}"

    layer = re.fullmatch(r"encoder/(layer_\d+)/(.*)", module)
    if not layer or layer[2] not in _OF_A_LAYER:
        return None
    trunk = "encoder" if shared else f"{network}encoder"
    return f"{layer[1]}/{trunk}/{_OF_A_LAYER[layer[2]]}/{_LEAVES[leaf]}"


def _stacked(flat: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Stacks arrays at `layer_0/PATH`, `layer_1/PATH`, ... into one at PATH, [layers, ...]."""
    found, layers = {}, {}
    for place, x in flat.items():
        layer, _, path = place.partition("/")
        if re.fullmatch(r"layer_\d+", layer):
            layers.setdefault(path, {})[int(layer.removeprefix("layer_"))] = x
        else:
            found[place] = np.asarray(x, np.float32)

    count = {path.partition("encoder/")[0]: max(parts) + 1 for path, parts in layers.items()}
    for path, parts in layers.items():
        missing = set(range(count[path.partition("encoder/")[0]])) - set(parts)
        if missing:
            raise ValueError(f"layer {min(missing)} of {path} is missing; copy the files anew")

        shapes = {np.shape(x) for x in parts.values()}
        if len(shapes) > 1:
            raise ValueError(f"the layers of {path} have several shapes: {sorted(shapes)}")
        found[path] = np.stack([np.asarray(parts[n], np.float32) for n in sorted(parts)])
    return found


def _shape(flat, trunk) -> GoogleShape:
    """Returns the sizes of the encoder at a path, told by its arrays."""
    query, wide = f"{trunk}/attention/query/kernel", f"{trunk}/feed_forward/in/kernel"
    for path in (query, wide):
        if path not in flat:
            raise ValueError(f"{path} is missing; copy the files anew")

    layers, width, _ = flat[query].shape
    if width > HEAD_SIZE and width % HEAD_SIZE:
        raise ValueError(
            f"{trunk} has a width of {width}, and no array tells the number of its heads: they are"
            f" taken to be {HEAD_SIZE} wide, as all published ones are, which does not divide it"
        )
    heads = max(1, width // HEAD_SIZE)
    return GoogleShape(layers, width, heads, flat[wide].shape[-1])


def _by_head(flat, sharing, shapes) -> dict[str, np.ndarray]:
    """Gives the attention an axis for heads: [layers, D, H K] -> [layers, D, H, K]."""
    found = dict(flat)
    for network, trunk in _trunks(sharing, "generator" in shapes).items():
        heads = shapes[network].heads
        for path in flat:
            part = re.fullmatch(rf"{trunk}/attention/(query|key|value|output)/(kernel|bias)", path)
            x = flat[path]
            if not part or part[1] == "output" and part[2] == "bias":
                continue
            if part[1] == "output":
                found[path] = x.reshape(x.shape[0], heads, -1, x.shape[-1])
            else:
                found[path] = x.reshape(*x.shape[:-1], heads, -1)
    return found


def _not_electra(names) -> str:
    few = ", ".join(sorted(names)[:3])
    if any(name.startswith("bert/") for name in names):
        return (
            f"this is a BERT checkpoint ({few}, ...), not one of ELECTRA; BERT is read in the"
            " format of Hugging Face: give such a folder, or hf:OWNER/NAME"
        )
    return f"no electra/embeddings/word_embeddings among its tensors ({few}, ...): not ELECTRA"


def _unknown(name) -> str:
    if re.match(r"generator_(ltr|rtl)|.*two_tower", name):
        return f"{name}: the two towers of Electric have other layers here and are not read"
    return f"{name} is no tensor of a pre-trained ELECTRA; give the checkpoint that was pre-trained"
