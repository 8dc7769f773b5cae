# SPDX-License-Identifier: Apache-2.0
"""Changes of one file, as functions of its path: values of a JSON object, tensors."""

import json

from electra_jax.weights.formats import tensor_files


def json_change(**values):
    def change(path):
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change


def tensor_change(edit):
    def change(path):
        tensors = tensor_files.read_file(str(path))
        edit(tensors)
        tensor_files.write(str(path), tensors)

    return change
