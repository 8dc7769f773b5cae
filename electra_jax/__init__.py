# SPDX-License-Identifier: Apache-2.0
"""ELECTRA pre-training in JAX: `electra_jax.train(config, workdir)`.

Reading order: `batch.py`, `corrupt.py`, `model/`, `objectives/`, `train_step.py`, `training.py`.
"""

__version__ = "0.1.0"


def train(config, workdir, extra_writers=()):
    """Pre-trains and returns the final held-out metrics; see `training.train`."""
    # Here and not above: processes that only prepare data import this package, without jax.
    from electra_jax.training import train as run  # noqa: PLC0415

    return run(config, workdir, extra_writers)
