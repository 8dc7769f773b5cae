# SPDX-License-Identifier: Apache-2.0
"""Parameters for other programs: an orbax checkpoint of plain arrays, with all that its use needs.

    params/         the tree, unsharded; any orbax reads it, without a template
    metadata.json   shapes and kinds of the networks, configuration, step, versions, checksums
    tokenizer/      tokenizer.json and its settings, if the vocabulary can be written so
    vocab/          the vocabulary as it was used in training
    README.md       the lines of code that read it

In metadata.json `sha256` is that of the bytes of all arrays, one after the other in the order of
jax.tree.leaves; `digest` holds the digest of each array, which `read` verifies.
`exporting.to_orbax` writes the whole folder.
"""

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from electra_jax.core import trees
from electra_jax.weights import checkpoint
from electra_jax.weights.formats import readme
from electra_jax.workdir import metadata

PARAMS, ABOUT, VOCABULARY, TOKENIZER = "params", "metadata.json", "vocab", "tokenizer"
FORMAT = "electra_jax parameters 1"


def write(
    folder: str,
    params: Any,
    about: Mapping[str, Any],
    name: str,
    title: str,
    learnt: str = "",
) -> None:
    """Writes params/, metadata.json and README.md, reads them again and compares.

    Args:
      about: what metadata.json says beside checksums: networks, config, step, vocabulary.
      name: the name of the folder in its README.
      title: the heading of the README.
      learnt: what the main network has learnt, as `Weights.learnt` says it.

    Raises OSError if the arrays that are read differ.
    """
    params = jax.tree.map(np.asarray, jax.device_get(params))
    leaves = trees.flat(params)

    path = os.path.join(folder, PARAMS)
    checkpoint.save_arrays(path, params)
    with open(os.path.join(folder, ABOUT), "w", encoding="utf-8") as file:
        file.write(json.dumps(_metadata(params, leaves, about), indent=2) + "\n")

    vocabulary = about["vocabulary"]
    text = readme.render(
        "parameters.md.j2",
        title=title,
        what=_what_it_is(params),
        networks=about["networks"],
        parts=_parts(leaves),
        learnt=learnt,
        head_kind=about["fine_tuning"]["head"]["kind"] if "head" in params else "",
        cls=vocabulary["cls_id"],
        sep=vocabulary["sep_id"],
        has_tokenizer=os.path.exists(os.path.join(folder, TOKENIZER)),
        name=name,
    )
    with open(os.path.join(folder, "README.md"), "w", encoding="utf-8") as file:
        file.write(text)

    again = jax.tree_util.tree_leaves_with_path(read(folder))
    for (path, x), (where, y) in zip(leaves.items(), again, strict=True):
        if path != trees.path_name(where) or y.tobytes() != x.tobytes():
            raise OSError(f"{folder}: {path} is not what was written; write it again")


def _metadata(params, leaves, about):
    """What metadata.json says: what is known of the weights, their shapes, and checksums."""
    return {
        "format": FORMAT,
        **about,
        "parameters": {
            name: {"shape": list(x.shape), "dtype": x.dtype.name} for name, x in leaves.items()
        },
        "sha256": hashlib.sha256(b"".join(x.tobytes() for x in leaves.values())).hexdigest(),
        "digest": checkpoint.digest(params),
        "versions": {
            library: importlib.metadata.version(library)
            for library in ("jax", "orbax-checkpoint", "numpy")
        },
    }


def _what_it_is(params):
    """The networks in words, as the README begins."""
    if "head" in params:
        return (
            "an ELECTRA that was fine-tuned and of the head of its task (`fine_tuning` in\n"
            "`metadata.json`: which kind, which labels)"
        )
    if "discriminator" not in params:
        return "an ELECTRA generator" if "generator" in params else "an ELECTRA encoder"
    predicts = "bias" in params["discriminator"].get("head", {})
    what = "a network that predicts tokens" if predicts else "an ELECTRA discriminator"
    return f"{what} and its generator" if "generator" in params else what


def _parts(paths):
    """Returns every folder of the tree, and every leaf: {'generator', 'generator/head', ...}."""
    names = (path.split("/") for path in paths)
    return {"/".join(name[:end]) for name in names for end in range(1, len(name) + 1)}


def is_one(folder: str) -> bool:
    """Returns True if a folder is such an export."""
    return os.path.isdir(os.path.join(folder, PARAMS)) and os.path.exists(
        os.path.join(folder, ABOUT)
    )


def about(folder: str) -> dict[str, Any]:
    """Returns metadata.json. Raises CheckpointError if it is damaged or of another kind."""
    path = os.path.join(folder, ABOUT)
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        if found["format"] == FORMAT:
            digest = found["digest"]
            if not isinstance(digest, dict):
                raise ValueError(f"its digest is {digest!r}")
            return found
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise metadata.CheckpointError(f"{path} is damaged; copy the export again") from error
    raise metadata.CheckpointError(f"{path} says {found['format']!r}, not {FORMAT!r}")


def read(folder: str) -> Any:
    """Returns the parameters as numpy arrays, verified by digest. Raises CheckpointError."""
    path, kept = os.path.join(folder, PARAMS), about(folder)["digest"]
    found = checkpoint.load_arrays(path)
    if not all(isinstance(x, np.ndarray | jax.Array) for x in jax.tree.leaves(found)):
        raise metadata.CheckpointError(f"{path} is damaged; copy the export again")

    digest = checkpoint.digest(found)
    for name in sorted({*digest, *kept}):
        if digest.get(name) != kept.get(name):
            raise metadata.CheckpointError(f"{path}: {name} is not what was saved")
    return found
