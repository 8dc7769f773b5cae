# SPDX-License-Identifier: Apache-2.0
"""ELECTRA pre-training in JAX: `train(config, workdir)`, and `load_encoder(path)` to use it.

The commands are the modules of this folder; the rest lies in wings, and imports point down only.
Reading order: `core/batch.py`, `objectives/corrupt.py`, `objectives/replaced_token_detection.py`,
`model/networks.py`, `step/train_step.py`, `training/loop.py`; docs/architecture.md has the picture.
"""

__version__ = "0.1.0"


def train(config, workdir, extra_writers=()):
    """Pre-trains and returns the final held-out metrics; see `training.loop.train`."""
    # Here and not above: processes that only prepare data import this package, without jax.
    from electra_jax.training.loop import train as run  # noqa: PLC0415

    return run(config, workdir, extra_writers)


def load_encoder(path, network=None, dtype="float32"):
    """(apply, params, tokenizer) of a trained encoder; see `weights.reading.load_encoder`."""
    from electra_jax.weights.reading import load_encoder as load  # noqa: PLC0415 - as above

    return load(path, network, dtype)
