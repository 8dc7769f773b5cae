# SPDX-License-Identifier: Apache-2.0
"""What variables a checkpoint of google-research/electra has: {name: [dtype, shape]}.

Written from model/modeling.py and run_pretraining.py of that repository, not from our reader.
"""


def encoder(scope, layers, width, feed_forward):
    """One Transformer."""
    found = {}
    for n in range(layers):
        layer = f"{scope}/encoder/layer_{n}"
        for part in ("query", "key", "value"):
            found |= dense(f"{layer}/attention/self/{part}", width, width)
        found |= dense(f"{layer}/attention/output/dense", width, width)
        found |= norm(f"{layer}/attention/output/LayerNorm", width)
        found |= dense(f"{layer}/intermediate/dense", width, feed_forward)
        found |= dense(f"{layer}/output/dense", feed_forward, width)
        found |= norm(f"{layer}/output/LayerNorm", width)
    return found


def embeddings(scope, vocab, size, positions):
    """The tables."""
    return {
        f"{scope}/embeddings/word_embeddings": ["float32", [vocab, size]],
        f"{scope}/embeddings/token_type_embeddings": ["float32", [2, size]],
        f"{scope}/embeddings/position_embeddings": ["float32", [positions, size]],
    } | norm(f"{scope}/embeddings/LayerNorm", size)


def pretraining(vocab, size, layers, width, generator_width, positions=512, tied=False, slots=True):
    """Generator and discriminator; `tied`: one network for both."""
    found = embeddings("electra", vocab, size, positions)
    found |= project("electra", size, width) | encoder("electra", layers, width, 4 * width)
    found |= dense("discriminator_predictions/dense", width, width)
    found |= dense("discriminator_predictions/dense_1", width, 1)
    if not tied:
        found |= project("generator", size, generator_width)
        found |= encoder("generator", layers, generator_width, 4 * generator_width)
    found |= dense("generator_predictions/dense", width if tied else generator_width, size)
    found |= norm("generator_predictions/LayerNorm", size)
    found |= {"generator_predictions/output_bias": ["float32", [vocab]]}
    if slots:
        found |= {f"{name}/{slot}": x for name, x in found.items() for slot in ("adam_m", "adam_v")}
    return found | {"global_step": ["int64", []]}


def project(scope, size, width):
    """Only where sizes differ."""
    return dense(f"{scope}/embeddings_project", size, width) if size != width else {}


def dense(name, inputs, outputs):
    """Kernel and bias."""
    shape = {"kernel": [inputs, outputs], "bias": [outputs]}
    return {f"{name}/{leaf}": ["float32", shape[leaf]] for leaf in shape}


def norm(name, size):
    """Scale and shift."""
    return {f"{name}/{leaf}": ["float32", [size]] for leaf in ("gamma", "beta")}


SMALL = dict(vocab=30522, size=128, layers=12, width=256, generator_width=64)
RELEASED_SMALL = SMALL | dict(generator_width=256)  # a generator as large as the discriminator
BASE = dict(vocab=30522, size=768, layers=12, width=768, generator_width=256)
LARGE = dict(vocab=30522, size=1024, layers=24, width=1024, generator_width=256)
TINY = dict(vocab=12, size=4, layers=2, width=8, generator_width=4, positions=8)
