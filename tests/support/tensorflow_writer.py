# SPDX-License-Identifier: Apache-2.0
"""Writes checkpoints as Google's ELECTRA does, with TensorFlow itself; a program of its own.

    python tests/support/tensorflow_writer.py FOLDER < layout.json

Standard input is a list of checkpoints, each {"name", "tensors": {name: [dtype, shape]}, "parts"}.
Values are a function of a tensor's name (`value_of`), which the reader's test knows too. With
several parts the data lies in as many files, as a Saver with sharded=True leaves it.
"""

import json
import os
import sys
import zlib

import numpy as np


def value_of(name, dtype, shape):
    """What stands in the tensor of this name: numbers that no other tensor has."""
    draw = np.random.default_rng(zlib.crc32(name.encode()))
    if dtype == "int64":
        return np.int64(draw.integers(1 << 40))
    return np.asarray(draw.random(shape, np.float32), dtype)


def main():
    import tensorflow as tf

    tf1 = tf.compat.v1
    folder = sys.argv[1]
    for checkpoint in json.load(sys.stdin):
        prefix = os.path.join(folder, checkpoint["name"])
        tensors, parts = checkpoint["tensors"], checkpoint.get("parts", 1)
        if parts == 1:
            with tf.Graph().as_default(), tf1.Session() as session:
                for name, about in tensors.items():
                    tf1.get_variable(name, initializer=tf.constant(value_of(name, *about)))
                session.run(tf1.global_variables_initializer())
                tf1.train.Saver().save(session, prefix, write_meta_graph=False)
            continue
        names, prefixes = list(tensors), []
        for part in range(parts):
            mine = names[part::parts]
            prefixes.append(f"{prefix}_part{part}")
            tf.raw_ops.SaveV2(
                prefix=prefixes[-1],
                tensor_names=mine,
                shape_and_slices=[""] * len(mine),
                tensors=[tf.constant(value_of(n, *tensors[n])) for n in mine],  # a part at a time
            )
        tf.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=prefixes, destination_prefix=prefix, delete_old_dirs=False
        )


if __name__ == "__main__":
    main()
