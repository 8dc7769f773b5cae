# SPDX-License-Identifier: Apache-2.0
"""Exports of a fine-tuned network: the encoder and head of one task, for other programs.

    WORKDIR/finetune/NAME/TASK -> open -> to_hugging_face   a folder that transformers loads
                                       -> to_orbax          parameters, with any head
    any path with weights -> write                          the same, also without a head
    a folder of to_orbax -> open                            the task once more, without its workdir

The weights of the best seed on dev are taken; if there is a grid, of the best seed at the point
that the results report. The folder of one point, or of one seed whose weights were kept, can be
named instead. Shape and vocabulary are read from the encoder that was tuned, which must still be
there. Hugging Face's classes: transformers, models/electra/modeling_electra.py.
"""

import dataclasses
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from electra_jax import config as config_lib
from electra_jax.core import trees
from electra_jax.finetuning import config as finetuning_config
from electra_jax.finetuning.results import results_table, statistics
from electra_jax.finetuning.tuning import kept_weights, run_folder
from electra_jax.host import safe_files, whole_folder
from electra_jax.model import networks, task_heads
from electra_jax.weights import card_facts, checkpoint, exporting, reading, trained_weights
from electra_jax.weights.formats import (
    card,
    hugging_face,
    orbax_export,
    tensor_files,
    tokenizer_files,
)
from electra_jax.workdir import metadata

_ROLES = {  # kind of head -> what it does; none that answers questions jointly
    **dict.fromkeys(("linear", "two_layer", "mean", "matched_means"), "classifies"),
    "token": "tags",
    "span_plain": "answers",
}


@dataclasses.dataclass(frozen=True)
class TunedNetwork:
    """The tuned encoder and head of one task."""

    source: str  # the folder that was named
    encoder: trained_weights.Weights  # with the tuned parameters
    head: dict
    head_config: task_heads.HeadConfig
    about: Mapping[str, Any]  # saved with the weights by `seeds.py`
    records: Sequence[Mapping[str, Any]]  # of all seeds at the same point, this one included
    settings: finetuning_config.Config

    @property
    def params(self) -> dict:
        """{embeddings, discriminator: {projection?, encoder}, head}."""
        return self.encoder.params | {"head": self.head}

    @property
    def is_best(self) -> bool:
        """Whether dev chose this seed among several; not if the seed's own folder was named."""
        named = os.path.basename(self.source).startswith("seed_")
        return len(self.records) > 1 and not named

    @property
    def title(self) -> str:
        """A title for readers."""
        return f"{self.settings.name}, {self.about['task']}, seed {self.about['seed']}"


def write(
    path: str | os.PathLike,
    out: str | os.PathLike,
    to: str = "hugging_face",
    only: str | None = None,
    step: int | None = None,
    data_dir: str = "",
    publication: card.Publication = card.UNPUBLISHED,
) -> dict:
    """Writes weights to a new folder: those of a fine-tuned task with its head, or any others.

    Args:
      path: the folder of a fine-tuned task, or whatever `weights.reading.open` takes, to which
        `step` and `data_dir` are passed on.
      out: the folder; it must not be there yet.
      to: one of `exporting.FORMATS`.
      only: one network instead of all.
      publication: what the model card says of licence, languages and the place on the Hub.

    Returns a summary for printing. Raises ConfigError or CheckpointError, one line.
    """
    exporting.check_format(to)
    path, out = os.fspath(path), os.fspath(out)
    if not is_tuned(path):
        found = reading.open(path, step, data_dir)
        return exporting.write(found, out, to, only, publication)

    if only:
        raise config_lib.ConfigError(f"--only={only}: a tuned task has one network")
    if to == "stablehlo":
        raise config_lib.ConfigError(
            "--to=stablehlo writes encoders without a head; take hugging_face or orbax"
        )
    tuned = open(path)
    if to == "hugging_face":
        return to_hugging_face(tuned, out, publication)
    return to_orbax(tuned, out)


def is_tuned(path: str) -> bool:
    """Whether `path` is the folder of a fine-tuning or lies in one."""
    return run_folder.settings(path) is not None


def open(path: str) -> TunedNetwork:
    """Reads the tuned weights of a task, and from its encoder shape, vocabulary and history.

    Raises ConfigError or CheckpointError, one line, if no weights were kept, or not those of the
    best seed, if they are damaged, or if the encoder is gone.
    """
    if is_tuned_export(path):
        return _of_export(path)
    folder, settings = run_folder.settings(path)
    config = finetuning_config.parse_saved(settings["config"])
    if os.path.abspath(path) == folder:
        tasks = sorted(name for name in os.listdir(folder) if os.path.isdir(f"{path}/{name}"))
        raise config_lib.ConfigError(
            f"{path} is a whole fine-tuning; name a task's folder in it: {', '.join(tasks)}"
        )

    path = os.path.normpath(path)
    if os.path.basename(path) == "weights":
        path = os.path.dirname(path)
    where, about = kept_weights.best_weights(path)
    if "head" not in about:
        raise config_lib.ConfigError(
            f"{where} does not say which head it has: an older version wrote it; fine-tune that"
            " task again, under another --config.name"
        )

    found = _encoder(where, os.path.dirname(os.path.dirname(folder)), config, about)
    head = task_heads.HeadConfig(**about["head"])
    key = jax.random.key(0)
    shapes = jax.eval_shape(
        lambda: networks.init_trunk(found.networks, key) | {"head": task_heads.init(head, key)}
    )
    params = kept_weights.restore(where, checkpoint.on_one_device(shapes))
    head_params = params.pop("head")

    return TunedNetwork(
        source=os.path.abspath(path),
        encoder=dataclasses.replace(found, params=params),
        head=head_params,
        head_config=head,
        about=about,
        records=_records_beside(where, about["seed"]),
        settings=config,
    )


def is_tuned_export(path: str) -> bool:
    """Whether `path` is what `to_orbax` has written."""
    return orbax_export.is_one(path) and "fine_tuning" in orbax_export.about(path)


def _of_export(path):
    """The task that an export holds."""
    about = orbax_export.about(path)["fine_tuning"]
    if "config" not in about:
        raise config_lib.ConfigError(
            f"{path} was exported by an earlier version, without the settings that make answers of"
            " its outputs; export it again"
        )
    params = orbax_export.read(path)
    head = params.pop("head")
    return TunedNetwork(
        source=os.path.abspath(path),
        encoder=dataclasses.replace(reading.open(path), params=params),
        head=head,
        head_config=task_heads.HeadConfig(**about["head"]),
        about=about,
        records=[{name: about[name] for name in ("seed", "threshold")}],
        settings=finetuning_config.parse_saved(about["config"]),
    )


def _records_beside(where, seed):
    """The records of all seeds at the point of the weights in `where`, which are of this seed.

    Raises ConfigError if the seed itself has none.
    """
    # The weights lie in POINT/weights/NUMBER, or in POINT/seed_N/weights/NUMBER of a named seed.
    point = os.path.dirname(os.path.dirname(where))
    if os.path.basename(point) == f"seed_{seed}":
        point = os.path.dirname(point)

    records = run_folder.reported(point)
    if all(record["seed"] != seed for record in records):
        records = run_folder.records(point)  # the seed was named, and the results leave it out
    if all(record["seed"] != seed for record in records):
        raise config_lib.ConfigError(
            f"{where} is of seed {seed}, which is not finished; run the same finetune command again"
        )
    return records


def form(path: str) -> str | None:
    """Returns the form in which most people can use a task's weights, as `write` takes it.

    Orbax's if Hugging Face has no class for the head; None if no weights can be exported, such as
    those of a fine-tuning that kept none.
    """
    try:
        tuned = open(path)
    except (config_lib.ConfigError, metadata.CheckpointError):
        return None
    try:
        _role_of_head(tuned)
    except config_lib.ConfigError:
        return "orbax"
    return "hugging_face"


def to_hugging_face(
    tuned: TunedNetwork, out: str, publication: card.Publication = card.UNPUBLISHED
) -> dict:
    """Writes a folder that AutoModelForSequenceClassification and its siblings load.

    Args:
      publication: what the model card says of licence, languages and the place on the Hub.

    Raises ConfigError, one line, if Hugging Face has no class for the head.
    """
    role, about = _role_of_head(tuned), tuned.about
    one, recipe = tuned.encoder, tuned.settings.recipe
    flat = trees.flat(jax.device_get({"embeddings": one.params["embeddings"]}))
    flat |= trees.flat(jax.device_get(one.params["discriminator"]))
    flat |= trees.flat(jax.device_get({"head": tuned.head}))
    task = hugging_face.task_config(about["kind"], about["labels"], tuned.head_config.dropout)
    dropouts = recipe.dropout, recipe.attention_dropout

    shape = exporting.hugging_face_shape(one, role, tuned.head_config.kind)
    parameters = exporting.parameter_count(flat, shape)

    with whole_folder.new(out) as folder:
        checksums = exporting.write_network(folder, one, flat, shape, dropouts, task)
        _check_written(folder, flat, shape)
        name = publication.repository or os.path.basename(os.path.abspath(out))
        text = _card(tuned, folder, name, shape, parameters, publication, checksums)
        safe_files.write(os.path.join(folder, "README.md"), text.encode())

    done = {"class": hugging_face.class_of(role, shape.model_type), "parameters": parameters}
    return {"out": os.path.abspath(out), "networks": {about["task"]: done}}


def to_orbax(tuned: TunedNetwork, out: str) -> dict:
    """Writes encoder and head as parameters, and what makes answers of the outputs.

    `open` reads them again, and `weights.reading.open` the encoder alone.
    """
    about = exporting.about(tuned.encoder)
    about["fine_tuning"] = {
        name: tuned.about[name]
        for name in ("task", "kind", "labels", "scale", "seed", "main", "score", "head", "settings")
    }
    record = next(x for x in tuned.records if x["seed"] == tuned.about["seed"])
    about["fine_tuning"] |= {
        "threshold": record.get("threshold"),  # of no answer; None where all have one
        "config": config_lib.to_tree(tuned.settings),
    }
    if tuned.about["kind"] == "span":
        span = tuned.settings.span
        about["fine_tuning"] |= {"n_best": span.n_best, "longest_answer": span.longest_answer}

    with whole_folder.new(out) as folder:
        exporting.write_tokenizer(tuned.encoder, folder)
        name = os.path.basename(os.path.abspath(out))
        orbax_export.write(folder, tuned.params, about, name, tuned.title)
    return {"out": os.path.abspath(out), "networks": sorted(tuned.params)}


def _encoder(where, workdir, config, about) -> trained_weights.Weights:
    """The encoder before tuning: shape, vocabulary and history, at the step it was taken from."""
    source = config.encoder.from_ or workdir
    try:
        found = reading.open(source, None, config.encoder.data_dir)
    except (config_lib.ConfigError, metadata.CheckpointError) as error:
        raise config_lib.ConfigError(
            f"{where} has shape and vocabulary of its encoder, which cannot be read: {error}"
        ) from error
    if found.vocabulary.sha256 != about["vocabulary"]:
        raise config_lib.ConfigError(f"{where} was tuned with another vocabulary than {source} has")

    # Random weights have no history: neither a step nor a run nor data.
    fresh = config.encoder.init == "fresh"
    step = 0 if fresh else about["encoder"].get("step", found.step)
    return dataclasses.replace(
        found.alone(found.main()),
        step=step,
        stage_rows=found.stage_rows if step == found.step else (),
        config=None if fresh else found.config,
        data=None if fresh else found.data,
        began_with={} if fresh else found.began_with,
        trained_tokens=0 if fresh else found.trained_tokens,
    )


def _role_of_head(tuned):
    """Returns the role of Hugging Face's class for the head.

    Raises ConfigError, one line, if there is none.
    """
    kind = tuned.head_config.kind
    if kind not in _ROLES:
        raise config_lib.ConfigError(
            f"{tuned.source} was tuned with the head {kind!r}, for which Hugging Face's ELECTRA has"
            " no class; fine-tune with --config.span.head=plain, or take --to=orbax"
        )
    return _ROLES[kind]


def _check_written(folder, flat, shape):
    """Raises OSError unless the written file holds the same values, bit for bit."""
    size = shape.vocab_size
    ours = {path: x[:size] if path in hugging_face.BY_TOKEN else x for path, x in flat.items()}
    shapes = {path: x.shape for path, x in ours.items()}
    tensors = tensor_files.read(folder)
    theirs = hugging_face.from_tensors(tensors, shapes, shape.role, shape.model_type)

    for path, x in ours.items():
        if np.asarray(x, np.float32).tobytes() != theirs[path].tobytes():
            raise OSError(f"{path} came back different; nothing was written")


def _card(tuned, folder, name, shape, parameters, publication, checksums):
    """The text of the model card; copies the picture of pre-training beside it if there is one."""
    picture = os.path.join(tuned.encoder.source, "report.png")
    has_picture = tuned.encoder.config is not None and os.path.exists(picture)
    if has_picture:
        shutil.copyfile(picture, os.path.join(folder, exporting.CURVES))

    recipe = _recipe(tuned, shape.role, parameters)
    return card.text(
        name=name,
        shape=shape,
        publication=publication,
        training=card_facts.training_facts(tuned.encoder),
        metrics={},
        curves=exporting.CURVES if has_picture else "",
        differences=tokenizer_files.DIFFERENCES[tuned.encoder.vocabulary.kind],
        left_out=[],
        base=card_facts.base_models(tuned.encoder, "discriminator"),
        checksums=checksums,
        tuning=card.Tuning(
            {key: str(value) for key, value in recipe.items() if value != ""},
            _scores(tuned),
            _notes(tuned),
        ),
    )


def _recipe(tuned, role, parameters) -> dict[str, Any]:
    """How the task was tuned, for the model card: {what: value}."""
    about, settings = tuned.about, tuned.about["settings"]
    start = tuned.settings.starts.get(about["task"])
    encoder = trained_weights.name_of(tuned.encoder.source)
    if tuned.settings.encoder.init == "fresh":
        encoder = f"random weights, shape of {encoder}"
    dropout = f"{tuned.settings.recipe.dropout:g}"
    if role != "answers":  # its head has no dropout
        dropout += f", of the head {tuned.head_config.dropout:g}"

    return {
        "task": about["task"],
        "kind": about["kind"],
        "labels": ", ".join(f'"{name}"' if "," in name else name for name in about["labels"]),
        "parameters": f"{parameters:,}",
        "encoder": encoder + (f", tuned on {start} before" if start else ""),
        "optimizer": tuned.settings.recipe.optimizer,
        **{key.replace("_", " "): value for key, value in settings.items()},
        "warmup": f"{tuned.settings.recipe.warmup_share:g} of the steps",
        "dropout": dropout,
        "weights": f"of seed {about['seed']}"
        + (f", the best on dev by {about['main']}" if tuned.is_best else ""),
    }


def _scores(tuned) -> dict[str, str]:
    """{'dev accuracy': the score of all seeds and of this one, in words}."""
    mine = next(x for x in tuned.records if x["seed"] == tuned.about["seed"])["scores"]
    found = {}
    for split, metrics in mine.items():
        for metric in metrics:
            values = [record["scores"][split][metric] for record in tuned.records]
            over = statistics.summarise(metric, values)
            middle, own = (results_table.shown(metric, x) for x in (over.median, metrics[metric]))
            found[f"{split} {metric}"] = f"{own} (one seed)"
            if len(values) > 1:
                found[f"{split} {metric}"] = (
                    f"median {middle}, mean {results_table.with_sd(metric, over)},"
                    f" {len(values)} seeds; these weights {own}"
                )
    return found


def _notes(tuned) -> list[str]:
    """What a user of the weights must know to read their outputs."""
    about = tuned.about
    notes = []
    if tuned.is_best:
        notes.append("Dev chose among the seeds, so the dev score of these weights is optimistic.")
    if about["kind"] == "regression":
        low, high = about["scale"]
        notes.append(f"The output o means {low:g} + {high - low:g} o, in the labels' unit.")
    if about["kind"] == "multi_label":
        notes.append("A label is said where its logit is above 0; several may be, or none.")
    if about["kind"] == "tagging":
        notes.append("The first token of each word was trained and scored; others mean nothing.")

    record = next(x for x in tuned.records if x["seed"] == about["seed"])
    if record.get("threshold") is not None:
        notes.append(
            "There is no answer where the score of [CLS] (its start and its end) is more than"
            f" {record['threshold']:.4g} above that of the best span."
        )

    return notes
