# SPDX-License-Identifier: Apache-2.0
"""The encoder as a program (StableHLO), for users who have jax but not this package.

    encoder.stablehlo     (params, ids, mask, types) -> {tokens [B, L, D], pooled [B, D]}, for any
                          batch and any length up to the table of positions, on CPU, CUDA and TPU
    params.safetensors    the parameters that it is called with, by path
    tokenizer/, vocab/, metadata.json, README.md

Newer versions of jax read a program of `jax.export` for at least six months.
`exporting.to_stablehlo` writes the whole folder.
"""

import json
import os
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax import export as jax_export
from jax import numpy as jnp

from electra_jax.core import trees
from electra_jax.host import safe_files
from electra_jax.model import networks
from electra_jax.weights import encoding
from electra_jax.weights.formats import readme, tensor_files

PLATFORMS = ("cpu", "cuda", "tpu")
PROGRAM, PARAMS, ABOUT = "encoder.stablehlo", "params.safetensors", "metadata.json"

_TRIED = (2, 7)  # batch and length of the call that checks the program
# Allowed difference, relative to the largest number. On a CPU there is none; products of
# accelerators round their factors, and two programs may do so in other places.
_ROUNDING, _ROUNDING_ELSEWHERE = 1e-3, 2e-2


def program(config: networks.NetworksConfig, params: Mapping[str, np.ndarray]) -> bytes:
    """Returns the serialized program for parameters of these shapes, given by path."""
    limits = [f"L <= {config.max_positions}"] if config.max_positions else []
    batch, length = jax_export.symbolic_shape("B, L", constraints=limits)
    lane = jax.ShapeDtypeStruct((batch, length), jnp.int32)
    shapes = {path: jax.ShapeDtypeStruct(x.shape, x.dtype) for path, x in params.items()}

    def encode(params, ids_BL, mask_BL, types_BL):
        found = encoding.encode(config, trees.nested(params), ids_BL, mask_BL, types_BL)
        return {"tokens": found.tokens_BLD, "pooled": found.pooled_BD}

    made = jax_export.export(jax.jit(encode), platforms=PLATFORMS)(shapes, lane, lane, lane)
    return bytes(made.serialize())


def write(
    folder: str,
    config: networks.NetworksConfig,
    params: Any,
    about: Mapping[str, Any],
    title: str,
    cls_sep: tuple[int, int],
) -> None:
    """Writes program, parameters, metadata.json and README.md, then reads and calls the program.

    Args:
      params: the encoder's parameters as a nested dict.
      about: the content of metadata.json.
      title: the heading of the README.
      cls_sep: the ids of [CLS] and [SEP], for the example in the README.

    Raises OSError if the program's result differs from the encoder's.
    """
    flat = {path: np.asarray(x) for path, x in trees.flat(jax.device_get(params)).items()}
    tensor_files.write(os.path.join(folder, PARAMS), flat)
    with open(os.path.join(folder, PROGRAM), "wb") as file:
        file.write(program(config, flat))
    safe_files.write(
        os.path.join(folder, ABOUT), (json.dumps(dict(about), indent=2) + "\n").encode()
    )

    limit = config.max_positions
    text = readme.render(
        "program.md.j2",
        title=title,
        platforms=", ".join(PLATFORMS),
        cls=cls_sep[0],
        sep=cls_sep[1],
        length=f"at most {limit} tokens" if limit else "any length",
        width=config.discriminator.width,
        has_tokenizer=os.path.exists(os.path.join(folder, "tokenizer")),
    )
    safe_files.write(os.path.join(folder, "README.md"), text.encode())
    _check_program(folder, config, flat)


def _check_program(folder, config, flat):
    """Raises OSError unless the program on disk gives the same as the encoder."""
    try:
        device, rounding = jax.devices("cpu")[0], _ROUNDING
    except RuntimeError:  # JAX_PLATFORMS leaves it out
        device, rounding = jax.devices()[0], _ROUNDING_ELSEWHERE

    with open(os.path.join(folder, PROGRAM), "rb") as file:
        called = jax_export.deserialize(bytearray(file.read()))

    rows, length = _TRIED
    length = min(length, config.max_positions or length)
    ids_BL = np.arange(rows * length, dtype=np.int32).reshape(rows, length) % config.vocab_size
    mask_BL, types_BL = np.ones_like(ids_BL), ids_BL % 2
    mask_BL[0, -2:] = 0

    written = tensor_files.read_file(os.path.join(folder, PARAMS))
    encode = jax.jit(encoding.encode, static_argnums=0)
    with jax.default_device(device):
        found = called.call(written, ids_BL, mask_BL, types_BL)
        whole = encode(config, trees.nested(flat), ids_BL, mask_BL, types_BL)

    expected = np.asarray(whole.tokens_BLD)
    if not np.allclose(found["tokens"], expected, atol=rounding * abs(expected).max()):
        raise OSError(f"{folder}: the program does not give what the encoder does")
