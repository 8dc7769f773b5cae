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
    """Pre-trains until the budget is spent and returns the last held-out metrics.

    Does the same as `python -m electra_jax.main`; notebooks may call it directly.

    Args:
      config: an ml_collections tree such as `configs/tiny.py` returns, or a parsed Config.
      workdir: where checkpoints, metrics and the report are written. A second call continues the
        run that is there.
      extra_writers: objects with `write(step, kind, metrics)` and `close()`. They get every row
        that goes to metrics.jsonl. If the run goes back behind a spike, they get the repeated steps
        a second time.

    Raises:
      ConfigError: a setting that cannot be used, or not with the run that is in the workdir.
      CheckpointError: a checkpoint that cannot be used.
      TrainingError: training cannot go on.

    The message of each is one line with the remedy.
    """
    # Not at the top of the file: worker processes that prepare data import this package, and they
    # need no jax.
    from electra_jax.training.loop import train as run  # noqa: PLC0415

    return run(config, workdir, extra_writers)


def load_encoder(path, network=None, dtype="float32"):
    """Returns an encoder as (apply, params, tokenizer).

        found = apply(params, **tokenizer(["A sentence."]))
        found.tokens_BLD, found.pooled_BD

    Args:
      path: a workdir, one of its `checkpoints/STEP`, an export, a Hugging Face folder,
        `hf:OWNER/NAME[@REVISION]`, or a checkpoint of google-research/electra.
      network: 'discriminator' or 'generator'; None means the one that is fine-tuned.
      dtype: dtype of the computation; 'bfloat16' is faster on accelerators.

    Raises:
      ConfigError: there is nothing at the path, no such network, or files of an unknown kind.
      CheckpointError: the files are damaged.

    The message of each is one line.
    """
    from electra_jax.weights.reading import load_encoder as load  # noqa: PLC0415 - as above

    return load(path, network, dtype)


def report_page(workdir):
    """Returns the page of a run as it was written last, for a notebook to show.

    The page is a copy: evaluate the cell again for a newer one.

    Args:
      workdir: that of a run, which may still be running.

    Raises:
      ValueError: the workdir has no report.html; one line.
    """
    from electra_jax.report.notebook import report_page as page  # noqa: PLC0415 - as above

    return page(workdir)


def compare_page(*workdirs):
    """Returns several runs side by side, for a notebook to show.

    Args:
      workdirs: those of two runs or more, which may still be running.

    Raises:
      ValueError: there are fewer than two workdirs, or one has no metrics; one line.
    """
    from electra_jax.report.notebook import compare_page as page  # noqa: PLC0415 - as above

    return page(workdirs)
