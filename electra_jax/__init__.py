# SPDX-License-Identifier: Apache-2.0
"""ELECTRA pre-training in JAX: `train(config, workdir)`, and `load_encoder(path)` to use it.

Reading order: `batch.py`, `corrupt.py`, `model/`, `objectives/`, `train_step.py`, `training.py`.
"""

__version__ = "0.1.0"


def train(config, workdir, extra_writers=()):
    """Pre-trains and returns the final held-out metrics; see `training.train`."""
    # Here and not above: processes that only prepare data import this package, without jax.
    from electra_jax.training import train as run  # noqa: PLC0415

    return run(config, workdir, extra_writers)


def load_encoder(path, network=None, dtype="float32"):
    """(apply, params, tokenizer) of a trained encoder; see `weights.load_encoder`."""
    from electra_jax.weights import load_encoder as load  # noqa: PLC0415 - as above

    return load(path, network, dtype)
