# SPDX-License-Identifier: Apache-2.0
"""ELECTRA pre-training in JAX: `train(config, workdir)`, then `load_encoder(path)`.

In a notebook `live_picture(workdir)` draws the curves while a run trains, and
`show_page(workdir)`, `report_page(workdir)` and `compare_page(*workdirs)` show what came out.
`fine_tune(config, workdir)` and `export(path, out)` do there what commands do elsewhere: a second
process could not use the accelerator that the notebook's own holds. `load_tuned(path)` answers new
texts with a fine-tuned task, `load_discriminator(path)` says which of their tokens look replaced,
and `load_scorer(workdir)` which of several texts is the most natural.

The modules of this folder are the commands. Its folders are the subpackages, each of which imports
only those below it (docs/architecture.md, which follows a batch through them). Reading order:
`core/batch.py`, `objectives/replaced_token_detection.py` and the functions of
`objectives/objective.py` that it calls, `objectives/masking.py`,
`objectives/vocabulary_softmax.py`, `objectives/sampling.py`, `model/networks.py`,
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
      extra_writers: a list of objects with `write(step, kind, metrics)` and `close()`. They get
        every row that goes to metrics.jsonl. If the run goes back behind a spike, they get the
        repeated steps a second time.

    Raises:
      ConfigError: a setting that cannot be used, or not with the run that is in the workdir.
      CheckpointError: a checkpoint that cannot be used.
      TrainingError: training cannot continue.
      ValueError: text that cannot be prepared, or another run that works in the workdir.

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
      path: a workdir, one of its `checkpoints/STEP`, an export, a Hugging Face folder of an ELECTRA
        or a BERT, `hf:OWNER/NAME[@REVISION]`, or a checkpoint of google-research/electra.
      network: 'discriminator' or 'generator'; None means the one that is fine-tuned.
      dtype: dtype of the computation; 'bfloat16' is what accelerators train in.

    Raises:
      ConfigError: there is nothing at the path, no such network or dtype, or files of an unknown
        kind.
      CheckpointError: the files are damaged.
      ValueError: this machine has a TPU or GPU that jax cannot open.

    The message of each is one line.
    """
    from electra_jax.weights.reading import load_encoder as load  # noqa: PLC0415 - as above

    return load(path, network, dtype)


def load_discriminator(path):
    """Returns a discriminator as a function of new texts: which tokens look replaced?

        judge = electra_jax.load_discriminator("runs/mine")
        judge(["The chef ate the meal."])
        # [[{'text': 'The', 'piece': '▁the', 'span': (0, 3), 'p_replaced': ...}, ...]]

    `judge(texts, truncate=True)` judges the beginning of texts that are too long, which are refused
    otherwise. Where several processes have been joined, all of them call `load_discriminator`
    together.

    Args:
      path: as of `load_encoder`. The weights must have a discriminator with its head: a run whose
        objective has one, its exports, or an ElectraForPreTraining.

    Raises:
      ConfigError: there is nothing at the path, no discriminator, or files of an unknown kind.
      CheckpointError: the files are damaged.

    The message of each is one line.
    """
    from electra_jax.weights.judging import load  # noqa: PLC0415 - as above

    return load(path)


def load_scorer(workdir, by=None, step=None):
    """Returns a trained run as a function of texts: how natural is each?

        score = electra_jax.load_scorer("runs/mine", by="both")
        score(["This river is long.", "These river is long."])  # the higher, the more natural
        score.tokens(["This river is long."])  # each token with its probability

    Scores of one run can be compared with each other, best between texts of equal length. Does the
    same as `python -m electra_jax.score`; `RunScorer` in `electra_jax/training/run_scorer.py` says
    what it takes and returns.

    Args:
      workdir: that of a run, which may still be running.
      by: what is summed over the tokens: 'detection', 'prediction', 'correction', 'generator' or
        'both' (docs/objectives.md, "Scoring sentences"); None is the usual way of the run.
      step: the step of the checkpoint; None means the newest.

    Raises:
      ConfigError: a workdir without a run, or without this checkpoint.
      CheckpointError: the checkpoint is damaged.
      ValueError: the run cannot score in this way.

    The message of each is one line.
    """
    from electra_jax.training.run_scorer import load  # noqa: PLC0415 - as above

    return load(workdir, by, step)


def fine_tune(config, workdir, control=None):
    """Fine-tunes a pre-trained encoder on tasks over seeds, and returns the scores.

    Does the same as `python -m electra_jax.finetune`: what is finished keeps its numbers, and all
    results are written to WORKDIR/finetune/NAME.

    Args:
      config: an ml_collections tree such as `configs/finetune.py` returns, or a parsed Config of
        `electra_jax.finetuning`.
      workdir: that of the pre-training run, a folder or gs://BUCKET/FOLDER.
      control: another fine-tuning to compare the scores with, such as one from random weights: its
        `config.name` in the same workdir, or its folder.

    Returns the `electra_jax.finetuning.results.run_results.Results`, which a notebook shows as its
    page results.html.

    Raises:
      ConfigError: a setting that cannot be used, or an encoder that is not there.
      CheckpointError: a checkpoint that cannot be used.
      ValueError: files of a task that cannot be read, or another fine-tuning in the same folder.

    The message of each is one line with the remedy.
    """
    from electra_jax.finetuning.tuning import task_by_task  # noqa: PLC0415 - as above

    return task_by_task.fine_tune(config, workdir, control)


def load_tuned(path):
    """Returns a fine-tuned task as a function of new texts.

        answer = electra_jax.load_tuned("runs/mine/finetune/finetune/sst2")
        answer(["A fine film."])  # [{'label': ..., 'scores': {'0': ..., '1': ...}}]

    Pairs take two lists, `answer(firsts, seconds)`, and questions are pairs of question and text;
    for tagging, sentences are lists of words or running text. `Model.__call__` in
    `electra_jax/finetuning/tuning/tuned_model.py` says what comes back. Where several processes
    have been joined, all of them call this together.

    Args:
      path: the folder of a fine-tuned task, WORKDIR/finetune/NAME/TASK, whose encoder is still
        where it was; or its export for orbax, which needs nothing else.

    Raises:
      ConfigError: no tuned weights are there, or the texts are not such as the task has.
      CheckpointError: the weights are damaged.

    The message of each is one line.
    """
    from electra_jax.finetuning.tuning.tuned_model import load  # noqa: PLC0415 - as above

    return load(path)


def export(path, out, to="hugging_face"):
    """Writes trained weights for other programs, as `python -m electra_jax.convert --to` does.

    Args:
      path: a workdir, one of its `checkpoints/STEP`, the folder of a fine-tuned task
        (`WORKDIR/finetune/NAME/TASK`), or anything else that `load_encoder` takes.
      out: the folder to write; it must not be there yet.
      to: 'hugging_face', 'orbax' or 'stablehlo'; docs/weights.md has the details.

    Returns what was written, by names: `out`, and the networks.

    Raises:
      ConfigError: no such weights or format, a folder that is there already, or a network that the
        format cannot hold.
      CheckpointError: the files are damaged.

    The message of each is one line.
    """
    from electra_jax.finetuning.tuning import export as exports  # noqa: PLC0415 - as above

    return exports.write(path, out, to)


def live_picture(workdir):
    """Returns a writer that shows the curves of a run below the cell that trains it.

        electra_jax.train(config, workdir, [electra_jax.live_picture(workdir)])

    The picture is drawn again as metrics come, at most every 2 seconds and in at most 5 % of the
    time. It begins with the curves of earlier starts of the same run.

    Args:
      workdir: that of the run; it need not be there yet.

    Raises:
      ValueError: IPython is not installed, so this is no notebook; one line.
    """
    from electra_jax.report.live_picture import LivePicture  # noqa: PLC0415 - as above

    return LivePicture(workdir)


def show_page(workdir, rows=4, order="best", among=256):
    """Returns held-out rows as coloured text, for a notebook to show.

    Does the same as `python -m electra_jax.show`, from the newest checkpoint.

    Args:
      workdir: that of a run, which may still be running.
      rows: how many rows are shown.
      order: 'best' or 'worst', by how far replaced tokens stand out; 'text': as in the records.
      among: how many rows are judged.

    Raises:
      ConfigError: a value that cannot be used, or a workdir without a run.
      CheckpointError: the newest checkpoints are damaged.

    The message of each is one line.
    """
    from electra_jax.training.shown_rows import page  # noqa: PLC0415 - as above

    return page(workdir, rows, order, among)


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
