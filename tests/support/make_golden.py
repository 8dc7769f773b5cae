# SPDX-License-Identifier: Apache-2.0
"""Rewrites the files of `tests/golden/`; run it by hand, and only after an intended change.

python -m tests.support.make_golden parameters     # paths and shapes of the small model
python -m tests.support.make_golden hugging_face   # needs torch and transformers
"""

import json
import sys

import numpy as np

from . import corpus, hugging_face, odd, published

GOLDEN = corpus.ROOT / "tests" / "golden"


def parameters():
    """golden/parameters.json: path -> shape."""
    shapes = {path: list(shape) for path, shape in published.tree_of("small").items()}
    lines = [f"  {json.dumps(path)}: {json.dumps(shape)}" for path, shape in shapes.items()]
    (GOLDEN / "parameters.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def hugging_faces():
    """golden/hf_*.npz: weights, inputs, and what transformers makes of them."""
    for name, config in hugging_face.SHAPES.items():
        params = odd.weights(config)
        batch = odd.batch(hugging_face.IDS_BL, hugging_face.MARKS_BL)
        found = hugging_face.outputs(config, params, batch)
        arrays = dict(zip(("gen_logits_BLV", "hidden_BLD", "disc_logits_BL"), found))
        arrays |= {f"params/{path}": x for path, x in odd.flat(params).items()}
        np.savez_compressed(
            GOLDEN / f"hf_{name}.npz",
            ids_BL=hugging_face.IDS_BL.astype(np.uint8),
            marks_BL=hugging_face.MARKS_BL.astype(np.uint8),
            **{path: x.astype(np.float32) for path, x in arrays.items()},
        )


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name in sys.argv[1:]:
        {"parameters": parameters, "hugging_face": hugging_faces}[name]()
