# SPDX-License-Identifier: Apache-2.0
"""ELECTRA pre-training in JAX: `train(config, workdir)`, then `load_encoder(path)`.

In a notebook `report_page(workdir)` and `compare_page(*workdirs)` show the pages of runs.

The modules of this folder are the commands. Its folders are the subpackages, each of which imports
only those below it (docs/architecture.md). Reading order: `core/batch.py`,
`objectives/replaced_token_detection.py`, `objectives/masking.py`, `model/networks.py`,
`step/train_step.py`, `training/loop.py`.
"""

__version__ = "0.1.0"


def train(config, workdir, extra_writers=()):
    """Pre-trains and returns the final held-out metrics; see `training.loop.train`."""
    # Not at the top of the file: worker processes that prepare data import this package, and they
    # need no jax.
    from electra_jax.training.loop import train as run  # noqa: PLC0415

    return run(config, workdir, extra_writers)


def load_encoder(path, network=None, dtype="float32"):
    """Returns (apply, params, tokenizer) of an encoder; see `weights.reading.load_encoder`."""
    from electra_jax.weights.reading import load_encoder as load  # noqa: PLC0415 - as above

    return load(path, network, dtype)


def report_page(workdir):
    """Returns the page of a run as it was written last, for a notebook to show.

    The page is a copy: evaluate the cell again for a newer one. Raises ValueError, in one line, if
    the workdir has no report.html.
    """
    from electra_jax.report.notebook import report_page as page  # noqa: PLC0415 - as above

    return page(workdir)


def compare_page(*workdirs):
    """Returns several runs side by side, for a notebook to show; they may still be running.

    Raises ValueError, in one line, for fewer than two workdirs or one without metrics.
    """
    from electra_jax.report.notebook import compare_page as page  # noqa: PLC0415 - as above

    return page(workdirs)
